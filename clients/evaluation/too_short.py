"""Sub-tasks that end before the service's detector is armed, so that their end cannot be found.

What a detector needs is told by the service itself (`armed_in` of GET /drift and its history).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from clients.http.answers import DriftState, HistoryPoint

NEVER = "none"
"""The rule that finds no boundaries: they are declared."""


@dataclass(frozen=True)
class TooShort:
    """A sub-task at whose end the detector is not armed."""

    sub_task: int
    samples: int  # of the sub-task, all epochs
    missing: int | None  # samples more that the detector needs; None where that is not known

    def told(self, epochs: int) -> str:
        """In a sentence, with what to do.

        Example:
            >>> print(TooShort(0, 120, 80).told(1))
            Sub-task 0 has 120 samples, 80 fewer than the detector needs before it is armed: its \
end may not be found. Pass --epochs 2 or more, take a larger set, or lower GMR_WARM_UP \
(--set warm_up=...).
        """
        size = f"Sub-task {self.sub_task} has {self.samples:,} samples"
        if self.missing is None:
            return (
                f"{size}, and the detector may need more before it is armed: how many depends on "
                f"the data (presets paper and dcgmm anneal for some thousand samples first). Where "
                f"it is not armed, the end may not be found. Pass more --epochs, or a larger set."
            )
        wanted = math.ceil(epochs * (self.samples + self.missing) / self.samples)
        return (
            f"{size}, {self.missing:,} fewer than the detector needs before it is armed: its end "
            f"may not be found. Pass --epochs {wanted} or more, take a larger set, or lower "
            f"GMR_WARM_UP (--set warm_up=...)."
        )


def expected(state: DriftState, sizes: Sequence[int]) -> tuple[TooShort, ...]:
    """Before anything is sent, by what a fresh service says of its need.

    Arguments:
        state: Of the detector.
        sizes: Samples of each sub-task, all epochs; the end of the last is not looked for.

    Returns:
        Those that are too short; the shortest where the need is not known.
    """
    # A service of an earlier release says nothing of its need.
    if state.detector == NEVER or "armed_in" not in state.raw or len(sizes) < 2:
        return ()
    need, ending = state.armed_in, list(enumerate(sizes[:-1]))
    if need is None:
        index, size = min(ending, key=lambda one: one[1])
        return (TooShort(index, size, None),)
    return tuple(TooShort(index, size, need - size) for index, size in ending if size < need)


def seen(
    sub_task: Sequence[int], samples: Sequence[int], points: Iterable[HistoryPoint | None]
) -> tuple[TooShort, ...]:
    """Afterwards, by whether the detector was armed when the next sub-task began.

    Arguments:
        sub_task: The true one of each batch that was sent, in order.
        samples: Of each batch.
        points: What the service said of each; None where that is not known any more.
    """
    said, found = list(points), []
    for last, (now, after) in enumerate(pairwise(sub_task)):
        point, next_point = said[last], said[last + 1]
        if now == after or point is None or next_point is None or next_point.armed:
            continue
        size = sum(n for n, one in zip(samples, sub_task, strict=True) if one == now)
        # Once a boundary was found late, or falsely, the detector has begun anew since.
        found.append(TooShort(now, size, point.armed_in or None))
    return tuple(found)
