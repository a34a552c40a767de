"""What a sentinel said of earlier samples: what later ones are compared with.

Ranks are taken among the scores of earlier samples. Cells count where they fell, by
three divisions of different fineness: the winning component; the class that it stands for
with the height of the rank; the height alone. The first shows a new class that hides where the
density is high, the second the few samples of one within much traffic, the third
what no class explains (`core.drift.tally`).

A stream whose samples depend on each other (frames of a film, one writer after another) pays
more to bets than independent ones would, though nothing changes. So the first samples of a
reference are used twice: run through the bets, they show how much a bet gains without a
change, and over how many samples gains hang together. Both are taken off from later gains.

Throughout: N samples, K components, J bets, S scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from core.drift.bets import Array, Book
from core.drift.compiled import compiled
from core.drift.sentinel import LIKELIHOOD, Sentinel, Sighting
from core.drift.tally import Tally

BY_COMPONENT, BY_CLASS, BY_HEIGHT = range(3)
"""Divisions into cells."""

EDGES = (0.02, 0.1, 0.3, 0.6)
"""Ranks at which one height ends and the next begins: the low end says most."""
HEIGHTS = len(EDGES) + 1

RUNS = (10, 30, 100)
"""Samples of stretches whose gains are added up to see how they hang together."""

FEWEST_RUNS = 5

LEAST_VARIANCE = 1e-3
"""Of gains, in nats squared: a bet that says next to nothing only drifts as shares settle."""

NOTHING = 1e-12
"""Variance of the gains of a bet that says nothing."""

CLOSED = 1e3
"""Nats per sample that a closed bet loses: it never has any evidence."""

CERTAINTY = 3.0
"""Standard errors by which dependence must show before it is believed."""


@dataclass(frozen=True)
class Summary:
    """Log-likelihoods in a few numbers.

    Arguments:
        mean: In nats.
        limit: One standard deviation below: where the paper's inliers begin (c = 1).
        inlier_rate: Share of them that are, 0 to 1.
    """

    mean: float
    limit: float
    inlier_rate: float

    @classmethod
    def of(cls, scores: Tensor) -> Summary:
        """From scores with shape (N,), at least one."""
        mean = float(scores.mean())
        limit = mean - float(scores.std(correction=0))
        return cls(mean, limit, float((scores >= limit).double().mean()))


@dataclass(frozen=True, eq=False)
class Reference:
    """What is known of a stream without change, by one sentinel.

    Arguments:
        scores: Of earlier samples, with shape (S, n), float64, each row rising.
        waiting: The same of the latest, in stream order, not sorted in yet.
        tally: Cells of earlier samples.
        drift: Logarithm of what every bet gains without a change, with shape (J,); `CLOSED`
            if it is.
        pace: Samples over which a bet's gains hang together, with shape (J,), at least 1.
        summary: Of the log-likelihoods in `scores`.
    """

    scores: Tensor
    waiting: Tensor
    tally: Tally
    drift: Tensor
    pace: Tensor
    summary: Summary

    @classmethod
    def of(cls, sentinel: Sentinel, seen: Sighting, book: Book) -> Reference:
        """From the first samples that a sentinel saw, in stream order."""
        scores = seen.scores.sort().values
        still = torch.zeros(len(book), dtype=torch.float64)
        tally, calm = Tally.empty(_widths(sentinel)), Summary.of(seen.log_likelihoods)
        empty = cls(scores, scores[:, :0], tally, still, still + 1, calm)
        filled, gains = empty._gains(sentinel, seen, book, scores[:, :0])
        # The very first samples are betted on with next to no knowledge.
        drift, pace = _dependence(gains[:, len(seen) // 4 :])
        tally = filled.tally.smoothed(_widths(sentinel))
        return replace(empty, tally=tally, drift=drift, pace=pace)

    def __len__(self) -> int:
        return self.scores.shape[1] + self.waiting.shape[1]

    @property
    def worth(self) -> float:
        """Independent samples that it is worth."""
        return len(self) / float(self.pace.mean())

    def weighed(
        self, sentinel: Sentinel, seen: Sighting, book: Book, withheld: Tensor
    ) -> tuple[Reference, Tensor]:
        """Bet on samples, then count them among the earlier ones.

        Arguments:
            withheld: Scores of samples under suspicion, with shape (S, n): none of the
                earlier ones yet, but ranked among, or chance would feed on itself.

        Returns:
            The reference with them, and logarithms of the e-values, with shape (J, N).
        """
        after, gains = self._gains(sentinel, seen, book, withheld)
        return after._sorted(sentinel), (gains - self.drift[:, None]) / self.pace[:, None]

    def with_scores_of(self, earlier: Reference) -> Reference:
        """The same with the scores that were known earlier."""
        return replace(
            self, scores=earlier.scores, waiting=earlier.waiting, summary=earlier.summary
        )

    def with_more(self, scores: Tensor) -> Reference:
        """The same with more scores, with shape (S, n), waiting to be sorted in."""
        return replace(self, waiting=torch.cat([self.waiting, scores], 1))

    def with_new_shares(self, sentinel: Sentinel) -> Reference:
        """The same where only what the last samples preferred counts for usual."""
        return replace(self, tally=self.tally.renewed(_widths(sentinel)))

    def ranks(self, scores: Tensor, withheld: Tensor | None = None) -> tuple[Array, Array]:
        """Share of the ranks below samples, and with their equals, with shape (S, N) each.

        Arguments:
            scores: With shape (S, N).
            withheld: See `weighed`.
        """
        known = self.scores.numpy()
        if withheld is not None and withheld.shape[1]:
            known = _merged(known, withheld)
        low, high = np.empty(scores.shape), np.empty(scores.shape)
        _rank(low, high, known, scores.numpy())
        return low, high

    def _gains(
        self, sentinel: Sentinel, seen: Sighting, book: Book, withheld: Tensor
    ) -> tuple[Reference, Tensor]:
        low, high = self.ranks(seen.scores, withheld)
        cells = np.empty((len(_widths(sentinel)), len(seen)), np.int64)
        middle = (low[LIKELIHOOD] + high[LIKELIHOOD]) / 2
        n_components, n_by_class, _ = _widths(sentinel)
        classes, winners = sentinel.classes.numpy(), seen.components.numpy()
        _place(cells, winners, classes, middle, EDGES, n_components, n_by_class)
        gains = np.empty((len(book), len(seen)))
        book.on_ranks(low, high, gains)
        tally = self.tally.betted_on(cells, book, gains[len(book.ranks) :])
        after = replace(self.with_more(seen.scores), tally=tally)
        return after, torch.from_numpy(np.log(gains, gains))

    def _sorted(self, sentinel: Sentinel) -> Reference:
        """With what waits sorted in, once that is worth the effort."""
        if self.waiting.shape[1] * 16 < self.scores.shape[1]:
            return self
        scores = torch.from_numpy(_merged(self.scores.numpy(), self.waiting))
        return replace(
            self,
            scores=scores,
            waiting=self.waiting[:, :0].clone(),
            tally=self.tally.smoothed(_widths(sentinel)),
            summary=Summary.of(scores[LIKELIHOOD]),
        )


@compiled
def _rank(low: Array, high: Array, known: Array, scores: Array) -> None:
    """Fills `low` and `high`; a sample counts as one of those that it is ranked among."""
    n = known.shape[1]
    for row in range(len(scores)):
        for i in range(scores.shape[1]):
            score = scores[row, i]
            first = last = np.searchsorted(known[row], score)
            if first < n and known[row, first] == score:
                last = np.searchsorted(known[row], score, side="right")
            low[row, i], high[row, i] = first / (n + 1), (last + 1) / (n + 1)


@compiled
def _place(
    cells: Array,
    winners: Array,
    classes: Array,
    ranks: Array,
    edges: tuple[float, ...],
    n_components: int,
    n_by_class: int,
) -> None:
    """Fills `cells`, of every sample in each division."""
    for i in range(len(winners)):
        height = 0
        for edge in edges:
            height += ranks[i] > edge
        cells[BY_COMPONENT, i] = winners[i]
        cells[BY_CLASS, i] = n_components + classes[winners[i]] * HEIGHTS + height
        cells[BY_HEIGHT, i] = n_components + n_by_class + height


@compiled
def _merge(merged: Array, known: Array, more: Array) -> None:
    """Fills `merged`, row by row, from two that are in order."""
    for row in range(len(merged)):
        i = j = 0
        for place in range(merged.shape[1]):
            if j == more.shape[1] or (i < known.shape[1] and known[row, i] <= more[row, j]):
                merged[row, place] = known[row, i]
                i += 1
            else:
                merged[row, place] = more[row, j]
                j += 1


def _merged(known: Array, more: Tensor) -> Array:
    """All scores, each row rising; those known rise already."""
    merged = np.empty((len(known), known.shape[1] + more.shape[1]))
    _merge(merged, known, np.sort(more.numpy()))
    return merged


def _widths(sentinel: Sentinel) -> tuple[int, int, int]:
    """Cells of each division."""
    return sentinel.model.n_components, sentinel.n_classes * HEIGHTS, HEIGHTS


def _dependence(gains: Tensor) -> tuple[Tensor, Tensor]:
    """What bets gain without a change, and over how many samples their gains hang together.

    Of independent samples nothing is taken off: what shows must be beyond chance. A bet that
    says nothing at all (on the margin between classes where there is one class) is closed:
    it would only count samples.

    Arguments:
        gains: Logarithms of e-values, with shape (J, N).

    Returns:
        Logarithm of the mean e-value, at least 0, `CLOSED` if the bet is, and the largest
        ratio of the variance of sums over a run to that of as many independent ones, at
        least 1; with shape (J,).
    """
    drift, pace = torch.zeros(len(gains), dtype=torch.float64), torch.ones(len(gains)).double()
    single = gains.var(1).clamp_min(NOTHING)
    for length in RUNS:
        n_runs = gains.shape[1] // length
        if n_runs < FEWEST_RUNS:
            break
        runs = gains[:, : n_runs * length].reshape(len(gains), n_runs, length)
        ratio = runs.sum(2).var(1) / (length * single)
        # A chi-square's upper end, by its cube root (Wilson and Hilferty 1931).
        part = 2 / (9 * (n_runs - 1))
        beyond = (ratio > (1 - part + CERTAINTY * part**0.5) ** 3) & (single > LEAST_VARIANCE)
        pace = torch.where(beyond, torch.maximum(pace, ratio), pace)
        means = runs.exp().mean(2)
        certain = means.mean(1) - CERTAINTY * means.std(1) / n_runs**0.5 > 1
        drift = torch.where(certain, torch.maximum(drift, means.mean(1).log()), drift)
    return drift.masked_fill(single <= NOTHING, CLOSED), pace
