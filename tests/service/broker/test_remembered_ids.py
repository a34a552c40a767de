"""Tests for the service.broker.remembered_ids module, over a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from service.broker.branch import Branch
from service.broker.stream import Stream
from service.wire import Control
from tests.service.broker.test_stream import batch
from tests.service.conftest import MakeSettings

pytestmark = pytest.mark.anyio


@pytest.fixture
async def stream(settings: MakeSettings) -> AsyncIterator[Stream]:
    async with Stream.open(settings(dedupe_mib=1)) as stream:
        yield stream


def name(number: int, length: int = 100) -> str:
    return f"{number:06d}".ljust(length, "x")


async def known(stream: Stream) -> list[str]:
    """Ids of which there is a note, oldest first."""
    rows = await stream.client.xrange(stream.keys.ids)
    ids = [fields[b"id"].decode() for _, fields in rows]
    there = [bool(await stream.client.exists(stream.keys.batch(id))) for id in ids]
    assert all(there)
    return ids


async def taken(stream: Stream) -> int:
    """Bytes of Redis for notes and their stream, without the tables that find keys."""
    ids = await known(stream)
    keys = [stream.keys.ids, *(stream.keys.batch(id) for id in ids)]
    sizes = [await stream.client.memory_usage(key, samples=0) for key in keys]
    return sum(size for size in sizes if size is not None)


async def test_beyond_their_budget_the_oldest_are_forgotten(stream: Stream) -> None:
    assert stream.ids.budget == 2**20
    stream.ids.budget = 2**18  # does the same with fewer
    for first in range(0, 1000, 50):
        more = range(first, first + 50)
        await asyncio.gather(*(stream.append(batch(batch_id=name(number))) for number in more))
    ids = await known(stream)
    assert 500 < len(ids) < 675  # of 430 bytes
    assert 0.6 * 2**18 < await taken(stream) <= 2**18
    newest = {name(number) for number in range(1000 - len(ids) + 100, 1000)}
    assert newest <= set(ids)
    assert (await stream.append(batch(batch_id=name(999)))).duplicate
    assert not (await stream.append(batch(batch_id=name(0)))).duplicate


async def test_ids_that_the_service_made_need_no_room(stream: Stream) -> None:
    for _ in range(3):
        await stream.append(batch())
    assert await known(stream) == []
    assert await stream.ids.seconds() is None
    await stream.append(batch(batch_id="one"))
    await asyncio.sleep(0.2)
    await stream.append(batch(batch_id="two"))
    assert await known(stream) == ["one", "two"]
    assert 0.2 <= (await stream.ids.seconds() or 0) < 5


async def test_what_is_forgotten_by_its_time_needs_no_room_either(settings: MakeSettings) -> None:
    async with Stream.open(settings(dedupe_ttl_s=1)) as stream:
        for number in range(3):
            await stream.append(batch(batch_id=name(number)))
        await asyncio.sleep(1.2)
        await stream.append(batch(batch_id="new"))
        assert await known(stream) == ["new"]


async def test_an_id_that_came_anew_after_a_rollback_is_remembered_from_then_on(
    stream: Stream,
) -> None:
    before = await stream.append(batch(batch_id=name(0)))
    back = await stream.append_control(Control("rollback", version=1))
    branch = Branch().rolled_back(Branch(), before.entry_id, back.entry_id)
    await stream.client.set(stream.keys.branch, branch.to_json(decided=back.entry_id))
    for number in range(1, 5):
        await stream.append(batch(batch_id=name(number)))
    assert not (await stream.append(batch(batch_id=name(0)))).duplicate
    stream.ids.budget = 1500
    await stream.append(batch(batch_id=name(5)))
    rows = await stream.client.xrange(stream.keys.ids)
    kept = [fields[b"id"].decode() for _, fields in rows]
    assert kept == [name(number) for number in (3, 4, 0, 5)]
    assert (await stream.append(batch(batch_id=name(0)))).duplicate


async def test_where_nothing_can_be_forgotten_what_was_accepted_is(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stream.ids.budget = 1000
    appended = [await stream.append(batch(batch_id=name(number))) for number in range(2)]

    async def fails(*_: object) -> None:
        raise ConnectionError("gone")

    with monkeypatch.context() as while_away:
        while_away.setattr(stream.client, "xrange", fails)
        appended.append(await stream.append(batch(batch_id=name(2))))
        appended.append(await stream.append(batch(batch_id=name(3))))
    assert "batch ids are not forgotten: " in caplog.text
    assert len(await known(stream)) == 4
    appended.append(await stream.append(batch(batch_id=name(4))))
    assert [one.duplicate for one in appended] == [False] * 5
    assert await known(stream) == [name(number) for number in (2, 3, 4)]
