"""Tests for the service.broker.append module: which batches are taken again, over a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import redis

from service.broker.branch import Branch
from service.broker.dead_letters import DeadLetters
from service.broker.records import Appended
from service.broker.stream import Stream
from service.broker.stream_errors import (
    BacklogFull,
    BatchConflict,
    LetterConflict,
    RestorePending,
    UnknownLetter,
)
from service.wire import Control, RawBatch
from tests.service.conftest import MakeSettings

pytestmark = pytest.mark.anyio


@pytest.fixture
async def stream(settings: MakeSettings) -> AsyncIterator[Stream]:
    async with Stream.open(settings()) as stream:
        yield stream


def batch(value: float = 1.0, batch_id: str = "one") -> RawBatch:
    return RawBatch.of(np.full((2, 3), value, "f4"), None, batch_id)


async def tell(stream: Stream, branch: Branch, decided: str) -> None:
    """What the trainer tells once it has dealt with an entry."""
    await stream.client.set(stream.keys.branch, branch.to_json(decided=decided))


async def roll_back(stream: Stream, first: str, kept: Branch | None = None) -> str:
    """A rollback, accepted and done: everything from `first` on is dropped."""
    entry = (await stream.append_control(Control("rollback", version=1))).entry_id
    branch = (await stream.reports.branch()).rolled_back(
        kept or await stream.reports.branch(), first, entry
    )
    await tell(stream, branch, entry)
    return entry


async def reject(stream: Stream, entry: Appended, reason: str = "invalid_labels") -> str:
    """What the trainer writes down when it cannot use an entry; the letter's id."""
    letter = f"{entry.entry_id.split('-')[0]}-{int(entry.entry_id.split('-')[1]) * 10_000}"
    keys, client = stream.keys, stream.client
    await client.xadd(keys.dead_letters, {"data": b"{}", "size": 7}, id=letter)
    [(_, fields)] = await client.xrange(keys.input, entry.entry_id, entry.entry_id)
    await client.hset(keys.dead_letter(letter), mapping=fields)
    await client.set(keys.dead_letters_bytes, 7)
    note = (await client.get(keys.batch(entry.batch_id))).decode()
    lines = [
        f"{line} {reason}@{letter}" if line.startswith(f"{entry.entry_id} ") else line
        for line in note.split("\n")
    ]
    await client.set(keys.batch(entry.batch_id), "\n".join(lines))
    return letter


async def requeue(stream: Stream, letter: str) -> Appended:
    fields = await stream.client.hgetall(stream.keys.dead_letter(letter))
    return await stream.requeue(letter, fields or {b"id": b"one"}, samples=2, d=3)


async def test_a_batch_that_a_rollback_dropped_is_taken_again_once(stream: Stream) -> None:
    kept = await stream.append(batch(1, "kept"))
    first = await stream.append(batch(2, "dropped"))
    await roll_back(stream, first.entry_id)
    assert (await stream.append(batch(1, "kept"))).entry_id == kept.entry_id
    again = await stream.append(batch(2, "dropped"))
    assert not again.duplicate
    # A repeat on the new branch is a repeat.
    repeat = await stream.append(batch(2, "dropped"))
    assert (repeat.duplicate, repeat.entry_id) == (True, again.entry_id)


async def test_after_going_forward_again_the_first_time_counts(stream: Stream) -> None:
    start = await stream.reports.branch()
    first = await stream.append(batch())
    await roll_back(stream, first.entry_id)
    second = await stream.append(batch())
    # Forward to a version that holds the first, and not the second.
    await roll_back(stream, second.entry_id, kept=start)
    third = await stream.append(batch())
    assert (third.duplicate, third.entry_id) == (True, first.entry_id)


async def test_other_content_is_no_conflict_with_what_was_dropped(stream: Stream) -> None:
    first = await stream.append(batch(1))
    with pytest.raises(BatchConflict):
        await stream.append(batch(2))
    await roll_back(stream, first.entry_id)
    assert not (await stream.append(batch(2))).duplicate


