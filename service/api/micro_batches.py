"""Small questions that come together are scored in one pass over the model.

A pass costs nearly the same for one row as for thirty. So questions of few rows that wait at the
same time, about the same snapshot and with the same parameters, share one.

Rules of this module:

1. Nobody waits for others to come: a pass takes what is there when its turn comes. While a pass
   runs on a thread, what comes gathers for the next.
2. A question that cannot be answered spoils no other: where a shared pass fails, each of its
   questions is asked again by itself, and gets its own answer or error.
3. A sample is scored by itself in any company. But sums in floating point are added in another
   order in batches of another size, so that the last bits of an answer may depend on what was
   asked with it, as they do on the other rows of one request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from core.snapshot import Classification, OutlierScores, Snapshot
from service.api.work import Workers

Answer = TypeVar("Answer", Classification, OutlierScores, Classification | OutlierScores)

SMALL: Final = 16
"""Rows of a question that may share a pass, at most: beyond, rows cost more than the pass."""


class _Kind(NamedTuple):
    """What questions of one pass have in common; the snapshot stands for itself."""

    snapshot: Snapshot
    asked: Hashable
    n_features: int


@dataclass(frozen=True, eq=False)
class _Waiting:
    x: Tensor
    answer: asyncio.Future[Any]


class MicroBatches:
    """Lets small questions about one model share passes.

    Arguments:
        workers: Where passes run.
        rows: Of one pass, at most; 0: every question has one of its own.
    """

    def __init__(self, workers: Workers, rows: int) -> None:
        self._workers = workers
        self._rows = rows
        self._waiting: dict[_Kind, deque[_Waiting]] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def ask(
        self,
        snapshot: Snapshot,
        x: Tensor,
        asked: Hashable,
        work: Callable[[Tensor], Answer],
    ) -> Answer:
        """The answer about some samples.

        Arguments:
            snapshot: That is asked.
            x: Samples, float32 with shape (N, D).
            asked: What is asked, with all parameters; equal where `work` does the same.
            work: Answers about samples.

        Raises:
            GMRError: As `work` does.
        """
        if len(x) > min(SMALL, self._rows // 2):
            return await self._run(snapshot, x, work)
        kind = _Kind(snapshot, asked, x.shape[1])
        mine = _Waiting(x, asyncio.get_running_loop().create_future())
        if kind in self._waiting:
            self._waiting[kind].append(mine)
        else:
            self._waiting[kind] = deque([mine])
            # It begins once all that has come by now has been read.
            task = asyncio.get_running_loop().create_task(self._serve(kind, work))
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)
        return cast("Answer", await mine.answer)

    async def _serve(self, kind: _Kind, work: Callable[[Tensor], Answer]) -> None:
        """Answer what waits, until nothing does."""
        waiting = self._waiting[kind]
        try:
            while waiting:
                await self._answer(kind, self._next(waiting), work)
        finally:
            del self._waiting[kind]
            for one in waiting:  # only where the process ends
                one.answer.cancel()

    def _next(self, waiting: deque[_Waiting]) -> list[_Waiting]:
        """The questions of the next pass, oldest first, without those that nobody waits for."""
        chosen, rows = list[_Waiting](), 0
        while waiting and rows + len(waiting[0].x) <= self._rows:
            one = waiting.popleft()
            if not one.answer.done():
                chosen.append(one)
                rows += len(one.x)
        return chosen

    async def _answer(
        self, kind: _Kind, chosen: list[_Waiting], work: Callable[[Tensor], Answer]
    ) -> None:
        if not chosen:
            return
        try:
            together = torch.cat([one.x for one in chosen]) if chosen[1:] else chosen[0].x
            found = await self._run(kind.snapshot, together, work)
        except Exception as error:
            if not chosen[1:]:
                _fail(chosen[0], error)
                return
            for one in chosen:
                await self._answer(kind, [one], work)
            return
        first = 0
        for one in chosen:
            if not one.answer.done():
                one.answer.set_result(_part(found, first, len(one.x)) if chosen[1:] else found)
            first += len(one.x)

    async def _run(self, snapshot: Snapshot, x: Tensor, work: Callable[[Tensor], Answer]) -> Answer:
        return await self._workers.run(lambda: work(x), len(x) * snapshot.info.parameters)


def _part(found: Answer, first: int, n: int) -> Answer:
    """The answer about some of the samples."""
    values = (v[first : first + n] if isinstance(v, Tensor) else v for v in found)
    return type(found)._make(values)


def _fail(one: _Waiting, error: Exception) -> None:
    if not one.answer.done():
        one.answer.set_exception(error)
