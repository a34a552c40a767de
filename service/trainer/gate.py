"""The gate: which versions are served, where past sub-tasks must not be forgotten.

A version is served if, on no past sub-task, the retained accuracy (`core.memory.retention`: of
samples that the model drew when the sub-task ended) has fallen by more than the setting allows.
Otherwise the last version that passed goes on answering, and learning goes on.

Rules of this module:

1. A gate is a value. What it decides follows from the stream and the settings: it is asked at
   entries of the stream, never at moments.
2. A fall is counted from the accuracy at the sub-task's end; or from that at which somebody
   accepted what was lost (by a release, a rollback, an upload), or at which the gate began.
3. Sub-tasks without labels have no accuracy, and hold nothing back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import orjson

from core.memory.retention import SubTaskRetention

CHECK_EVERY: Final = 1000
"""Samples of the stream after which a version is asked, at the latest: one sample is asked about
for each that is learned, at most."""

ROUNDING: Final = 1e-9

GATE: Final = "gate"
"""Who asks for a rollback, where it is the gate."""


@dataclass(frozen=True)
class Finding:
    """What the gate found when it asked a version last.

    Arguments:
        forgetting: Largest fall of the accuracy on a past sub-task, -1 to 1.
        sub_task: That past sub-task.
        accuracy_before: The accuracy that the fall is counted from, 0 to 1.
        accuracy_now: That of the version asked.
    """

    forgetting: float
    sub_task: int
    accuracy_before: float
    accuracy_now: float


@dataclass(frozen=True)
class Hold:
    """A version that goes on answering while what is learned is held back.

    Arguments:
        version: That answers.
        held_version: The first that was held back.
        entry_id: At which it was.
    """

    version: int
    held_version: int
    entry_id: str


@dataclass(frozen=True)
class Gate:
    """Where the gate of a model stands.

    Arguments:
        checked: The version that was asked last.
        checked_at: Samples of the stream by then.
        finding: What it was found to retain; None without a past sub-task that had labels.
        hold: None where what is learned is served.
        accepted: Past sub-tasks of which a loss was accepted, each with its accuracy then.
    """

    checked: int = -1
    checked_at: int = 0
    finding: Finding | None = None
    hold: Hold | None = None
    accepted: tuple[tuple[int, float], ...] = ()

    def asked(self, rows: Sequence[SubTaskRetention], version: int, samples: int) -> Gate:
        """After a version was asked; the hold is as it was.

        Arguments:
            rows: How well it holds past sub-tasks.
            version: That was asked.
            samples: Of the stream by then.
        """
        # Those that are remembered no longer need no level either.
        known = {row.sub_task for row in rows}
        accepted = tuple(pair for pair in self.accepted if pair[0] in known)
        found = _worst(rows, accepted)
        return replace(self, checked=version, checked_at=samples, finding=found, accepted=accepted)

    def passes(self, max_forgetting: float) -> bool:
        """Whether what was found is allowed."""
        return self.finding is None or self.finding.forgetting <= max_forgetting + ROUNDING

    def accepting(self, rows: Sequence[SubTaskRetention], max_forgetting: float) -> Gate:
        """With what was lost beyond what is allowed accepted, so that further losses count anew.

        Arguments:
            rows: Of the version that was asked last.
            max_forgetting: What is allowed.
        """
        levels = dict(self.accepted)
        for row in rows:
            before, now = _before(row, levels), row.accuracy_now
            if before is None or now is None:
                continue
            if before - now > max_forgetting + ROUNDING:
                levels[row.sub_task] = now
        accepted = tuple(sorted(levels.items()))
        return replace(self, accepted=accepted, finding=_worst(rows, accepted), hold=None)

    def told(self, max_forgetting: float | None, *, rolls_back: bool) -> dict[str, object]:
        """Where it stands, JSON-ready, for GET /drift.

        Arguments:
            max_forgetting: What is allowed.
            rolls_back: Whether the served version takes the place of the state by itself.
        """
        hold, found = self.hold, self.finding
        return {
            "max_forgetting": max_forgetting,
            "held": hold is not None,
            "forgetting": None if found is None else found.forgetting,
            "past_sub_task": None if found is None else found.sub_task,
            "accuracy_before": None if found is None else found.accuracy_before,
            "accuracy_now": None if found is None else found.accuracy_now,
            "checked_version": None if self.checked < 0 else self.checked,
            "served_version": None if hold is None else hold.version,
            "held_version": None if hold is None else hold.held_version,
            "held_entry_id": None if hold is None else hold.entry_id,
            "rollback": rolls_back,
        }

    def to_json(self) -> str:
        """As text for a checkpoint."""
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def from_json(cls, text: str) -> Gate:
        """The inverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: It is no such text.

        Example:
            >>> gate = Gate(7, 300, Finding(0.5, 0, 1.0, 0.5), Hold(5, 7, "9-0"), ((1, 0.25),))
            >>> Gate.from_json(gate.to_json()) == gate
            True
        """
        facts: dict[str, Any] = orjson.loads(text)
        finding, hold = facts["finding"], facts["hold"]
        return cls(
            int(facts["checked"]),
            int(facts["checked_at"]),
            None if finding is None else Finding(**finding),
            None if hold is None else Hold(**hold),
            tuple((int(sub_task), float(level)) for sub_task, level in facts["accepted"]),
        )


def _before(row: SubTaskRetention, levels: dict[int, float]) -> float | None:
    """The accuracy from which a fall is counted."""
    return levels.get(row.sub_task, row.accuracy_then)


def _worst(
    rows: Sequence[SubTaskRetention], accepted: Sequence[tuple[int, float]]
) -> Finding | None:
    """The past sub-task that lost most; the oldest of equals. None without any that had labels.

    Example:
        >>> rows = [
        ...     SubTaskRetention(n, 9, (), 1.0, now, 1.0, 1.0, 0.0, 0.0, 7)
        ...     for n, now in enumerate((0.75, 0.5))
        ... ]
        >>> _worst(rows, ())
        Finding(forgetting=0.5, sub_task=1, accuracy_before=1.0, accuracy_now=0.5)
        >>> _worst(rows, [(1, 0.5)]).sub_task
        0
    """
    levels, worst = dict(accepted), None
    for row in rows:
        before, now = _before(row, levels), row.accuracy_now
        if before is None or now is None:
            continue
        if worst is None or before - now > worst.forgetting:
            worst = Finding(before - now, row.sub_task, before, now)
    return worst