async def test_a_repeat_waits_until_a_rollback_is_decided(stream: Stream) -> None:
    first = await stream.append(batch(1, "before"))
    control = await stream.append_control(Control("rollback", version=1))
    after = await stream.append(batch(2, "after"))
    with pytest.raises(RestorePending):
        await stream.append(batch(1, "before"))
    # What came behind the rollback is not dropped by it, and what is new is not held up.
    assert (await stream.append(batch(2, "after"))).entry_id == after.entry_id
    assert not (await stream.append(batch(3, "new"))).duplicate
    # The trainer could not do it: nothing was dropped.
    await tell(stream, Branch(), control.entry_id)
    assert (await stream.append(batch(1, "before"))).entry_id == first.entry_id


async def test_a_batch_with_a_dead_letter_is_told_and_not_taken_again(stream: Stream) -> None:
    first = await stream.append(batch())
    letter = await reject(stream, first)
    again = await stream.append(batch())
    assert (again.duplicate, again.entry_id) == (True, first.entry_id)
    assert (again.rejected, again.dead_letter) == ("invalid_labels", letter)
    assert await stream.client.xlen(stream.keys.input) == 1
    with pytest.raises(BatchConflict):
        await stream.append(batch(2))


async def test_once_its_letter_is_gone_it_is_taken_again(stream: Stream) -> None:
    letter = await reject(stream, await stream.append(batch()))
    await stream.client.xdel(stream.keys.dead_letters, letter)
    assert not (await stream.append(batch())).duplicate


async def test_a_letter_is_sent_again_once(stream: Stream) -> None:
    first = await stream.append(batch())
    letter = await reject(stream, first)
    again = await requeue(stream, letter)
    assert (again.duplicate, again.batch_id) == (False, "one")
    assert again.entry_id != first.entry_id
    assert await stream.client.get(stream.keys.dead_letters_bytes) == b"0"
    with pytest.raises(LetterConflict, match=again.entry_id):
        await requeue(stream, letter)
    # The sender's own repeat is one of what was sent again, which has not failed (yet).
    repeat = await stream.append(batch())
    assert (repeat.duplicate, repeat.rejected) == (True, None)
    assert repeat.entry_id == again.entry_id
    # It fails again: its own letter counts.
    second = await reject(stream, again)
    assert (await stream.append(batch())).dead_letter == second
    assert (await requeue(stream, second)).entry_id not in (first.entry_id, again.entry_id)


async def test_a_letter_whose_batch_came_again_is_not_sent_as_well(stream: Stream) -> None:
    first = await stream.append(batch())
    letter = await reject(stream, first)
    await roll_back(stream, first.entry_id)
    again = await stream.append(batch())  # dropped, so that it is as if it had never come
    assert not again.duplicate
    with pytest.raises(LetterConflict, match="twice"):
        await requeue(stream, letter)


async def test_letters_that_are_not_there_or_hold_nothing_are_refused(stream: Stream) -> None:
    with pytest.raises(UnknownLetter):
        await requeue(stream, "1-0")
    await stream.client.xadd(stream.keys.dead_letters, {"data": b"{}", "size": 0}, id="2-0")
    with pytest.raises(LetterConflict, match="whole"):
        await requeue(stream, "2-0")
    assert await stream.client.xlen(stream.keys.input) == 0


