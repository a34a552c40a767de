"""Scores of earlier samples in order, and the ranks of later ones among them.

Ranks are taken among all, or, for scores that tell within classes, among those of the same class.

Throughout: N samples, S scores, n earlier samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from core.compiled.loops import Array, compiled, vectorised
from core.drift.sequential.scores import BLOCK, OVERALL

MOST_BLOCKS = 2**20
"""Classes, far more than there can be: what a damaged state says is not believed."""

CROWDED = 8
"""Others that a new score passes on average, beyond which sorting is faster."""


@dataclass(frozen=True, eq=False)
class Ranks:
    """Earlier samples, by each of their scores.

    Arguments:
        scores: With shape (S, n), float64, each row rising.
    """

    scores: Array

    @classmethod
    def of(cls, scores: Array) -> Ranks:
        """From scores in any order, with shape (S, n)."""
        return cls(np.sort(scores))

    def __len__(self) -> int:
        return int(self.scores.shape[1])

    @cached_property
    def begins(self) -> Array:
        """Where each class begins in each row, and where the last ends: (S, classes + 1), int64."""
        return _find_begins(self.scores)

    def with_more(self, scores: Array, places: Array | None = None) -> Ranks:
        """The same with more, in any order.

        Arguments:
            scores: With shape (S, more).
            places: Of each, if known, how many earlier ones are below, with shape (S, more), int64.
        """
        if places is None:
            places = self.places(scores)
        merged = np.empty((len(self.scores), len(self) + scores.shape[1]))
        if not _insert(merged, self.scores, scores, places):
            _merge(merged, self.scores, np.sort(scores))
        return Ranks(merged)

    def places(self, scores: Array) -> Array:
        """How many earlier ones are below each, with shape (S, N), int64; see `ranks`."""
        return self._found(scores)[2]

    def ranks(self, scores: Array) -> tuple[Array, Array]:
        """Share of the ranks below samples, and with their equals, with shape (S, N) each.

        A sample counts as one of those that it is ranked among.

        Arguments:
            scores: With shape (S, N), of all scores or the first few.

        Raises:
            ValueError: There are more scores than are in order here.
        """
        low, high, _ = self._found(scores)
        return low, high

    def _found(self, scores: Array) -> tuple[Array, Array, Array]:
        if len(scores) > len(self.scores):
            raise ValueError(f"there are {len(scores)} scores, of {len(self.scores)} in order")
        low, high = np.empty(scores.shape), np.empty(scores.shape)
        places = np.empty(scores.shape, np.int64)
        find_ranks(low, high, places, self.scores, self.begins, scores)
        return low, high, places


@compiled
def _beyond(values: Array, first: int, end: int, score: float) -> int:
    """The place of the first of some rising values that is above a score; `end` if none is.

    numpy's own search takes a second to compile.
    """
    while first < end:
        middle = (first + end) // 2
        if values[middle] <= score:
            first = middle + 1
        else:
            end = middle
    return first


@compiled
def _find_begins(scores: Array) -> Array:
    """Find `Ranks.begins` of scores in order, with shape (S, n)."""
    n, top = scores.shape[1], 0
    for row in range(OVERALL, len(scores) if n else 0):
        last = np.floor(scores[row, n - 1] / BLOCK + 0.5)
        # `not` of what is right, so that what is no number is wrong.
        if not 0 <= last < MOST_BLOCKS:
            raise ValueError("reference scores are of no class")
        top = max(top, int(last))
    begins = np.empty((len(scores), top + 2), np.int64)
    for row in range(len(scores)):
        begins[row, 0], begins[row, top + 1] = 0, n
        for block in range(1, top + 1):
            begins[row, block] = n
            if row >= OVERALL:
                begins[row, block] = _beyond(scores[row], 0, n, (block - 0.5) * BLOCK)
    return begins


@vectorised
def find_ranks(
    low: Array, high: Array, places: Array, known: Array, begins: Array, scores: Array
) -> None:
    """Fills `low`, `high` and `places`, (S, N), by searches that halve in step.

    One search waits for memory at every halving; a hundred side by side wait together. Which half
    it is, no processor could guess: so there is no branch.

    Arguments:
        known: Scores in order, with shape (S, n) or more rows; there must not be fewer.
        begins: Of every class in each row, and the last's end, with shape (S, classes + 1), int64.
        scores: With shape (S, N) or more rows.
    """
    n, n_blocks = scores.shape[1], begins.shape[1] - 1
    starts, ends = np.empty(n, np.int64), np.empty(n, np.int64)
    firsts, lengths = np.empty(n, np.int64), np.empty(n, np.int64)
    for row in range(len(places)):
        values, wanted, longest = known[row], scores[row], 0
        for i in range(n):
            block = 0
            if row >= OVERALL:
                block = max(0, min(int(np.floor(wanted[i] / BLOCK + 0.5)), n_blocks))
            begin, end = begins[row, block], begins[row, min(block + 1, n_blocks)]
            starts[i], ends[i], firsts[i], lengths[i] = begin, end, begin, end - begin
            longest = max(longest, end - begin)
        while longest > 1:
            for i in range(n):
                half = lengths[i] >> 1
                middle = max(firsts[i] + half - 1, 0)
                firsts[i] += half * (values[middle] < wanted[i])
                lengths[i] -= half
            longest -= longest >> 1
        for i in range(n):
            score, first, end = wanted[i], firsts[i], ends[i]
            if lengths[i] == 1:
                first += values[first] < score
            places[row, i] = last = first
            if first < end and values[first] == score:
                last = _beyond(values, first, end, score)
            among = end - starts[i] + 1
            low[row, i] = (first - starts[i]) / among
            high[row, i] = (last - starts[i] + 1) / among


@vectorised
def _insert(merged: Array, known: Array, more: Array, places: Array) -> bool:
    """Fills `merged`, (S, n + more), from what is in order, (S, n), and what is not, (S, more).

    Where each of the many goes is clear once the few are counted by their places: nothing has to be
    compared but those of the few that come to lie side by side.

    Arguments:
        places: See `find_ranks`: 0 to n.

    Returns:
        False if so many do that they had better be sorted: then not all of it is filled.

    Raises:
        ValueError: A place is not 0 to n, as in a damaged state.
    """
    n_known, n_more, one = known.shape[1], more.shape[1], np.uint32(1)
    # Of half the size, these stay in the cache; and places that cannot be negative need not be
    # asked whether they count from the end, which takes as long as to copy a score.
    begins = np.empty(n_known + 1, np.uint32)
    few, where = np.empty(n_more), np.empty(n_more, np.uint64)
    for row in range(len(merged)):
        many, new, there, together = known[row], more[row], places[row], merged[row]
        begins[:] = 0
        for j in range(n_more):
            if not 0 <= there[j] <= n_known:
                raise ValueError("scores have places that there are not")
            begins[np.uint64(there[j])] += one
        before = np.uint64(0)
        for i in range(n_known):
            count = begins[i]
            begins[i] = before
            before += count
            together[np.uint64(i) + before] = many[i]
        begins[n_known] = before
        for j in range(n_more):
            place = np.uint64(there[j])
            k = begins[place]
            begins[place] += one
            few[k], where[k] = new[j], place
        n_moves = 0
        for k in range(1, n_more):
            score, i = few[k], k
            while i > 0 and few[i - 1] > score:
                few[i] = few[i - 1]
                i -= 1
            few[i] = score
            n_moves += k - i
            if n_moves > CROWDED * n_more:
                return False
        for k in range(n_more):
            together[where[k] + np.uint64(k)] = few[k]
    return True


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
