"""Classes that go by another name: their samples come, and their label no longer does.

Whoever remembers all labels alike says the old name for as long as it was heard. Its samples are
told by their label, most of which are taken for the old class; then whatever is said of that class
is said of the new name (`core.experts.opinions`).

Throughout: C classes, N samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from core.compiled.loops import Array, compiled
from core.experts.fading import columns_of

NO_OTHER = -1
"""In the place of a class."""

PER_CLASS = 50.0
"""Samples of each class that comes after which a third is left of what was counted."""

RARELY = 1 / 3
"""Part of the samples of the new name below which those of the old one stay away."""

MOST = 0.6
"""Share of a label's samples that others take for one class, from which on it is a new name of it:
where classes overlap, samples of each are taken for others."""

HARDLY = 0.1
"""Share below which it is a class of its own again: the others have learned it."""


@dataclass(frozen=True, eq=False)
class NewNames:
    """How often each class came lately, and for what others took its samples.

    Arguments:
        came: Labelled samples of each class, faded, with shape (C,), float64.
        taken_for: The other class for which most of those that were mistaken were taken, with
            shape (C,), int64; `NO_OTHER` where none was.
        share: Of the samples of each class, how many were taken for that one, more than for a third
            one; with shape (C,), float64, 0 to 1, faded.
        new: Which classes are new names of those, with shape (C,), bool.
        later: Of each class the last one that was a new name of it, since it came by its own; with
            shape (C,), int64, `NO_OTHER` of none. It stays when others have learned the new name.
    """

    came: Tensor
    taken_for: Tensor
    share: Tensor
    new: Tensor
    # Checkpoints of earlier releases have none.
    later: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))

    @classmethod
    def start(cls, n_classes: int = 0) -> NewNames:
        """Before any label."""
        return cls(
            torch.zeros(n_classes, dtype=torch.float64),
            torch.full((n_classes,), NO_OTHER),
            torch.zeros(n_classes, dtype=torch.float64),
            torch.zeros(n_classes, dtype=torch.bool),
            torch.full((n_classes,), NO_OTHER),
        )

    def right(self, n_classes: int) -> Tensor:
        """Which answers name a class right, with shape (C, C), bool: itself, and its later names.

        Arguments:
            n_classes: C; of classes beyond those that are known here no other name is.
        """
        found, later = torch.eye(n_classes, dtype=torch.bool), self.later[:n_classes].tolist()
        for code, name in enumerate(later):
            while 0 <= name < n_classes and not found[code, name]:
                found[code, name] = True
                name = later[name] if name < len(later) else NO_OTHER
        return found

    @property
    def replaces(self) -> Tensor:
        """Of each class the one that it replaces, or `NO_OTHER`; with shape (C,), int64."""
        return torch.where(self.new, self.taken_for, NO_OTHER)

    def counted(self, called: Tensor, codes: Tensor) -> NewNames:
        """With labelled samples, in stream order.

        One sample after the other: it does not matter how a stream is cut into batches.

        Arguments:
            called: The class for which others took each, with shape (N,), int64, below C.
            codes: The class that its label says, with shape (N,), int64, below C.
        """
        later = self._known_later()
        parts = [part.clone() for part in (self.came, self.taken_for, self.share, self.new, later)]
        _count(called.numpy(), codes.numpy(), *(part.numpy() for part in parts))
        return NewNames(*parts)

    def _known_later(self) -> Tensor:
        """`later`, of all classes."""
        missing = len(self.came) - len(self.later)
        return torch.cat([self.later, torch.full((missing,), NO_OTHER)]) if missing else self.later

    def in_new_sub_task(self) -> NewNames:
        """Without shares of what is no new name: what others had yet to learn they mistook."""
        return replace(
            self,
            taken_for=self.replaces,
            share=torch.where(self.new, self.share, 0.0),
        )

    def grown(self, n_classes: int) -> NewNames:
        """With room for as many classes, where there are fewer."""
        if n_classes <= len(self.came):
            return self
        return self.of_classes(torch.arange(n_classes))

    def of_classes(self, columns: Tensor) -> NewNames:
        """Of other classes, or of the same in another order: `columns` as of `columns_of`."""
        n = len(self.came)
        kept = ((columns >= 0) & (columns < n)).nonzero()[:, 0]
        table = torch.full((n + 1,), NO_OTHER)
        table[columns[kept]] = kept
        other, later = (torch.full_like(columns, NO_OTHER) for _ in range(2))
        other[kept] = table[self.taken_for[columns[kept]]]
        later[kept] = table[self._known_later()[columns[kept]]]
        with_other = other != NO_OTHER
        return NewNames(
            columns_of(self.came, columns, 0),
            other,
            torch.where(with_other, columns_of(self.share, columns, 0), 0.0),
            with_other & columns_of(self.new, columns, 0),
            later,
        )


@compiled
def _count(
    called: Array,
    codes: Array,
    came: Array,
    taken_for: Array,
    share: Array,
    new: Array,
    later: Array,
) -> None:
    """Count N samples in the places of C classes, which are changed where they are."""
    step = 1 / PER_CLASS
    for i in range(len(codes)):
        own, other, shown = codes[i], called[i], 0
        for c in range(len(came)):
            shown += came[c] >= 1
        kept = math.exp(-step / max(shown, 1))
        for c in range(len(came)):
            came[c] *= kept
        came[own] += 1
        if other == own:
            share[own] *= 1 - step
        elif other == taken_for[own]:
            share[own] += step * (1 - share[own])
        elif share[own] >= step:
            share[own] -= step
        else:
            taken_for[own], share[own] = other, step
        new[own] = share[own] >= (HARDLY if new[own] else MOST)
        for c in range(len(came)):
            if new[c] and (c == own or taken_for[c] == own):
                new[c] = came[taken_for[c]] < RARELY * came[c]
        if new[own]:
            later[taken_for[own]] = own
        if later[own] >= 0 and came[own] >= RARELY * came[later[own]]:
            later[own] = NO_OTHER
