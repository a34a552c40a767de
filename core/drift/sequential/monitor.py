"""A frozen model with what it knows of the stream, and what it makes of further samples.

All that follows from a batch's scores is one compiled call: the bets on its samples, and the
evidence that the bets add up to. To call one loop after another takes as long as to run them.

Throughout: N samples, J bets, S scores.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from core.compiled.loops import Array, compiled
from core.drift.sequential.bets import BetTable
from core.drift.sequential.counts import BetTerms, bet
from core.drift.sequential.evidence import Evidence, Read, Reading, gather
from core.drift.sequential.frozen_model import FrozenModel
from core.drift.sequential.online import PIECE
from core.drift.sequential.record import record
from core.drift.sequential.reference import Reference
from core.drift.sequential.scores import RANKED, FrozenScores

LANES = 8
"""Numbers that processors deal with at a time, at most."""


class Updated(NamedTuple):
    """The monitor and the evidence after some more samples.

    Arguments:
        watch: With the samples among the earlier ones.
        evidence: After them.
        reading: What that comes to.
        highest: Largest log(1 + R) of all bets together on the way.
        probe: log R of every bet since the probe began, with shape (J,).
        probe_highest: Largest log(1 + R) of these together on the way.
    """

    watch: Monitor
    evidence: Evidence
    reading: Reading
    highest: float
    probe: Array
    probe_highest: float


@record
class Monitor:
    """A frozen model with its reference."""

    frozen_model: FrozenModel
    reference: Reference

    def updated(
        self,
        seen: FrozenScores,
        bet_table: BetTable,
        suspected: Array,
        evidence: Evidence,
        probe: Array,
    ) -> Updated:
        """Bet on samples, add up what the bets gain, and count the samples among the earlier ones.

        Arguments:
            seen: By the frozen model, at least one sample.
            bet_table: The bets.
            suspected: Scores of samples under suspicion, with shape (S, n): none of the
                earlier ones yet, but ranked among, or chance would feed on itself.
            evidence: So far.
            probe: log R of every bet since another moment, with shape (J,).
        """
        frozen_model, known = self.frozen_model, self.reference
        earlier, counts, dependence = known.scores, known.counts, known.dependence
        ranking = earlier.ranking_with(suspected)
        places, numbers = np.empty((RANKED, len(seen)), np.int64), counts.numbers.copy()
        levels, probe = evidence.levels.copy(), probe.copy()
        sums = np.empty(len(bet_table.signals) + 1)
        highest, of_probe, read = _update(
            places,
            numbers,
            levels,
            probe,
            sums,
            counts.terms(frozen_model, seen, ranking, dependence, bet_table),
            dependence.weights,
        )
        among = places if ranking is earlier.ranking else None
        reference = known.with_counted(counts.with_numbers(numbers), seen.scores, among)
        reading = Reading.of(sums, read)
        after = Evidence.known(levels, bet_table, dependence.weights, reading)
        return Updated(Monitor(frozen_model, reference), after, reading, highest, probe, of_probe)

    def updated_online(
        self,
        seen: FrozenScores,
        bet_table: BetTable,
        suspected: Array,
        evidence: Evidence,
        probe: Array,
        frozen_from: float,
    ) -> Updated:
        """The same where the reference is small: samples are ranked among all before them.

        Of what has changed every rank would soon be usual, so that the evidence would be lost
        again before it is clear that the change lasts. So from an alarm on the reference grows no
        more.

        Arguments:
            suspected: See `updated`; none after an alarm.
            frozen_from: Statistic at which there is an alarm; minus infinity where there is one.
        """
        known = self.reference
        earlier, counts, dependence = known.scores, known.counts, known.dependence
        ranking, growing = earlier.whole_ranking_with(suspected), frozen_from > -np.inf
        numbers = counts.numbers.copy()
        levels, probe = evidence.levels.copy(), probe.copy()
        sums = np.empty(len(bet_table.signals) + 1)
        highest = of_probe = 0.0
        for piece in seen.pieces(PIECE):
            places = np.empty((RANKED, len(piece)), np.int64)
            terms = counts.terms(self.frozen_model, piece, ranking, dependence, bet_table, growing)
            weights = dependence.weights
            high, probed, read = _update(places, numbers, levels, probe, sums, terms, weights)
            highest, of_probe = max(highest, high), max(of_probe, probed)
            growing = growing and highest < frozen_from
            if growing:
                ranking = ranking.with_more(piece.scores[:RANKED])
        reference = known.with_counted(counts.with_numbers(numbers), seen.scores, None)
        reading = Reading.of(sums, read)
        after = Evidence.known(levels, bet_table, dependence.weights, reading)
        return Updated(
            Monitor(self.frozen_model, reference), after, reading, highest, probe, of_probe
        )


@compiled
def _update(
    places: Array,
    numbers: Array,
    levels: Array,
    probe: Array,
    sums: Array,
    terms: BetTerms,
    weights: Array,
) -> tuple[float, float, Read]:
    """See `bet` and `gather`."""
    # E-values of a sample lie side by side, as many as are dealt with at a time or a multiple.
    n_bets = len(weights)
    e_values = np.ones((places.shape[1], (n_bets + LANES - 1) // LANES * LANES))
    bet(e_values.T[:n_bets], places, numbers, terms)
    _, _, _, (bets, _), _, _ = terms
    return gather(levels, probe, e_values, weights, bets, sums)
