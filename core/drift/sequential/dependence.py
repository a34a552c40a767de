"""On what conditions bets are placed on a stream whose samples may depend on each other.

Such a stream (frames of a film, one writer after another) pays more to bets than independent
samples would, though nothing changes. So the first samples of a reference are used twice: run
through the bets, they show how much a bet gains without a change, and over how many samples gains
hang together. Both are taken off from later gains.

Throughout: N samples, J bets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from core.compiled.loops import Array, compiled
from core.drift.sequential.bets import BetTable

RUNS = (10, 30, 100)
"""Samples of stretches whose gains are added up to see how they hang together."""

FEWEST_RUNS = 5

LEAST_VARIANCE = 1e-3
"""Of gains, in nats squared: a bet that says next to nothing only drifts as shares settle."""

NOTHING = 1e-12
"""Variance of the gains of a bet that says nothing."""

CLOSED = 1e3
"""Nats per sample that a closed bet loses: it never has any evidence."""

AUTOCORRELATION_OF_FEW = 1.5
"""Samples over which gains are taken to hang together where a reference is too small to tell."""

FEE_OF_FEW = 0.04
"""Nats that are taken off for every sample there: what changes as slowly as a ramp is for a whole
reference to find, which tells other shares of what is known from something new."""

CERTAINTY = 3.0
"""Standard errors by which dependence must show before it is believed."""

CAUTION = 2.0
"""Standard errors that are added to what the others gain, once dependence is evident."""


@dataclass(frozen=True, eq=False)
class Dependence:
    """On which bets are placed.

    Arguments:
        thinning: One sample in so many is betted on by where the last ones lay, at least 1.
        log_bias: Logarithm of what every bet gains without a change, with shape (J,); `CLOSED`
            if it is.
        autocorrelation_time: Samples over which a bet's gains hang together, with shape (J,), at
            least 1.
        weights: Of the bets, with shape (J,); their sum is one, closed ones have none.
        online: Whether the reference is so small that ranks are taken among it and all samples
            since, and cells are betted on by such ranks; see `core.drift.sequential.online`.
    """

    thinning: int
    log_bias: Array
    autocorrelation_time: Array
    weights: Array
    online: bool = False  # a checkpoint of an earlier release has none

    @classmethod
    def none(cls, bet_table: BetTable, thinning: int = 1) -> Dependence:
        """As if samples did not depend on each other."""
        still = np.zeros(len(bet_table))
        return cls(thinning, still, still + 1, bet_table.weights)

    @classmethod
    def of(cls, e_values: Array, bet_table: BetTable, thinning: int, labelled: bool) -> Dependence:
        """Estimate dependence from what bets paid for samples without a change.

        Arguments:
            e_values: E-values with shape (J, N).
            thinning: See `Dependence`; 0 where even samples far apart depend on each other.
            labelled: Whether there were labels.
        """
        gains = np.log(e_values)
        log_bias, autocorrelation_time = _dependence(gains)
        if thinning != 1:
            log_bias = np.where(
                bet_table.on_last, _cautious(gains, log_bias) if thinning else CLOSED, log_bias
            )
        if labelled and bet_table.labels:
            # That no label has ever contradicted says the more of the first that will.
            _, _, labels, _ = bet_table.places
            on_labels = log_bias[labels]
            on_labels[on_labels == CLOSED] = 0
        return cls(
            max(1, thinning), log_bias, autocorrelation_time, _open_weights(log_bias, bet_table)
        )

    def for_few(self, exact: Array, bet_table: BetTable) -> Dependence:
        """The same where little is known: bets are open only if they are exact all the same.

        All gain at the pace of samples that depend on each other a little, for few do not show it,
        and less by a fee for every sample.

        Arguments:
            exact: Which bets are, with shape (J,), bool.
        """
        log_bias = np.where(exact & (self.log_bias < CLOSED), FEE_OF_FEW, CLOSED)
        autocorrelation_time = np.full(len(bet_table), AUTOCORRELATION_OF_FEW)
        return Dependence(
            1, log_bias, autocorrelation_time, _open_weights(log_bias, bet_table), online=True
        )

    def without(self, closed: Array, bet_table: BetTable) -> Dependence:
        """The same with some more bets closed, with shape (J,), bool."""
        log_bias = np.where(closed, CLOSED, self.log_bias)
        return replace(self, log_bias=log_bias, weights=_open_weights(log_bias, bet_table))


@compiled
def adjust(e_values: Array, log_bias: Array, autocorrelation_time: Array) -> None:
    """What is gained without a change is taken off e-values, and the rest spread over samples.

    Arguments:
        e_values: With shape (J, N); is changed.
        log_bias: See `Dependence`.
        autocorrelation_time: See `Dependence`.
    """
    for j in range(len(e_values)):
        if log_bias[j] >= CLOSED:
            for i in range(e_values.shape[1]):
                e_values[j, i] = 0.0
        elif log_bias[j] != 0 or autocorrelation_time[j] != 1:
            for i in range(e_values.shape[1]):
                e_values[j, i] = np.exp(
                    (np.log(e_values[j, i]) - log_bias[j]) / autocorrelation_time[j]
                )


def _open_weights(log_bias: Array, bet_table: BetTable) -> Array:
    """Closed bets' weight shared by the others, with shape (J,)."""
    weights: Array = np.where(log_bias < CLOSED, bet_table.weights, 0)
    # Where every bet is closed, nothing can be found whatever the weights.
    return weights / weights.sum() if weights.any() else bet_table.weights


def _cautious(gains: Array, log_bias: Array) -> Array:
    """Take off as much as bets may well have gained for each sample, with shape (J,).

    Arguments:
        gains: Logarithms of e-values, with shape (J, N).
        log_bias: What is taken off anyhow, with shape (J,).
    """
    length = max(RUNS)
    n_runs = gains.shape[1] // length
    if n_runs < 2:
        return log_bias
    means = gains[:, : n_runs * length].reshape(len(gains), n_runs, length).mean(2)
    above: Array = means.mean(1) + CAUTION * means.std(1, ddof=1) / n_runs**0.5
    return np.maximum(log_bias, above)


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
    log_bias, autocorrelation_time = np.zeros(len(gains)), np.ones(len(gains))
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
        autocorrelation_time = np.where(
            beyond, np.maximum(autocorrelation_time, ratio), autocorrelation_time
        )
        means = np.exp(runs).mean(2)
        certain = means.mean(1) - CERTAINTY * means.std(1, ddof=1) / n_runs**0.5 > 1
        log_bias = np.where(certain, np.maximum(log_bias, np.log(means.mean(1))), log_bias)
    return np.where(single <= NOTHING, CLOSED, log_bias), autocorrelation_time
