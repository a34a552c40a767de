"""Evaluations side by side: scores, differences, and what else was not the same.

A difference is that of this evaluation to the other. Where both have several seeds it
comes with a 95 % interval (Welch 1947: unequal variances, seeds not paired); where the
interval leaves out zero the difference counts as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clients.evaluation.recorded import Recorded
from clients.evaluation.score_table import NONE, SCORES, Score, number_text

_DECISIVE = ("data", "training samples", "test samples", "sub-tasks", "epochs", "labelled", "limit")
"""Facts without which scores do not measure the same."""

_SUFFIX = {"%": " %", "points": " points"}


@dataclass(frozen=True)
class Difference:
    """This minus the other, in the score's own unit."""

    value: float
    half_width: float  # of the 95 % interval; NaN where a side has a single seed

    @property
    def certain(self) -> bool:
        """Whether the interval is known and leaves out zero."""
        return abs(self.value) > self.half_width  # false for NaN

    @classmethod
    def of(cls, here: Sequence[float], there: Sequence[float]) -> Difference:
        """The difference of two means.

        Arguments:
            here: Values of this evaluation, one per seed.
            there: Of the other.

        Example:
            >>> Difference.of([0.9], [0.8]).value.__round__(6)
            0.1
            >>> one = Difference.of([0.90, 0.91, 0.92], [0.80, 0.82, 0.81])
            >>> round(one.value, 6), round(one.half_width, 4), one.certain
            (0.1, 0.0227, True)
        """
        if not len(here) or not len(there):
            return cls(math.nan, math.nan)
        value = float(np.mean(here) - np.mean(there))
        if len(here) < 2 or len(there) < 2:
            return cls(value, math.nan)
        parts = [float(np.var(one, ddof=1)) / len(one) for one in (here, there)]
        variance = sum(parts)
        if variance == 0.0:
            return cls(value, 0.0)
        degrees = variance**2 / sum(
            part**2 / (len(one) - 1) for part, one in zip(parts, (here, there), strict=True)
        )
        # Imported here: it takes half a second, and most reports compare nothing.
        from scipy.stats import t

        return cls(value, float(t.ppf(0.975, degrees)) * math.sqrt(variance))


@dataclass(frozen=True)
class Comparison:
    """One evaluation beside others."""

    this: Recorded
    others: tuple[Recorded, ...]

    @property
    def all(self) -> tuple[Recorded, ...]:
        """Every evaluation, this one first."""
        return (self.this, *self.others)

    @property
    def same_sub_tasks(self) -> bool:
        """Whether all had the same sub-tasks, in the same order."""
        return all(other.sub_tasks == self.this.sub_tasks for other in self.others)

    def content(self) -> dict[str, Any]:
        """What the report says of it, as text."""
        return {
            "names": [one.name for one in self.all],
            "dates": [f"{one.created[:16].replace('T', ' ')} UTC" for one in self.all],
            "rows": [self._row(score) for score in SCORES],
            "several": any(len(one.runs) > 1 for one in self.all),
            "facts": self._facts(),
            "warnings": self._warnings(),
        }

    def _row(self, score: Score) -> dict[str, Any]:
        suffix = _SUFFIX.get(score.unit, "")

        def text(one: Recorded) -> str:
            spread = one.spread(score.key)
            value = number_text(spread.mean, score.unit)
            if value == NONE or math.isnan(spread.std):
                return value + (suffix if value != NONE else "")
            return f"{value} ± {number_text(spread.std, score.unit)}{suffix}"

        here = self.this.values(score.key)
        return {
            "name": score.name,
            "values": [text(one) for one in self.all],
            "differences": [
                _told(Difference.of(here, other.values(score.key)), score) for other in self.others
            ],
        }

    def _facts(self) -> list[dict[str, Any]]:
        """What was not the same everywhere."""
        names = list(dict.fromkeys(name for one in self.all for name in one.facts))
        rows = [(name, [one.facts.get(name, NONE) for one in self.all]) for name in names]
        return [{"name": name, "values": row} for name, row in rows if len(set(row)) > 1]

    def _warnings(self) -> list[str]:
        warnings = []
        for other in self.others:
            unlike = [
                name
                for name in _DECISIVE
                if other.facts.get(name, NONE) != self.this.facts.get(name, NONE)
            ]
            if not unlike and other.sub_tasks != self.this.sub_tasks:
                unlike = ["sub-tasks"]
            if unlike:
                warnings.append(
                    f"{other.name} was measured otherwise ({', '.join(unlike)}): its scores and "
                    f"these do not measure the same."
                )
            if any(other.facts.get(name) != value for name, value in self._machine().items()):
                warnings.append(
                    f"{other.name} was measured on another machine: do not compare times with it."
                )
        return warnings

    def _machine(self) -> dict[str, str]:
        return {name: v for name, v in self.this.facts.items() if name.startswith("machine: ")}


def _told(difference: Difference, score: Score) -> dict[str, str]:
    """A difference as text, and whether it is for the better; only where that is certain."""
    value = number_text(abs(difference.value), "points" if score.unit == "%" else score.unit)
    if value == NONE:
        return {"text": NONE, "verdict": ""}
    sign = "" if difference.value == 0 else "+" if difference.value > 0 else "\N{MINUS SIGN}"
    text = f"{sign}{value}"
    if math.isfinite(difference.half_width):
        width = number_text(difference.half_width, "points" if score.unit == "%" else score.unit)
        text = f"{text} ± {width}"
    verdict = ""
    if score.better and difference.certain:
        verdict = "better" if score.better * difference.value > 0 else "worse"
    return {"text": text, "verdict": verdict}
