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

    async def run(self, work: Callable[[], Result], products: float) -> Result:
        """The result of `work`, computed where `products` multiplications are best done."""
        if products <= INLINE_PRODUCTS:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Wait for what is running, then end the threads."""
        self._pool.shutdown()
