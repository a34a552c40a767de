"""Where samples fell, what their labels said, where their features lay: counted, and betted on.

Cells count where samples fell, by three divisions of different fineness: the winning component; the
class that it stands for with the height of the rank; the height alone. The first shows a new
class that hides where the density is high, the second the few samples of one within much
traffic, the third what no class explains (`core.drift.tally`).

Throughout: N samples, K components, J bets, S scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.drift.bets import Book, pay_ranks
from core.drift.compiled import Array, compiled
from core.drift.conditions import Conditions, stretch
from core.drift.features import FeatureTally, bet_on_features
from core.drift.misses import Misses, bet_on_labels
from core.drift.ranking import Ranking, find_ranks
from core.drift.sentinel import Sentinel
from core.drift.sighting import LIKELIHOOD, Sighting
from core.drift.tally import Tally, bet_on_cells

BY_COMPONENT, BY_CLASS, BY_HEIGHT = range(3)
"""Divisions into cells."""

EDGES = (0.02, 0.1, 0.3, 0.6)
"""Ranks at which one height ends and the next begins: the low end says most."""
HEIGHTS = len(EDGES) + 1

_Pair = tuple[Array, Array]


@dataclass(frozen=True, eq=False)
class Counts:
    """All that is counted.

    Arguments:
        tally: Cells.
        misses: Labels.
        features: Where features lay.
    """

    tally: Tally
    misses: Misses
    features: FeatureTally

    @classmethod
    def none(cls, sentinel: Sentinel, seen: Sighting, book: Book) -> Counts:
        """Before the first sample of those that a sentinel saw."""
        widths = sentinel.model.n_components, sentinel.n_classes * HEIGHTS, HEIGHTS
        misses = Misses.none(sentinel.n_classes)
        return cls(Tally.empty(widths), misses, FeatureTally.empty(seen.bins.shape[1], book))

    def faded(self) -> Counts:
        """With what is known of the long run, and no last samples."""
        return Counts(self.tally.faded(), self.misses, self.features.faded())

    def settled(self) -> Counts:
        """With what is known, and no evidence of when it was not."""
        return Counts(self.tally.smoothed(), self.misses.settled(), self.features.settled())

    def smoothed(self) -> Counts:
        """With the smoothing that the cells in use ask for."""
        return Counts(self.tally.smoothed(), self.misses, self.features)

    def renewed(self) -> Counts:
        """As if the last samples were all that there have been."""
        return Counts(self.tally.renewed(), self.misses, self.features)

    def betted_on(
        self,
        sentinel: Sentinel,
        seen: Sighting,
        earlier: Ranking,
        conditions: Conditions,
        book: Book,
    ) -> tuple[Counts, Array, Array]:
        """Bet on samples one by one, and count them.

        Arguments:
            sentinel: Whoever saw them.
            seen: The samples.
            earlier: Samples that they are ranked among.
            conditions: Of the bets.
            book: The bets.

        Returns:
            The counts with them; e-values with shape (J, N); and how many of the earlier scores
            are below each of theirs, with shape (S, N), int64.
        """
        places = np.empty(seen.scores.shape, np.int64)
        counts = Counts(self.tally.copied(), self.misses.copied(), self.features.copied())
        tally, misses, features = counts.tally, counts.misses, counts.features
        # Those of a sample lie side by side.
        paid = np.empty((len(seen), len(book))).T
        _bet(
            paid,
            places,
            (seen.scores, seen.components, seen.labels, seen.bins),
            sentinel.classes,
            (earlier.scores, earlier.begins),
            (book.rank_terms, book.cell_terms, book.label_terms, book.feature_terms),
            (tally.widths, tally.counts, tally.recent, tally.spread, tally.quiet),
            (misses.counts, misses.recent),
            (features.counts, features.recent, features.evidence),
            (conditions.stride, conditions.drift, conditions.pace),
        )
        return counts, paid, places


@compiled
def _bet(
    paid: Array,
    places: Array,
    seen: tuple[Array, Array, Array, Array],
    classes: Array,
    earlier: _Pair,
    terms: tuple[_Pair, _Pair, _Pair, _Pair],
    tally: tuple[tuple[int, ...], Array, Array, Array, float],
    misses: _Pair,
    features: tuple[Array, Array, Array],
    conditions: tuple[int, Array, Array],
) -> None:
    """Place all bets on some samples, and count these.

    In one piece, for to call one compiled loop after another takes as long as to run them.

    Arguments:
        paid: Is filled with e-values; with shape (J, N).
        places: Is filled; see `find_ranks`.
        seen: The fields of a `Sighting`.
        classes: Of components, with shape (K,).
        earlier: Scores of a `Ranking`, and where classes begin among them.
        terms: Of the bets on ranks, cells, labels and features (`Book`).
        tally: The fields of a `Tally`.
        misses: The fields of `Misses`.
        features: The fields of a `FeatureTally`.
        conditions: The first fields of `Conditions`.
    """
    scores, winners, labels, bins = seen
    on_ranks, on_cells, on_labels, on_features = terms
    widths, counts, recent, spread, quiet = tally
    stride, drift, pace = conditions
    known, begins = earlier
    low, high = np.empty(scores.shape), np.empty(scores.shape)
    find_ranks(low, high, places, known, begins, scores)
    n = len(winners)
    cells, fell = np.empty((len(widths), n), np.int64), np.empty(n, np.int64)
    _place(cells, fell, winners, classes, low, high, widths)
    end = len(on_ranks[0])
    pay_ranks(paid[:end], low, high, on_ranks)
    begin, end = end, end + len(on_cells[0])
    bet_on_cells(paid[begin:end], cells, on_cells, counts, recent, spread, quiet, stride)
    begin, end = end, end + len(on_labels[0])
    bet_on_labels(paid[begin:end], labels, fell, on_labels, *misses)
    bet_on_features(paid[end:], bins, on_features, *features, stride)
    stretch(paid, drift, pace)


@compiled
def _place(
    cells: Array,
    fell: Array,
    winners: Array,
    classes: Array,
    low: Array,
    high: Array,
    widths: tuple[int, ...],
) -> None:
    """Fills `cells`, of every sample in each division, and `fell`, on which class."""
    by_class, by_height = widths[0], widths[0] + widths[1]
    highest = 0
    for one in classes:
        highest = max(highest, one)
    if len(classes) != widths[0] or (highest + 1) * HEIGHTS > widths[1]:
        # Whoever counts in them does not look.
        raise ValueError("the tally is of other components")
    for i in range(len(winners)):
        rank, height = (low[LIKELIHOOD, i] + high[LIKELIHOOD, i]) / 2, 0
        for edge in EDGES:
            height += rank > edge
        fell[i] = classes[winners[i]]
        cells[BY_COMPONENT, i] = winners[i]
        cells[BY_CLASS, i] = by_class + fell[i] * HEIGHTS + height
        cells[BY_HEIGHT, i] = by_height + height
