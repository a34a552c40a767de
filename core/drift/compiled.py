"""Loops over samples, compiled where they run.

Compiled code is kept beside the source, or in the user's cache folder, for the next start;
where neither can be written it is compiled again, which takes some seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from numba import njit

F = TypeVar("F", bound=Callable[..., None])


def compiled(loop: F) -> F:
    """The same function of numbers and numpy arrays, compiled at its first call.

    An index out of range raises `IndexError`, as it does uncompiled.
    """
    try:
        return cast(F, njit(cache=True, boundscheck=True)(loop))
    except RuntimeError:  # numba found no folder for its cache
        return cast(F, njit(boundscheck=True)(loop))
