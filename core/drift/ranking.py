"""Scores of earlier samples in order, and the ranks of later ones among them.

Ranks are taken among all, or, for scores that tell within classes, among those of the same class.

Throughout: N samples, S scores, n earlier samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from core.drift.bets import Array
from core.drift.compiled import compiled, vectorised
from core.drift.sentinel import BLOCK, OVERALL

MOST_BLOCKS = 2**20
"""Classes, far more than there can be: what a damaged state says is not believed."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """Earlier samples, by each of their scores.

    Arguments:
        scores: With shape (S, n), float64, each row rising.
    """

    scores: Array

    @classmethod
    def of(cls, scores: Array) -> Ranking:
        """From scores in any order, with shape (S, n)."""
        return cls(np.sort(scores))

    def __len__(self) -> int:
        return int(self.scores.shape[1])

    @cached_property
    def _begins(self) -> Array:
        """Where each class begins in each row, and where the last ends: (S, classes + 1), int64."""
        n = len(self)
        last = self.scores[:, -1] if n else np.zeros(len(self.scores))
        tops = np.floor(last / BLOCK + 0.5)
        tops[:OVERALL] = 0  # are ranked among all
        if not np.all((tops >= 0) & (tops < MOST_BLOCKS)):
            raise ValueError("earlier scores are of no class")
        edges = (np.arange(1, int(tops.max()) + 1) - 0.5) * BLOCK
        begins = np.full((len(self.scores), len(edges) + 2), n)
        begins[:, 0] = 0
        for row in range(OVERALL, len(self.scores)):
            begins[row, 1:-1] = np.searchsorted(self.scores[row], edges)
        return begins

    def with_more(self, scores: Array) -> Ranking:
        """The same with more, in any order, with shape (S, more)."""
        merged = np.empty((len(self.scores), len(self) + scores.shape[1]))
        _merge(merged, self.scores, np.sort(scores))
        return Ranking(merged)

    def ranks(self, scores: Array) -> tuple[Array, Array]:
        """Share of the ranks below samples, and with their equals, with shape (S, N) each.

        A sample counts as one of those that it is ranked among.

        Arguments:
            scores: With shape (S, N), of all scores or the first few.
        """
        low, high = np.empty(scores.shape), np.empty(scores.shape)
        _rank(low, high, self.scores, self._begins, scores)
        return low, high


@compiled
def _rank(low: Array, high: Array, known: Array, begins: Array, scores: Array) -> None:
    """Fills `low` and `high`, by searches that halve in step.

    One search waits for memory at every halving; a hundred side by side wait together. Which half
    it is, no processor could guess: so there is no branch.
    """
    n, n_blocks = scores.shape[1], begins.shape[1] - 1
    starts, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    firsts, lengths = np.empty(n, np.int64), np.empty(n, np.int64)
    for row in range(len(scores)):
        values, longest = known[row], 0
        for i in range(n):
            block = 0
            if row >= OVERALL:
                block = min(int(np.floor(scores[row, i] / BLOCK + 0.5)), n_blocks)
            begin, end = begins[row, block], begins[row, min(block + 1, n_blocks)]
            starts[i], ends[i], firsts[i], lengths[i] = begin, end, begin, end - begin
            longest = max(longest, end - begin)
        while longest > 1:
            for i in range(n):
                half = lengths[i] >> 1
                middle = max(firsts[i] + half - 1, 0)
                firsts[i] += half * (values[middle] < scores[row, i])
                lengths[i] -= half
            longest -= longest >> 1
        for i in range(n):
            score, first, end = scores[row, i], firsts[i], ends[i]
            if lengths[i] == 1:
                first += values[first] < score
            last = first
            if first < end and values[first] == score:
                last += np.searchsorted(values[first:end], score, side="right")
            among = end - starts[i] + 1
            low[row, i] = (first - starts[i]) / among
            high[row, i] = (last - starts[i] + 1) / among


@vectorised
def _merge(merged: Array, known: Array, more: Array) -> None:
    """Fills `merged`, (S, n + more), row by row, from two that are in order, (S, n) and (S, more).

    The few are put between runs of the many, which the processor foresees.
    """
    n_known, n_more = known.shape[1], more.shape[1]
    for row in range(len(merged)):
        i = 0
        for j in range(n_more):
            one = more[row, j]
            while i < n_known and known[row, i] <= one:
                merged[row, i + j] = known[row, i]
                i += 1
            merged[row, i + j] = one
        # One by one: slices take seconds to compile.
        for rest in range(i, n_known):
            merged[row, rest + n_more] = known[row, rest]
