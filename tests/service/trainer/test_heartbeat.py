"""Tests for the service.trainer.heartbeat module."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator

import orjson
import pytest

from service.broker.away import AwayNodes
from service.broker.connection import SyncClient, connect
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.supervisor.embedded import EmbeddedRedis
from service.trainer.heartbeat import Heartbeat, Pulse
from tests.service.running import wait_until


@contextlib.contextmanager
def beating(client: SyncClient, pulse: Pulse) -> Iterator[Pulse]:
    with Heartbeat(client) as heartbeat:
        heartbeat.add(pulse)
        yield pulse


def test_it_renews_the_lease_and_repeats_the_status(
    redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.heartbeat.BEAT_S", 0.05)
    monkeypatch.setattr("service.trainer.heartbeat.RENEWALS", 300)
    keys = Keys(uuid.uuid4().hex)
    with connect(redis_server.url) as client:
        lease = Lease(client, keys)
        lease.acquire()
        with beating(client, Pulse(lease, keys.status, 0.05)) as pulse:
            client.pexpire(keys.lease, 3_000)
            wait_until(lambda: client.pttl(keys.lease) > 3_000)
            assert client.get(keys.status) is None  # nothing to repeat yet
            pulse.told({"state": "running"})
            first = orjson.loads(wait_until(lambda: client.get(keys.status)))
            assert first["state"] == "running"
            wait_until(lambda: orjson.loads(client.get(keys.status))["time"] > first["time"])
            assert not pulse.lost


def test_it_notices_that_another_trainer_has_begun(
    redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.heartbeat.BEAT_S", 0.05)
    monkeypatch.setattr("service.trainer.heartbeat.RENEWALS", 300)
    keys = Keys(uuid.uuid4().hex)
    with connect(redis_server.url) as client:
        lease = Lease(client, keys)
        lease.acquire()
        with beating(client, Pulse(lease, keys.status, 0.05)) as pulse:
            client.set(keys.lease, "someone else")
            wait_until(lambda: pulse.lost)


def test_it_goes_on_through_an_outage(
    own_redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.heartbeat.BEAT_S", 0.05)
    monkeypatch.setattr("service.trainer.heartbeat.RENEWALS", 300)
    own_redis.start()
    keys = Keys("m")
    with connect(own_redis.url) as client:
        lease = Lease(client, keys)
        lease.acquire()
        client.set(keys.fence, lease.token)  # as a trainer does when it begins
        with beating(client, Pulse(lease, keys.status, 0.05)) as pulse:
            own_redis.stop()
            own_redis.start()
            client.delete(keys.lease)  # it ran out meanwhile
            wait_until(lambda: client.get(keys.lease) == lease.token.encode())
            assert not pulse.lost


def test_a_model_that_is_lost_does_not_keep_others_from_beating(
    redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.heartbeat.BEAT_S", 0.05)
    monkeypatch.setattr("service.trainer.heartbeat.RENEWALS", 300)
    first, second = Keys(uuid.uuid4().hex), Keys(uuid.uuid4().hex)
    with connect(redis_server.url) as client, Heartbeat(client) as heartbeat:
        pulses = []
        for keys in (first, second):
            lease = Lease(client, keys)
            lease.acquire()
            pulses.append(Pulse(lease, keys.status, 0.05))
            heartbeat.add(pulses[-1])
        client.set(first.lease, "someone else")
        wait_until(lambda: pulses[0].lost)
        client.pexpire(second.lease, 3_000)
        wait_until(lambda: client.pttl(second.lease) > 3_000)
        heartbeat.remove(pulses[1])
        client.delete(second.lease)
        pulses[1].told({"state": "running"})
        time.sleep(0.3)
        assert client.get(second.status) is None


def test_models_whose_node_is_away_are_left_alone(
    redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.heartbeat.BEAT_S", 0.05)
    monkeypatch.setattr("service.trainer.heartbeat.RENEWALS", 300)
    gone, there = Keys(uuid.uuid4().hex), Keys(uuid.uuid4().hex)
    with connect(redis_server.url) as client:
        away = AwayNodes(client)
        monkeypatch.setattr(away, "has", lambda key: key == gone.status)
        with Heartbeat(client, away) as heartbeat:
            for keys in (gone, there):
                lease = Lease(client, keys)
                lease.acquire()
                client.pexpire(keys.lease, 3_000)
                heartbeat.add(Pulse(lease, keys.status, 0.05))
            for _ in range(2):  # so that a whole round has passed
                client.pexpire(there.lease, 3_000)
                wait_until(lambda: client.pttl(there.lease) > 3_000)
            assert client.pttl(gone.lease) <= 3_000


def test_it_says_whose_node_does_not_answer(
    own_redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.heartbeat.BEAT_S", 0.05)
    monkeypatch.setattr("service.trainer.heartbeat.RENEWALS", 300)
    own_redis.start()
    keys, missed = Keys("m"), list[str]()
    with connect(own_redis.url) as client:
        away = AwayNodes(client)
        monkeypatch.setattr(away, "missed", missed.append)
        lease = Lease(client, keys)
        lease.acquire()
        with Heartbeat(client, away) as heartbeat:
            heartbeat.add(Pulse(lease, keys.status, 0.05))
            own_redis.stop()
            wait_until(lambda: missed)
    assert set(missed) == {keys.status}
