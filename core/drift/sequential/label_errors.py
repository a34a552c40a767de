"""Labels that contradict the frozen model: how often in the long run, and how often recently.

A sample falls on a component, which stands for a class. A label of another class is an *error*.
Among samples of one label, errors come at a rate that does not depend on the shares of classes in
the stream. While samples of a class look as they did, only a change of what labels mean raises that
rate. The bet (`core.drift.sequential.bets`) is that errors now occur at rate t r, where r is the
long-run error rate of a label, and t the recent errors over those expected, at least `LEAST`.

Samples without a label, or with one that the frozen model does not know, say nothing: they are
neither counted nor paid for.

Throughout: N samples, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from core.compiled.loops import Array, compiled
from core.drift.sequential.cells import MEMORIES

UNTOLD = -1
"""In place of a label that is missing or not known."""

FEWEST = 100.0
"""Labelled samples up to which nothing is paid: fewer do not tell a rate."""

PRIOR = 1.0
"""Errors that count as usual among the recent ones."""

LEAST = 1.5
"""Smallest t that is betted on: a bet on the usual rate would gain nothing and lose nothing, and
only count samples."""

MOST = 0.95
"""Error rate beyond which nobody bets."""

_FADING = np.exp([-1 / memory for memory in MEMORIES])


@dataclass(frozen=True, eq=False)
class LabelErrors:
    """The label errors so far.

    Arguments:
        counts: Samples of each label, and errors among them, with shape (C, 2), float64.
        recent: Errors expected of the last labelled samples, and errors that came, faded, with
            shape (memories, 2), float64.
    """

    counts: Array
    recent: Array

    @classmethod
    def none(cls, n_classes: int) -> Self:
        """Before the first sample."""
        return cls(np.zeros((n_classes, 2)), np.zeros((len(MEMORIES), 2)))

    def without_evidence(self) -> Self:
        """Keep known rates, and drop recent errors that came before they were known."""
        return type(self)(self.counts, np.zeros_like(self.recent))

    @property
    def told(self) -> float:
        """Labelled samples."""
        return float(self.counts[:, 0].sum())


@compiled
def bet_on_labels(
    e_values: Array,
    labels: Array,
    fell: Array,
    bets: Array,
    counts: Array,
    recent: Array,
) -> None:
    """Bet on samples one by one, and count them.

    Arguments:
        e_values: Ones, which become e-values; with shape (bets on labels, N).
        labels: Of samples, or `UNTOLD`, with shape (N,), int64.
        fell: On which class each sample fell, with shape (N,), int.
        bets: Those on labels in `BetTable.table`.
        counts: See `LabelErrors`; the samples are added.
        recent: See `LabelErrors`; the samples are added.
    """
    n = counts[:, 0].sum()
    for i in range(len(labels)):
        one = labels[i]
        if one == UNTOLD:
            continue
        miss = fell[i] != one
        # Little is known of a label of which little has come: neither is likelier, then.
        usual = (counts[one, 1] + 1) / (counts[one, 0] + 2)
        for j in range(len(bets)):
            memory, share = bets[j].memory, bets[j].share
            times = (recent[memory, 1] + PRIOR) / (recent[memory, 0] + PRIOR)
            expected = max(usual, min(MOST, usual * max(LEAST, times)))
            ratio = expected / usual if miss else (1 - expected) / (1 - usual)
            if n >= FEWEST:
                e_values[j, i] = 1 - share + share * ratio
        counts[one, 0] += 1
        counts[one, 1] += miss
        n += 1
        for memory in range(len(_FADING)):
            recent[memory, 0] = recent[memory, 0] * _FADING[memory] + usual
            recent[memory, 1] = recent[memory, 1] * _FADING[memory] + miss
