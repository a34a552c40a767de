"""One passage through a stream: test, then train, batch by batch."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import cattrs
import numpy as np

from benchmarks._arithmetic import as_in_the_trainer
from benchmarks.classification.engine import Ours
from benchmarks.classification.measures import accuracy, kappa, tenths
from benchmarks.classification.opponent import Opponent
from benchmarks.classification.stream import LabelledStream, Labels


@dataclass(frozen=True)
class Course:
    """How a stream was named; JSON by the names of these fields.

    Attributes:
        samples: N.
        accuracy: Prequential, 0 to 1; the first batch, of which nobody can know a class, included.
        kappa: Cohen's, at most 1; None where it cannot be said.
        tenths: Accuracy of each tenth of the stream.
        boundaries: Samples before each boundary that was found; None of who looks for none.
        predict_seconds: Processor time of the naming.
        learn_seconds: Of the learning.
    """

    samples: int
    accuracy: float
    kappa: float | None
    tenths: tuple[float, ...]
    boundaries: tuple[int, ...] | None
    predict_seconds: float
    learn_seconds: float

    @property
    def worst_tenth(self) -> float:
        """The smallest of `tenths`."""
        return min(self.tenths)

    @property
    def microseconds(self) -> float:
        """Per sample, named and learned."""
        return 1e6 * (self.predict_seconds + self.learn_seconds) / self.samples

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        values: dict[str, Any] = cattrs.unstructure(self)
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Course:
        """The inverse of `to_dict`."""
        return cattrs.structure(values, cls)


@as_in_the_trainer()
def course(opponent: Opponent, stream: LabelledStream, batch: int) -> Course:
    """Lead somebody through a stream.

    Arguments:
        opponent: Knows nothing yet.
        stream: At least one sample.
        batch: Samples that are named before any of their labels is learned; the last batch may
            be smaller.
    """
    named: list[Labels] = []
    predicting = learning = 0.0
    for start in range(0, len(stream), batch):
        x, y = stream.x[start : start + batch], stream.y[start : start + batch]
        begun = time.process_time()
        named.append(opponent.predict(x))
        between = time.process_time()
        opponent.learn(x, y)
        predicting += between - begun
        learning += time.process_time() - between
    said = np.concatenate(named)
    agreement = kappa(said, stream.y)
    return Course(
        samples=len(stream),
        accuracy=accuracy(said, stream.y),
        kappa=agreement if np.isfinite(agreement) else None,
        tenths=tenths(said, stream.y),
        boundaries=tuple(opponent.boundaries) if isinstance(opponent, Ours) else None,
        predict_seconds=predicting,
        learn_seconds=learning,
    )
