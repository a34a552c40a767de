"""Tests for the service.broker.kept_versions module: the trainer's end and the API's, on a real
Redis."""

from __future__ import annotations

import asyncio
import contextlib
import uuid

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from core.errors import UnknownVersion
from service.broker.append import MOST_KEPT
from service.broker.branch import Branch
from service.broker.connection import StreamUnavailable, connect
from service.broker.feed import Feed
from service.broker.fenced import LeaseLost
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.broker.stream import Stream
from service.broker.stream_errors import BacklogFull
from service.settings import Settings
from service.supervisor.embedded import EmbeddedRedis
from service.wire import Control
from tests.service.broker.test_append import reject
from tests.service.conftest import MakeSettings

NEWEST = 3


def feed_of(settings: Settings) -> Feed:
    """The trainer's end of the model that the settings name."""
    client = connect(settings.redis_address_of_ones_own())
    lease = Lease(client, Keys(settings.model))
    lease.acquire()
    feed = Feed(client, settings.model, lease, events_length=10, history_length=10)
    feed.call(lambda: client.set(feed.keys.fence, lease.token))
    return feed


async def roll_back(stream: Stream, version: int) -> str:
    return (await stream.append_control(Control("rollback", version=version))).entry_id


def decide(feed: Feed, entry_id: str) -> None:
    """What the trainer tells once the result of a rollback is known."""
    feed.client.set(feed.keys.branch, Branch().to_json(decided=entry_id))


@pytest.mark.anyio
async def test_versions_of_rollbacks_are_pinned_until_these_are_decided(
    settings: MakeSettings,
) -> None:
    feed = feed_of(settings())
    async with Stream.open(settings()) as stream:
        feed.kept_versions.tell([1, 2, 3, 4])
        entries = [await roll_back(stream, version) for version in (2, 1, 2)]
        assert feed.kept_versions.let_go([3, 4, 5], [1, 2]) == {1, 2}
        decide(feed, entries[1])
        # To version 2 another one is to come.
        assert feed.kept_versions.let_go([4, 5, 6], [1, 2, 3]) == {2}
        for gone in (1, 3):
            with pytest.raises(UnknownVersion, match=r"Kept are 6, 5, 4, 2\.") as refused:
                await roll_back(stream, gone)
            assert refused.value.context == {"unknown": gone, "known": [6, 5, 4, 2]}
        decide(feed, entries[2])
        assert feed.kept_versions.let_go([5, 6, 7], [2, 4]) == set()
        assert feed.client.xlen(feed.keys.input) == 3


@pytest.mark.anyio
async def test_a_trainer_that_told_of_no_versions_has_all_rollbacks_accepted(
    settings: MakeSettings,
) -> None:
    feed = feed_of(settings())
    async with Stream.open(settings()) as stream:
        for version in (7, 8):
            assert await roll_back(stream, version)
    assert feed.client.exists(feed.keys.kept_versions) == 0


@pytest.mark.anyio
async def test_the_newest_rollback_that_an_earlier_release_has_accepted_keeps_its_version(
    settings: MakeSettings,
) -> None:
    feed = feed_of(settings())
    async with Stream.open(settings()) as stream:
        before = await roll_back(stream, 1)  # no trainer of this release has begun yet
        feed.kept_versions.tell([1, 2, 3, 4])
        assert feed.kept_versions.let_go([3, 4, 5], [1, 2]) == {1}
        assert feed.kept_versions.let_go([4, 5, 6], [1, 3]) == {1}
        await roll_back(stream, 5)  # which is pinned by its own entry, and hides the other no more
        assert feed.kept_versions.let_go([6, 7, 8], [1, 4, 5]) == {1, 5}
        decide(feed, before)
        assert feed.kept_versions.let_go([7, 8, 9], [1, 5, 6]) == {5}


@pytest.mark.anyio
async def test_a_rollback_that_ended_as_a_dead_letter_is_sent_again_to_what_is_kept_only(
    settings: MakeSettings,
) -> None:
    feed = feed_of(settings())
    async with Stream.open(settings()) as stream:
        feed.kept_versions.tell([1, 2])
        for version in (1, 2):
            entry = await stream.append_control(Control("rollback", version=version))
            letter = await reject(stream, entry, "internal_error")
            decide(feed, entry.entry_id)
            if version == 1:
                feed.kept_versions.let_go([2], [1])
            fields = await stream.client.hgetall(stream.keys.dead_letter(letter))
            again = stream.requeue(letter, fields, samples=0, d=None)
            if version == 1:
                with pytest.raises(UnknownVersion, match=r"Kept are 2\."):
                    await again
                assert await stream.client.hlen(stream.keys.dead_letter(letter)) > 0
            else:
                await again
                assert feed.kept_versions.let_go([3], [2]) == {2}


@pytest.mark.anyio
async def test_no_more_than_some_versions_are_kept_for_rollbacks(settings: MakeSettings) -> None:
    feed = feed_of(settings())
    async with Stream.open(settings()) as stream:
        feed.kept_versions.tell(range(MOST_KEPT - 1))
        await roll_back(stream, 0)
        feed.kept_versions.tell(range(MOST_KEPT))
        with pytest.raises(BacklogFull, match=f"{MOST_KEPT} versions"):
            await roll_back(stream, 1)
        again = await roll_back(stream, 0)  # which is kept already
        decide(feed, again)
        feed.kept_versions.let_go([1, 2, 3], [0])
        assert await roll_back(stream, 1)


def test_another_trainer_or_no_redis_lets_nothing_go(own_redis: EmbeddedRedis) -> None:
    own_redis.start()
    client = connect(own_redis.url)
    lease = Lease(client, Keys("m"))
    feed = Feed(client, "m", lease, events_length=10, history_length=10)
    client.set(feed.keys.fence, "another's")
    with pytest.raises(LeaseLost):
        feed.kept_versions.let_go([2], [1])
    own_redis.stop()
    with pytest.raises(StreamUnavailable):
        feed.kept_versions.let_go([2], [1])


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.just(0)),
        st.tuples(st.just("ask"), st.integers(0, 9)),
        st.tuples(st.just("decide"), st.integers(0, 9)),
    ),
    max_size=20,
)


@given(ACTIONS)
@of_hypothesis(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None
)
def test_a_rollback_is_accepted_exactly_if_its_version_will_be_found(
    settings: MakeSettings, actions: list[tuple[str, int]]
) -> None:
    asyncio.run(play(settings(model=uuid.uuid4().hex), actions))


async def play(settings: Settings, actions: list[tuple[str, int]]) -> None:
    """Write versions, let go of all but the newest, ask for old ones, decide about some."""
    feed = feed_of(settings)
    disk, newest = {0}, 0
    waiting: list[tuple[str, int]] = []  # accepted and not decided: entry, version
    feed.kept_versions.tell(disk)
    async with Stream.open(settings) as stream:
        for what, number in actions:
            if what == "write":
                newest += 1
                disk.add(newest)
                staying = sorted(disk)[-NEWEST:]
                disk = {*staying, *feed.kept_versions.let_go(staying, sorted(disk - {*staying}))}
            elif what == "ask":
                entry = None
                with contextlib.suppress(UnknownVersion):
                    entry = await roll_back(stream, number)
                assert (entry is not None) == (number in disk)
                if entry is not None:
                    waiting.append((entry, number))
            elif waiting:
                decide(feed, waiting[min(number, len(waiting) - 1)][0])
                del waiting[: number + 1]
            assert {version for _, version in waiting} <= disk
    feed.client.close()
