"""Tests of how a trainer reads: no read waits for others while what it has is learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from service.broker.feed import Feed
from service.broker.reader import Reader
from service.trainer.host import FULL_MS, MOST_WAITING, READ_MS
from tests.service.conftest import MakeSettings
from tests.service.running import batch, send, training, wait_for_backlog
from tests.service.trainer.test_named_models import register


def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[set[str], int]]:
    """What reads ask for, and how long each waits at most."""
    found: list[tuple[set[str], int]] = []
    ask = Reader.ask

    def noted(self: Reader, streams: Sequence[Any], block_ms: int) -> None:
        found.append(({one.stream for one in streams if isinstance(one, Feed)}, block_ms))
        ask(self, streams, block_ms)

    monkeypatch.setattr(Reader, "ask", noted)
    return found


def test_a_read_without_a_stream_that_is_full_is_short(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = settings()
    send(own, *(batch(0, seed, 1) for seed in range(4 * MOST_WAITING)))
    found = waits(monkeypatch)
    with training(own) as trainer:
        wait_for_backlog(own)
        stream = trainer.default.feed.stream
    assert {ms for streams, ms in found if stream not in streams} == {FULL_MS}
    assert {ms for streams, ms in found if stream in streams} == {READ_MS}


def test_a_read_without_a_named_model_that_is_full_is_short(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = settings()
    own = register(service, "pump")
    with training(service):
        send(own, batch(0, 0))
        wait_for_backlog(own)  # it is loaded from now on
        found = waits(monkeypatch)
        send(own, *(batch(0, seed, 1) for seed in range(1, 4 * MOST_WAITING)))
        wait_for_backlog(own)
    stream = next(one for streams, _ in found for one in streams if "pump" in one)
    assert {ms for streams, ms in found if stream not in streams} == {FULL_MS}
    assert {ms for streams, ms in found if stream in streams} == {READ_MS}
