"""How good is a detector? Pure functions of what it said and what was true.

Throughout: positions count samples from 0. An alarm is raised at the end of a batch; its
position is the number of samples seen by then, so that an alarm for a change at sample s
has a position above s. An alarm belongs to the last change before it. A change is *found*
if an alarm belongs to it and comes within the horizon; the first such alarm finds it, and
every other alarm is *false*, a second one for the same change included. Alarms that belong
to a burst, a change that goes away by itself, are neither found nor false, but counted.

Rule of this module: no I/O, no clock; what cannot be said is NaN, never zero.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import chi2

from benchmarks.detection.stream import Change


@dataclass(frozen=True)
class Match:
    """A change that was found.

    Attributes:
        change: Its place among the changes.
        delay_samples: Samples from the change to the end of the batch of the alarm, at least 1.
        delay_batches: Batches, the first that holds a sample after the change being 1.
    """

    change: int
    delay_samples: int
    delay_batches: int


@dataclass(frozen=True)
class Matching:
    """What became of alarms and changes; every alarm is in exactly one of three places.

    Attributes:
        matches: One per change that was found.
        false: Positions of false alarms.
        in_bursts: Positions of alarms that belong to a burst.
        lasting: Changes that were to be found.
    """

    matches: tuple[Match, ...]
    false: tuple[int, ...]
    in_bursts: tuple[int, ...]
    lasting: int


def match(
    alarms: Sequence[int],
    changes: Sequence[Change],
    ends: Sequence[int],
    horizon: int | None = None,
) -> Matching:
    """Alarms against changes.

    Arguments:
        alarms: Positions, in order.
        changes: In order.
        ends: Samples seen at the end of every batch, in order.
        horizon: Samples after a change within which it must be found; None: until the next.

    Example:
        >>> match([200, 300, 900], [Change(150, "abrupt")], range(100, 1001, 100))
        Matching(matches=(Match(change=0, delay_samples=50, delay_batches=1),), \
false=(300, 900), in_bursts=(), lasting=1)
    """
    starts = [change.sample for change in changes]
    found: dict[int, Match] = {}
    false, in_bursts = [], []
    for alarm in alarms:
        owner = bisect_left(starts, alarm) - 1
        if owner >= 0 and not changes[owner].lasting:
            in_bursts.append(alarm)
            continue
        late = owner >= 0 and horizon is not None and alarm > starts[owner] + horizon
        if owner < 0 or late or owner in found:
            false.append(alarm)
            continue
        first = bisect_right(ends, starts[owner])
        batches = bisect_left(ends, alarm) - first + 1
        found[owner] = Match(owner, alarm - starts[owner], batches)
    lasting = sum(change.lasting for change in changes)
    return Matching(tuple(found.values()), tuple(false), tuple(in_bursts), lasting)


@dataclass(frozen=True)
class Score:
    """Many streams of one kind, pooled.

    Attributes:
        streams: How many.
        batches: Of all; with `samples`.
        changes: That were to be found.
        found: That were.
        false: False alarms.
        in_bursts: Alarms that belong to bursts.
        delays_batches: Of every change found; with `delays_samples`.
        seconds: Processor time spent in the engine.
    """

    streams: int
    batches: int
    samples: int
    changes: int
    found: int
    false: int
    in_bursts: int
    delays_batches: tuple[int, ...]
    delays_samples: tuple[int, ...]
    seconds: float = math.nan

    @classmethod
    def pooled(cls, parts: Iterable[tuple[Matching, int, int]], seconds: float = math.nan) -> Score:
        """Of matchings, each with the batches and samples of its stream."""
        known = list(parts)
        matchings = [matching for matching, _, _ in known]
        matches = [one for matching in matchings for one in matching.matches]
        return cls(
            streams=len(known),
            batches=sum(batches for _, batches, _ in known),
            samples=sum(samples for _, _, samples in known),
            changes=sum(matching.lasting for matching in matchings),
            found=len(matches),
            false=sum(len(matching.false) for matching in matchings),
            in_bursts=sum(len(matching.in_bursts) for matching in matchings),
            delays_batches=tuple(one.delay_batches for one in matches),
            delays_samples=tuple(one.delay_samples for one in matches),
            seconds=seconds,
        )

    @property
    def recall(self) -> float:
        """Share of the changes that were found, 0 to 1."""
        return _ratio(self.found, self.changes)

    @property
    def precision(self) -> float:
        """Share of the alarms that found a change, 0 to 1."""
        return _ratio(self.found, self.found + self.false)

    @property
    def f1(self) -> float:
        """Harmonic mean of recall and precision; 0 where nothing was found of something."""
        return _ratio(2 * self.found, self.changes + self.found + self.false)

    @property
    def false_per_1000(self) -> float:
        """False alarms per 1,000 batches of the streams."""
        return 1000 * _ratio(self.false, self.batches)

    def delay(self, quantile: float, *, samples: bool = False) -> float:
        """A quantile of the delays of changes found: the smallest that so large a share
        does not exceed; in batches, or in samples."""
        delays = self.delays_samples if samples else self.delays_batches
        if not delays:
            return math.nan
        return float(np.quantile(delays, quantile, method="inverted_cdf"))


@dataclass(frozen=True)
class RunTime:
    """Mean samples between false alarms, with a confidence interval.

    Attributes:
        mean: Samples per alarm; infinite where there was none.
        low: Lower end of the interval.
        high: Upper end; infinite where there was no alarm.
    """

    mean: float
    low: float
    high: float


def run_time(alarms: int, samples: int, confidence: float = 0.95) -> RunTime:
    """Achieved run time between false alarms.

    The interval is Garwood's (1936), exact for alarms that come as a Poisson process: the
    rate lies between chi-square quantiles with 2k and 2k + 2 degrees of freedom.

    Arguments:
        alarms: k, false alarms raised.
        samples: Of the stream, warm-up included.
        confidence: Of the interval, 0 to 1.

    Example:
        >>> run_time(4, 200_000)
        RunTime(mean=50000.0, low=19528.2..., high=183508.9...)
    """
    if samples <= 0:
        return RunTime(math.nan, math.nan, math.nan)
    tail = (1 - confidence) / 2
    low = 2 * samples / float(chi2.ppf(1 - tail, 2 * alarms + 2))
    if alarms == 0:
        return RunTime(math.inf, low, math.inf)
    return RunTime(samples / alarms, low, 2 * samples / float(chi2.ppf(tail, 2 * alarms)))


def regret(found: Sequence[float], told: Sequence[float]) -> float:
    """Boundary regret: what finding boundaries costs against being told them.

    Arguments:
        found: Accuracy at the end, 0 to 1, per seed, with boundaries found by the detector.
        told: The same with every boundary declared where it is.

    Returns:
        The mean difference, in points of percent; negative where finding them was better.
    """
    if not found or len(found) != len(told):
        return math.nan
    return 100 * float(np.mean(np.subtract(told, found)))


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan
