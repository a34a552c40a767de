"""Components that stand for samples of an owner: a class, or the samples without a label.

What learners of such components ask of a family (`core.learners.per_class`); its parameters are
fields of its own. Values throughout: every method returns new ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor

NO_CLASS = -1
"""Owner of components learned from unlabelled samples."""


@dataclass(frozen=True, eq=False)
class Owned:
    """K components, each standing for some number of samples.

    Arguments:
        mass: Samples that each component stands for, with shape (K,), positive.
        means: With shape (K, D).
        owner: Class whose samples each was learned from, or `NO_CLASS`; shape (K,), int64.
        votes: Labelled samples per class that fell on each, with shape (K, C).
        vote_baseline: How many of the last unlabelled samples fell on each, and the votes that each
            class would have cast, had its samples fallen as these did; shape (K, 1 + C).
    """

    mass: Tensor
    means: Tensor
    owner: Tensor
    votes: Tensor
    vote_baseline: Tensor

    def __len__(self) -> int:
        return self.mass.shape[0]

    @classmethod
    def concatenated(cls, parts: Sequence[Self]) -> Self:
        """All parts, in order. There must be at least one."""
        filled = [part for part in parts if len(part)]
        if len(filled) <= 1:
            return filled[0] if filled else parts[0]
        names = (field.name for field in fields(cls))
        return cls(**{name: torch.cat([getattr(part, name) for part in filled]) for name in names})

    def select(self, rows: Tensor | slice) -> Self:
        """The named components, by index, mask or slice."""
        return type(self)(**{one.name: getattr(self, one.name)[rows] for one in fields(self)})


def ownership(mass: Tensor, owner: int, n_classes: int) -> dict[str, Tensor]:
    """The fields of `Owned` but for the means, of components learned from one owner's samples.

    Arguments:
        mass: Samples that each stands for, with shape (K,).
        owner: A class, whose votes they get, or `NO_CLASS`.
        n_classes: C.
    """
    votes = mass.new_zeros(len(mass), n_classes)
    if owner != NO_CLASS:
        votes[:, owner] = mass
    owners = torch.full((len(mass),), owner, dtype=torch.int64, device=mass.device)
    vote_baseline = mass.new_zeros(len(mass), 1 + n_classes)
    return {"mass": mass, "owner": owners, "votes": votes, "vote_baseline": vote_baseline}
