"""Tests for the service.broker.lease module."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from core.errors import InvalidSettings
from service.broker.connection import SyncClient, connect
from service.broker.keys import Keys
from service.broker.lease import LEASE_S, DirectoryLock, Lease, machine
from service.supervisor.embedded import EmbeddedRedis


@pytest.fixture
def client(redis_server: EmbeddedRedis) -> Iterator[SyncClient]:
    with connect(redis_server.url) as client:
        yield client


@pytest.fixture
def keys() -> Keys:
    return Keys(uuid.uuid4().hex)


def test_a_folder_is_locked_once_until_it_is_released(tmp_path: Path) -> None:
    first = DirectoryLock(tmp_path, "service")
    with pytest.raises(InvalidSettings, match="in use by another service"):
        DirectoryLock(tmp_path, "service")
    first.release()
    DirectoryLock(tmp_path, "service").release()


HOLDER = textwrap.dedent("""
    import subprocess, sys
    from pathlib import Path
    from service.broker.lease import DirectoryLock

    lock = DirectoryLock(Path(sys.argv[1]), "test")
    subprocess.Popen(["sleep", "0.5"], pass_fds=(lock.fileno(),))
    print("locked", flush=True)
    sys.stdin.read()
""")


def test_children_of_a_killed_holder_keep_the_lock_until_they_end(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        holder.kill()
    with pytest.raises(InvalidSettings, match="in use"):
        DirectoryLock(tmp_path, "test", patience_s=0.05)
    DirectoryLock(tmp_path, "test").release()


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSettings, match="cannot be used"):
        DirectoryLock(tmp_path / "file" / "folder", "service")


def test_only_one_holds_the_lease(client: SyncClient, keys: Keys) -> None:
    first, second = Lease(client, keys), Lease(client, keys)
    first.acquire()
    with pytest.raises(InvalidSettings, match="Another trainer works on this model"):
        second.acquire(patience_s=0.2)
    assert first.renew()
    assert not second.renew()


def test_a_lease_whose_answer_was_lost_is_ones_own(
    client: SyncClient, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease, execute = Lease(client, keys), client.execute_command

    def lost(*command: object, **options: object) -> object:
        answer = execute(*command, **options)
        if command[0] != "EVALSHA":
            return answer
        raise redis.ConnectionError("Connection reset by peer")

    with monkeypatch.context() as broken:
        broken.setattr(client, "execute_command", lost)
        with pytest.raises(redis.ConnectionError):
            lease.acquire(patience_s=0)
    lease.acquire(patience_s=0)
    assert lease.held
    assert lease.renew()


def test_a_holder_that_renews_is_noticed_soon(client: SyncClient, keys: Keys) -> None:
    first, second = Lease(client, keys), Lease(client, keys)
    first.acquire()
    renewal = threading.Timer(0.3, first.renew)
    renewal.start()
    started = time.monotonic()
    with pytest.raises(InvalidSettings):
        second.acquire()
    renewal.join()
    assert time.monotonic() - started < LEASE_S / 2


def test_a_released_lease_is_free(client: SyncClient, keys: Keys) -> None:
    first, second = Lease(client, keys), Lease(client, keys)
    first.acquire()
    second.release()  # not its own: nothing happens
    assert first.renew()
    first.release()
    second.acquire(patience_s=0)


def test_the_lease_of_a_process_that_is_gone_is_taken_at_once(
    client: SyncClient, keys: Keys
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    holder = {"machine": machine(), "pid": gone.pid, "started": "1", "token": "x"}
    client.set(keys.lease, json.dumps(holder), px=60_000)
    lease = Lease(client, keys)
    lease.acquire(patience_s=0)
    assert lease.renew()


def test_the_lease_of_another_machine_must_run_out(client: SyncClient, keys: Keys) -> None:
    holder = {"machine": "elsewhere", "pid": 1, "started": "1", "token": "x"}
    client.set(keys.lease, json.dumps(holder), px=300)
    Lease(client, keys).acquire(patience_s=2)


def test_a_lease_that_ran_out_unnoticed_is_renewed_if_nobody_took_it(
    client: SyncClient, keys: Keys
) -> None:
    lease = Lease(client, keys)
    lease.acquire()
    client.set(keys.fence, lease.token)  # as a trainer does when it begins
    client.delete(keys.lease)
    assert lease.renew()
    assert client.pttl(keys.lease) > 0


def test_a_lease_that_someone_had_in_between_is_lost(client: SyncClient, keys: Keys) -> None:
    lease = Lease(client, keys)
    lease.acquire()
    client.set(keys.lease, "someone else")
    assert not lease.renew()
    client.delete(keys.lease)
    client.set(keys.fence, "someone else, who is gone again")
    assert not lease.renew()
