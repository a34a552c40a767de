"""How far a run time between alarms is known that was counted for a while."""

from __future__ import annotations

from typing import NamedTuple

CONFIDENCE = 0.95


class Interval(NamedTuple):
    """Of a mean run time, in samples.

    Arguments:
        low: Lower end; None where nothing was counted.
        high: Upper end; None where there was no alarm, so that nothing bounds it.
    """

    low: float | None
    high: float | None


def interval(alarms: int, samples: int, confidence: float = CONFIDENCE) -> Interval:
    """Confidence interval of the mean run time between alarms.

    It is exact for alarms that come as a Poisson process (Garwood 1936): the expected number of
    alarms lies between a quantile of the gamma distribution with shape k and one with shape k + 1.

    Arguments:
        alarms: k, counted.
        samples: Among which they were counted.
        confidence: Of the interval, between 0 and 1.

    Example:
        >>> [round(end) for end in interval(4, 200_000)]
        [19528, 183509]
        >>> interval(0, 0), interval(0, 1000).high
        (Interval(low=None, high=None), None)
    """
    if samples <= 0:
        return Interval(None, None)
    from scipy.special import gammaincinv  # a tenth of what a process takes to start

    tail = (1 - confidence) / 2
    low = samples / float(gammaincinv(alarms + 1, 1 - tail))
    return Interval(low, samples / float(gammaincinv(alarms, tail)) if alarms else None)
