"""Arithmetic as the trainer does it, while something is measured, and as before afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def as_in_the_trainer() -> Iterator[None]:
    """One thread, and numbers too small to be normal taken for zero.

    These are switches of the whole process: left on, they would change what runs after.

    Example:
        >>> tiny = torch.tensor(1e-40)
        >>> with as_in_the_trainer():
        ...     inside = bool(tiny * 1 == 0)
        >>> inside, bool(tiny * 1 == 0)
        (True, False)
    """
    for kind in (np.float32, np.float64):
        np.finfo(kind).smallest_subnormal  # noqa: B018  numpy warns if it first looks later
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)
        torch.set_num_threads(threads)
