"""Counts of cells, label errors and features, and the bets on them.

Cells count where samples fell, by three divisions of different fineness: the winning component; the
class that it stands for with a bin of the rank; that bin alone. The first shows a new
class that hides where the density is high, the second the few samples of one within much
traffic, the third what no class explains (`core.drift.sequential.cells`).

Throughout: N samples, K components, J bets, S scores.
"""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property

import numpy as np

from core.compiled.loops import Array, compiled
from core.drift.sequential.bets import BetTable, pay_ranks
from core.drift.sequential.cells import AT_ONCE, MEMORIES, CellCounts, bet_on_cells, spread_over
from core.drift.sequential.dependence import Dependence, adjust
from core.drift.sequential.features import BINS, FeatureCounts, bet_on_features
from core.drift.sequential.frozen_model import FrozenModel
from core.drift.sequential.label_errors import LabelErrors, bet_on_labels
from core.drift.sequential.online import find_online_ranks, pay_rarity
from core.drift.sequential.ranks import Ranks, find_ranks
from core.drift.sequential.record import record
from core.drift.sequential.scores import LIKELIHOOD, RANKED, FrozenScores

BY_COMPONENT, BY_CLASS, BY_RANK = range(3)
"""Divisions into cells."""

EDGES = (0.02, 0.1, 0.3, 0.6)
"""Ranks at which one bin ends and the next begins: the low end says most."""

RANK_BINS = len(EDGES) + 1
"""Bins of the rank of the log-likelihood."""

SAME = 1e-6
"""Part by which the log-likelihoods of equal samples differ, at most."""

MANY_EQUALS = 0.02
"""Share of samples with the same log-likelihood from which on bins have fixed edges ..."""

FEWEST_EQUALS = 3
"""... and how many they are, at least."""


def _no_edges() -> Array:
    return np.zeros(0)


Layout = tuple[int, int, int, int, int, int]
"""Cells of each division, classes, features, and bets on features."""

_Pair = tuple[Array, Array]
_Smoothing = tuple[Array, float, Layout, Array]
_Parts = tuple[_Pair, _Pair, tuple[Array, Array, Array]]

BetTerms = tuple[
    tuple[Array, Array, Array, Array],
    Array,
    _Pair,
    tuple[Array, tuple[int, int, int, int]],
    _Smoothing,
    tuple[int, Array, Array, bool, bool],
]
"""The fields of a `FrozenScores`; classes of components, with shape (K,); scores of a `Ranks`, and
where classes begin among them; the bets, and where each kind ends (`BetTable.table` and `ends`);
all of `Counts` but its numbers; and the first fields of `Dependence`, `online`, and whether
samples are ranked among those before them."""


