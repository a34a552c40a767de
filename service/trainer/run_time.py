"""How far a run time between alarms is known that was counted for a while."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch

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
    tail = (1 - confidence) / 2
    low = samples / gamma_quantile(alarms + 1, 1 - tail)
    return Interval(low, samples / gamma_quantile(alarms, tail) if alarms else None)


@lru_cache(maxsize=256)
def gamma_quantile(shape: float, p: float) -> float:
    """Quantile of a gamma distribution of scale 1, by bisection.

    `scipy.special` has a function for it, and takes as long to import as a tenth of a start.

    Arguments:
        shape: Of the distribution, positive.
        p: Probability below the quantile, between 0 and 1.
    """
    low, high = 0.0, 1.0
    while _gamma_cdf(shape, high) < p:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        if _gamma_cdf(shape, middle) < p:
            low = middle
        else:
            high = middle
    return high


def _gamma_cdf(shape: float, x: float) -> float:
    pair = torch.tensor([shape, x], dtype=torch.float64)
    return float(torch.special.gammainc(pair[0], pair[1]))
