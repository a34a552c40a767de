"""What a sentinel said of earlier samples: what later ones are compared with.

Ranks are taken among the log-likelihoods of earlier samples. Cells count where they fell, by
three divisions of different fineness: the winning component; the class that it stands for
with the height of the rank; the height alone. The first shows a new class that hides where the
density is high, the second the few samples of one within much traffic, the third
what no class explains. Beside the long run stand two faded counts of the last samples.

A stream whose samples depend on each other (frames of a film, one writer after another) pays
more to bets than independent ones would, though nothing changes. So the first samples of a
reference are used twice: run through the bets, they show how much a bet gains without a
change, and over how many samples gains hang together. Both are taken off from later gains.

Throughout: N samples, K components, J bets, M cells of all divisions together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from core.drift.bets import Array, Book
from core.drift.sentinel import Sentinel, Sighting

BY_COMPONENT, BY_CLASS, BY_HEIGHT = range(3)
"""Divisions into cells."""

EDGES = (0.02, 0.1, 0.3, 0.6)
"""Ranks at which one height ends and the next begins: the low end says most."""
HEIGHTS = len(EDGES) + 1

MEMORIES = (50.0, 400.0)
"""Samples after which what the last samples preferred has faded to a third: for what comes at
once, and for what trickles in."""
AT_ONCE, TRICKLING = range(2)

FADING = np.array(MEMORIES)[:, None]

PRIOR = 20.0
"""Samples that the long-run shares count as among the last ones."""

SMOOTHING = 0.5
"""Samples added to every cell, so that none has a share of zero."""

SPARE_CELLS = 10
"""Cells never seen that may yet be: they share the smoothing."""

BLOCK = 50
"""Samples that are betted on at a time by what was seen before them."""

RUNS = (10, 30, 100)
"""Samples of stretches whose gains are added up to see how they hang together."""

FEWEST_RUNS = 5

LEAST_VARIANCE = 1e-3
"""Of gains, in nats squared: a bet that says next to nothing only drifts as shares settle."""

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
        scores: Log-likelihoods of earlier samples, with shape (n,), float64, rising.
        waiting: The same of the latest, not sorted in yet.
        counts: Earlier samples per cell, with shape (M,), float64.
        recent: The last samples per memory and cell, faded, with shape (memories, M).
        drift: Logarithm of what every bet gains without a change, with shape (J,).
        pace: Samples over which a bet's gains hang together, with shape (J,), at least 1.
        spread: Samples that smoothing adds to each cell's division, with shape (M,).
        summary: Of `scores`.
    """

    scores: Tensor
    waiting: Tensor
    counts: Tensor
    recent: Tensor
    drift: Tensor
    pace: Tensor
    spread: Tensor
    summary: Summary

    @classmethod
    def of(cls, sentinel: Sentinel, seen: Sighting, book: Book) -> Reference:
        """From the first samples that a sentinel saw, in stream order."""
        scores = seen.log_likelihoods.sort().values
        width = sum(_widths(sentinel))
        none = torch.zeros(width, dtype=torch.float64)
        recent = torch.zeros(len(MEMORIES), width, dtype=torch.float64)
        still = torch.zeros(len(book), dtype=torch.float64)
        calm, ones = Summary.of(scores), torch.ones_like(still)
        empty = cls(scores, scores[:0], none, recent, still, ones, none + SMOOTHING, calm)
        empty = replace(empty, spread=empty._spread(sentinel))
        filled, gains = empty._gains(sentinel, seen, book)
        # The very first samples are betted on with next to no knowledge.
        drift, pace = _dependence(gains[:, len(seen) // 4 :])
        spread = filled._spread(sentinel)
        return replace(filled, waiting=scores[:0], drift=drift, pace=pace, spread=spread)

    def __len__(self) -> int:
        return len(self.scores) + len(self.waiting)

    @property
    def worth(self) -> float:
        """Independent samples that it is worth."""
        return len(self) / float(self.pace.mean())

    def weighed(self, sentinel: Sentinel, seen: Sighting, book: Book) -> tuple[Reference, Tensor]:
        """Bet on samples, then count them among the earlier ones.

        Returns:
            The reference with them, and logarithms of the e-values, with shape (J, N).
        """
        after, gains = self._gains(sentinel, seen, book)
        return after._sorted(sentinel), (gains - self.drift[:, None]) / self.pace[:, None]

    def with_scores_of(self, earlier: Reference) -> Reference:
        """The same with the log-likelihoods that were known earlier."""
        return replace(
            self, scores=earlier.scores, waiting=earlier.waiting, summary=earlier.summary
        )

    def with_more(self, log_likelihoods: Tensor) -> Reference:
        """The same with more log-likelihoods, waiting to be sorted in."""
        return replace(self, waiting=torch.cat([self.waiting, log_likelihoods]))

    def ranks(self, log_likelihoods: Tensor) -> tuple[Array, Array]:
        """Share of the ranks below samples, and with their equals, with shape (N,) each."""
        n, known, scores = len(self.scores) + 1, self.scores.numpy(), log_likelihoods.numpy()
        low = np.searchsorted(known, scores)
        high = np.searchsorted(known, scores, side="right") + 1
        return low / n, high / n

    def _gains(self, sentinel: Sentinel, seen: Sighting, book: Book) -> tuple[Reference, Tensor]:
        low, high = self.ranks(seen.log_likelihoods)
        cells = _cells(sentinel, seen, (low + high) / 2)
        n_components = sentinel.model.n_components
        counts, recent = self.counts.numpy(), self.recent.numpy()
        spread = self.spread.numpy()
        parts = []
        for begin in range(0, len(seen), BLOCK):
            block = cells[:, begin : begin + BLOCK]
            n = recent[:, :n_components].sum(1)[:, None, None]
            shares = (counts + SMOOTHING) / (counts[:n_components].sum() + spread)
            usual = shares[block]
            last = (recent[:, block] + PRIOR * usual) / (n + PRIOR)
            parts.append(book.on_cells(last, usual))
            added = np.bincount(block.ravel(), minlength=len(counts))
            counts = counts + added
            recent = recent * np.exp(-block.shape[1] / FADING) + added
        payoffs = np.concatenate([book.on_ranks(low, high), np.concatenate(parts, 1)])
        waiting = torch.cat([self.waiting, seen.log_likelihoods])
        known = torch.from_numpy(counts), torch.from_numpy(recent)
        after = replace(self, waiting=waiting, counts=known[0], recent=known[1])
        return after, torch.from_numpy(np.log(payoffs))

    def _spread(self, sentinel: Sentinel) -> Tensor:
        """Samples that smoothing adds to the division of each cell, with shape (M,)."""
        widths = _widths(sentinel)
        parts = torch.split(self.counts, list(widths))
        used = [min(len(part), int(part.count_nonzero()) + SPARE_CELLS) for part in parts]
        spread = SMOOTHING * torch.tensor(used, dtype=torch.float64)
        return spread.repeat_interleave(torch.tensor(widths))

    def _sorted(self, sentinel: Sentinel) -> Reference:
        """With what waits sorted in, once that is worth the effort."""
        if len(self.waiting) * 16 < len(self.scores):
            return self
        scores = torch.cat([self.scores, self.waiting]).sort().values
        return replace(
            self,
            scores=scores,
            waiting=self.waiting[:0].clone(),
            spread=self._spread(sentinel),
            summary=Summary.of(scores),
        )


def _widths(sentinel: Sentinel) -> tuple[int, int, int]:
    """Cells of each division."""
    return sentinel.model.n_components, sentinel.n_classes * HEIGHTS, HEIGHTS


def _cells(sentinel: Sentinel, seen: Sighting, ranks: Array) -> Array:
    """Cell of every sample in each division, with shape (3, N), int64."""
    heights = np.searchsorted(EDGES, ranks)
    n_components, n_classes, _ = _widths(sentinel)
    winners = seen.components.numpy()
    by_class = n_components + sentinel.classes.numpy()[winners] * HEIGHTS + heights
    return np.stack([winners, by_class, n_components + n_classes + heights])


def _dependence(gains: Tensor) -> tuple[Tensor, Tensor]:
    """What bets gain without a change, and over how many samples their gains hang together.

    Of independent samples nothing is taken off: what shows must be beyond chance.

    Arguments:
        gains: Logarithms of e-values, with shape (J, N).

    Returns:
        Logarithm of the mean e-value, at least 0, and the largest ratio of the variance of
        sums over a run to that of as many independent ones, at least 1; with shape (J,).
    """
    drift, pace = torch.zeros(len(gains), dtype=torch.float64), torch.ones(len(gains)).double()
    single = gains.var(1).clamp_min(1e-12)
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
    return drift, pace
