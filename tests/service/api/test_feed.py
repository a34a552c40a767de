"""Tests for service.api.feed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from service.api import feed
from service.broker.connection import StreamUnavailable


@pytest.mark.anyio
async def test_events_that_are_held_up_are_told_once_each_time(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "PAUSE_S", 0.0)
    answers = iter([False, False, False, True, False, False])  # whether Redis answers

    async def last_event_id() -> str:
        return "0-0"

    async def events(after: str, **_: Any) -> list[Any]:
        match next(answers, None):
            case None:
                raise asyncio.CancelledError
            case False:
                raise StreamUnavailable("Redis does not answer.")
        return []

    stream: Any = SimpleNamespace(
        reports=SimpleNamespace(last_event_id=last_event_id, events=events)
    )
    with suppress(asyncio.CancelledError):
        await feed.EventFeed(stream).run()
    told = [one.getMessage() for one in caplog.records if one.name == feed.__name__]
    assert told == 2 * ["events are held up: Redis does not answer."]
