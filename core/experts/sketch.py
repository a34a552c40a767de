"""Samples of very many features as a few hundred signed sums, from which classes can be told.

Sums of products of all features would be dear. Here every feature is put into one of `SIZE` sums,
as many into each, with a random sign: distances and directions stay about what they were (Charikar,
Chen and Farach-Colton, Finding Frequent Items in Data Streams, 2002; Weinberger and others, Feature
Hashing for Large Scale Multitask Learning, 2009).

Throughout: N samples, D features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

SIZE = 512
"""Sums."""

QUIET = 4.0
"""Times by which a feature that has not varied is quieter than others: where many do not, as words
of a text, those that show up later are rare."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """A fixed linear map.

    Arguments:
        scale: What features are divided by before, with shape (D,), float64; all 0 while it is not
            known. It stays, since sums cannot be taken apart.
    """

    scale: Tensor

    @classmethod
    def start(cls, n_features: int) -> Sketch:
        """Before any sample."""
        return cls(torch.zeros(n_features, dtype=torch.float64))

    @property
    def is_known(self) -> bool:
        """Whether samples have said what the scale is."""
        return bool(self.scale.any())

    def fitted(self, x: Tensor) -> Sketch:
        """With the deviation of each feature among samples, whatever its unit.

        A feature that is the same in all of them gets `QUIET` times what others have in the root
        mean square.

        Arguments:
            x: In the sender's units, with shape (N, D).
        """
        x = x.double()
        least, most = x.aminmax(dim=0)
        deviation = torch.where(most > least, x.std(0, correction=0), 0.0)
        varies = deviation > 0
        if not bool(varies.any()):
            return replace(self, scale=torch.ones_like(deviation))
        level = deviation[varies].square().mean().sqrt()
        return replace(self, scale=torch.where(varies, deviation, QUIET * level))

    def of(self, x: Tensor) -> Tensor:
        """The sums, with shape (N, SIZE), float64; 0 while the scale is not known.

        Arguments:
            x: In the sender's units, with shape (N, D).

        Example:
            >>> sketch = Sketch.start(1200).fitted(torch.eye(1200)[:40])
            >>> sketch.of(torch.eye(1200)[:2]).count_nonzero(1)
            tensor([1, 1])
        """
        if not self.is_known:
            return torch.zeros(len(x), SIZE, dtype=torch.float64)
        order, signs = _drawn(len(self.scale))
        scaled = torch.nn.functional.pad(x.double() / self.scale, (0, len(order) - x.shape[1]))
        sums = (scaled[:, order] * signs).view(len(x), -1, SIZE)
        return sums.sum(1) / math.sqrt(sums.shape[1])


@lru_cache(maxsize=8)
def _drawn(n_features: int) -> tuple[Tensor, Tensor]:
    """In which order features are dealt out, and their signs; the same ones for one D.

    Both with the shape of all places in all sums, of which the last ones may be nobody's.
    """
    generator = torch.Generator().manual_seed(n_features)
    places = n_features + -n_features % SIZE
    order = torch.randperm(places, generator=generator)
    signs = torch.randint(2, (places,), generator=generator).double() * 2 - 1
    return order, signs
