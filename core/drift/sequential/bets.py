"""Bets against "nothing has changed", and what they pay.

A bet turns what is seen of a sample into an *e-value*: a number of mean one as long as nothing
changes, and larger where the sample looks like the change that the bet is on. Four kinds:

- on **ranks**: the rank of a score among those of earlier samples is uniform whatever the
  model and the data (Vovk, Gammerman and Shafer 2005: conformal p-values), so that any
  density f on [0, 1] is a bet. Here f(u) = 1 - b + b e v^(e - 1), where v is u, or 1 - u: a share
  b of the samples lies close to v = 0 (e below 1), or anywhere but there (e above 1). Between
  equal scores the mean of f over their ranks is paid, so that nothing has to be drawn.
- on **cells**: each sample falls into one of M cells; what the last samples preferred is
  betted on, q(m) / r(m), with r the shares among all earlier samples and q those among the
  last, drawn towards r (`core.drift.sequential.cells`).
- on **labels**: a sample's label is, or is not, that of the class on which it falls; more of those
  that are not are betted on than there were (`core.drift.sequential.label_errors`).
- on **features**: each lies somewhere in the component on which its sample falls; where the last
  samples lay is betted on, feature by feature (`core.drift.sequential.features`).

Arrays of the detector are of numpy, and what is done sample by sample is compiled: in small
operations of torch a batch would take longer than the model's forward pass.

Throughout: N samples, J bets, S scores.
"""

from __future__ import annotations

import math
from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from core.compiled.loops import Array, vectorised
from core.drift.sequential.powers import find_logarithms, find_powers
from core.drift.sequential.scores import RANKED

LINE = np.dtype(
    [
        ("signal", np.int64),  # which of the signals
        ("score", np.int64),
        ("high", np.int64),
        ("squarings", np.int64),  # that raise a number to `power`, -1 if none do
        ("partition", np.int64),
        ("memory", np.int64),
        ("share", np.float64),
        ("power", np.float64),
    ]
)
"""A bet in `BetTable.table`; see the bets for what is not said here."""


class RankBet(NamedTuple):
    """On an end of the ranks of a score."""

    signal: str
    score: int  # which of the scores
    high: bool  # whether v counts from the upper end
    share: float  # b, of samples that the change affects, above 0 and below 1
    power: float  # e, above 0: below 1 close to the end that v counts from, above 1 far from it
    weight: float  # of this bet among all


class CellBet(NamedTuple):
    """On the cells that the last samples preferred."""

    signal: str
    partition: int  # which division into cells
    memory: int  # which of the memories of the last samples
    share: float  # b
    weight: float


class LabelBet(NamedTuple):
    """On labels that contradict what was known, as often as among the last samples."""

    signal: str
    memory: int  # which of the memories of the last samples
    share: float  # b
    weight: float


class FeatureBet(NamedTuple):
    """On where single features of the last samples lay."""

    signal: str
    memory: int  # which of the memories of the last samples
    share: float  # b
    weight: float


