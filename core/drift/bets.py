"""Bets against "nothing has changed", and what they pay.

A bet turns what is seen of a sample into an *e-value*: a number of mean one as long as nothing
changes, and larger where the sample looks like the change that the bet is on. Two kinds:

- on **ranks**: the rank of a score among those of earlier samples is uniform whatever the
  model and the data (Vovk, Gammerman and Shafer 2005: conformal p-values), so that any
  density f on [0, 1] is a bet. Here f(u) = 1 - b + b e u^(e - 1): a share b of the samples has
  low ranks (or high ones). Between equal scores the mean of f over their ranks is paid, so that
  nothing has to be drawn.
- on **cells**: each sample falls into one of M cells; what the last samples preferred is
  betted on, q(m) / r(m), with r the shares among all earlier samples and q those among the
  last, drawn towards r.

Arrays here are of numpy, whose small operations cost a fraction of torch's: a batch takes a
hundred of them.

Throughout: N samples, J bets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]


class RankBet(NamedTuple):
    """On low ranks of the log-likelihood, or on high ones."""

    signal: str
    high: bool
    share: float  # b, of samples that the change affects, above 0 and below 1
    power: float  # e, between 0 and 1: smaller where they lie further out
    weight: float  # of this bet among all


class CellBet(NamedTuple):
    """On the cells that the last samples preferred."""

    signal: str
    partition: int  # which division into cells
    memory: int  # which of the memories of the last samples
    share: float  # b
    weight: float


@dataclass(frozen=True)
class Book:
    """The bets that are placed.

    Arguments:
        ranks: On ranks.
        cells: On cells.
    """

    ranks: tuple[RankBet, ...]
    cells: tuple[CellBet, ...]

    def __len__(self) -> int:
        return len(self.ranks) + len(self.cells)

    @property
    def _all(self) -> list[RankBet | CellBet]:
        return [*self.ranks, *self.cells]

    @cached_property
    def log_weights(self) -> Tensor:
        """Of every bet, ranks first, with shape (J,), float64; their exponentials sum to one."""
        weights = [bet.weight for bet in self._all]
        logs = torch.tensor(weights, dtype=torch.float64).log()
        return logs - logs.logsumexp(0)

    @cached_property
    def signals(self) -> tuple[str, ...]:
        """Names of the signals that are betted on."""
        return tuple(dict.fromkeys(bet.signal for bet in self._all))

    @cached_property
    def weights_of_signals(self) -> Tensor:
        """`log_weights` of the bets of each signal, minus infinity elsewhere: (signals, J)."""
        others = [[bet.signal != name for bet in self._all] for name in self.signals]
        return self.log_weights.masked_fill(torch.tensor(others), -math.inf)

    @cached_property
    def _rank_terms(self) -> tuple[Array, Array, Array]:
        columns = [[bet.high, bet.share, bet.power] for bet in self.ranks]
        high, share, power = np.array(columns, dtype=np.float64).T[:, :, None]
        return high.astype(bool), share, power

    @cached_property
    def _cell_terms(self) -> tuple[Array, Array, Array]:
        places = np.array([[bet.memory, bet.partition] for bet in self.cells])
        share = np.array([bet.share for bet in self.cells])
        return places[:, 0], places[:, 1], share[:, None]

    def on_ranks(self, low: Array, high: Array) -> Array:
        """E-values with shape (rank bets, N).

        Arguments:
            low: Share of the ranks below each sample's, with shape (N,), 0 to 1.
            high: The same with its equals and itself, above `low`.
        """
        up, share, power = self._rank_terms
        begin = np.where(up, 1 - high, low)
        end = np.where(up, 1 - low, high)
        paid: Array = 1 - share + share * (end**power - begin**power) / (high - low)
        return paid

    def on_cells(self, recent: Array, shares: Array) -> Array:
        """E-values with shape (cell bets, N).

        Arguments:
            recent: Of the last samples of each memory, the share that fell into each
                sample's cell, of every partition, with shape (memories, partitions, N);
                drawn towards the long run.
            shares: The same in the long run, with shape (partitions, N).
        """
        memory, partition, share = self._cell_terms
        paid: Array = 1 - share + share * (recent / shares)[memory, partition]
        return paid
