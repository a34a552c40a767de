"""Tests for models of a Redis Cluster of which a node goes away: its own wait, others go on."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import redis
from pydantic import SecretStr

from benchmarks._redis_cluster import Member, RedisCluster
from core.events import Event
from service.broker.connection import StreamUnavailable, connect
from service.broker.entries import Entry
from service.broker.keys import Keys
from service.broker.register import Register
from service.settings import Settings
from service.trainer.applier import Applied, Applier
from service.trainer.attempts import MOST_DEATHS
from service.trainer.journal import Journal
from service.trainer.standing import Standing
from tests.service.conftest import MakeSettings
from tests.service.running import (
    ask,
    learned_directly,
    send,
    snapshot_bytes,
    sub_tasks,
    training,
    wait_for_backlog,
    wait_until,
)
from tests.service.trainer.test_named_models import published, register, states, take_down
from tests.service.trainer.test_writer import events, history, status

STREAM = sub_tasks(0, 1)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three primaries without replicas, so that nobody takes over."""
    folder = tmp_path_factory.mktemp("redis")
    with RedisCluster(folder, 3, n_replicas=0, node_timeout_ms=1500) as cluster:
        yield cluster


@pytest.fixture
def cluster(whole: RedisCluster) -> Iterator[RedisCluster]:
    """The same, of which each node is there again afterwards."""
    yield whole
    for one in whole.members:
        if one.told("PING") is None:
            one.start()
    whole.wait_until_whole()


@pytest.fixture
def service(cluster: RedisCluster, settings: MakeSettings) -> Settings:
    return settings(redis_url=SecretStr(cluster.url), snapshot_store="directory", lease_s=2.0)


def spread(service: Settings, cluster: RedisCluster) -> tuple[Member, list[Settings], Settings]:
    """A node that does not have the default model, two models of it, and one of another node."""
    with connect(service.redis_address() or "") as client:
        assert isinstance(client, redis.RedisCluster)

        def at(keys: Keys) -> str:
            untyped: Any = client
            return str(untyped.get_node_from_key(keys.input).name)

        keys = Keys(service.model)
        own = at(keys)
        of_node = defaultdict[str, list[str]](list)
        for number in range(60):
            of_node[at(keys.named(f"m{number}"))].append(f"m{number}")
    [dying, beside] = [one for one in cluster.members if one.name != own]
    theirs = [register(service, name) for name in of_node[dying.name][:2]]
    return dying, theirs, register(service, of_node[beside.name][0])


def check(own: Settings) -> None:
    """All of the stream was learned, once, as if nothing had happened."""
    wait_for_backlog(own)
    assert published(own) == snapshot_bytes(own, learned_directly(own, STREAM))
    assert [row["batch_index"] for row in history(own)] == list(range(len(STREAM)))
    kinds = [event["kind"] for event in events(own)]
    assert (kinds.count("boundary"), kinds.count("entry_rejected")) == (1, 0)


def failing(service: Settings) -> set[str]:
    return {name for name, said in states(service).items() if said["state"] == "failing"}


def registered(service: Settings) -> dict[str, Any]:
    found: dict[str, Any] = ask(service, lambda stream: Register(stream).all())
    return found


def test_a_node_that_dies_stops_its_own_models_only(
    service: Settings, cluster: RedisCluster, caplog: pytest.LogCaptureFixture
) -> None:
    dying, theirs, other = spread(service, cluster)
    names = {own.model.rpartition("/")[2] for own in theirs}
    with training(service) as trainer:
        for own in (*theirs, other):
            send(own, *STREAM[:9])
            wait_for_backlog(own)
        for round in range(2):
            dying.kill()
            wait_until(lambda: failing(service) == names)
            assert all(states(service)[name]["error"] for name in names)
            send(other, *STREAM[9 + round : 10 + round])
            send(service, *STREAM[9 + round : 10 + round])
            for own in (other, service):
                wait_for_backlog(own)
            wait_until(lambda: failing(service) == names)
            asked = {one.stream for one in trainer._streams()[0]}
            assert Keys(other.model).input in asked
            assert not asked & {Keys(own.model).input for own in theirs}
            dying.start()
            wait_until(lambda: not failing(service))
            for own in theirs:
                send(own, *STREAM[9 + round : 10 + round])
                wait_for_backlog(own)
        for own in (*theirs, other):
            send(own, *STREAM[11:])
            check(own)
        assert status(other)["state"] == "running"
        # Each time one at most met it in the middle of something.
        assert sum("stands aside" in said for said in caplog.messages) <= 3
        dying.kill()
        wait_until(lambda: failing(service) == names)
        for own in (theirs[0], other):
            take_down(service, own.model.rpartition("/")[2])
        wait_until(lambda: set(registered(service)) == names)
        send(service, *STREAM[11:])
        wait_for_backlog(service)
        dying.start()
        wait_until(lambda: len(registered(service)) == 1)


