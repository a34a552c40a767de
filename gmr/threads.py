"""Threads of tensor kernels, where samples have few features.

torch parts an operation among all cores. Where operations are small the parts wait for each other
longer than they compute, and many times as long where other processes use these cores as well.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

MOST_FEATURES: Final = 256
"""Features of a sample up to which one thread is enough."""

_lock = threading.Lock()
_inside = 0  # threads of Python that are within a call at this moment
_outside = 1  # torch's number of threads when the first of these came


class _Depth(threading.local):
    """How many calls a thread of Python is within."""

    calls = 0


_depth = _Depth()


@contextmanager
def few_threads(n_features: int) -> Iterator[None]:
    """Meanwhile torch has one thread, if samples have few features; then as many as before.

    Each thread of Python has a number of its own, and a new one takes that which was set last: so
    each gets back the number that was there when none was within a call.

    Arguments:
        n_features: D.
    """
    if n_features > MOST_FEATURES:
        yield
        return
    _enter()
    try:
        yield
    finally:
        _leave()


def _enter() -> None:
    global _inside, _outside
    _depth.calls += 1
    if _depth.calls > 1:
        return
    with _lock:
        if _inside == 0:
            _outside = torch.get_num_threads()
        _inside += 1
    torch.set_num_threads(1)


def _leave() -> None:
    global _inside
    _depth.calls -= 1
    if _depth.calls:
        return
    with _lock:
        _inside -= 1
        torch.set_num_threads(_outside)
