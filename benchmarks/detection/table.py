"""Rows of the comparison: a group of streams, a detector, and how good it was.

Rule: computed from answers and from nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.comparison.tables import number, pipes
from benchmarks.detection.case import TOLD, Answer, Group
from benchmarks.detection.measures import RunTime, Score, run_time
from clients.commands.bench import Table

COLUMNS = (
    "detector",
    "found",
    "delay, batches",
    "delay, samples",
    "false",
    "per 1,000",
    "precision",
    "F1",
    "in bursts",
    "run time (95 %)",
    "asked",
    "accuracy",
    "us/sample",
)
"""Delays: median, 95 %, largest."""

NARROW = ("detector", "found", "delay, batches", "false", "per 1,000", "F1", "run time (95 %)")
"""Those that fit a terminal."""


WITHDRAWN = (
    "outlier_burst",
    "outlier_burst_continued",
    "prior_shift",
    "change_continued",
    "samples_repeated",
)
"""Kinds of events that tell of an alarm which was no boundary."""


@dataclass(frozen=True)
class Row:
    """One detector on one group.

    Attributes:
        group: Of streams.
        detector: Its name; a shadow's ends in " (shadow)".
        score: Pooled over the streams.
        achieved: Samples between false alarms; without changes those that the engine took
            back count as well, and samples only while the detector was armed.
        asked: What was asked for; None where nothing was.
        armed_samples: Samples at which it could have spoken.
        accuracy: At the end, on held-out samples, mean over streams, 0 to 1; NaN without.
    """

    group: Group
    detector: str
    score: Score
    achieved: RunTime
    asked: float | None
    armed_samples: int
    accuracy: float

    @classmethod
    def of(
        cls,
        group: Group,
        detector: str,
        answers: Sequence[Answer],
        asked: float | None,
        *,
        shadow: bool = False,
    ) -> Row:
        """From all answers of the group."""
        said = [answer.said for answer in answers]
        score = Score.pooled(
            (
                (answer.matching(detector), answer.said.batches, answer.said.samples)
                for answer in answers
            ),
            math.nan if shadow else sum(one.seconds for one in said),
        )
        known = [one.accuracy for one in said if one.accuracy is not None]
        armed = sum(one.armed_samples for one in said)
        alarms, watched = score.false, score.samples
        if not score.changes and not shadow:
            # An alarm is one even if the engine then sees that there is no boundary.
            alarms += sum(event["kind"] in WITHDRAWN for one in said for event in one.events)
            watched = armed or watched
        return cls(
            group,
            f"{detector} (shadow)" if shadow else detector,
            score,
            run_time(alarms, watched),
            asked,
            armed,
            sum(known) / len(known) if known and not shadow else math.nan,
        )

    @property
    def judged(self) -> bool:
        """Whether it found its boundaries; the oracle is told them."""
        return self.detector != TOLD

    def cells(self) -> tuple[str, ...]:
        """As a table shows it, in the order of `COLUMNS`."""
        score, achieved = self.score, self.achieved
        told = not self.judged
        return (
            self.detector,
            "told" if told else f"{score.found} of {score.changes}" if score.changes else "",
            self._delays(samples=False),
            self._delays(samples=True),
            "" if told else str(score.false),
            "" if told else number(score.false_per_1000, 2),
            number(score.precision, 3),
            "" if told else number(score.f1, 3),
            str(score.in_bursts or ""),
            "" if told else run_time_text(achieved),
            number(math.nan if self.asked is None else self.asked, 0),
            number(100 * self.accuracy, 2),
            number(1e6 * score.seconds / max(1, score.samples), 0),
        )

    def _delays(self, *, samples: bool) -> str:
        if not self.score.found:
            return ""
        shares = (0.5, 0.95, 1.0)
        return ", ".join(f"{self.score.delay(share, samples=samples):.0f}" for share in shares)

    def to_dict(self) -> dict[str, Any]:
        """Every number, JSON-ready; what cannot be said, or is infinite, is None."""
        score = self.score
        values: dict[str, Any] = {
            **asdict(self.group),
            "detector": self.detector,
            **asdict(score),
            "recall": score.recall,
            "precision": score.precision,
            "f1": score.f1,
            "false_per_1000": score.false_per_1000,
            "run_time": self.achieved.mean,
            "run_time_low": self.achieved.low,
            "run_time_high": self.achieved.high,
            "asked": self.asked,
            "armed_samples": self.armed_samples,
            "accuracy": self.accuracy,
        }
        return {name: _plain(value) for name, value in values.items()}


def title(group: Group) -> str:
    """Of a group's table."""
    return f"{group.family}, {group.data}, batches of {group.batch_name}"


def grouped(rows: Sequence[Row]) -> Mapping[Group, list[Row]]:
    """Rows by group, in order."""
    groups: dict[Group, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return groups


def terminal_tables(rows: Sequence[Row]) -> tuple[Table, ...]:
    """A table per group."""
    return tuple(
        Table(title(group), NARROW, tuple(_narrow(row) for row in own))
        for group, own in grouped(rows).items()
    )


def markdown(rows: Sequence[Row], note: str) -> str:
    """The same as a page."""
    parts = ["# Drift detection", "", note]
    for group, own in grouped(rows).items():
        parts += ["", f"## {title(group)}", "", pipes(COLUMNS, [row.cells() for row in own])]
    return "\n".join([*parts, ""])


def _narrow(row: Row) -> tuple[str, ...]:
    named = dict(zip(COLUMNS, row.cells(), strict=True))
    return tuple(named[name] for name in NARROW)


def run_time_text(achieved: RunTime) -> str:
    """A run time and its interval.

    Example:
        >>> run_time_text(RunTime(50000.0, 19528.2, 183508.9))
        '50,000 (19,528 to 183,509)'
        >>> run_time_text(RunTime(math.inf, 5421.7, math.inf))
        'above 5,422'
    """
    if math.isinf(achieved.mean):
        return f"above {achieved.low:,.0f}"
    return f"{achieved.mean:,.0f} ({achieved.low:,.0f} to {achieved.high:,.0f})"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
