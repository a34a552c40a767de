"""A burst of outliers, which may go on in the batches that follow, or turn out to last."""

from __future__ import annotations

from dataclasses import dataclass, replace

GAP = 100
"""Samples without an alarm after which outliers are of another burst, unless they come in the very
next batch."""

RECURRENT = 5
"""Times that outliers have come again at once after which they are no burst: what begins or ends
every batch does not go away."""

FEWEST = 30
"""Outliers that make a change, as many as a change must last that comes without a pause."""

SHARE = 0.06
"""Their least share of all samples since the burst began: of what is usual, up to 0.04 look
atypical."""


@dataclass(frozen=True)
class Burst:
    """The newest burst of a stream, as far as it is known.

    Arguments:
        number: 1 for the stream's first.
        began: Where it is estimated to have begun, in samples of the stream.
        outliers: Quarantined so far.
        batch: Index of the batch by which it had gone away.
        end: Samples of the stream by the end of that batch.
        parts: Alarms so far, each of which has gone away.
        unheard: Quarantined so far with a label that the model had never heard.
    """

    number: int = 0
    began: int = 0
    outliers: int = 0
    batch: int = 0
    end: int = 0
    parts: int = 0  # a checkpoint of an earlier release has none
    unheard: int = 0

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

    def with_outliers(self, outliers: int, unheard: int, batch: int, end: int) -> Burst:
        """Up to the end of a batch by which it has gone away.

        Arguments:
            outliers: That came since the part before.
            unheard: How many of them have a label that the model has never heard.
        """
        return replace(
            self,
            outliers=self.outliers + outliers,
            batch=batch,
            end=end,
            parts=self.parts + 1,
            unheard=self.unheard + unheard,
        )

    @property
    def lasts(self) -> bool:
        """Whether it is no burst: it comes again and again, or labels say that it is a class."""
        if self.unheard >= FEWEST:
            return True
        enough = max(FEWEST, SHARE * (self.end - self.began))
        return self.parts >= RECURRENT and self.outliers >= enough

    def over(self) -> Burst:
        """The same when its sub-task has ended: what comes later is another one."""
        return replace(self, end=0)
