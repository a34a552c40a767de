"""How good was a run? Scores of continual learning, as pure functions on arrays.

Rules of this module: no I/O, no clock, no randomness; nothing of ours is
imported. Arrays come in, numbers or frozen values go out; what cannot be said
(forgetting of a single sub-task, accuracy of no samples) is NaN, never zero.

Throughout: N samples, C classes, T sub-tasks, B batches. `accuracy[i, j]` is the
accuracy on the test samples of sub-task j, measured after sub-task i was learned.

Definitions are those of

* Lopez-Paz and Ranzato 2017, "Gradient Episodic Memory for Continual Learning":
  the accuracy matrix, average accuracy (ACC) and backward transfer (BWT);
* Wolczyk et al. 2021, "Continual World": forward transfer against a fresh model (FWT). That of
  Lopez-Paz and Ranzato and of Diaz-Rodriguez et al. 2018, the accuracy on a sub-task before it is
  learned, is 0 whatever the model where sub-tasks share no class, as here;
* Chaudhry et al. 2018, "Riemannian Walk for Incremental Learning": forgetting;
* Caccia et al. 2022, "New Insights on Reducing Abrupt Representation Change in
  Online Continual Learning": average anytime accuracy (AAA);
* Gama, Sebastiao and Rodrigues 2013, "On evaluating stream learning algorithms":
  prequential accuracy over a sliding window.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
LabelArray = NDArray[Any]
"""Labels as their sender calls them: integers, or strings (dtype object or str)."""


# Accuracy


def accuracy(true: LabelArray, predicted: LabelArray) -> float:
    """Share of samples whose predicted label is the true one, 0 to 1; NaN for no samples.

    Example:
        >>> accuracy(np.array([0, 1, 1, 2]), np.array([0, 1, 2, 2]))
        0.75
    """
    _same_length(true, predicted)
    return float(np.mean(true == predicted)) if len(true) else math.nan


def accuracy_per_sub_task(
    true: LabelArray, predicted: LabelArray, sub_tasks: Sequence[Sequence[object]]
) -> FloatArray:
    """One row of the accuracy matrix: the accuracy on the classes of each sub-task.

    Arguments:
        true: Labels of the joint test set, with shape (N,).
        predicted: What one model said of the same samples, with shape (N,).
        sub_tasks: The classes of each sub-task.

    Returns:
        Accuracies with shape (T,); NaN where a sub-task has no test samples.

    Example:
        >>> true, predicted = np.array([0, 1, 2, 3]), np.array([0, 1, 0, 3])
        >>> accuracy_per_sub_task(true, predicted, [[0, 1], [2, 3]]).tolist()
        [1.0, 0.5]
    """
    _same_length(true, predicted)
    rows = []
    for classes in sub_tasks:
        # A set, not numpy.isin: an array of strings would cut longer names to fit.
        wanted = set(classes)
        chosen = np.fromiter((label in wanted for label in true.tolist()), bool, len(true))
        rows.append(accuracy(true[chosen], predicted[chosen]))
    return np.array(rows, dtype=np.float64)


def mean_per_class(true: LabelArray, values: NDArray[Any], classes: Sequence[object]) -> FloatArray:
    """The mean of what was measured of each sample, per true class.

    Arguments:
        true: Labels, with shape (N,).
        values: A number per sample, or whether it was right, with shape (N,).
        classes: Of which to tell.

    Returns:
        Means with shape (C,); NaN for a class without samples.

    Example:
        >>> right = np.array([True, False, True])
        >>> mean_per_class(np.array(["a", "a", "b"]), right, ["b", "a", "c"]).tolist()
        [1.0, 0.5, nan]
    """
    _same_length(true, values)
    labels = true.tolist()
    means = []
    for wanted in classes:
        own = values[np.fromiter((label == wanted for label in labels), bool, len(labels))]
        means.append(float(np.mean(own)) if len(own) else math.nan)
    return np.array(means, dtype=np.float64)


def confusion_matrix(
    true: LabelArray, predicted: LabelArray, classes: Sequence[object]
) -> NDArray[np.int64]:
    """How often each true class (row) was given each label (column), with shape (C, C).

    Samples whose true or predicted label is not among `classes` are left out.

    Example:
        >>> confusion_matrix(np.array([0, 0, 1]), np.array([0, 1, 1]), [0, 1]).tolist()
        [[1, 1], [0, 1]]
    """
    _same_length(true, predicted)
    index = {label: code for code, label in enumerate(classes)}
    counts = np.zeros((len(index), len(index)), dtype=np.int64)
    for row, column in zip(true.tolist(), predicted.tolist(), strict=True):
        if row in index and column in index:
            counts[index[row], index[column]] += 1
    return counts


def average_accuracy(matrix: ArrayLike) -> float:
    """ACC: the mean accuracy over all sub-tasks after the last one.

    Each sub-task weighs the same, however many samples it has.

    Example:
        >>> average_accuracy([[1.0, 0.0], [0.5, 1.0]])
        0.75
    """
    return float(np.mean(_square(matrix)[-1]))


def backward_transfer(matrix: ArrayLike) -> float:
    """BWT: how accuracy on earlier sub-tasks changed since each had just been learned.

    The mean over sub-tasks but the last of `accuracy[T-1, j] - accuracy[j, j]`;
    negative means forgetting. NaN for a single sub-task.

    Example:
        >>> backward_transfer([[1.0, 0.0], [0.5, 1.0]])
        -0.5
    """
    table = _square(matrix)
    if len(table) == 1:
        return math.nan
    return float(np.mean(table[-1, :-1] - np.diagonal(table)[:-1]))


def forgetting_per_sub_task(matrix: ArrayLike) -> FloatArray:
    """For each sub-task but the last: its best earlier accuracy minus its accuracy at the end.

    "Earlier" is any time before the last sub-task, as in the paper cited above; a
    sub-task that improved to the end has negative forgetting. Shape (T - 1,).

    Example:
        >>> matrix = [[0.9, 0, 0], [0.95, 0.8, 0], [0.7, 0.85, 0.9]]
        >>> forgetting_per_sub_task(matrix).round(6).tolist()
        [0.25, -0.05]
    """
    table = _square(matrix)
    if len(table) == 1:
        return np.empty(0)
    return np.asarray(table[:-1, :-1].max(axis=0) - table[-1, :-1])


def forgetting(matrix: ArrayLike) -> float:
    """The mean of `forgetting_per_sub_task`; NaN for a single sub-task."""
    each = forgetting_per_sub_task(matrix)
    return float(np.mean(each)) if len(each) else math.nan


def forward_transfer(accuracies: ArrayLike, reference: ArrayLike) -> float:
    """FWT: how much sooner a sub-task is learned after others than by a model that is fresh.

    Per sub-task (a - r) / (1 - r), where a is the prequential accuracy over all of it and r that of
    a fresh model on the same samples; the mean over sub-tasks of which both are known. Above 0:
    what was learned before helps.

    Arguments:
        accuracies: Of the sub-tasks as they were streamed, with shape (T,).
        reference: Of fresh models, with shape (T,); NaN for the first sub-task.

    Returns:
        At most 1; NaN where no sub-task has a reference below 1.

    Example:
        >>> round(forward_transfer([0.9, 0.9, 0.8], [np.nan, 0.8, 0.8]), 6)
        0.25
    """
    own, fresh = (np.asarray(values, dtype=np.float64) for values in (accuracies, reference))
    _same_length(own, fresh)
    known = ~np.isnan(own) & (fresh < 1)
    each = (own[known] - fresh[known]) / (1 - fresh[known])
    return float(each.mean()) if len(each) else math.nan


def average_anytime_accuracy(matrix: ArrayLike) -> float:
    """AAA: the mean over time of the mean accuracy on the sub-tasks seen by then.

    Example:
        >>> average_anytime_accuracy([[1.0, 0.0], [0.5, 1.0]])
        0.875
    """
    table = _square(matrix)
    return float(np.mean([table[i, : i + 1].mean() for i in range(len(table))]))


# Prequential accuracy: every sample is tested before it is learned


def prequential_accuracy(accuracies: ArrayLike, labelled: ArrayLike) -> float:
    """Accuracy over a whole stream whose batches were each tested, then learned.

    Arguments:
        accuracies: Of each batch, with shape (B,); NaN where no sample was labelled.
        labelled: How many labelled samples each batch had, with shape (B,).

    Returns:
        The share of labelled samples that were right, 0 to 1; NaN if there were none.

    Example:
        >>> prequential_accuracy([1.0, np.nan, 0.5], [100, 0, 300])
        0.625
    """
    right, weight = _right_and_weight(accuracies, labelled)
    return float(right.sum() / weight.sum()) if weight.sum() else math.nan


def running_prequential_accuracy(
    accuracies: ArrayLike, labelled: ArrayLike, window: int
) -> FloatArray:
    """Prequential accuracy over the last `window` batches, after every batch.

    Arguments as for `prequential_accuracy`. Returns shape (B,), NaN where the
    window holds no labelled sample.

    Example:
        >>> running_prequential_accuracy([0.0, 1.0, 1.0], [10, 10, 10], window=2).tolist()
        [0.0, 0.5, 1.0]
    """
    if window < 1:
        raise ValueError(f"The window is {window} batches; it must be at least 1.")
    right, weight = _right_and_weight(accuracies, labelled)
    sums = [np.concatenate(([0.0], np.cumsum(values))) for values in (right, weight)]
    end = np.arange(1, len(right) + 1)
    start = np.maximum(end - window, 0)
    right_in_window, weight_in_window = (total[end] - total[start] for total in sums)
    running = np.full(len(right), math.nan)
    np.divide(right_in_window, weight_in_window, out=running, where=weight_in_window > 0)
    return running


def estimate_error(
    estimates: ArrayLike, accuracies: ArrayLike, labelled: ArrayLike, window: int = 10
) -> float:
    """Mean absolute difference of the accuracy that was estimated and the one that labels told.

    Arguments:
        estimates: Of the newest samples by each batch, with shape (B,); NaN while not known.
        accuracies: Prequential, of each batch, with shape (B,); NaN without labels.
        labelled: How many labelled samples each batch had, with shape (B,).
        window: Batches whose labels tell.

    Returns:
        Over batches of which both are known, 0 to 1; NaN where there are none.

    Example:
        >>> estimate_error([0.5, np.nan, 0.75], [1.0, 1.0, 1.0], [10, 10, 10], window=1)
        0.375
    """
    expected = np.asarray(estimates, dtype=np.float64)
    told = running_prequential_accuracy(accuracies, labelled, window)
    if expected.shape != told.shape:
        return math.nan
    known = ~np.isnan(expected) & ~np.isnan(told)
    return float(np.abs(expected - told)[known].mean()) if known.any() else math.nan


# Boundaries: what was found against what is true


@dataclass(frozen=True, order=True)
class Position:
    """A place in a stream: how many batches and samples came before it."""

    batch: int
    sample: int


@dataclass(frozen=True)
class BoundaryMatch:
    """A true change that was found.

    Example:
        >>> match = BoundaryMatch(change=1, true=Position(30, 3000), found=Position(31, 3100))
        >>> match.delay_batches, match.delay_samples
        (1, 100)
    """

    change: int  # which true change, 1 for the first
    true: Position  # where the new sub-task begins
    found: Position  # the end of the batch at which it was reported

    @property
    def delay_batches(self) -> int:
        """Batches of the new sub-task it took, the reporting one included: 1 is the least."""
        return self.found.batch - self.true.batch

    @property
    def delay_samples(self) -> int:
        """Samples of the new sub-task that had been sent when the change was reported."""
        return self.found.sample - self.true.sample


@dataclass(frozen=True)
class BoundaryScore:
    """Every true change and every report of a run, accounted for once."""

    matches: tuple[BoundaryMatch, ...]
    missed: tuple[Position, ...]  # true changes nobody reported in time
    false: tuple[Position, ...]  # reports without a change to go with them

    @property
    def changes(self) -> int:
        """How many true changes there were."""
        return len(self.matches) + len(self.missed)

    @property
    def delays_batches(self) -> tuple[int, ...]:
        """Delay of each match, in batches."""
        return tuple(match.delay_batches for match in self.matches)

    @property
    def delays_samples(self) -> tuple[int, ...]:
        """Delay of each match, in samples."""
        return tuple(match.delay_samples for match in self.matches)


def match_boundaries(
    found: Sequence[Position], true: Sequence[Position], tolerance: int
) -> BoundaryScore:
    """Judge reported boundaries by the true ones.

    A report belongs to the latest change before it, if nobody has claimed that one
    yet and at most `tolerance` samples lie between; any other report is false. An
    earlier change is never claimed late, once another has followed: a report then
    says nothing about it.

    Arguments:
        found: Where each boundary was reported: the end of that batch, in any order.
        true: Where each sub-task but the first begins.
        tolerance: The longest delay that still counts as found, in samples.

    Example:
        >>> true = [Position(30, 3000), Position(60, 6000)]
        >>> score = match_boundaries([Position(31, 3100), Position(45, 4500)], true, tolerance=1000)
        >>> score.delays_batches, score.missed == (true[1],), len(score.false)
        ((1,), True, 1)
    """
    if tolerance < 1:
        raise ValueError(f"The tolerance is {tolerance} samples; it must be at least 1.")
    changes = sorted(true)
    claimed: dict[int, Position] = {}
    false = []
    for report in sorted(found):
        before = [i for i, change in enumerate(changes) if change.sample < report.sample]
        latest = before[-1] if before else None
        if (
            latest is None
            or latest in claimed
            or report.sample - changes[latest].sample > tolerance
        ):
            false.append(report)
        else:
            claimed[latest] = report
    return BoundaryScore(
        matches=tuple(
            BoundaryMatch(i + 1, changes[i], report) for i, report in sorted(claimed.items())
        ),
        missed=tuple(change for i, change in enumerate(changes) if i not in claimed),
        false=tuple(false),
    )


# Outliers


def auroc(typical: ArrayLike, strange: ArrayLike) -> float:
    """How well a score separates two sets: the chance that a strange sample scores lower.

    The area under the ROC curve in its rank form (Mann and Whitney), ties counted
    half; 0.5 is chance, 1 is perfect. NaN if a set is empty.

    Arguments:
        typical: Scores (log-likelihoods) of samples that should be typical.
        strange: Scores of samples that should not.

    Example:
        >>> auroc([3.0, 2.0], [1.0, 2.0])
        0.875
    """
    high, low = np.sort(np.asarray(typical, np.float64)), np.asarray(strange, np.float64)
    if not len(high) or not len(low):
        return math.nan
    at_most = np.searchsorted(high, low, side="right")
    below = np.searchsorted(high, low, side="left")
    wins = (len(high) - at_most) + 0.5 * (at_most - below)
    return float(wins.sum() / (len(high) * len(low)))


# Time


@dataclass(frozen=True)
class Latency:
    """The latency of a kind of request, in seconds."""

    requests: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float

    @classmethod
    def of(cls, seconds: ArrayLike) -> Latency:
        """Summarise single durations; all NaN if there are none.

        Example:
            >>> Latency.of([0.1, 0.2, 0.3]).p50
            0.2
        """
        values = np.asarray(seconds, dtype=np.float64)
        if not len(values):
            return cls(0, math.nan, math.nan, math.nan, math.nan, math.nan)
        p50, p90, p99 = np.quantile(values, [0.5, 0.9, 0.99]).tolist()
        return cls(len(values), float(values.mean()), p50, p90, p99, float(values.max()))


@dataclass(frozen=True)
class Spread:
    """A score over several seeds."""

    mean: float
    std: float  # of the sample (n - 1); NaN for a single seed
    min: float
    max: float
    n: int

    @classmethod
    def of(cls, values: ArrayLike) -> Spread:
        """Summarise one score over seeds; NaN values (not applicable) are left out.

        Example:
            >>> Spread.of([0.9, 0.92]).mean
            0.91
        """
        numbers = np.asarray(values, dtype=np.float64)
        numbers = numbers[~np.isnan(numbers)]
        if not len(numbers):
            return cls(math.nan, math.nan, math.nan, math.nan, 0)
        std = float(numbers.std(ddof=1)) if len(numbers) > 1 else math.nan
        low, high = float(numbers.min()), float(numbers.max())
        return cls(float(numbers.mean()), std, low, high, len(numbers))


def _right_and_weight(accuracies: ArrayLike, labelled: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Number of right answers and of labelled samples per batch, NaN counted as none."""
    values = np.asarray(accuracies, dtype=np.float64)
    weight = np.asarray(labelled, dtype=np.float64)
    _same_length(values, weight)
    known = ~np.isnan(values)
    return np.where(known, np.nan_to_num(values) * weight, 0.0), np.where(known, weight, 0.0)


def _square(matrix: ArrayLike) -> FloatArray:
    table = np.asarray(matrix, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not table.size:
        raise ValueError(
            f"The accuracy matrix has shape {table.shape}; expected one row and one column per "
            f"sub-task. Measure every sub-task after every sub-task."
        )
    return table


def _same_length(first: NDArray[Any], second: NDArray[Any]) -> None:
    if first.shape != second.shape or first.ndim != 1:
        raise ValueError(
            f"Arrays of shapes {first.shape} and {second.shape} cannot be compared; expected two "
            f"of the same shape (N,). Pass one value per sample or batch in both."
        )
