"""Folding: a map as overlapping patches (im2col), and patches as a map.

A *map* is a stack of channels on a grid, flattened channel-last: entry
(row * width + column) * channels + channel. An image is one, and so are the
responsibilities of a layer, whose channels are its components.

Throughout: N samples, D entries of a map, P positions of the filter, d entries of a patch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from core.density.blocks import one_by_one


@dataclass(frozen=True)
class Folding:
    """A filter that is moved over a map.

    Arguments:
        height: Of the map.
        width: Of the map.
        channels: Of the map.
        filter_height: At most `height`.
        filter_width: At most `width`.
        stride: Entries from one position to the next, along both axes.

    Example:
        >>> folding = Folding(3, 3, 1, 2, 2, 1)
        >>> folding.positions, folding.patch_size
        (4, 4)
        >>> folding.patches(torch.arange(9.0)[None])[0]
        tensor([0., 1., 3., 4.])
    """

    height: int
    width: int
    channels: int
    filter_height: int
    filter_width: int
    stride: int

    @property
    def rows(self) -> int:
        """Positions from top to bottom."""
        return (self.height - self.filter_height) // self.stride + 1

    @property
    def columns(self) -> int:
        """Positions from left to right."""
        return (self.width - self.filter_width) // self.stride + 1

    @property
    def positions(self) -> int:
        """P."""
        return self.rows * self.columns

    @property
    def map_size(self) -> int:
        """D."""
        return self.height * self.width * self.channels

    @property
    def patch_size(self) -> int:
        """d."""
        return self.filter_height * self.filter_width * self.channels

    @property
    def apart(self) -> Folding:
        """The same patches laid side by side, so that none overlaps another."""
        return Folding(1, self.positions, self.patch_size, 1, 1, 1)

    @property
    def _as_it_is(self) -> bool:
        """Whether patches lie in the map one after the other, each entry in one of them."""
        single = self.filter_height == self.filter_width == self.stride == 1
        return single or self.patch_size == self.map_size

    def index(self, device: torch.device) -> Tensor:
        """The entry of the map behind every entry of every patch, with shape (P, d), int64."""
        return _index(self, device)

    def patches(self, x: Tensor) -> Tensor:
        """Maps (N, D) -> patches (N * P, d), those of one map in a row."""
        if self._as_it_is:
            return x.reshape(-1, self.patch_size)
        return x.index_select(1, self.index(x.device).flatten()).reshape(-1, self.patch_size)

    def gather(self, patches: Tensor) -> Tensor:
        """Patches (N * P, d) -> maps (N, D), the sum of what overlaps: `patches` transposed."""
        if self._as_it_is:
            return patches.reshape(-1, self.map_size)
        n = len(patches) // self.positions
        flat = patches.reshape(n, self.positions * self.patch_size)
        if one_by_one(patches):
            sums = flat.new_zeros(n, self.map_size)
            return sums.index_add_(1, self.index(flat.device).flatten(), flat)
        # A device would add in any order, which ends in other bits each time.
        padded = torch.nn.functional.pad(flat, (0, 1))
        return padded[:, _behind(self, flat.device)].sum(-1)

    def assemble(self, patches: Tensor) -> Tensor:
        """Patches (N * P, d) -> maps (N, D), the mean of what overlaps; 0 where nothing lies."""
        if self._as_it_is:
            return patches.reshape(-1, self.map_size)
        return self.gather(patches) / _overlaps(self, patches.device)


@lru_cache(maxsize=32)
def _index(folding: Folding, device: torch.device) -> Tensor:
    def along(count: int, size: int) -> Tensor:
        return folding.stride * torch.arange(count)[:, None] + torch.arange(size)

    rows = along(folding.rows, folding.filter_height)  # (H', f)
    columns = along(folding.columns, folding.filter_width)  # (W', f)
    cells = rows[:, None, :, None] * folding.width + columns[None, :, None, :]  # (H', W', f, f)
    entries = cells[..., None] * folding.channels + torch.arange(folding.channels)
    return entries.reshape(folding.positions, folding.patch_size).to(device)


@lru_cache(maxsize=32)
def _behind(folding: Folding, device: torch.device) -> Tensor:
    """The entries of patches behind every entry of the map, with shape (D, most), int64.

    Counted through all patches; where there are fewer than the most, the rest is one past the end.
    """
    flat = folding.index(torch.device("cpu")).flatten()
    order = flat.argsort(stable=True)
    counts = flat.bincount(minlength=folding.map_size)
    rank = torch.arange(len(flat)) - (counts.cumsum(0) - counts)[flat[order]]
    behind = torch.full((folding.map_size, int(counts.max())), len(flat))
    behind[flat[order], rank] = order
    return behind.to(device)


@lru_cache(maxsize=32)
def _overlaps(folding: Folding, device: torch.device) -> Tensor:
    """How many patches hold each entry, with shape (D,), float32, at least 1."""
    flat = folding.index(device).flatten()
    # Where (H - f) is no multiple of the stride, no patch reaches the last entries.
    return flat.bincount(minlength=folding.map_size).clamp_min(1).float()