async def test_a_rollback_whose_answer_was_lost_is_asked_for_once(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, told = stream._append, []

    async def lost_at_first(**arguments: Any) -> Any:
        reply = await append(**arguments)
        told.append(reply[1].decode())
        if len(told) == 1:
            # Done before it is asked for again: it is among what it dropped.
            await tell(stream, Branch().rolled_back(Branch(), told[0], told[0]), told[0])
            raise redis.ConnectionError("the answer was lost")
        return reply

    monkeypatch.setattr(stream, "_append", lost_at_first)
    control = await stream.append_control(Control("rollback", version=1))
    assert (control.duplicate, control.entry_id) == (True, told[0])
    assert await stream.client.xlen(stream.keys.input) == 1


async def test_what_is_sent_again_and_what_is_no_batch_is_not_counted_as_ingested(
    stream: Stream,
) -> None:
    letter = await reject(stream, await stream.append(batch()))
    await requeue(stream, letter)
    await stream.append_control(Control("restore", checkpoint=b"x"), n_features=3)
    counts = await stream.count({})
    assert (counts.samples_ingested, counts.batches_ingested) == (2, 1)


async def test_the_note_of_an_id_is_bounded(stream: Stream) -> None:
    for _ in range(12):
        sent = await stream.append(batch())
        assert not sent.duplicate
        await roll_back(stream, sent.entry_id)
    note = await stream.client.get(stream.keys.batch("one"))
    assert note.count(b"\n") == 7


def shaped(*shape: int, dtype: str = "u1", batch_id: str = "shape") -> RawBatch:
    return RawBatch.of(np.zeros(shape, dtype), None, batch_id)


async def test_content_of_another_shape_or_type_is_no_repeat(stream: Stream) -> None:
    assert not (await stream.append(shaped(2, 4))).duplicate
    assert (await stream.append(shaped(2, 4))).duplicate
    for other in (shaped(1, 8), shaped(2, 2, 2), shaped(1, 4, dtype="f2")):
        with pytest.raises(BatchConflict):
            await stream.append(other)


async def test_content_of_the_same_crc32_is_no_repeat(stream: Stream) -> None:
    # CRC-32 is linear: where a and b differ by a multiple of its polynomial, it is the same.
    first = np.zeros((1, 16), "u1")
    second = first.copy()
    second[0, :5] = list(int("100000100110000010001110110110111"[::-1], 2).to_bytes(5, "little"))
    one, other = (RawBatch.of(rows, None, "crc") for rows in (first, second))
    assert one.to_entry()["crc"] == other.to_entry()["crc"]
    await stream.append(one)
    with pytest.raises(BatchConflict):
        await stream.append(other)


async def test_the_note_of_an_earlier_release_is_understood(stream: Stream) -> None:
    sent = batch()
    crc = sent.to_entry()["crc"]
    assert isinstance(crc, bytes)
    note = b"1-0 %s 2" % crc
    await stream.client.set(stream.keys.batch("one"), note)
    assert (await stream.append(sent)).duplicate
    with pytest.raises(BatchConflict):
        await stream.append(batch(2.0))


async def test_an_id_that_the_service_made_is_forgotten_soon(stream: Stream) -> None:
    made = await stream.append(RawBatch.of(np.zeros((1, 2), "f4")))
    assert 0 < await stream.client.ttl(stream.keys.batch(made.batch_id)) <= 600
    own = await stream.append(RawBatch.of(np.zeros((1, 2), "f4"), None, "mine"))
    assert await stream.client.ttl(stream.keys.batch(own.batch_id)) > 80_000


async def test_controls_obey_the_limit_of_the_backlog_too(settings: MakeSettings) -> None:
    async with Stream.open(settings(max_backlog=2)) as stream:
        for _ in range(18):
            await stream.append_control(Control("boundary"), entries_applied=0)
        with pytest.raises(BacklogFull):
            await stream.append_control(Control("boundary"), entries_applied=0)
        assert await stream.accepted() == 18


async def test_a_letter_that_went_out_in_vain_holds_nothing_back(stream: Stream) -> None:
    first = await reject(stream, await stream.append(batch(1, "one")))
    second = await reject(stream, await requeue(stream, first))
    again = await stream.append(batch(1, "one"))
    assert (again.duplicate, again.dead_letter) == (True, second)
    await DeadLetters(stream).drop(second)
    assert not (await stream.append(batch(1, "one"))).duplicate
