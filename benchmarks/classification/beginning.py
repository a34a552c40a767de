"""How much is known after few samples: accuracy on a part that is held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from benchmarks._arithmetic import as_in_the_trainer
from benchmarks.classification.measures import accuracy
from benchmarks.classification.opponent import Opponent
from benchmarks.classification.stream import Features, LabelledStream, Labels
from clients.commands.bench import Table

HELD = 0.2
"""Share of the samples that is held out: the last ones of a stream whose order is random."""

STEPS = (100, 300, 1000)
"""Samples after which is asked."""


@dataclass(frozen=True)
class Beginning:
    """Accuracy on the part held out after few samples.

    Attributes:
        accuracies: Samples learned -> accuracy, 0 to 1; for the steps that the stream reaches.
    """

    accuracies: dict[int, float]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values.

        Example:
            >>> Beginning.from_dict(Beginning({100: 0.5}).to_dict())
            Beginning(accuracies={100: 0.5})
        """
        return {"accuracies": {str(step): value for step, value in self.accuracies.items()}}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Beginning:
        """The inverse of `to_dict`."""
        return cls({int(step): value for step, value in values["accuracies"].items()})


def parted(stream: LabelledStream) -> tuple[LabelledStream, tuple[Features, Labels]]:
    """The samples to learn, and those held out: (M, D) and (M,)."""
    n = len(stream) - max(1, round(HELD * len(stream)))
    return replace(stream, x=stream.x[:n], y=stream.y[:n]), (stream.x[n:], stream.y[n:])


@as_in_the_trainer()
def beginning(
    opponent: Opponent,
    stream: LabelledStream,
    batch: int,
    held: tuple[Features, Labels],
) -> Beginning:
    """Learn a few samples, and name those held out after so many.

    Arguments:
        opponent: Knows nothing yet.
        stream: The samples that are learned.
        batch: Samples learned at a time; a batch ends early at a step.
        held: Samples (M, D) and classes (M,) that are not learned.
    """
    found: dict[int, float] = {}
    start = 0
    for step in (step for step in STEPS if step <= len(stream)):
        while start < step:
            end = min(step, start + batch)
            opponent.learn(stream.x[start:end], stream.y[start:end])
            start = end
        found[step] = accuracy(opponent.predict(held[0]), held[1])
    return Beginning(found)


def table_of(
    found: Mapping[str, Mapping[str, Sequence[Beginning]]], names: Sequence[str], title: str
) -> Table:
    """Accuracy of everybody, stream by stream and step by step.

    Arguments:
        found: Stream -> entrant -> one for each seed.
        names: Of the entrants, in the order of the columns.
    """
    rows = []
    means: dict[tuple[int, str], list[float]] = {}
    for stream, own in found.items():
        for step in STEPS:
            cells = []
            for name in names:
                values = [one.accuracies.get(step) for one in own.get(name, ())]
                known = [value for value in values if value is not None]
                cells.append(f"{100 * fmean(known):.1f}" if known else "")
                means.setdefault((step, name), []).extend(known)
            if any(cells):
                rows.append((f"{stream}, {step}", *cells))
    for step in STEPS:
        own_means = [means.get((step, name), []) for name in names]
        cells = [f"{100 * fmean(values):.1f}" if values else "" for values in own_means]
        if any(cells):
            rows.append((f"all, {step}", *cells))
    return Table(title, ("stream, samples", *names), tuple(rows))
