"""Sums over groups of rows, in one order.

CUDA carries out `index_add` in whichever order its threads arrive, and sums in another order end in
other bits, so that the same stream would give another model each time. A product with who is in
which group adds up in one order.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from core.density.blocks import one_by_one


class Grouping:
    """Rows that are in groups.

    Arguments:
        which: The group of each row, with shape (N,), int64; below 0 for none, on a device only.
        k: Groups.

    Example:
        >>> Grouping(torch.tensor([1, 0, 1]), 2).summed(torch.tensor([1.0, 2.0, 4.0])).tolist()
        [2.0, 5.0]
    """

    def __init__(self, which: Tensor, k: int) -> None:
        self.which, self.k = which, k

    @cached_property
    def members(self) -> Tensor:
        """One where a row is of a group and nothing elsewhere, with shape (N, K), float32."""
        return (self.which[:, None] == torch.arange(self.k, device=self.which.device)).float()

    def summed(self, rows: Tensor) -> Tensor:
        """The sum of each group, with shape (K, ...).

        Arguments:
            rows: With shape (N, ...), floating point.
        """
        if one_by_one(rows):
            return rows.new_zeros(self.k, *rows.shape[1:]).index_add_(0, self.which, rows)
        columns = rows.flatten(1) if rows.dim() > 1 else rows[:, None]
        return (self.members.T.to(rows) @ columns).view(self.k, *rows.shape[1:])

    def added(self, base: Tensor, rows: Tensor) -> Tensor:
        """What there is of each group already, with shape (K, ...), and its rows."""
        if one_by_one(rows):
            return base.index_add(0, self.which, rows)
        return base + self.summed(rows)
