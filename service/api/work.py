"""Where a computation runs: at once on the event loop, or beside it on a thread.

A hop to a thread and back costs more than scoring a hundred samples with a small
model; scoring ten thousand would hold up every other request. So the caller says
how much there is to do.

While the trainer learns, one processor is left to it. Answers come first, so next to nothing would
be learned if they took all processors. With few processors fewer passes run at a time then, and
each is done sooner.
"""

from __future__ import annotations

import asyncio
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import torch
from anyio import CapacityLimiter

Result = TypeVar("Result")

INLINE_PRODUCTS: Final = 5e7
"""Multiplications that are done at once: a millisecond or two on one core."""

LONG_PRODUCTS: Final = 5e9
"""Multiplications of a pass beyond which it takes no turn: others would wait for it too long."""

WORKERS: Final = 4
LEARNING_S: Final = 3.0
"""Seconds for which a new model shows that the trainer learns; there is one a second while it does.
"""

PARSERS: Final = 1
"""More would not read faster, since one holds the lock at a time, but keep the loop waiting."""


class Workers:
    """A few threads for tensor work.

    Arguments:
        threads: Threads of the tensor kernels, within one computation.
        processors: That there are; None: that this process may use.
    """

    def __init__(self, threads: int, processors: int | None = None) -> None:
        torch.set_num_threads(threads)
        processors = processors or _processors()
        self._beside_learning = min(WORKERS, max(1, (processors - 1) // threads))
        self._learned_at = -math.inf
        self._turns: CapacityLimiter | None = None
        # The kernels' number of threads belongs to each calling thread on some builds.
        self._pool = ThreadPoolExecutor(
            WORKERS, "gmr-api", initializer=torch.set_num_threads, initargs=(threads,)
        )
        self._parsers = ThreadPoolExecutor(PARSERS, "gmr-parse")

    async def run(self, work: Callable[[], Result], products: float) -> Result:
        """The result of `work`, computed where `products` multiplications are best done."""
        if products <= INLINE_PRODUCTS:
            return work()
        loop = asyncio.get_running_loop()
        if products > LONG_PRODUCTS:
            return await loop.run_in_executor(self._pool, work)
        async with self._turn():
            return await loop.run_in_executor(self._pool, work)

    def learns(self) -> None:
        """Say that the trainer has learned just now."""
        self._learned_at = time.monotonic()

    def _turn(self) -> CapacityLimiter:
        learns = time.monotonic() - self._learned_at < LEARNING_S
        most = self._beside_learning if learns else WORKERS
        if self._turns is None:
            self._turns = CapacityLimiter(most)
        self._turns.total_tokens = most
        return self._turns

    async def parse(self, work: Callable[[], Result]) -> Result:
        """The result of `work`, which reads text and so holds Python's lock most of the time."""
        return await asyncio.get_running_loop().run_in_executor(self._parsers, work)

    def close(self) -> None:
        """Wait for what is running, then end the threads."""
        self._pool.shutdown()
        self._parsers.shutdown()


def _processors() -> int:
    """That this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on this system
        return os.cpu_count() or 1
