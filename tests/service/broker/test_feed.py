"""Tests for the service.broker.feed module, over a real Redis."""

from __future__ import annotations

import contextlib
import os
import signal
import time

import numpy as np
import pytest
import redis

from service.broker.connection import StreamUnavailable, connect
from service.broker.entries import Entry, Position
from service.broker.feed import Feed
from service.broker.fenced import LeaseLost
from service.broker.keys import GROUP, Keys
from service.broker.lease import Lease
from service.supervisor.embedded import EmbeddedRedis
from service.wire import Control, RawBatch, read_entry
from tests.service.broker.feeding import add, events, held, read


def group(feed: Feed) -> dict[str, object]:
    return feed.client.xinfo_groups(feed.keys.input)[0]


# Reading ----------------------------------------------------------------------------


def test_entries_come_once_and_in_order(feed: Feed) -> None:
    feed.open(Position())
    ids = add(feed, 150)
    assert read(feed) == ids
    assert feed.read(block_ms=1) == []


def test_reading_goes_on_after_the_checkpoint(feed: Feed) -> None:
    ids = add(feed, 10)
    assert feed.open(Position(ids[3], 4)) == Position(ids[3], 4)
    assert read(feed) == ids[4:]
    # What the checkpoint holds is there still, and counted once.
    assert feed.client.xlen(feed.keys.input) == 10
    assert feed.client.get(feed.keys.applied) == b"0"


def test_what_is_gone_is_counted_from_what_is_left(feed: Feed) -> None:
    feed.open(Position())
    ids = add(feed, 40)
    read(feed)
    feed.release(Position(ids[2], 3), ids[:3])
    feed.open(Position(ids[36], 37))
    assert feed.client.get(feed.keys.applied) == b"3"
    # A Redis that has lost what lay before the checkpoint still counts what was accepted.
    feed.client.xtrim(feed.keys.input, minid=ids[38], approximate=False)
    feed.client.delete(feed.keys.applied)
    feed.open(Position(ids[36], 37))
    assert feed.client.get(feed.keys.applied) == b"37"


def test_a_new_start_reads_again_what_was_read_and_not_kept(feed: Feed) -> None:
    feed.open(Position())
    ids = add(feed, 5)
    assert read(feed) == ids
    feed.open(Position(ids[1], 2))
    assert read(feed) == ids[2:]


def test_releasing_acknowledges_and_drops_only_what_is_kept(feed: Feed) -> None:
    feed.open(Position())
    ids = add(feed, 10)
    read(feed)
    assert group(feed)["pending"] == 10
    feed.release(Position(ids[6], 7), ids[:7])
    assert group(feed)["pending"] == 3
    assert feed.client.xlen(feed.keys.input) == 3
    assert feed.client.get(feed.keys.applied) == b"7"


def test_thousands_of_entries_are_released_at_once(feed: Feed) -> None:
    feed.open(Position())
    pipeline = feed.client.pipeline(transaction=False)
    for _ in range(2500):
        pipeline.xadd(feed.keys.input, {"x": b""})
    ids = [entry_id.decode() for entry_id in pipeline.execute()]
    assert read(feed) == ids
    feed.release(Position(ids[-1], 2500), ids)
    assert group(feed)["pending"] == 0
    assert feed.client.xlen(feed.keys.input) == 0


def test_a_missing_checkpoint_is_noticed_by_the_count(feed: Feed) -> None:
    feed.open(Position())
    ids = add(feed, 5)
    feed.release(Position(ids[2], 3), ids[:3])
    assert feed.open(Position()) == Position("0-0", 3)
    assert read(feed) == ids[3:]


def test_a_redis_that_lost_its_data_gives_out_no_id_twice(feed: Feed) -> None:
    future = f"{int(time.time() * 1000) + 3_600_000}-5"
    feed.open(Position(future, 9))
    [new] = add(feed, 1)
    assert int(new.split("-")[0]) >= int(future.split("-")[0])
    assert read(feed) == [new]


def test_a_stream_that_vanishes_is_made_anew(feed: Feed) -> None:
    feed.open(Position())
    ids = add(feed, 3)
    assert read(feed) == ids
    feed.client.delete(feed.keys.input)
    assert feed.read(block_ms=1) == []
    assert feed.read(block_ms=1) == []
    assert feed.redis_errors == 1
    more = add(feed, 2)
    assert read(feed) == more
    assert feed.client.get(feed.keys.applied) == b"3"


def test_an_answer_that_was_lost_is_asked_for_again(feed: Feed) -> None:
    feed.open(Position())
    ids = add(feed, 4)
    # Redis has sent them, and nothing arrived here: the group has moved on.
    feed.client.xreadgroup(GROUP, GROUP, {feed.keys.input: ">"})
    feed.go_back(Position())
    assert read(feed) == ids


def test_large_entries_are_read_fewer_at_a_time(feed: Feed) -> None:
    feed.open(Position())
    ids = add(feed, 12, size=2 * 1024 * 1024)
    first = feed.read(block_ms=0)
    second = feed.read(block_ms=0)
    assert [entry.id for entry in first + second] == ids[: len(first) + len(second)]
    assert len(second) == 4
    assert sum(entry.nbytes for entry in second) <= 8 * 1024 * 1024 + 100


def test_a_control_entry_is_read_like_any_other(feed: Feed) -> None:
    feed.open(Position())
    feed.append(Control("settle"))
    [entry] = feed.read(block_ms=0)
    assert read_entry(entry.fields) == Control("settle")


