"""What evidence comes to sample by sample."""

from __future__ import annotations

import numpy as np

from core.drift.bets import Book, CellBet
from core.drift.compiled import Array
from core.drift.evidence import Evidence


def book_of(n_bets: int) -> Book:
    """Of bets on one signal; which ones is of no account."""
    return Book((), (CellBet("s", 0, 0, 0.5, 1.0),) * n_bets)


def path(paid: Array, weights: Array) -> Array:
    """log R of all bets together after each sample, with shape (N,), from e-values, (J, N)."""
    evidence, sums, book = Evidence.none(len(paid)), [], book_of(len(paid))
    for column in np.split(paid, paid.shape[1], 1):
        evidence, highest, *_ = evidence.added(column, book, weights)
        sums.append(highest)
    return np.array(sums)
