"""Classes that go by another name: their samples come, and their label no longer does.

Whoever remembers all labels alike says the old name for as long as it was heard. Its samples are
told by their label, most of which are taken for the old class; then whatever is said of that class
is said of the new name (`core.experts.opinions`).

Throughout: C classes, N samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.compiled.loops import Array, compiled
from core.experts.fading import columns_of

NO_OTHER = -1
"""In the place of a class."""

PER_CLASS = 50.0
"""Samples of each class that comes after which a third is left of what was counted."""

RARELY = 1 / 3
"""Part of the samples of the new name below which those of the old one stay away."""

MOST = 0.6
"""Share of a label's samples that others take for one class, at least, for it to be a new name of
it: where classes overlap, samples of each are taken for others ..."""

ALIKE = 0.7
"""... and likewise as a multiple of the share of that class's own samples that were: those of a new
name are its samples."""

STILL = 0.85
"""Part of these shares from which on one that is a new name stays one."""

SOON = 46
"""Samples of a label after which that is asked."""

RARE = 0.25
"""Part of the samples of the old name up to which others cannot have learned a new one. Until then
it must stay as alike; whoever is told apart before is a class of its own, which looks like another
one."""

HARDLY = 0.1
"""Share below which it is a class of its own again later: the others have learned it."""


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
        heard: Labelled samples of each class in all, with shape (C,), float64.
        tried: Of these, since `taken_for` is what it is, with shape (C,), float64.
        own: As `share`, of the samples of each class that were taken for what they are; with shape
            (C,), float64.
    """

    came: Tensor
    taken_for: Tensor
    share: Tensor
    new: Tensor
    # Checkpoints of earlier releases have none.
    later: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    heard: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    tried: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))
    own: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))

    @classmethod
    def start(cls, n_classes: int = 0) -> NewNames:
        """Before any label."""
        return cls(
            torch.zeros(n_classes, dtype=torch.float64),
            torch.full((n_classes,), NO_OTHER),
            torch.zeros(n_classes, dtype=torch.float64),
            torch.zeros(n_classes, dtype=torch.bool),
            torch.full((n_classes,), NO_OTHER),
            *torch.zeros(3, n_classes, dtype=torch.float64),
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
        parts = [getattr(self.whole(), one.name).clone() for one in fields(self)]
        _count(called.numpy(), codes.numpy(), *(part.numpy() for part in parts))
        return NewNames(*parts)

    def whole(self) -> NewNames:
        """The same with all that is known of every class, also where a checkpoint had less."""
        missing = len(self.came) - len(self.later)
        none = torch.zeros(len(self.came) - len(self.heard), dtype=torch.float64)
        if not missing and not len(none):
            return self
        return replace(
            self,
            later=torch.cat([self.later, torch.full((missing,), NO_OTHER)]),
            heard=torch.cat([self.heard, none]),
            tried=torch.cat([self.tried, none]),
            own=torch.cat([self.own, none]),
        )

    def in_new_sub_task(self) -> NewNames:
        """Without shares of what is no new name: what others had yet to learn they mistook."""
        return replace(
            self,
            taken_for=self.replaces,
            share=torch.where(self.new, self.share, 0.0),
            tried=torch.where(self.new, self.whole().tried, 0.0),
        )

    def grown(self, n_classes: int) -> NewNames:
        """With room for as many classes, where there are fewer."""
        if n_classes <= len(self.came):
            return self
        return self.of_classes(torch.arange(n_classes))

    def of_classes(self, columns: Tensor) -> NewNames:
        """Of other classes, or of the same in another order: `columns` as of `columns_of`."""
        n, whole = len(self.came), self.whole()
        kept = ((columns >= 0) & (columns < n)).nonzero()[:, 0]
        table = torch.full((n + 1,), NO_OTHER)
        table[columns[kept]] = kept
        other, later = (torch.full_like(columns, NO_OTHER) for _ in range(2))
        other[kept] = table[self.taken_for[columns[kept]]]
        later[kept] = table[whole.later[columns[kept]]]
        with_other = other != NO_OTHER
        return NewNames(
            columns_of(self.came, columns, 0),
            other,
            torch.where(with_other, columns_of(self.share, columns, 0), 0.0),
            with_other & columns_of(self.new, columns, 0),
            later,
            columns_of(whole.heard, columns, 0),
            torch.where(with_other, columns_of(whole.tried, columns, 0), 0.0),
            columns_of(whole.own, columns, 0),
        )

    def with_merged_classes(self, merge: ClassMerge) -> NewNames:
        """Two classes in one, which is no new name of itself."""
        whole = self.grown(max(merge) + 1).whole()
        taken_for, later = (
            merge.without(merge.codes(part), 0) for part in (whole.taken_for, whole.later)
        )
        itself = torch.arange(len(taken_for))
        taken_for, later = (
            torch.where(part == itself, NO_OTHER, part) for part in (taken_for, later)
        )
        with_other = taken_for != NO_OTHER
        return NewNames(
            merge.added(whole.came, 0),
            taken_for,
            torch.where(with_other, merge.without(whole.share, 0), 0.0),
            with_other & merge.without(whole.new, 0),
            later,
            merge.added(whole.heard, 0),
            torch.where(with_other, merge.without(whole.tried, 0), 0.0),
            merge.without(whole.own, 0),
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
    heard: Array,
    tried: Array,
    own: Array,
) -> None:
    """Count N samples in the places of C classes, which are changed where they are."""
    step = 1 / PER_CLASS
    for i in range(len(codes)):
        code, other, shown = codes[i], called[i], 0
        for c in range(len(came)):
            shown += came[c] >= 1
        kept = math.exp(-step / max(shown, 1))
        for c in range(len(came)):
            came[c] *= kept
        came[code] += 1
        heard[code] += 1
        tried[code] += taken_for[code] >= 0
        if other == code:
            own[code] += step * (1 - own[code])
        else:  # as much as of `share`, by samples of a third class
            own[code] = max(0.0, own[code] - step)
        if other == code:
            share[code] *= 1 - step
        elif other == taken_for[code]:
            share[code] += step * (1 - share[code])
        elif share[code] >= step:
            share[code] -= step
        else:
            taken_for[code], share[code], tried[code] = other, step, 1
        if taken_for[code] >= 0:
            new[code] = _is_new(code, taken_for[code], share, new, heard, tried, own)
        for c in range(len(came)):
            if new[c] and (c == code or taken_for[c] == code):
                new[c] = came[taken_for[c]] < RARELY * came[c]
        if new[code]:
            later[taken_for[code]] = code
        if later[code] >= 0 and came[code] >= RARELY * came[later[code]]:
            later[code] = NO_OTHER


@compiled
def _is_new(
    code: int, other: int, share: Array, new: Array, heard: Array, tried: Array, own: Array
) -> bool:
    """Whether a class's samples are those of the other class that they are taken for."""
    if new[code] and heard[code] >= RARE * heard[other]:
        return bool(share[code] >= HARDLY)
    if tried[code] < SOON:
        return bool(new[code])
    alike = share[code] / (1 - (1 - 1 / PER_CLASS) ** tried[code])
    wanted = max(MOST, ALIKE * own[other]) * (STILL if new[code] else 1)
    return bool(alike >= wanted)
