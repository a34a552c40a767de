"""What a sentinel said of earlier samples: what later ones are compared with.

Ranks are taken among the scores of earlier samples, or of those of the same class, which are
exchangeable too (Vovk, Gammerman and Shafer 2005: Mondrian conformal predictors). Cells
count where samples fell, by three divisions of different fineness: the winning component; the
class that it stands for with the height of the rank; the height alone. The first shows a new
class that hides where the density is high, the second the few samples of one within much
traffic, the third what no class explains (`core.drift.tally`).

A stream whose samples depend on each other (frames of a film, one writer after another) pays
more to bets than independent ones would, though nothing changes. So the first samples of a
reference are used twice: run through the bets, they show how much a bet gains without a
change, and over how many samples gains hang together. Both are taken off from later gains.

Throughout: N samples, K components, J bets, S scores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from core.drift.bets import Array, Book
from core.drift.compiled import compiled
from core.drift.features import FeatureTally
from core.drift.misses import Misses
from core.drift.persistence import persistence
from core.drift.ranking import Ranking
from core.drift.sentinel import LIKELIHOOD, N_SCORES, OVERALL, Sentinel, Sighting
from core.drift.tally import Tally

BY_COMPONENT, BY_CLASS, BY_HEIGHT = range(3)
"""Divisions into cells."""

EDGES = (0.02, 0.1, 0.3, 0.6)
"""Ranks at which one height ends and the next begins: the low end says most."""
HEIGHTS = len(EDGES) + 1

WORTH_SORTING = 8
"""Earlier samples for each one that waits, below which those that wait are sorted in."""

MOST_PARTS = 64
"""Batches that wait side by side, before they are joined."""

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

CAUTION = 2.0
"""Standard errors that are added to what the others gain, once dependence is evident."""


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
        mean = float(scores.mean())
        limit = mean - float(scores.std())
        return cls(mean, limit, float(np.mean(scores >= limit)))


@dataclass(frozen=True, eq=False)
class Reference:
    """What is known of a stream without change, by one sentinel.

    Arguments:
        ranking: Of earlier samples.
        waiting: Scores of the latest, in stream order, not sorted in yet, with shape (S, n) each.
        tally: Cells of earlier samples.
        misses: Labels of earlier samples.
        features: Where their features lay.
        stride: One sample in so many is betted on by where the last ones lay, at least 1.
        drift: Logarithm of what every bet gains without a change, with shape (J,); `CLOSED`
            if it is.
        pace: Samples over which a bet's gains hang together, with shape (J,), at least 1.
        weights: Of the bets, with shape (J,); their sum is one, closed ones have none.
        summary: Of the log-likelihoods in the ranking.
    """

    ranking: Ranking
    waiting: tuple[Array, ...]
    tally: Tally
    misses: Misses
    features: FeatureTally
    stride: int
    drift: Array
    pace: Array
    weights: Array
    summary: Summary

    @classmethod
    def of(cls, sentinel: Sentinel, seen: Sighting, book: Book) -> Reference:
        """From the first samples that a sentinel saw, in stream order."""
        ranking, still = Ranking.of(seen.scores), np.zeros(len(book))
        widths = sentinel.model.n_components, sentinel.n_classes * HEIGHTS, HEIGHTS
        calm = Summary.of(seen.log_likelihoods)
        tally, misses = Tally.empty(widths), Misses.none(sentinel.n_classes)
        features = FeatureTally.empty(seen.bins.shape[1], book)
        stride = persistence(np.vstack([seen.components, seen.bins.T]))
        empty = cls(
            ranking,
            (),
            tally,
            misses,
            features,
            max(1, stride),
            still,
            still + 1,
            book.weights,
            calm,
        )
        betted, paid = empty._betted(sentinel, seen, book, seen.scores[:, :0])
        if stride != 1:
            # What bets gain while shares are hardly known says little of what they will gain: they
            # are placed once more, by those who know them.
            known = replace(empty, tally=betted.tally.faded(), features=betted.features.faded())
            _, later = known._betted(sentinel, seen, book, seen.scores[:, :0])
            paid = np.where(book.on_last[:, None], later, paid)
        # The very first samples are betted on with next to no knowledge.
        gains = np.log(paid[:, len(seen) // 4 :])
        drift, pace = _dependence(gains)
        if stride != 1:
            drift = np.where(book.on_last, _cautious(gains, drift) if stride else CLOSED, drift)
        if betted.misses.told and book.labels:
            # That no label has ever contradicted says the more of the first that will.
            _, _, place, _ = book.places
            on_labels = drift[place]
            on_labels[on_labels == CLOSED] = 0
        weights = _open_weights(drift, book)
        return replace(
            betted,
            tally=betted.tally.smoothed(),
            misses=betted.misses.settled(),
            features=betted.features.settled(),
            drift=drift,
            pace=pace,
            weights=weights,
        )

    def __len__(self) -> int:
        return len(self.ranking) + self.n_waiting

    @property
    def n_waiting(self) -> int:
        """Samples that are not sorted in yet."""
        return sum(part.shape[1] for part in self.waiting)

    @property
    def worth(self) -> float:
        """Independent samples that it is worth."""
        return len(self) / float(self.pace.mean())

    def weighed(
        self, sentinel: Sentinel, seen: Sighting, book: Book, withheld: Array
    ) -> tuple[Reference, Array]:
        """Bet on samples, then count them among the earlier ones.

        Arguments:
            withheld: Scores of samples under suspicion, with shape (S, n): none of the
                earlier ones yet, but ranked among, or chance would feed on itself.

        Returns:
            The reference with them, and e-values, with shape (J, N).
        """
        betted, paid = self._betted(sentinel, seen, book, withheld)
        _stretch(paid, self.drift, self.pace)
        return betted.with_more(seen.scores), paid

    def with_scores_of(self, earlier: Reference) -> Reference:
        """The same with the scores that were known earlier."""
        return replace(
            self, ranking=earlier.ranking, waiting=earlier.waiting, summary=earlier.summary
        )

    def with_more(self, scores: Array) -> Reference:
        """The same with more scores, with shape (S, n).

        They wait, or, once that is worth the effort, are sorted in with all that wait.
        """
        waiting = (*self.waiting, scores)
        if sum(part.shape[1] for part in waiting) * WORTH_SORTING < len(self.ranking):
            if len(waiting) > MOST_PARTS:
                waiting = (np.concatenate(waiting, 1),)
            return replace(self, waiting=waiting)
        ranking = self.ranking.with_more(np.concatenate(waiting, 1))
        summary = Summary.of(ranking.scores[LIKELIHOOD])
        tally = self.tally.smoothed()
        return replace(self, ranking=ranking, waiting=(), tally=tally, summary=summary)

    def with_new_shares(self, book: Book) -> Reference:
        """The same where only what the last samples preferred counts for usual.

        What was said of earlier samples is still true of each class, but no more of all together:
        where there are bets within classes, others on ranks are closed. So are those on features:
        some samples fall on components of other classes than their own, and shares of these change.
        """
        overall = book.on_scores(range(OVERALL))
        inside = book.on_scores(range(OVERALL, N_SCORES)) & (self.drift < CLOSED)
        drift = np.where(overall, CLOSED, self.drift) if inside.any() else self.drift.copy()
        *_, on_features = book.places
        drift[on_features] = CLOSED
        weights = _open_weights(drift, book)
        return replace(self, tally=self.tally.renewed(), drift=drift, weights=weights)

    @property
    def outdated(self) -> bool:
        """Whether shares have changed since: another reference is wanted."""
        return self.tally.quiet > 0

    def ranks(self, scores: Array, withheld: Array | None = None) -> tuple[Array, Array]:
        """Share of the ranks below samples, and with their equals, with shape (S, N) each.

        Arguments:
            scores: With shape (S, N), of all scores or the first few.
            withheld: See `weighed`.
        """
        known = self.ranking
        if withheld is not None and withheld.shape[1]:
            known = known.with_more(withheld)
        return known.ranks(scores)

    def _betted(
        self, sentinel: Sentinel, seen: Sighting, book: Book, withheld: Array
    ) -> tuple[Reference, Array]:
        """With samples in all tallies, and what every bet pays for them, (J, N)."""
        low, high = self.ranks(seen.scores[: book.n_scores], withheld)
        cells = np.empty((len(self.tally.widths), len(seen)), np.int64)
        _place(cells, seen.components, sentinel.classes, low, high, EDGES, self.tally.widths)
        paid = np.empty((len(book), len(seen)))
        book.on_ranks(low, high, paid)
        _, on_cells, on_labels, on_features = book.places
        tally = self.tally.betted_on(cells, book, paid[on_cells], self.stride)
        classes = sentinel.classes[seen.components]
        misses = self.misses.betted_on(seen.labels, classes, book, paid[on_labels])
        features = self.features.betted_on(seen.bins, book, paid[on_features], self.stride)
        return replace(self, tally=tally, misses=misses, features=features), paid


@compiled
def _place(
    cells: Array,
    winners: Array,
    classes: Array,
    low: Array,
    high: Array,
    edges: tuple[float, ...],
    widths: tuple[int, ...],
) -> None:
    """Fills `cells`, of every sample in each division."""
    by_class, by_height = widths[0], widths[0] + widths[1]
    for i in range(len(winners)):
        rank, height = (low[LIKELIHOOD, i] + high[LIKELIHOOD, i]) / 2, 0
        for edge in edges:
            height += rank > edge
        cells[BY_COMPONENT, i] = winners[i]
        cells[BY_CLASS, i] = by_class + classes[winners[i]] * HEIGHTS + height
        cells[BY_HEIGHT, i] = by_height + height


@compiled
def _stretch(paid: Array, drift: Array, pace: Array) -> None:
    """What is gained without a change is taken off `paid`, and the rest spread over samples."""
    for j in range(len(paid)):
        if drift[j] >= CLOSED:
            for i in range(paid.shape[1]):
                paid[j, i] = 0.0
        elif drift[j] != 0 or pace[j] != 1:
            for i in range(paid.shape[1]):
                paid[j, i] = np.exp((np.log(paid[j, i]) - drift[j]) / pace[j])


def _open_weights(drift: Array, book: Book) -> Array:
    """Closed bets' weight shared by the others, with shape (J,)."""
    weights: Array = np.where(drift < CLOSED, book.weights, 0)
    # Where every bet is closed, nothing can be found whatever the weights.
    return weights / weights.sum() if weights.any() else book.weights