def test_a_trainer_ends_in_order_while_a_node_is_away_and_the_next_goes_on(
    service: Settings, cluster: RedisCluster
) -> None:
    dying, theirs, other = spread(service, cluster)
    with training(service):
        for own in (*theirs, other):
            send(own, *STREAM[:9])
            wait_for_backlog(own)
        send(other, *STREAM[9:])
        dying.kill()
        wait_until(lambda: len(failing(service)) == 2)
    assert status(other)["state"] == "unloaded"
    assert status(service)["state"] == "stopped"
    check(other)
    dying.start()
    cluster.wait_until_whole()
    for own in theirs:
        send(own, *STREAM[9:])
    with training(service):
        for own in theirs:
            check(own)


def test_a_trainer_begins_while_a_node_is_away(service: Settings, cluster: RedisCluster) -> None:
    dying, theirs, other = spread(service, cluster)
    for own in (*theirs, other):
        send(own, *STREAM)
    dying.kill()
    with training(service):
        check(other)
        assert len(failing(service)) == 2
        dying.start()
        for own in theirs:
            check(own)


def in_apply(monkeypatch: pytest.MonkeyPatch, own: Settings, left: list[int]) -> None:
    real = Applier.apply

    def apply(applier: Applier, before: Standing, entry: Entry) -> Applied:
        mine = applier._feed.keys.input == Keys(own.model).input
        if mine and before.state.stream.batches == 5 and left[0]:
            left[0] -= 1
            raise StreamUnavailable("While an entry is applied.")
        return real(applier, before, entry)

    monkeypatch.setattr(Applier, "apply", apply)


def in_report(monkeypatch: pytest.MonkeyPatch, own: Settings, left: list[int]) -> None:
    real = Journal.write

    def write(journal: Journal, entry_id: str, events: Sequence[Event], **named: Any) -> None:
        mine = journal._feed.keys.input == Keys(own.model).input
        if mine and left[0] and any(getattr(event, "batch_index", 0) == 5 for event in events):
            left[0] -= 1
            raise StreamUnavailable("After an entry was applied, before it was reported.")
        real(journal, entry_id, events, **named)

    monkeypatch.setattr(Journal, "write", write)


@pytest.mark.parametrize("fails", [in_apply, in_report])
def test_to_stand_aside_is_no_death_of_the_trainer_nor_a_fault_of_the_entry(
    fails: Callable[..., None],
    service: Settings,
    cluster: RedisCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However often it happens, and wherever."""
    _, [own, beside], _ = spread(service, cluster)
    left = [2 * MOST_DEATHS]
    with training(service):
        for one in (own, beside):
            send(one, *STREAM[:5])
            wait_for_backlog(one)
        with monkeypatch.context() as patched:
            fails(patched, own, left)
            for one in (own, beside):
                send(one, *STREAM[5:])
                check(one)
    assert left == [0]


def test_a_node_that_is_taken_for_away_now_and_then_costs_no_entry(
    service: Settings, cluster: RedisCluster
) -> None:
    _, [own, beside], _ = spread(service, cluster)
    with training(service) as trainer:
        send(own, *STREAM)
        send(beside, *STREAM)
        key = Keys(own.model).input
        for _ in range(10):
            trainer._away.missed(key)
            wait_until(lambda: not trainer._away.has(key))
            time.sleep(0.02)  # some are learned, and others wait in the queue
        check(own)
        check(beside)


def test_a_model_whose_node_dies_just_then_is_taken_down_later_and_keeps_nobody_waiting(
    service: Settings, cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.host.REFRESH_S", 0.5)
    dying, theirs, other = spread(service, cluster)
    names = {own.model.rpartition("/")[2] for own in theirs}
    with training(service) as trainer:
        for own in (*theirs, other):
            send(own, *STREAM[:1])
            wait_for_backlog(own)
        with monkeypatch.context() as patched:
            patched.setattr(trainer._away, "has", lambda _: False)  # nobody has noticed
            dying.kill()
            for own in (theirs[0], other):
                take_down(service, own.model.rpartition("/")[2])
            wait_until(lambda: set(registered(service)) == names, 30)
            send(service, *STREAM[:3])
            wait_for_backlog(service)
        dying.start()
        wait_until(lambda: len(registered(service)) == 1)