@dataclass(frozen=True)
class BetTable:
    """The bets that are placed.

    Arguments:
        ranks: On ranks.
        cells: On cells.
        labels: On labels.
        features: On single features.
    """

    ranks: tuple[RankBet, ...]
    cells: tuple[CellBet, ...]
    labels: tuple[LabelBet, ...] = ()
    features: tuple[FeatureBet, ...] = ()

    def __len__(self) -> int:
        return len(self._all)

    @cached_property
    def _all(self) -> list[RankBet | CellBet | LabelBet | FeatureBet]:
        return [*self.ranks, *self.cells, *self.labels, *self.features]

    @cached_property
    def places(self) -> tuple[slice, slice, slice, slice]:
        """Which of all bets are on ranks, cells, labels and features."""
        ends = list(accumulate(map(len, (self.ranks, self.cells, self.labels, self.features))))
        ranks, cells, labels, features = map(slice, [0, *ends], ends)
        return ranks, cells, labels, features

    @cached_property
    def weights(self) -> Array:
        """Weights of all bets, ranks first, features last, (J,), float64; they sum to one."""
        weights: Array = np.array([bet.weight for bet in self._all])
        weights /= weights.sum()
        return weights

    @cached_property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that are betted on."""
        return tuple(dict.fromkeys(bet.signal for bet in self._all))

    def on_scores(self, scores: Container[int]) -> Array:
        """Which bets are on the ranks of certain scores, with shape (J,), bool."""
        return np.array([isinstance(bet, RankBet) and bet.score in scores for bet in self._all])

    @cached_property
    def on_last(self) -> Array:
        """Which bets are on where the last samples lay, with shape (J,), bool."""
        return np.array([isinstance(bet, CellBet | FeatureBet) for bet in self._all])

    @cached_property
    def table(self) -> Array:
        """All bets as loops read them, with shape (J,), of `LINE`; what a bet does not have is 0.

        Raises:
            ValueError: A bet is on a score whose ranks are not looked up.
        """
        if any(bet.score not in range(RANKED) for bet in self.ranks):
            # The loops that look ranks up do not look.
            raise ValueError(f"there are bets on ranks of other scores than the first {RANKED}")
        table = np.zeros(len(self), LINE)
        for name in ("score", "high", "partition", "memory", "share", "power"):
            table[name] = [getattr(bet, name, 0) for bet in self._all]
        table["signal"] = [self.signals.index(bet.signal) for bet in self._all]
        table["squarings"][self.places[0]] = [_squarings(bet.power) for bet in self.ranks]
        return table

    @cached_property
    def ends(self) -> tuple[int, int, int, int]:
        """Bets on ranks; with those on cells; with those on labels; and all, J."""
        ranks, cells, labels, features = self.places
        return ranks.stop, cells.stop, labels.stop, features.stop


def _squarings(power: float) -> int:
    """How often a number is squared to raise it to a power of at least 2; -1 if never exactly."""
    mantissa, exponent = math.frexp(power)
    return exponent - 1 if mantissa == 0.5 and power > 1 else -1


@vectorised
def pay_ranks(e_values: Array, low: Array, high: Array, bets: Array) -> None:
    """The mean of f between ranks.

    Powers of two are cheap. Other bets on the same end of the same score share its logarithms.

    Arguments:
        e_values: Is filled with e-values; with shape (bets on ranks, N).
        low: Share of the ranks below each sample's, with shape (S, N), 0 to 1.
        high: The same with its equals and itself, above `low`.
        bets: Those on ranks in `BetTable.table`.
    """
    n = low.shape[1]
    begin, end, per_rank = np.empty(n), np.empty(n), np.empty(n)
    log_begin, log_end = np.empty(n), np.empty(n)
    to_begin, to_end = np.empty(n), np.empty(n)
    score, side, logs = -1, -1, False
    for j in range(len(bets)):
        bet = bets[j]
        if bet.score != score or bet.high != side:
            score, side, logs = bet.score, bet.high, False
            for i in range(n):
                per_rank[i] = 1 / (high[score, i] - low[score, i])
                begin[i] = 1 - high[score, i] if side else low[score, i]
                end[i] = 1 - low[score, i] if side else high[score, i]
        share, power = bet.share, bet.power
        if bet.squarings > 0:
            for i in range(n):
                to_begin[i], to_end[i] = begin[i], end[i]
            for _ in range(bet.squarings):
                for i in range(n):
                    to_begin[i] *= to_begin[i]
                    to_end[i] *= to_end[i]
        else:
            if not logs:
                logs = True
                find_logarithms(log_begin, begin)
                find_logarithms(log_end, end)
            find_powers(to_begin, log_begin, power)
            find_powers(to_end, log_end, power)
        for i in range(n):
            e_values[j, i] = 1 - share + share * (to_end[i] - to_begin[i]) * per_rank[i]