def _cautious(gains: Array, drift: Array) -> Array:
    """With as much taken off as bets may well have gained for each sample, with shape (J,).

    Arguments:
        gains: Logarithms of e-values, with shape (J, N).
        drift: What is taken off anyhow, with shape (J,).
    """
    length = max(RUNS)
    n_runs = gains.shape[1] // length
    if n_runs < 2:
        return drift
    means = gains[:, : n_runs * length].reshape(len(gains), n_runs, length).mean(2)
    above: Array = means.mean(1) + CAUTION * means.std(1, ddof=1) / n_runs**0.5
    return np.maximum(drift, above)


def _dependence(gains: Array) -> tuple[Array, Array]:
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
    drift, pace = np.zeros(len(gains)), np.ones(len(gains))
    single = np.maximum(gains.var(1, ddof=1), NOTHING)
    for length in RUNS:
        n_runs = gains.shape[1] // length
        if n_runs < FEWEST_RUNS:
            break
        runs = gains[:, : n_runs * length].reshape(len(gains), n_runs, length)
        ratio = runs.sum(2).var(1, ddof=1) / (length * single)
        # A chi-square's upper end, by its cube root (Wilson and Hilferty 1931).
        part = 2 / (9 * (n_runs - 1))
        beyond = (ratio > (1 - part + CERTAINTY * part**0.5) ** 3) & (single > LEAST_VARIANCE)
        pace = np.where(beyond, np.maximum(pace, ratio), pace)
        means = np.exp(runs).mean(2)
        certain = means.mean(1) - CERTAINTY * means.std(1, ddof=1) / n_runs**0.5 > 1
        drift = np.where(certain, np.maximum(drift, np.log(means.mean(1))), drift)
    return np.where(single <= NOTHING, CLOSED, drift), pace
