"""The reference: a frozen model's scores of earlier samples, with which later ones are compared.

Ranks are taken among the scores of earlier samples, or of those of the same class, which are
exchangeable too (Vovk, Gammerman and Shafer 2005: Mondrian conformal predictors); all else that
is known of them is counts (`core.drift.sequential.counts`).

Throughout: N samples, J bets, S scores.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.compiled.loops import Array
from core.drift.sequential.bets import BetTable
from core.drift.sequential.cells import AT_ONCE
from core.drift.sequential.counts import BY_CLASS, BY_COMPONENT, Counts
from core.drift.sequential.dependence import CLOSED, Dependence
from core.drift.sequential.frozen_model import FrozenModel
from core.drift.sequential.online import neighbours_depend
from core.drift.sequential.record import record
from core.drift.sequential.reference_scores import ReferenceScores
from core.drift.sequential.scores import N_SCORES, OVERALL, RANKED, FrozenScores
from core.drift.sequential.thinning import thinning_interval


@record
class Reference:
    """The scores and counts of a stream without change, by one frozen model.

    Arguments:
        scores: Of earlier samples.
        counts: What else is known of them.
        dependence: On which bets are placed.
    """

    scores: ReferenceScores
    counts: Counts
    dependence: Dependence

    @classmethod
    def of(cls, frozen_model: FrozenModel, seen: FrozenScores, bet_table: BetTable) -> Reference:
        """From the first samples that a frozen model saw, in stream order."""
        earlier, none = ReferenceScores.of(seen.scores), Counts.none(frozen_model, seen, bet_table)
        thinning = thinning_interval(np.vstack([seen.components, seen.bins.T]))
        still = Dependence.none(bet_table, max(1, thinning))
        counts, e_values = none.betted_on(frozen_model, seen, earlier.ranking, still, bet_table)
        if thinning != 1:
            # What bets gain while shares are hardly known says little of what they will gain: they
            # are placed once more, by those who know them.
            _, later = counts.faded().betted_on(
                frozen_model, seen, earlier.ranking, still, bet_table
            )
            e_values = np.where(bet_table.on_last[:, None], later, e_values)
        # The very first samples are betted on with next to no knowledge.
        e_values = e_values[:, len(seen) // 4 :]
        dependence = Dependence.of(e_values, bet_table, thinning, counts.label_errors.told > 0)
        return cls(earlier, counts.without_evidence(), dependence)

    @classmethod
    def of_few(
        cls, frozen_model: FrozenModel, seen: FrozenScores, bet_table: BetTable
    ) -> Reference | None:
        """From so few samples that only bets which are exact for any number are open.

        None where samples evidently depend on those before them: nothing is exact, then.
        """
        rows = np.vstack([seen.components, seen.bins.T])
        if neighbours_depend(seen.scores[:RANKED], rows):
            return None
        whole = cls.of(frozen_model, seen, bet_table)
        return replace(
            whole, dependence=whole.dependence.for_few(_exact(frozen_model, bet_table), bet_table)
        )

    @property
    def online(self) -> bool:
        """Whether it is of few samples, and grows with every one."""
        return self.dependence.online

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def worth(self) -> float:
        """Independent samples that it is worth."""
        return len(self) / float(self.dependence.autocorrelation_time.mean())

    def with_counted(self, counts: Counts, scores: Array, places: Array | None) -> Reference:
        """The same with samples that have been counted; see `ReferenceScores.with_more`."""
        return self._with(self.scores.with_more(scores, places), counts)

    def with_scores_of(self, earlier: Reference) -> Reference:
        """The same with the scores that were known earlier."""
        return Reference(earlier.scores, self.counts, self.dependence)

    def with_counts_of(self, earlier: Reference) -> Reference:
        """The same with what was counted earlier."""
        return Reference(self.scores, earlier.counts, self.dependence)

    def with_more(self, scores: Array) -> Reference:
        """The same with more scores, with shape (S, n)."""
        return self._with(self.scores.with_more(scores), self.counts)

    def _with(self, scores: ReferenceScores, counts: Counts) -> Reference:
        sorted_in = scores.ranking is not self.scores.ranking
        return Reference(scores, counts.smoothed() if sorted_in else counts, self.dependence)

    def with_new_shares(self, bet_table: BetTable) -> Reference:
        """The same where only what the last samples preferred counts for usual.

        What was said of earlier samples is still true of each class, but no more of all together:
        where there are bets within classes, others on ranks are closed. So are those on features:
        some samples fall on components of other classes than their own, and shares of these change.
        """
        closed = np.zeros(len(bet_table), np.bool_)
        *_, on_features = bet_table.places
        closed[on_features] = True
        inside = bet_table.on_scores(range(OVERALL, N_SCORES)) & (self.dependence.log_bias < CLOSED)
        if inside.any():
            closed |= bet_table.on_scores(range(OVERALL))
        dependence = self.dependence.without(closed, bet_table)
        return replace(self, counts=self.counts.renewed(), dependence=dependence)

    @property
    def outdated(self) -> bool:
        """Whether shares have changed since: another reference is wanted."""
        return self.counts.quiet > 0

    def ranks(self, scores: Array) -> tuple[Array, Array]:
        """Share of the ranks below samples, and with their equals, with shape (S, N) each.

        Arguments:
            scores: With shape (S, N).
        """
        return self.scores.ranks(scores)


def _exact(frozen_model: FrozenModel, bet_table: BetTable) -> Array:
    """Which bets are exact for few samples: on ranks, and on rare cells, (J,), bool."""
    exact = bet_table.on_scores(range(N_SCORES))
    divisions = [BY_COMPONENT, BY_CLASS] if frozen_model.several else [BY_COMPONENT]
    _, cells, _, _ = bet_table.places
    lines = bet_table.table[cells]
    exact[cells] = (lines["memory"] == AT_ONCE) & np.isin(lines["partition"], divisions)
    return exact
