"""Whose waiting samples are learned when the stream is quiet.

Samples that wait in a window are not in the model yet. A stream that pauses or ends would leave
them out for ever, and one that pauses after every batch must not have everything fitted again
each time: cost, and the detector's counts per component, which begin anew with every fit.
"""

from __future__ import annotations

from collections.abc import Sequence

LARGEST_SHARE = 1 / 20
"""Of an owner's samples in the current sub-task, the most that a quiet stream leaves waiting."""


def due_when_quiet(waiting: Sequence[int], samples: Sequence[int]) -> list[int]:
    """Places of the owners to be fitted now, ascending.

    So an owner is fitted some 45 times while its samples grow tenfold, however often the stream
    pauses.

    Arguments:
        waiting: Per owner, samples that its components have not seen.
        samples: Per owner, samples of the current sub-task, those waiting included.

    Example:
        >>> due_when_quiet([0, 10, 10], [100, 100, 300])
        [1, 2]
        >>> due_when_quiet([0, 4, 10], [100, 100, 300])
        []
    """
    shares = [count / max(1, total) for count, total in zip(waiting, samples, strict=True)]
    if max(shares, default=0.0) < LARGEST_SHARE:
        return []
    # Who is half-way there comes along, so that counts begin anew once and not for each owner.
    return [index for index, share in enumerate(shares) if share >= LARGEST_SHARE / 2]
