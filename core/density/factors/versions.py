"""What was made of the same objects a moment ago, for versions of a model that take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

VERSIONS = 3
"""Of a model, that score the same samples in turns: the one that learns, the frozen one and its
successor."""


def kept(holder: object, name: str, of: Sequence[object], make: Callable[[], T]) -> T:
    """What was made of these very objects, if that is among the last few; else made now.

    Arguments:
        holder: Whoever keeps it, in an attribute.
        name: Of the attribute.
        of: What it is made of, in order.
        make: Makes it.
    """
    known: tuple[tuple[Sequence[object], T], ...] = holder.__dict__.get(name, ())
    for before, made in known:
        if len(before) == len(of) and all(a is b for a, b in zip(before, of, strict=True)):
            return made
    made = make()
    holder.__dict__[name] = ((of, made), *known[: VERSIONS - 1])
    return made