def test_an_entry_deleted_by_hand_does_not_stop_the_reading(feed: Feed) -> None:
    feed.open(Position())
    ids = add(feed, 3)
    feed.client.xdel(feed.keys.input, ids[1])
    assert read(feed) == [ids[0], ids[2]]


def test_what_comes_after_a_fail_over_is_read_though_a_replica_lacked_the_newest(
    feed: Feed,
) -> None:
    feed.open(Position())
    ahead = "99999999999999-0"  # given out by a primary whose clock was ahead
    feed.client.xadd(feed.keys.input, {"x": "x"}, id=ahead)
    assert read(feed) == [ahead]
    # The replica that took over never had it.
    feed.client.delete(feed.keys.input)
    feed.client.xgroup_create(feed.keys.input, GROUP, "0", mkstream=True)
    feed.go_back(Position(ahead, 1))
    assert feed.read(block_ms=1) == []
    [later] = add(feed, 1)
    assert read(feed) == [later]


def test_reading_goes_on_through_a_restart_of_redis(own_redis: EmbeddedRedis) -> None:
    own_redis.start()
    with connect(own_redis.url) as client:
        lease = Lease(client, Keys("m"))
        lease.acquire()
        feed = Feed(client, "m", lease, events_length=10, history_length=10)
        feed.open(Position())
        ids = add(feed, 20)
        seen = [entry.id for entry in feed.read(block_ms=0)]
        assert own_redis.pid is not None
        os.kill(own_redis.pid, signal.SIGKILL)
        while own_redis.poll() is None:
            time.sleep(0.01)
        assert feed.read(block_ms=1) == []
        own_redis.start()
        assert seen + read(feed) == ids
        assert feed.redis_errors >= 1


def test_a_published_snapshot_comes_with_its_notice(feed: Feed) -> None:
    feed.open(Position())
    feed.publish(Position("5-0", 2), 4, "redis", b"bytes")
    [(_, notice)] = feed.client.xrange(feed.keys.published)
    assert notice.pop(b"time")
    assert notice == {
        b"version": b"4",
        b"entries_applied": b"2",
        b"last_entry_id": b"5-0",
        b"location": b"redis",
    }
    assert feed.client.get(feed.keys.snapshot) == b"bytes"


def test_a_trainer_can_begin_and_work_on_a_full_redis(own_redis: EmbeddedRedis) -> None:
    own_redis.start()
    with connect(own_redis.url) as client:
        ids: list[str] = []
        for size in (1024 * 1024, 4096):
            with contextlib.suppress(redis.exceptions.OutOfMemoryError):
                while True:
                    fields = {"x": b"x" * size}
                    ids.append(client.xadd(Keys("m").input, fields).decode())
        client.config_set("maxmemory", "1mb")  # whatever was freed meanwhile: it is full
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.set("any", "thing")

        lease = Lease(client, Keys("m"))
        lease.acquire()
        feed = Feed(client, "m", lease, events_length=1000, history_length=10)
        feed.open(Position())
        assert lease.renew()
        feed.append(Control("settle"))
        assert read(feed)[:-1] == ids
        feed.reports.add(feed.keys.events, "1-0", 0, b"reported")
        feed.reports.flush()
        assert events(feed) == [b"reported"]
        feed.publish(Position("1-0", 1), 1, "redis", b"bytes")
        assert client.get(feed.keys.snapshot) == b"bytes"
        feed.dead_letters.bury(Entry("1-0", {b"x": b"x" * 4096}), "invalid_batch", {})
        assert held(feed) == 4096
        feed.release(Position(ids[-1], len(ids)), ids)
        assert client.xlen(feed.keys.input) == 1
        assert client.get(feed.keys.applied) == str(len(ids)).encode()


# The lease --------------------------------------------------------------------------


def test_a_trainer_that_was_replaced_changes_nothing(feed: Feed) -> None:
    feed.open(Position())
    ids = add(feed, 3)
    read(feed)
    feed.client.set(feed.keys.lease, "someone else")
    feed.client.set(feed.keys.fence, "someone else")
    feed.reports.add(feed.keys.events, ids[0], 0, b"late")
    with pytest.raises(LeaseLost):
        feed.reports.flush()
    with pytest.raises(LeaseLost):
        feed.release(Position(ids[-1], 3), ids)
    with pytest.raises(LeaseLost):
        feed.publish(Position(ids[-1], 3), 1, "redis", b"bytes")
    with pytest.raises(LeaseLost):
        feed.open(Position(ids[-1], 3))
    assert feed.client.xlen(feed.keys.input) == 3
    assert not feed.client.exists(feed.keys.published, feed.keys.snapshot, feed.keys.events)


def test_a_feed_that_may_give_up_does(own_redis: EmbeddedRedis) -> None:
    with connect(own_redis.url) as client:
        lease = Lease(client, Keys("m"))
        feed = Feed(client, "m", lease, events_length=1, history_length=1, give_up=lambda: True)
        with pytest.raises(StreamUnavailable):
            feed.open(Position())


def test_the_documented_entry_of_another_program_is_read(feed: Feed) -> None:
    feed.open(Position())
    x = np.array([[0, 255]], "u1")
    fields = {"v": "1", "kind": "batch", "x": x.tobytes(), "dtype": "u1", "shape": "1,2"}
    feed.client.xadd(feed.keys.input, fields)
    [entry] = feed.read(block_ms=0)
    batch = read_entry(entry.fields)
    assert isinstance(batch, RawBatch)
    assert batch.to_float32().tolist() == [[0.0, 1.0]]
