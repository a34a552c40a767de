"""SAM-kNN: nearest neighbours with a short-term memory, a long-term one, and both together.

Source: Losing, Hammer, Wersing (2016), "KNN classifier with self adjusting memory for
heterogeneous concept drift", ICDM; sections in brackets below are of that paper (IV).

* The short-term memory is the last samples; its length is the one of m, m/2, m/4, ... whose own
  test-then-train errors are the fewest [IV-B]. As in the authors' program, the errors of a length
  are kept from sample to sample and not reckoned anew when its window moves by one.
* What falls out of it goes to the long-term memory, unless it contradicts the short-term one;
  and whatever there contradicts a new sample is let go [IV-C].
* When both together are full, the long-term memory is halved by k-means in every class [IV-D].
* Whichever memory was right the most often, over the length of the short-term one, names [IV-A].
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.classification.measures import NOBODY
from benchmarks.classification.nearest import Array, Scale, nearest, squared_distances, vote
from benchmarks.classification.stream import Features, Labels

NEIGHBOURS = 5
LEAST = 50
MOST = 5000
LONG_SHARE = 0.4
"""The authors' settings: k, samples of the short-term memory at least, of both memories at most,
and the long-term memory's share of those."""

KINDS = ("short", "long", "both")


class SAMKNN:
    """A classifier with self-adjusting memory.

    Arguments:
        scaled: Whether distances are those of standardised features, by what was seen so far.
        least: Samples of the short-term memory at least.
        most: Samples of both memories at most.
        seed: Of k-means.
    """

    def __init__(
        self, *, scaled: bool = False, least: int = LEAST, most: int = MOST, seed: int = 0
    ) -> None:
        self._least, self._most, self._seed = least, most, seed
        self._most_long = int(LONG_SHARE * most)
        self._scale = Scale() if scaled else None
        self._x: Array = np.zeros((0, 0))  # short-term
        self._y: Labels = np.zeros(0, dtype=np.int64)
        self._long_x: Array = np.zeros((0, 0))
        self._long_y: Labels = np.zeros(0, dtype=np.int64)
        # Of the samples of the short-term memory: whether each memory named them right.
        self._right: NDArray[np.bool_] = np.zeros((0, len(KINDS)), dtype=bool)
        # Start of a window -> whether each sample from there on is named right by those before.
        self._own: dict[int, list[bool]] = {}

    @property
    def sizes(self) -> tuple[int, int]:
        """Samples of the short-term and of the long-term memory."""
        return len(self._y), len(self._long_y)

    def predict(self, x: Features) -> Labels:
        """See `Opponent`."""
        if not len(self._y):
            return np.full(len(x), NOBODY, dtype=np.int64)
        return self._answers(x.astype(np.float64))[:, self._best]

    def learn(self, x: Features, y: Labels) -> None:
        """See `Opponent`."""
        own = x.astype(np.float64)
        if self._scale is not None:
            self._scale.learn(own)
        for sample, label in zip(own, y.tolist(), strict=True):
            self._learn_one(sample[None], label)

    @property
    def _best(self) -> int:
        """The memory that was right the most often; the short-term one where all are equal."""
        return int(self._right.mean(0).argmax()) if len(self._right) else 0

    def _distances(self, a: Array, b: Array) -> Array:
        if not len(a) or not len(b):
            return np.zeros((len(a), len(b)))
        if self._scale is not None:
            a, b = self._scale.apply(a), self._scale.apply(b)
        return squared_distances(a, b)

    def _answers(self, x: Array) -> Labels:
        """What each memory names, with shape (N, 3) in the order of `KINDS`."""
        short, long = self._distances(x, self._x), self._distances(x, self._long_x)
        return self._named(short, long)

    def _named(self, short: Array, long: Array) -> Labels:
        both = np.hstack([short, long]), np.concatenate([self._y, self._long_y])
        parts = ((short, self._y), (long, self._long_y), both)
        return np.stack([vote(asked, held, NEIGHBOURS) for asked, held in parts], axis=1)

    def _learn_one(self, x: Array, label: int) -> None:
        if not len(self._y):
            self._x, self._y, self._long_x = x, np.array([label]), np.zeros((0, x.shape[1]))
            self._right = np.zeros((1, len(KINDS)), dtype=bool)
            return
        short, long = self._distances(x, self._x), self._distances(x, self._long_x)
        right = self._named(short, long) == label
        self._let_go(label, short, long)
        self._note_windows(label, short)
        self._x, self._y = np.vstack([self._x, x]), np.append(self._y, label)
        self._right = np.vstack([self._right, right])
        self._shorten()
        self._make_room()

    def _let_go(self, label: int, short: Array, long: Array) -> None:
        """Drop what in the long-term memory contradicts a new sample."""
        kept = _uncontradicted(label, short[0], self._y, long[0], self._long_y)
        self._long_x, self._long_y = self._long_x[kept], self._long_y[kept]

    def _note_windows(self, label: int, short: Array) -> None:
        """Whether the window of every candidate length would have named the new sample right."""
        n = len(self._y) + 1
        lengths = [n]
        while lengths[-1] // 2 >= self._least:
            lengths.append(lengths[-1] // 2)
        windows: dict[int, list[bool]] = {}
        if len(lengths) > 1:
            for length in lengths:
                start = n - length
                known = self._own.get(start)
                if known is None and start - 1 in self._own:
                    known = self._own[start - 1][1:]
                if known is None:
                    known = self._tried(start)
                named = vote(short[:, start:], self._y[start:], NEIGHBOURS)[0]
                windows[start] = [*known, bool(named == label)]
        self._own = windows

    def _tried(self, start: int) -> list[bool]:
        """Of each sample of a window but its first k: whether those before it name it right."""
        x, y = self._x[start:], self._y[start:]
        distances = self._distances(x, x)
        return [
            bool(vote(distances[i : i + 1, :i], y[:i], NEIGHBOURS)[0] == y[i])
            for i in range(NEIGHBOURS, len(y))
        ]

    def _shorten(self) -> None:
        """Take the length with the fewest errors; the longest of several."""
        if not self._own:
            return
        starts = sorted(self._own)
        errors = [round(1 - float(np.mean(self._own[start])), 4) for start in starts]
        best = starts[int(np.argmin(errors))]
        if best == 0:
            return
        old_x, old_y = self._x[:best], self._y[:best]
        self._drop(best)
        self._own = {start - best: own for start, own in self._own.items() if start >= best}
        self._remember(old_x, old_y)

    def _drop(self, n: int) -> None:
        """The first samples leave the short-term memory."""
        self._x, self._y, self._right = self._x[n:], self._y[n:], self._right[n:]

    def _remember(self, x: Array, y: Labels) -> None:
        """Into the long-term memory goes what no sample of the short-term one contradicts."""
        within, across = self._distances(self._x, self._x), self._distances(self._x, x)
        np.fill_diagonal(within, np.inf)
        left = np.arange(len(y))
        for i, label in enumerate(self._y.tolist()):
            kept = _uncontradicted(label, within[i], self._y, across[i, left], y[left])
            left = left[kept]
        self._long_x = np.vstack([self._long_x, x[left]])
        self._long_y = np.concatenate([self._long_y, y[left]])

    def _make_room(self) -> None:
        """Halve the long-term memory when both together are full."""
        if sum(self.sizes) <= self._most:
            return
        if len(self._long_y) <= self._most_long:
            n = self._most_long - len(self._long_y) + 1
            old_x, old_y = self._x[:n], self._y[:n]
            self._drop(n)
            self._own = {}
            self._remember(old_x, old_y)
        if len(self._long_y) > self._most_long // 2:
            self._halve()

    def _halve(self) -> None:
        from sklearn.cluster import KMeans

        x, y = [], []
        for label in np.unique(self._long_y).tolist():
            own = self._long_x[self._long_y == label]
            n = max(1, len(own) // 2)
            distinct = len(np.unique(own, axis=0))
            means = KMeans(min(n, distinct), n_init=1, max_iter=20, random_state=self._seed)
            centres = means.fit(own).cluster_centers_
            x.append(centres)
            y.append(np.full(len(centres), label, dtype=np.int64))
        self._long_x, self._long_y = np.vstack(x), np.concatenate(y)


def _uncontradicted(
    label: int, short: Array, short_y: Labels, other: Array, other_y: Labels
) -> NDArray[np.bool_]:
    """Which samples a labelled one lets stand [IV-C].

    Gone are those of its k nearest that are called otherwise and lie no farther than the farthest
    of its k nearest in the short-term memory that is called as it is.

    Arguments:
        label: Of the sample.
        short: Squared distances to the short-term memory, with shape (M,); itself is infinite.
        other: To the samples in question, with shape (L,).
    """
    kept = np.ones(len(other), dtype=bool)
    if not len(other) or len(short) <= NEIGHBOURS:
        return kept
    near = nearest(short[None], NEIGHBOURS)[0]
    alike = near[(short_y[near] == label) & np.isfinite(short[near])]
    if not len(alike):
        return kept
    theirs = nearest(other[None], NEIGHBOURS)[0]
    wrong = theirs[(other_y[theirs] != label) & (other[theirs] <= short[alike].max())]
    kept[wrong] = False
    return kept
