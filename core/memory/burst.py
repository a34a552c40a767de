"""A burst of outliers, which may go on in the batches that follow."""

from __future__ import annotations

from dataclasses import dataclass, replace

GAP = 100
"""Samples without an alarm after which outliers are of another burst, unless they come in the very
next batch."""


@dataclass(frozen=True)
class Burst:
    """The newest burst of a stream, as far as it is known.

    Arguments:
        number: 1 for the stream's first.
        began: Where it is estimated to have begun, in samples of the stream.
        outliers: Quarantined so far.
        batch: Index of the batch by which it had gone away.
        end: Samples of the stream by the end of that batch.
    """

    number: int = 0
    began: int = 0
    outliers: int = 0
    batch: int = 0
    end: int = 0

    def holds(self, start_batch: int, start: int, boundary: int) -> bool:
        """Whether outliers that come later are of this burst.

        Arguments:
            start_batch: Index of the batch in which they begin.
            start: Where they begin, in samples of the stream.
            boundary: Where the current sub-task began; a burst ends with its sub-task.
        """
        near = start_batch <= self.batch + 1 or start <= self.end + GAP
        return self.number > 0 and near and self.end > boundary

    def followed(self, start: int) -> Burst:
        """The next one."""
        return Burst(self.number + 1, start)

    def with_outliers(self, outliers: int, batch: int, end: int) -> Burst:
        """Up to the end of a batch by which it has gone away."""
        return replace(self, outliers=self.outliers + outliers, batch=batch, end=end)
