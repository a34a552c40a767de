"""Services that break a promise, each in one place: the oracle must notice every one of them.

A sabotage is told which part it is in, and changes that part's code. Nothing here can be had by a
setting.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tests.chaos.attacked import SUPERVISOR
from tests.chaos.storm import DAMAGED, POWER, Hit


def acknowledge_first(part: str) -> None:
    """The API answers before Redis has the batch."""
    if part != "service.api":
        return
    from service.broker.appender import Appender
    from service.broker.records import Appended

    whole, behind = Appender._send, set[asyncio.Task[Any]]()

    async def sent(self: Appender, batch_id: str, *given: Any, **named: Any) -> Appended:
        async def later() -> None:
            await asyncio.sleep(1.0)
            await whole(self, batch_id, *given, **named)

        task = asyncio.create_task(later())
        behind.add(task)
        task.add_done_callback(behind.discard)
        return Appended(f"{time.time_ns() // 1_000_000}-0", batch_id, False, 0)

    Appender._send = sent  # type: ignore[method-assign]


def sync_every_second(part: str) -> None:
    """Redis forces its file to the medium once a second, and nobody minds."""
    if part == "service.supervisor":
        from service.supervisor.embedded import EmbeddedRedis

        whole = EmbeddedRedis._arguments

        def arguments(self: EmbeddedRedis) -> list[str]:
            return ["everysec" if one == "always" else one for one in whole(self)]

        EmbeddedRedis._arguments = arguments  # type: ignore[method-assign]
    else:
        from service.broker import durability

        durability.shortfalls = lambda *_: iter(())


def save_before_flush(part: str) -> None:
    """The trainer writes a checkpoint before the events of what it holds are told."""
    if part != "service.trainer":
        return
    from service.broker.report_queue import ReportQueue

    whole, told_at = ReportQueue.flush, [0.0]

    def flush(self: ReportQueue) -> None:
        if time.monotonic() - told_at[0] > 1.0:
            whole(self)
            told_at[0] = time.monotonic()

    ReportQueue.flush = flush  # type: ignore[method-assign]


def trim_at_newest(part: str) -> None:
    """The trainer lets go of what the newest checkpoint alone holds."""
    if part != "service.trainer":
        return
    from service.trainer.releases import Releases

    whole = Releases.saved

    def saved(self: Releases, saved: Any) -> None:
        self._files = [(f"{saved.file}-again", saved.position, saved.samples)]
        whole(self, saved)

    Releases.saved = saved  # type: ignore[method-assign]


SABOTAGES: Mapping[str, Callable[[str], None]] = MappingProxyType(
    {
        "acknowledge first": acknowledge_first,
        "sync every second": sync_every_second,
        "save before flush": save_before_flush,
        "trim at newest": trim_at_newest,
    }
)

EXPOSED_BY: Mapping[str, list[Hit]] = MappingProxyType(
    {
        "acknowledge first": [("service.api", "killed")],
        "sync every second": [(SUPERVISOR, POWER)] * 3,
        "save before flush": [("service.trainer", "a checkpoint was read back")] * 3,
        "trim at newest": [("service.trainer", DAMAGED)],
    }
)
"""Hits that a service without the sabotage survives."""
