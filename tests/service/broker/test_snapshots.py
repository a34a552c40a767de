"""Tests for the service.broker.snapshots module, over a real Redis."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.memory.retention import ClassRetention, SubTaskRetention
from core.snapshot import Snapshot
from service.broker.connection import connect
from service.broker.entries import Position
from service.broker.feed import Feed
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.broker.snapshots import ASKED_S, FILES_KEPT, Publisher, SnapshotFiles, SnapshotFollower
from service.broker.stream import Stream
from service.settings import Settings
from service.supervisor.embedded import EmbeddedRedis
from tests.service.conftest import MakeSettings

pytestmark = pytest.mark.anyio


def snapshots(n: int) -> list[Snapshot]:
    """Of versions 1 to n."""
    engine = Engine(EngineConfig(n_components=2, warm_up=10))
    state, found = engine.start(), []
    for i in range(n):
        features = torch.rand(10, 3, generator=torch.Generator().manual_seed(i))
        state, _ = engine.step(state, Batch.of(features, [0, 1] * 5))
        found.append(engine.snapshot(state))
    return found


@pytest.fixture
def configured(settings: MakeSettings, feed: Feed) -> Settings:
    feed.open(Position())
    return settings(model=feed.keys.model)


@contextlib.asynccontextmanager
async def following(
    settings: Settings, replaced: Callable[[], None] = lambda: None
) -> AsyncIterator[SnapshotFollower]:
    async with Stream.open(settings) as stream:
        follower = SnapshotFollower(stream, settings.data_dir, replaced=replaced)
        task = asyncio.create_task(follower.run())
        try:
            yield follower
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.005)


def version(follower: SnapshotFollower) -> int | None:
    served = follower.current
    return None if served is None or served.snapshot is None else served.snapshot.version


def told(follower: SnapshotFollower) -> list[dict[str, Any]] | None:
    return None if follower.current is None else follower.current.held


@pytest.fixture(params=["directory", "redis"])
def publisher(request: pytest.FixtureRequest, feed: Feed, configured: Settings) -> Publisher:
    files = SnapshotFiles(configured.data_dir / "snapshots")
    return Publisher(feed, files if request.param == "directory" else None)


async def test_a_follower_serves_what_was_published_before_and_after_it_began(
    publisher: Publisher, configured: Settings
) -> None:
    one, two = snapshots(2)
    publisher.publish(one, Position("1-0", 1))
    async with following(configured) as follower:
        await until(lambda: version(follower) == 1)
        served = follower.current
        assert served is not None
        assert served.snapshot is not None
        assert (served.entries_applied, served.last_entry_id) == (1, "1-0")
        publisher.publish(two, Position("2-0", 2))
        await until(lambda: version(follower) == 2)
        # Whoever took the older one may finish with it.
        x = torch.rand(5, 3)
        expected = one.classify(x).probabilities
        assert torch.equal(served.snapshot.classify(x).probabilities, expected)


async def test_whoever_wants_to_know_is_told_of_each_new_model_and_of_nothing_else(
    publisher: Publisher, configured: Settings
) -> None:
    one, two = snapshots(2)
    news: list[None] = []
    async with following(configured, lambda: news.append(None)) as follower:
        for model, position, expected in (
            (one, Position("1-0", 1), 1),
            (one, Position("2-0", 2), 1),  # nothing was learned
            (two, Position("3-0", 3), 2),
        ):
            publisher.publish(model, position)
            await until(
                lambda applied=position.entries_applied: (
                    follower.current is not None  # type: ignore[misc]
                    and follower.current.entries_applied == applied
                )
            )
            assert len(news) == expected


async def test_models_are_ready_before_they_answer_as_long_as_somebody_asks(
    publisher: Publisher, configured: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: list[int] = []
    make_ready = Snapshot.make_ready

    def noted(self: Snapshot) -> None:
        make_ready(self)
        ready.append(self.version)

    monkeypatch.setattr(Snapshot, "make_ready", noted)
    one, two, three, four = snapshots(4)

    async with following(configured) as follower:

        async def served(snapshot: Snapshot) -> None:
            publisher.publish(snapshot, Position(f"{snapshot.version}-0", snapshot.version))
            await until(lambda: version(follower) == snapshot.version)

        assert follower.ask() is None
        follower._asked_at = -math.inf
        await served(one)  # the first, though nobody asks
        await served(two)
        asked = follower.ask()
        assert asked is not None
        assert asked.version == 2
        await served(three)
        follower._asked_at = -math.inf
        follower._ready_at -= ASKED_S  # the last was made ready so long ago
        await served(four)
    assert ready == [1, 3, 4]


async def test_a_version_served_before_may_come_back(
    publisher: Publisher, configured: Settings
) -> None:
    one, two = snapshots(2)
    async with following(configured) as follower:
        for i, snapshot in enumerate((one, two, one), 1):
            publisher.publish(snapshot, Position(f"{i}-0", i))
            await until(lambda wanted=snapshot.version: version(follower) == wanted)


async def test_only_the_position_moves_where_the_model_did_not(
    publisher: Publisher, configured: Settings
) -> None:
    [one] = snapshots(1)
    async with following(configured) as follower:
        publisher.publish(one, Position("1-0", 1))
        await until(lambda: version(follower) == 1)
        before = follower.current
        publisher.publish(one, Position("5-0", 5))
        await until(lambda: follower.current is not before)
        after = follower.current
        assert before is not None
        assert after is not None
        assert after.snapshot is before.snapshot
        assert (after.entries_applied, after.last_entry_id) == (5, "5-0")


async def test_what_is_newly_said_of_a_version_reaches_its_readers(
    publisher: Publisher, configured: Settings
) -> None:
    [one] = snapshots(1)

    def saying(accuracy: float) -> tuple[SubTaskRetention, ...]:
        numbers = (1.0, accuracy, 1.0, accuracy, -1.0, -2.0)
        return (SubTaskRetention(0, 9, (ClassRetention("a", 9, *numbers),), *numbers, one.version),)

    def as_json(held: tuple[SubTaskRetention, ...]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(json.dumps([asdict(row) for row in held]))
        return rows

    async with following(configured) as follower:
        publisher.publish(one, Position("1-0", 1))
        await until(lambda: version(follower) == 1)
        assert told(follower) == []
        for held in (saying(0.9), saying(0.8), saying(0.9)):
            publisher.publish(one, Position("1-0", 1), held)
            await until(lambda wanted=held: told(follower) == as_json(wanted))
            assert version(follower) == 1
        before = follower.current
        publisher.publish(one, Position("2-0", 2), saying(0.9))
        await until(lambda: follower.current is not before)
        assert before is not None
        assert follower.current is not None
        assert follower.current.snapshot is before.snapshot
        assert told(follower) == as_json(saying(0.9))


async def test_entries_count_as_applied_even_where_nothing_was_learned(
    publisher: Publisher, configured: Settings
) -> None:
    publisher.publish(None, Position("3-0", 3))
    async with following(configured) as follower:
        await until(lambda: follower.current is not None)
        assert follower.current is not None
        assert follower.current.snapshot is None
        assert follower.current.entries_applied == 3


async def test_a_follower_waits_without_polling(publisher: Publisher, configured: Settings) -> None:
    async with following(configured) as follower:
        waiting = asyncio.create_task(follower.changed())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        publisher.publish(snapshots(1)[0], Position("1-0", 1))
        await asyncio.wait_for(waiting, 5)
        assert version(follower) == 1


async def test_a_snapshot_that_cannot_be_read_is_left_out(
    feed: Feed, configured: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    directory = configured.data_dir / "snapshots"
    publisher = Publisher(feed, SnapshotFiles(directory))
    one, two, three = snapshots(3)
    async with following(configured) as follower:
        publisher.publish(one, Position("1-0", 1))
        await until(lambda: version(follower) == 1)
        (directory / "9-9.safetensors").write_bytes(two.to_bytes({})[:-7])
        feed.publish(Position("9-0", 9), 9, "file:9-9.safetensors", None)
        feed.publish(Position("9-0", 9), 9, "file:../../../../etc/passwd", None)
        feed.publish(Position("9-0", 9), 9, "file:10-10.safetensors", None)
        await until(lambda: "10-10" in caplog.text)
        assert version(follower) == 1
        assert follower.current is not None
        assert follower.current.entries_applied == 1
        publisher.publish(three, Position("11-0", 11))
        await until(lambda: version(follower) == 3)


async def test_a_snapshot_that_could_not_be_read_for_a_moment_is_served_though_none_follows(
    publisher: Publisher,
    configured: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    load, failures = SnapshotFollower._load, [OSError(24, "Too many open files")] * 2

    async def loaded(follower: SnapshotFollower, notice: Any) -> Any:
        if failures:
            raise failures.pop()
        return await load(follower, notice)

    monkeypatch.setattr(SnapshotFollower, "_load", loaded)
    monkeypatch.setattr("service.broker.snapshots.WAIT_MS", 50)
    publisher.publish(snapshots(1)[0], Position("1-0", 1))
    async with following(configured) as follower:
        await until(lambda: version(follower) == 1)
    assert not failures
    assert len([one for one in caplog.records if one.levelname == "ERROR"]) == 1


async def test_following_goes_on_through_a_restart_of_redis(
    own_redis: EmbeddedRedis, settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.broker.caller.RETRY_S", 0.05)
    own_redis.start()
    configured = settings(redis_url=own_redis.url, model="m")
    one, two = snapshots(2)
    with connect(own_redis.url) as client:
        lease = Lease(client, Keys("m"))
        lease.acquire()
        feed = Feed(client, "m", lease, events_length=10, history_length=10)
        feed.open(Position())
        publisher = Publisher(feed, None)
        async with following(configured) as follower:
            publisher.publish(one, Position("1-0", 1))
            await until(lambda: version(follower) == 1)
            assert own_redis.pid is not None
            os.kill(own_redis.pid, signal.SIGKILL)
            await until(lambda: own_redis.poll() is not None)
            await asyncio.sleep(0.2)
            assert version(follower) == 1
            own_redis.start()
            publisher.publish(two, Position("2-0", 2))
            await until(lambda: version(follower) == 2)


def test_only_the_newest_files_are_kept(tmp_path: Path) -> None:
    files = SnapshotFiles(tmp_path)
    locations = [files.write(b"%d" % i, version=100 - i, entries_applied=i) for i in range(1, 12)]
    locations.append(files.write(b"12", version=89, entries_applied=11, edition=1))
    assert len(list(tmp_path.iterdir())) == FILES_KEPT
    assert [files.read(location) for location in locations[-FILES_KEPT:]] == [b"10", b"11", b"12"]