@record
class Counts:
    """All that is counted, in one array: to copy and hand on ten takes longer than to count.

    Arguments:
        numbers: The arrays of the tallies here, one after the other, float64.
        spread: See `CellCounts`.
        quiet: See `CellCounts`.
        layout: What there is of each.
        edges: Log-likelihoods between bins of its rank, rising; none where ranks say it. A rank
            among ever more samples moves a little, and an edge may come to lie on the other side
            of many that are equal: see `edges_between`.
    """

    numbers: Array
    spread: Array
    quiet: float
    layout: Layout
    edges: Array = field(default_factory=_no_edges)

    @classmethod
    def of(
        cls,
        cell_counts: CellCounts,
        label_errors: LabelErrors,
        features: FeatureCounts,
        edges: Array,
    ) -> Counts:
        """From what each counts."""
        parts = (
            *(cell_counts.counts, cell_counts.recent),
            *(label_errors.counts, label_errors.recent),
            *(features.counts, features.recent, features.evidence),
        )
        by_component, by_class, by_rank = cell_counts.widths
        n_bets, n_features = features.evidence.shape
        layout = by_component, by_class, by_rank, len(label_errors.counts), n_features, n_bets
        numbers = np.concatenate([part.ravel() for part in parts])
        return cls(numbers, cell_counts.spread, cell_counts.quiet, layout, edges)

    @classmethod
    def none(cls, frozen_model: FrozenModel, seen: FrozenScores, bet_table: BetTable) -> Counts:
        """Before the first sample of those that a frozen model saw."""
        widths = frozen_model.model.n_components, frozen_model.n_classes * RANK_BINS, RANK_BINS
        label_errors = LabelErrors.none(frozen_model.n_classes)
        return cls.of(
            CellCounts.empty(widths),
            label_errors,
            FeatureCounts.empty(seen.bins.shape[1], bet_table),
            edges_between(seen.scores[LIKELIHOOD]),
        )

    @cached_property
    def _parts(self) -> _Parts:
        return _cut(self.numbers, self.layout)

    @property
    def cell_counts(self) -> CellCounts:
        """The counts of cells."""
        counts, recent = self._parts[0]
        return CellCounts(self.layout[:3], counts, recent, self.spread, self.quiet)

    @property
    def label_errors(self) -> LabelErrors:
        """The label errors."""
        return LabelErrors(*self._parts[1])

    @property
    def features(self) -> FeatureCounts:
        """The counts of where features lay."""
        return FeatureCounts(*self._parts[2])

    def with_numbers(self, numbers: Array) -> Counts:
        """The same after more samples."""
        return Counts(numbers, self.spread, self.quiet, self.layout, self.edges)

    def faded(self) -> Counts:
        """Keep what is known of the long run of cells and features, and drop the rest."""
        label_errors = LabelErrors.none(len(self.label_errors.counts))
        features = self.features.faded()
        return Counts.of(self.cell_counts.faded(), label_errors, features, self.edges)

    def without_evidence(self) -> Counts:
        """Keep what is known, and drop evidence that came before it was known."""
        label_errors, features = (
            self.label_errors.without_evidence(),
            self.features.without_evidence(),
        )
        return Counts.of(self.cell_counts.smoothed(), label_errors, features, self.edges)

    def smoothed(self) -> Counts:
        """Smooth the counts as the cells in use ask for."""
        # Those of cells come first.
        return replace(self, spread=spread_over(self.numbers, self.layout[:3]))

    def renewed(self) -> Counts:
        """As if the last samples were all that there have been."""
        renewed = self.cell_counts.renewed()
        return Counts.of(renewed, self.label_errors, self.features, self.edges)

    def betted_on(
        self,
        frozen_model: FrozenModel,
        seen: FrozenScores,
        earlier: Ranks,
        dependence: Dependence,
        bet_table: BetTable,
    ) -> tuple[Counts, Array]:
        """Bet on samples one by one, and count them.

        Arguments:
            frozen model: Whoever saw them.
            seen: The samples.
            earlier: Samples that they are ranked among.
            dependence: Of the bets.
            bet_table: The bets.

        Returns:
            The counts with them, and e-values with shape (J, N).
        """
        places, numbers = np.empty((RANKED, len(seen)), np.int64), self.numbers.copy()
        # Those of a sample lie side by side.
        e_values = np.ones((len(seen), len(bet_table))).T
        bet(
            e_values,
            places,
            numbers,
            self.terms(frozen_model, seen, earlier, dependence, bet_table),
        )
        return self.with_numbers(numbers), e_values

    def terms(
        self,
        frozen_model: FrozenModel,
        seen: FrozenScores,
        earlier: Ranks,
        dependence: Dependence,
        bet_table: BetTable,
        growing: bool = False,
    ) -> BetTerms:
        """All that bets on samples depend on but the counts themselves; see `betted_on`.

        Arguments:
            growing: Whether each sample is ranked among those before it as well.
        """
        dependence_terms = (
            dependence.thinning,
            dependence.log_bias,
            dependence.autocorrelation_time,
            dependence.online,
            growing,
        )
        return (
            (seen.scores, seen.components, seen.labels, seen.bins),
            frozen_model.classes,
            (earlier.scores, earlier.begins),
            (bet_table.table, bet_table.ends),
            (self.spread, self.quiet, self.layout, self.edges),
            dependence_terms,
        )


def edges_between(log_likelihoods: Array) -> Array:
    """Edges of bins by rank that leave equal samples together; none where hardly any are equal.

    Arguments:
        log_likelihoods: Of the first samples, with shape (N,).

    Example:
        >>> edges_between(np.repeat([1.0, 2.0, 4.0], [2, 2, 6])).tolist()
        [0.0, 1.5, 3.0, 3.0]
    """
    ordered = np.sort(log_likelihoods)
    alone = np.diff(ordered) > SAME * (1 + np.abs(ordered[1:]))
    ends = np.append(alone.nonzero()[0] + 1, len(ordered))
    sizes = np.diff(ends, prepend=0)
    if sizes.max(initial=0) < max(FEWEST_EQUALS, MANY_EQUALS * len(ordered)):
        return _no_edges()
    middle_ranks = (ends - sizes / 2) / len(ordered)
    between = (ordered[ends[:-1] - 1] + ordered[ends[:-1]]) / 2
    cuts = np.concatenate([[ordered[0] - 1], between, [ordered[-1] + 1]])
    return cuts[np.searchsorted(middle_ranks, EDGES, side="right")]


