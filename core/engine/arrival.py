"""A batch on its way through a step: where it begins, and what of it is still to be learned.

Throughout: N samples of the batch, M of them still to be learned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from core.batch import Batch
from core.engine.judgement import BatchPosition


@dataclass(frozen=True, eq=False)
class Arrival:
    """One batch of the stream, judged by the model of before.

    Arguments:
        batch: All N samples.
        position: Where it begins in the stream.
        to_learn: What is still to be learned.
        rows: Rows of these in the batch, with shape (M,), int64.
        near: Features of all samples, with far values pulled in, as they are learned, (N, D).
        awaiting: Samples that are held back until their label comes.
        unknown: Which samples the model finds unknown, with shape (N,), bool; None where it
            cannot say.
        gains: What they would gain by a component of their own, nats, with shape (N,); or None.
        touched: Whether the model answers otherwise before a sample of it is learned: experts were
            taught a label of it, or it has shown what is usual.
        version: Of the model that judged it.
        outliers: Samples of a burst that were kept apart.
        unknowns: Unlabelled samples that were held back because they are unknown.
    """

    batch: Batch
    position: BatchPosition
    to_learn: Batch
    rows: Tensor
    near: Tensor
    awaiting: int
    unknown: Tensor | None
    gains: Tensor | None
    touched: bool
    version: int
    outliers: int = 0
    unknowns: int = 0

    @property
    def places(self) -> Tensor:
        """Samples of the stream before each that is still to be learned, with shape (M,), int64."""
        return self.position.sample + self.rows

    def only(self, left: Tensor) -> Arrival:
        """Keep some of the samples that are still to be learned, by their places, int64."""
        return replace(self, to_learn=self.to_learn.select(left), rows=self.rows[left])
