"""Tests for the service.broker.stream module, over a real Redis."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator

import numpy as np
import pytest

from core.errors import InvalidSettings, ShapeMismatch
from service.broker.branch import Branch
from service.broker.connection import StreamUnavailable
from service.broker.dead_letters import DeadLetters
from service.broker.stream import Stream
from service.broker.stream_errors import BacklogFull, BatchConflict
from service.settings import Settings
from service.supervisor.embedded import EmbeddedRedis
from service.wire import Control, RawBatch, read_entry
from tests.service.conftest import MakeSettings

pytestmark = pytest.mark.anyio


@pytest.fixture
async def stream(settings: MakeSettings) -> AsyncIterator[Stream]:
    async with Stream.open(settings(max_backlog=5)) as stream:
        yield stream


def batch(value: float = 1.0, batch_id: str | None = None, d: int = 3) -> RawBatch:
    return RawBatch.of(np.full((2, d), value, "f4"), ["a", None], batch_id)


async def length(stream: Stream) -> int:
    return int(await stream.client.xlen(stream.keys.input))


async def test_an_appended_batch_is_in_the_stream_as_it_was(stream: Stream) -> None:
    appended = await stream.append(batch(2.5, "one"))
    [(entry_id, fields)] = await stream.client.xrange(stream.keys.input)
    assert entry_id.decode() == appended.entry_id
    read = read_entry(fields)
    assert isinstance(read, RawBatch)
    assert read.features.tolist() == [[2.5] * 3] * 2
    assert (read.vocabulary, read.batch_id) == (("a",), "one")
    assert (appended.batch_id, appended.duplicate, appended.accepted) == ("one", False, 1)


async def test_the_same_batch_again_is_a_duplicate_of_the_first(stream: Stream) -> None:
    first = await stream.append(batch(batch_id="one"))
    again = await stream.append(batch(batch_id="one"))
    assert again.duplicate
    assert again.entry_id == first.entry_id
    assert await length(stream) == 1


async def test_one_id_for_two_batches_is_a_conflict(stream: Stream) -> None:
    first = await stream.append(batch(1.0, "one"))
    with pytest.raises(BatchConflict, match=first.entry_id):
        await stream.append(batch(2.0, "one"))
    assert await length(stream) == 1


async def test_batches_without_an_id_are_all_added(stream: Stream) -> None:
    ids = {(await stream.append(batch())).batch_id for _ in range(3)}
    assert len(ids) == await length(stream) == 3


async def test_many_senders_of_one_batch_add_it_once(stream: Stream) -> None:
    appended = await asyncio.gather(*(stream.append(batch(batch_id="one")) for _ in range(20)))
    assert sum(not one.duplicate for one in appended) == 1
    assert len({one.entry_id for one in appended}) == 1
    assert await length(stream) == 1


async def test_the_first_batch_fixes_the_number_of_features(stream: Stream) -> None:
    assert await stream.n_features() is None
    await stream.append(batch(d=3))
    assert await stream.n_features() == 3
    with pytest.raises(ShapeMismatch) as caught:
        await stream.append(batch(d=4))
    assert caught.value.context == {"expected": 3, "got": 4}
    assert await length(stream) == 1


async def test_a_setting_fixes_the_number_of_features_too(settings: MakeSettings) -> None:
    async with Stream.open(settings(n_features=4)) as stream:
        with pytest.raises(ShapeMismatch):
            await stream.append(batch(d=3))
        assert await length(stream) == 0
        assert await stream.n_features() == 4


async def test_a_full_backlog_refuses_batches_until_some_are_learned(stream: Stream) -> None:
    for _ in range(5):
        await stream.append(batch(), entries_applied=0)
    with pytest.raises(BacklogFull):
        await stream.append(batch(), entries_applied=0)
    await stream.append(batch(), entries_applied=1)
    await stream.append(batch())  # nobody counts
    await stream.append_control(Control("boundary"))  # never refused


async def test_a_duplicate_is_told_even_when_the_backlog_is_full(stream: Stream) -> None:
    for i in range(5):
        await stream.append(batch(batch_id=f"{i}"), entries_applied=0)
    assert (await stream.append(batch(batch_id="0"), entries_applied=0)).duplicate


async def test_what_was_trimmed_counts_as_accepted(stream: Stream) -> None:
    for _ in range(3):
        await stream.append(batch())
    await stream.client.set(stream.keys.applied, 10)
    assert await stream.accepted() == 13
    assert (await stream.append(batch())).accepted == 14


async def test_a_control_entry_is_added_with_its_fields(stream: Stream) -> None:
    await stream.append_control(Control("rollback", version=7))
    [(_, fields)] = await stream.client.xrange(stream.keys.input)
    assert read_entry(fields) == Control("rollback", version=7)


async def test_a_batch_id_is_forgotten_in_time(settings: MakeSettings) -> None:
    async with Stream.open(settings(dedupe_ttl_s=77)) as stream:
        await stream.append(batch(batch_id="one"))
        assert 70 < await stream.client.ttl(stream.keys.batch("one")) <= 77


async def test_nothing_reported_yet_reads_as_nothing(stream: Stream) -> None:
    assert await stream.reports.status() is None
    assert await stream.reports.trainer_metrics() is None
    assert await stream.reports.versions() == []
    assert await stream.reports.history(10) == []
    assert await stream.reports.boundaries() == []
    assert await DeadLetters(stream).page() == []
    assert await stream.reports.branch() == Branch()
    assert await stream.reports.events("0", block_ms=1) == []
    assert await stream.reports.last_event_id() == "0-0"
    assert await stream.reports.last_notice() is None
    assert await stream.reports.next_notice("0-0", block_ms=1) is None
    assert await stream.reports.snapshot() is None


async def test_a_checkpoint_that_nobody_sends_is_not_waited_for_longer(stream: Stream) -> None:
    assert await stream.transfers.request_checkpoint(0.1) is None
    assert await stream.client.llen(stream.keys.requests) == 0


async def test_without_an_address_there_is_no_stream() -> None:
    with pytest.raises(InvalidSettings, match="GMR_REDIS_URL"):
        Stream.open(Settings())


# Redis in trouble -----------------------------------------------------------------


async def test_a_redis_that_restarts_is_waited_for_and_nothing_is_lost(
    own_redis: EmbeddedRedis, settings: MakeSettings
) -> None:
    own_redis.start()
    async with Stream.open(settings(redis_url=own_redis.url)) as stream:
        accepted: list[str] = []

        async def send() -> None:
            while True:
                n = len(accepted)
                accepted.append((await stream.append(batch(n, f"{n}"))).entry_id)

        sender = asyncio.create_task(send())
        for enough in (10, 30, 60):
            while len(accepted) < enough:
                await asyncio.sleep(0.001)
            if enough < 60:
                assert own_redis.pid is not None
                os.kill(own_redis.pid, signal.SIGKILL)
                while own_redis.poll() is None:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0.1)
                own_redis.start()
        sender.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sender
        rows = await stream.client.xrange(stream.keys.input)
        # Each exactly once, although some were sent again after a lost answer.
        assert [entry_id.decode() for entry_id, _ in rows][: len(accepted)] == accepted
        assert len(rows) <= len(accepted) + 1  # the one whose answer was not waited for
        assert stream.redis_errors > 0


async def test_a_redis_that_stays_away_is_reported(
    own_redis: EmbeddedRedis, settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.broker.caller.RETRY_S", 0.1)
    async with Stream.open(settings(redis_url=own_redis.url)) as stream:
        with pytest.raises(StreamUnavailable, match="not known whether"):
            await stream.append(batch())


async def test_a_full_redis_refuses_without_remembering_the_batch(
    own_redis: EmbeddedRedis, settings: MakeSettings
) -> None:
    own_redis.start()
    large = RawBatch.of(np.zeros((1000, 1000), "f4"), None, "large")
    async with Stream.open(settings(redis_url=own_redis.url)) as stream:
        with contextlib.suppress(StreamUnavailable):
            for _ in range(30):
                await stream.append(RawBatch(large.features))
        with pytest.raises(StreamUnavailable, match="no memory left"):
            await stream.append(large)
        await stream.client.xtrim(stream.keys.input, maxlen=1)
        # Had the refused one been remembered, this would be a duplicate of nothing.
        assert not (await stream.append(large)).duplicate


async def test_a_wrong_password_is_told_at_once(
    own_redis: EmbeddedRedis, settings: MakeSettings
) -> None:
    own_redis.start()
    url = f"unix://user:wrong@{own_redis.socket}"
    async with Stream.open(settings(redis_url=url)) as stream:
        with pytest.raises(StreamUnavailable, match="does not take the service's user"):
            await stream.ping()


async def test_a_boundary_is_told_with_as_much_of_its_explanation_as_is_kept(
    stream: Stream,
) -> None:
    kept = b'{"kind": "boundary", "explanation": {"effect": -3.0}}'
    await stream.client.xadd(stream.keys.boundaries, {"data": kept}, id="5-0")
    await stream.client.xadd(stream.keys.boundaries, {"data": b'{"kind": "boundary"}'}, id="6-0")
    await stream.client.xadd(stream.keys.explanations, {"data": b'{"prototypes": []}'}, id="5-0")

    whole = await stream.reports.boundary("5-0")
    assert whole is not None
    assert whole.data["explanation"] == {"effect": -3.0, "prototypes": []}
    # Reported by an earlier release, or its heavy part made room for newer ones.
    older = await stream.reports.boundary("6-0")
    assert older is not None
    assert older.data["explanation"] == {}
    assert await stream.reports.boundary("7-0") is None
    assert [record.id for record in await stream.reports.newest_boundaries(1)] == ["6-0"]
