"""Single features: where they lie in the component on which a sample falls, and where of late.

One sensor of fifty that sticks, or is calibrated anew, hardly moves the likelihood of a sample as
a whole. So every feature is looked at by itself: in deviations from its mean in the winning
component, and from that in all components of the same class (in all there are, where there are no
classes), cut into a few bins. How often it falls into each depends little on the shares of
classes. As with other cells (`core.drift.sequential.cells`) what the last samples preferred is
betted on, against the shares in the long run.

Of D bets, one for each feature, each adds up its own evidence R_d, and what they come to together
is that of their mean. One bet that pays sum (1 + R_d) e_d / sum (1 + R_d) comes to exactly that, so
that all features are one bet for those who add it up (`core.drift.sequential.evidence`).

Throughout: N samples, D features (each of the two places where it lies counts as one), M bins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from core.compiled.loops import Array, compiled
from core.drift.sequential.bets import BetTable
from core.drift.sequential.cells import FRESH, GROWTH, MEMORIES, PRIOR, SMOOTHING

MOST_FEATURES = 128
"""Streams of more are not looked at feature by feature: in images no pixel means much by itself."""

EDGES = (-1.645, -0.674, -0.25, 0.25, 0.674, 1.645)
"""Deviations at which a bin ends. Narrow in the middle, where a sensor that sticks may lie."""
BINS = len(EDGES) + 1

LEAST_DEVIATION = 1e-3
"""Of a feature, in standardised units: what varies less counts as varying by that."""

FEWEST = 100.0
"""Samples up to which nothing is paid: fewer do not tell shares."""

FEE = 2e-3
"""Part of every payment that is kept back. What a bet on many features pays hardly varies: without
a fee it would neither win nor lose, and only count samples."""

MOST = 1e30
"""Evidence of one feature beyond which it grows no more."""


@dataclass(frozen=True, eq=False)
class FeatureCounts:
    """Samples per bin of every feature.

    Arguments:
        counts: In the long run, with shape (D, M), float64.
        recent: Among the last, faded, with shape (memories, D, M), float64.
        evidence: R of each feature, by bet, with shape (bets, D), float64.
    """

    counts: Array
    recent: Array
    evidence: Array

    @classmethod
    def empty(cls, n_features: int, bet_table: BetTable) -> Self:
        """Before the first sample.

        Arguments:
            n_features: D; 0 where features are not looked at.
        """
        counts = np.zeros((n_features, BINS))
        recent = np.zeros((len(MEMORIES), n_features, BINS))
        return cls(counts, recent, np.zeros((len(bet_table.features), n_features)))

    def feature_shares(self, n_features: int) -> list[float]:
        """Each feature's share in the evidence of all, D values; none where there is none."""
        together = self.evidence.reshape(-1, n_features).sum(0)
        total = together.sum()
        shares: list[float] = (together / total).tolist() if total > 0 else []
        return shares

    def without_evidence(self) -> Self:
        """Keep known shares, and drop evidence that came before they were known."""
        return replace(self, evidence=np.zeros_like(self.evidence))

    def faded(self) -> Self:
        """Keep the shares of the long run, and drop the recent counts."""
        return replace(self.without_evidence(), recent=np.zeros_like(self.recent))


@compiled
def find_bins(bins: Array, values: Array, winners: Array, centres: Array, spreads: Array) -> None:
    """Fills `bins`, uint8, with shape (N, D).

    Arguments:
        values: Of features, with shape (N, D).
        winners: The component on which each sample falls, with shape (N,).
        centres: Mean of each feature where it falls, by component, with shape (K, D).
        spreads: Its standard deviation there, above 0, with shape (K, D).
    """
    for i in range(values.shape[0]):
        one = winners[i]
        for d in range(values.shape[1]):
            away = (values[i, d] - centres[one, d]) / spreads[one, d]
            index = 0
            for edge in EDGES:
                index += away > edge
            bins[i, d] = index


@compiled
def bet_on_features(
    e_values: Array,
    bins: Array,
    bets: Array,
    counts: Array,
    recent: Array,
    evidence: Array,
    thinning: int,
) -> None:
    """Bet on samples one by one, and count them.

    Instead of fading all bins with every sample, the samples' weights grow.

    Arguments:
        e_values: Ones, which become e-values; with shape (bets on features, N).
        bins: Of every sample and feature, with shape (N, D), uint8.
        bets: Those on features in `BetTable.table`.
        counts: See `FeatureCounts`; the samples are added.
        recent: See `FeatureCounts`; the samples are added.
        evidence: See `FeatureCounts`; becomes that after the last sample.
        thinning: One sample in so many is betted on, and one of the last ones; all are counted.
    """
    if not bins.shape[1]:
        return
    n, n_features = bins.shape
    weights, masses = np.ones(len(GROWTH)), np.zeros(len(GROWTH))
    for memory in range(len(GROWTH)):
        masses[memory] = recent[memory, 0].sum()
    seen = counts[0].sum()
    for i in range(n):
        looked_at = int(seen) % thinning == 0
        for j in range(len(bets)):
            if seen < FEWEST or not looked_at:
                continue
            memory, share = bets[j].memory, bets[j].share
            prior = PRIOR * weights[memory]
            mass, total, gained = masses[memory] + prior, 0.0, 0.0
            for d in range(n_features):
                one = bins[i, d]
                usual = (counts[d, one] + SMOOTHING) / (seen + SMOOTHING * BINS)
                last = (recent[memory, d, one] + prior * usual) / mass
                stake = 1 + evidence[j, d]
                after = stake * (1 - share + share * last / usual)
                total += stake
                gained += after
                evidence[j, d] = min(after, MOST)
            e_values[j, i] = (1 - FEE) * gained / total
        for memory in range(len(GROWTH)):
            if not looked_at:
                break
            weights[memory] *= GROWTH[memory]
            masses[memory] += weights[memory]
            for d in range(n_features):
                recent[memory, d, bins[i, d]] += weights[memory]
        for d in range(n_features):
            counts[d, bins[i, d]] += 1
        seen += 1
        if (i + 1) % FRESH == 0 or i == n - 1:
            for memory in range(len(GROWTH)):
                for d in range(n_features):
                    for one in range(BINS):
                        recent[memory, d, one] /= weights[memory]
                masses[memory] /= weights[memory]
                weights[memory] = 1.0