@compiled
def _cut(numbers: Array, layout: Layout) -> _Parts:
    """The arrays in `Counts.numbers`, as parts of it."""
    by_component, by_class, by_rank, n_classes, n_features, n_bets = layout
    n_cells, n_memories = by_component + by_class + by_rank, len(MEMORIES)
    recent = n_cells
    labels = recent + n_memories * n_cells
    recent_labels = labels + 2 * n_classes
    bins = recent_labels + 2 * n_memories
    recent_bins = bins + BINS * n_features
    evidence = recent_bins + n_memories * BINS * n_features
    if len(numbers) != evidence + n_bets * n_features:
        # Whoever counts in them does not look.
        raise ValueError("there are not as many counts as there should be")
    return (
        (numbers[:recent], numbers[recent:labels].reshape(n_memories, n_cells)),
        (
            numbers[labels:recent_labels].reshape(n_classes, 2),
            numbers[recent_labels:bins].reshape(n_memories, 2),
        ),
        (
            numbers[bins:recent_bins].reshape(n_features, BINS),
            numbers[recent_bins:evidence].reshape(n_memories, n_features, BINS),
            numbers[evidence:].reshape(n_bets, n_features),
        ),
    )


@compiled
def bet(e_values: Array, places: Array, numbers: Array, terms: BetTerms) -> None:
    """Place all bets on some samples, and count these.

    Arguments:
        e_values: Ones, which become e-values; with shape (J, N).
        places: Is filled, with shape (`RANKED`, N); see `find_ranks`.
        numbers: Of `Counts`; the samples are added.
        terms: See `Counts.terms`.

    Raises:
        ValueError: Counts, earlier samples and frozen model do not fit each other, as in a damaged
            state.
    """
    seen, classes, earlier, (bets, ends), smoothing, dependence_terms = terms
    scores, winners, labels, bins = seen
    spread, quiet, layout, edges = smoothing
    thinning, log_bias, autocorrelation_time, online, growing = dependence_terms
    known, begins = earlier
    cell_counts, label_errors, features = _cut(numbers, layout)
    if len(known) < len(places):
        # The searches that follow do not look.
        raise ValueError("reference samples have other scores")
    if len(spread) != len(cell_counts[0]):
        raise ValueError("the smoothing is of other cells")
    low, high = np.empty(places.shape), np.empty(places.shape)
    if growing:
        find_online_ranks(low, high, places, known, begins, scores)
    else:
        find_ranks(low, high, places, known, begins, scores)
    n, widths = len(winners), layout[:3]
    cells, fell = np.empty((len(widths), n), np.int64), np.empty(n, np.int64)
    _place(cells, fell, winners, classes, scores, low, high, widths, edges)
    end = ends[0]
    pay_ranks(e_values[:end], low, high, bets[:end])
    begin, end = ends[0], ends[1]
    by_component, by_class = _counted(cell_counts[0], widths, online)
    bet_on_cells(e_values[begin:end], cells, bets[begin:end], *cell_counts, spread, quiet, thinning)
    if online:
        for j in range(begin, end):
            if bets[j].memory == AT_ONCE and bets[j].partition == BY_COMPONENT:
                pay_rarity(e_values[j], winners, by_component)
            elif bets[j].memory == AT_ONCE and bets[j].partition == BY_CLASS:
                pay_rarity(e_values[j], fell, by_class)
    begin, end = ends[1], ends[2]
    bet_on_labels(e_values[begin:end], labels, fell, bets[begin:end], *label_errors)
    begin, end = ends[2], ends[3]
    bet_on_features(e_values[begin:end], bins, bets[begin:end], *features, thinning)
    adjust(e_values, log_bias, autocorrelation_time)


@compiled
def _counted(counts: Array, widths: tuple[int, ...], online: bool) -> tuple[Array, Array]:
    """Samples by component, and by class; nothing unless that is asked for."""
    if not online:
        return np.empty(0), np.empty(0)
    by_component = counts[: widths[0]].copy()
    by_class = np.zeros(widths[1] // RANK_BINS)
    for cell in range(widths[1]):
        by_class[cell // RANK_BINS] += counts[widths[0] + cell]
    return by_component, by_class


@compiled
def _place(
    cells: Array,
    fell: Array,
    winners: Array,
    classes: Array,
    scores: Array,
    low: Array,
    high: Array,
    widths: tuple[int, ...],
    edges: Array,
) -> None:
    """Fills `cells`, of every sample in each division, and `fell`, on which class."""
    by_class, by_rank = widths[0], widths[0] + widths[1]
    highest = 0
    for one in classes:
        highest = max(highest, one)
    enough = (highest + 1) * RANK_BINS <= widths[1] and widths[2] >= RANK_BINS > len(edges)
    if len(classes) != widths[0] or not enough:
        # Whoever counts in them does not look.
        raise ValueError("the cell counts are of other components")
    for i in range(len(winners)):
        rank, rank_bin = (low[LIKELIHOOD, i] + high[LIKELIHOOD, i]) / 2, 0
        if len(edges):
            for edge in edges:
                rank_bin += scores[LIKELIHOOD, i] > edge
        else:
            for edge in EDGES:
                rank_bin += rank > edge
        fell[i] = classes[winners[i]]
        cells[BY_COMPONENT, i] = winners[i]
        cells[BY_CLASS, i] = by_class + fell[i] * RANK_BINS + rank_bin
        cells[BY_RANK, i] = by_rank + rank_bin
