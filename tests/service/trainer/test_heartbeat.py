"""Tests for the service.trainer.heartbeat module."""

from __future__ import annotations

import uuid

import orjson
import pytest

from service.broker.connection import connect
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.supervisor.embedded import EmbeddedRedis
from service.trainer.heartbeat import Heartbeat
from tests.service.running import wait_until


def test_it_renews_the_lease_and_repeats_the_status(
    redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.heartbeat.BEAT_S", 0.05)
    monkeypatch.setattr("service.trainer.heartbeat.RENEW_S", 0.05)
    keys = Keys(uuid.uuid4().hex)
    with connect(redis_server.url) as client:
        lease = Lease(client, keys)
        lease.acquire()
        with Heartbeat(lease, client, keys.status) as heart:
            client.pexpire(keys.lease, 3_000)
            wait_until(lambda: client.pttl(keys.lease) > 3_000)
            assert client.get(keys.status) is None  # nothing to repeat yet
            heart.told({"state": "running"})
            first = orjson.loads(wait_until(lambda: client.get(keys.status)))
            assert first["state"] == "running"
            wait_until(lambda: orjson.loads(client.get(keys.status))["time"] > first["time"])
            assert not heart.lost


def test_it_notices_that_another_trainer_has_begun(
    redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.heartbeat.BEAT_S", 0.05)
    monkeypatch.setattr("service.trainer.heartbeat.RENEW_S", 0.05)
    keys = Keys(uuid.uuid4().hex)
    with connect(redis_server.url) as client:
        lease = Lease(client, keys)
        lease.acquire()
        with Heartbeat(lease, client, keys.status) as heart:
            client.set(keys.lease, "someone else")
            wait_until(lambda: heart.lost)


def test_it_goes_on_through_an_outage(
    own_redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.heartbeat.BEAT_S", 0.05)
    monkeypatch.setattr("service.trainer.heartbeat.RENEW_S", 0.05)
    own_redis.start()
    keys = Keys("m")
    with connect(own_redis.url) as client:
        lease = Lease(client, keys)
        lease.acquire()
        client.set(keys.fence, lease.token)  # as a trainer does when it begins
        with Heartbeat(lease, client, keys.status) as heart:
            own_redis.stop()
            own_redis.start()
            client.delete(keys.lease)  # it ran out meanwhile
            wait_until(lambda: client.get(keys.lease) == lease.token.encode())
            assert not heart.lost
