"""Loops over samples, compiled where they run.

Compiled code is kept beside the source for the next start, as Python's own is, and nowhere
else: what numba keeps it reads back as pickles, so it must be as hard to change as the code.
Where that folder cannot be written, what lies there is read (`core.compiled.kept`), and what does
not is compiled at every start, which takes some seconds (`core.engine.warm_up`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit

from core.compiled.kept import Kept

Array = np.ndarray[Any, np.dtype[Any]]
"""An array of numbers. Not `numpy.typing.NDArray`, which from numpy 2.5 on is an alias whose class
nobody who looks at types can tell: what writes checkpoints does."""

F = TypeVar("F", bound=Callable[..., object])


def compiled(loop: F) -> F:
    """The same function of numbers and numpy arrays, compiled at its first call.

    An index out of range raises `IndexError`, as it does uncompiled.
    """
    return _compiled(loop, boundscheck=True)


def vectorised(loop: F) -> F:
    """The same for loops over many numbers that are dealt with alike, several at a time.

    Sums may be taken in any order: as with matrix products, another processor may round otherwise.
    Neither an index out of range is noticed nor a division by zero, which gives infinity or no
    number, so that whoever calls it has to see to that.
    """
    fastmath = {"reassoc", "nsz", "contract"}
    return _compiled(loop, boundscheck=False, error_model="numpy", fastmath=fastmath)


def columnwise(loop: F) -> F:
    """The same for loops that add up many numbers beside each other, in the order that they say.

    Each step is rounded as it is written, as by operations on whole tensors. Otherwise as for
    `vectorised`.
    """
    return _compiled(loop, boundscheck=False, error_model="numpy")


def _compiled(loop: F, **options: Any) -> F:
    # A loop goes whole into those that call it. Else each of them brings a copy, compiled
    # otherwise, under one name, and which copy runs depends on what was compiled or read first:
    # last bits would differ between two starts.
    # Other threads go on meanwhile, such as one that answers requests.
    compiled = njit(forceinline=True, nogil=True, **options)(loop)
    try:
        kept = Kept(loop)  # type: ignore[no-untyped-call]
    except RuntimeError:  # a loop of no file
        return cast(F, compiled)
    compiled._cache = kept
    return cast(F, compiled)
