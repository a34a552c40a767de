"""Where a computation runs: at once on the event loop, or beside it on a thread.

A hop to a thread and back costs more than scoring a hundred samples with a small
model; scoring ten thousand would hold up every other request. So the caller says
how much there is to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import torch

Result = TypeVar("Result")

INLINE_PRODUCTS: Final = 5e7
"""Multiplications that are done at once: a millisecond or two on one core."""

WORKERS: Final = 4
PARSERS: Final = 1
"""More would not read faster, since one holds the lock at a time, but keep the loop waiting."""


class Workers:
    """A few threads for tensor work.

    Arguments:
        threads: Threads of the tensor kernels, within one computation.
    """

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        # The kernels' number of threads belongs to each calling thread on some builds.
        self._pool = ThreadPoolExecutor(
            WORKERS, "gmr-api", initializer=torch.set_num_threads, initargs=(threads,)
        )
        self._parsers = ThreadPoolExecutor(PARSERS, "gmr-parse")

    async def run(self, work: Callable[[], Result], products: float) -> Result:
        """The result of `work`, computed where `products` multiplications are best done."""
        if products <= INLINE_PRODUCTS:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def parse(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, which reads text and so holds Python's lock most of the time."""
        return await asyncio.get_running_loop().run_in_executor(self._parsers, work)

    def close(self) -> None:
        """Wait for what is running, then end the threads."""
        self._pool.shutdown()
        self._parsers.shutdown()
