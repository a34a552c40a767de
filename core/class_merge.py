"""Two classes that become one: where codes lead then, and how sums of classes are added.

Throughout: C classes, by their codes 0 to C - 1.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class ClassMerge(NamedTuple):
    """One class becomes part of another; the codes of those behind it fall by one.

    Arguments:
        gone: Code of the class that is no more.
        into: Code that the other one has before; not the same.

    Example:
        >>> merge = ClassMerge(gone=0, into=2)
        >>> merge.codes(torch.tensor([-1, 0, 1, 2, 3])).tolist()
        [-1, 1, 0, 1, 2]
        >>> merge.added(torch.tensor([1, 10, 100, 1000]), 0).tolist()
        [10, 101, 1000]
    """

    gone: int
    into: int

    def codes(self, codes: Tensor) -> Tensor:
        """Codes from now on, of any shape, int64; what is below 0 stays."""
        codes = torch.where(codes == self.gone, self.into, codes)
        return torch.where(codes > self.gone, codes - 1, codes)

    def code(self, code: int) -> int:
        """The same of one class."""
        return int(self.codes(torch.tensor(code)))

    def added(self, sums: Tensor, dim: int) -> Tensor:
        """Sums of classes along `dim`, those of both in one.

        Arguments:
            sums: Of the first classes: of those that it leaves out they are 0.
        """
        if self.gone >= sums.shape[dim]:
            return sums
        missing = self.into + 1 - sums.shape[dim]
        if missing > 0:
            room = [*sums.shape]
            room[dim] = missing
            sums = torch.cat([sums, sums.new_zeros(room)], dim)
        both = sums.select(dim, self.gone) + sums.select(dim, self.into)
        place = torch.tensor([self.code(self.into)], device=sums.device)
        return self.without(sums, dim).index_copy(dim, place, both.unsqueeze(dim))

    def without(self, values: Tensor, dim: int) -> Tensor:
        """Values of classes along `dim`, with shape (C,) there, without those of the one."""
        kept = [code for code in range(values.shape[dim]) if code != self.gone]
        return values.index_select(dim, torch.tensor(kept, dtype=torch.long, device=values.device))
