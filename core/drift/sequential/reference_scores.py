"""A frozen model's scores of earlier samples, among which later ones are ranked.

Throughout: N samples, S scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.compiled.loops import Array, vectorised
from core.drift.sequential.ranks import Ranks
from core.drift.sequential.record import record
from core.drift.sequential.scores import LIKELIHOOD, RANKED

WORTH_SORTING = 8
"""Earlier samples for each one that waits, below which those that wait are sorted in."""

MOST_PARTS = 64
"""Batches that wait side by side, before they are joined."""


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
    def of(cls, scores: Array) -> Summary:
        """From scores with shape (N,), at least one."""
        mean, limit, inlier_rate = _summary(scores)
        return cls(mean, limit, inlier_rate)

    def beside(self, scores: Array) -> tuple[float, float]:
        """The share of inliers among other scores, (N,), N at least 1, and their mean."""
        rate, mean = _at_least(scores, self.limit)
        return rate, mean


@record
class ReferenceScores:
    """Scores of earlier samples.

    Arguments:
        ranking: Of all but the latest, by the first `RANKED` scores.
        others: The other scores of the same samples, with shape (S - `RANKED`, n), in no order.
        unsorted: Of the latest, in stream order, with shape (S, n) each.
        places: Where these will go: how many in the ranking are below, (`RANKED`, n) each.
        n_unsorted: How many there are.
        summary: Of the log-likelihoods in the ranking.
    """

    ranking: Ranks
    others: Array
    unsorted: tuple[Array, ...]
    places: tuple[Array, ...]
    n_unsorted: int
    summary: Summary

    @classmethod
    def of(cls, scores: Array) -> ReferenceScores:
        """From the first ones, in stream order, with shape (S, n)."""
        ranking = Ranks.of(scores[:RANKED])
        return cls(ranking, scores[RANKED:], (), (), 0, Summary.of(scores[LIKELIHOOD]))

    def __len__(self) -> int:
        return len(self.ranking) + self.n_unsorted

    def with_more(self, scores: Array, places: Array | None = None) -> ReferenceScores:
        """The same with more scores.

        They wait, or, once that is worth the effort, are sorted in with all that wait.

        Arguments:
            scores: With shape (S, n).
            places: See `ReferenceScores`, if known, int64.
        """
        if places is None:
            places = self.ranking.places(scores[:RANKED])
        unsorted, there = (*self.unsorted, scores), (*self.places, places)
        n_unsorted = self.n_unsorted + scores.shape[1]
        if n_unsorted * WORTH_SORTING < len(self.ranking):
            if len(unsorted) > MOST_PARTS:
                unsorted, there = (np.concatenate(unsorted, 1),), (np.concatenate(there, 1),)
            return ReferenceScores(
                self.ranking, self.others, unsorted, there, n_unsorted, self.summary
            )
        more = np.concatenate(unsorted, 1)
        ranking = self.ranking.with_more(more[:RANKED], np.concatenate(there, 1))
        others = np.concatenate([self.others, more[RANKED:]], 1)
        return ReferenceScores(ranking, others, (), (), 0, Summary.of(ranking.scores[LIKELIHOOD]))

    def ranking_with(self, suspected: Array) -> Ranks:
        """The ranking, and scores that belong to it for now only, with shape (S, n)."""
        return self.ranking.with_more(suspected[:RANKED]) if suspected.shape[1] else self.ranking

    def whole_ranking_with(self, suspected: Array) -> Ranks:
        """The same with those that wait, too."""
        more = [scores[:RANKED] for scores in (*self.unsorted, suspected) if scores.shape[1]]
        return self.ranking.with_more(np.concatenate(more, 1)) if more else self.ranking

    def ranks(self, scores: Array) -> tuple[Array, Array]:
        """See `Ranks.ranks`, by all scores, with shape (S, N)."""
        known = np.concatenate([self.ranking.scores, np.sort(self.others)])
        return Ranks(known).ranks(scores)


@vectorised
def _at_least(scores: Array, limit: float) -> tuple[float, float]:
    """Share of scores at a limit or above, and their mean."""
    n = 0
    for i in range(len(scores)):
        n += int(scores[i] >= limit)
    return n / len(scores), _mean(scores)


@vectorised
def _mean(scores: Array) -> float:
    """In a loop of its own: what is counted and added up in one would be so one by one."""
    total = 0.0
    for i in range(len(scores)):
        total += scores[i]
    return total / len(scores)


@vectorised
def _summary(scores: Array) -> tuple[float, float, float]:
    """The fields of a `Summary`."""
    mean, squares = _mean(scores), 0.0
    for i in range(len(scores)):
        squares += (scores[i] - mean) * (scores[i] - mean)
    limit = mean - np.sqrt(squares / len(scores))
    inlier_rate, _ = _at_least(scores, limit)
    return mean, limit, inlier_rate
