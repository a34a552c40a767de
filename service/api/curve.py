"""Many batches as few points: what a chart of any length of history is drawn from.

Rules of this module:

1. A point stands for batches that follow each other. Means are weighed by samples, so that a
   point is what one batch of all of them would have said.
2. What an alarm hangs on survives: the lowest inlier rate and the highest statistic of a point's
   batches, not their means.
3. What no batch of a point knows is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

SET_ASIDE = "batch_set_aside"


@dataclass
class Mean:
    """Weighted mean of the values that are known."""

    total: float = 0.0
    weight: float = 0.0

    def add(self, value: float | None, weight: float) -> None:
        """One more value, unless it is None."""
        if value is not None and weight > 0:
            self.total += value * weight
            self.weight += weight

    def join(self, other: Mean) -> None:
        """The values of another."""
        self.total += other.total
        self.weight += other.weight

    @property
    def value(self) -> float | None:
        """None where nothing was known."""
        return self.total / self.weight if self.weight else None


@dataclass
class Point:
    """Batches that follow each other, as one."""

    id: str = ""
    start_time: float = 0.0
    time: float = 0.0
    batch_index: int = 0
    sample_index: int = 0
    batches: int = 0
    samples: int = 0
    sub_task: int = 0
    set_aside: int = 0
    armed: bool = False
    inlier_rate: Mean = field(default_factory=Mean)
    inlier_rate_low: float | None = None
    inlier_rate_mean: float | None = None
    log_likelihood: Mean = field(default_factory=Mean)
    accuracy: Mean = field(default_factory=Mean)
    accuracy_mean: float | None = None
    estimated_accuracy: Mean = field(default_factory=Mean)
    ratio: float | None = None
    ratios: dict[str, float] = field(default_factory=dict)

    def add(self, id: str, row: Mapping[str, Any]) -> None:
        """One more batch, as `GET /drift/history` has it."""
        if not self.batches:
            self.start_time = row["time"]
            self.batch_index, self.sample_index = row["batch_index"], row["sample_index"]
        samples, rate = row["samples"], row["inlier_rate"]
        self.id, self.time, self.sub_task = id, row["time"], row["sub_task"]
        self.batches += 1
        self.samples += samples
        self.set_aside += row["kind"] == SET_ASIDE
        self.armed = row["armed"]
        self.inlier_rate.add(rate, samples)
        if rate is not None:
            low = self.inlier_rate_low
            self.inlier_rate_low = rate if low is None else min(low, rate)
            self.inlier_rate_mean = row["inlier_rate_mean"]
        self.log_likelihood.add(row["log_likelihood_mean"], samples)
        self.accuracy.add(row["prequential_accuracy"], row["labelled"])
        self.accuracy_mean = row["prequential_accuracy_mean"]
        # A report of an earlier release has none.
        self.estimated_accuracy.add(row.get("estimated_accuracy"), samples)
        self.ratio = _higher(self.ratio, _ratio(row["statistic"], row["threshold"]))
        thresholds = row["thresholds"]
        for name, statistic in row["statistics"].items():
            ratio = _ratio(statistic, thresholds.get(name))
            if ratio is not None:
                self.ratios[name] = max(ratio, self.ratios.get(name, ratio))

    def join(self, later: Point) -> None:
        """The batches of the next point."""
        self.id, self.time, self.sub_task = later.id, later.time, later.sub_task
        self.batches += later.batches
        self.samples += later.samples
        self.set_aside += later.set_aside
        self.armed, self.accuracy_mean = later.armed, later.accuracy_mean
        if later.inlier_rate_low is not None:
            lows = (self.inlier_rate_low, later.inlier_rate_low)
            self.inlier_rate_low = min(low for low in lows if low is not None)
            self.inlier_rate_mean = later.inlier_rate_mean
        self.inlier_rate.join(later.inlier_rate)
        self.log_likelihood.join(later.log_likelihood)
        self.accuracy.join(later.accuracy)
        self.estimated_accuracy.join(later.estimated_accuracy)
        self.ratio = _higher(self.ratio, later.ratio)
        for name, ratio in later.ratios.items():
            self.ratios[name] = max(ratio, self.ratios.get(name, ratio))


@dataclass
class Curve:
    """Points, one after the other. Where there are too many, two and two become one.

    Arguments:
        most: Points, at most.
        batches_per_point: A point is complete when it stands for so many.
    """

    most: int
    batches_per_point: int = 1
    points: list[Point] = field(default_factory=list)

    def add(self, rows: Sequence[tuple[str, bytes]]) -> None:
        """More batches in their order: ids, and events as JSON."""
        for id, data in rows:
            if not self.points or self.points[-1].batches >= self.batches_per_point:
                if len(self.points) >= self.most:
                    self._halve()
                self.points.append(Point())
            self.points[-1].add(id, orjson.loads(data))

    def _halve(self) -> None:
        """Join every second point to the one before."""
        for first, second in zip(self.points[::2], self.points[1::2], strict=False):
            first.join(second)
        self.points = self.points[::2]
        self.batches_per_point *= 2

    def columns(self) -> dict[str, Any]:
        """One list for each quantity, all of the same length: half the bytes of a list of rows."""
        points = self.points
        names = sorted({name for point in points for name in point.ratios})
        plain = (
            "start_time",
            "time",
            "batch_index",
            "sample_index",
            "batches",
            "samples",
            "sub_task",
            "set_aside",
            "armed",
            "inlier_rate_low",
            "inlier_rate_mean",
            "accuracy_mean",
            "ratio",
        )
        weighed = ("inlier_rate", "log_likelihood", "accuracy", "estimated_accuracy")
        return {
            **{name: [getattr(point, name) for point in points] for name in plain},
            **{name: [getattr(point, name).value for point in points] for name in weighed},
            # Behind the mean, so that whoever goes on with the last point can weigh it.
            "labelled": [point.accuracy.weight for point in points],
            "ratios": {name: [point.ratios.get(name) for point in points] for name in names},
        }


def _ratio(statistic: float, threshold: float | None) -> float | None:
    """A statistic over its threshold; None where there is none yet.

    Example:
        >>> _ratio(3.0, 6.0), _ratio(3.0, 0.0)
        (0.5, None)
    """
    return statistic / threshold if threshold else None


def _higher(one: float | None, other: float | None) -> float | None:
    """The higher of those that are known."""
    known = [ratio for ratio in (one, other) if ratio is not None]
    return max(known, default=None)
