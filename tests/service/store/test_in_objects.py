"""Tests for service.store.in_objects: objects in a real Redis, a folder and an S3."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from core.errors import InvalidCheckpoint
from service.broker.connection import SyncClient, connect
from service.broker.fenced import LeaseLost
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.broker.pointer import Pointer
from service.settings import Settings
from service.store import objects as objects_module
from service.store.choice import most_bytes_of
from service.store.in_folder import FolderCheckpoints
from service.store.in_objects import AnyObjects, ObjectCheckpoints, epoch_of
from service.store.kept import BEFORE_BOUNDARY, NEWEST_KEPT, StoreUnavailable
from service.store.objects import Objects
from service.store.objects_in_redis import LARGEST, ObjectsInRedis
from service.supervisor.embedded import EmbeddedRedis
from tests.service.api.stack import redis_server as redis_server_in
from tests.service.store.s3 import Faulty, held_up, loses_the_first_answer, refuses, s3

pytest.importorskip("obstore", reason="the extra store is not installed")

Begin = Callable[..., ObjectCheckpoints]
At = Callable[[str], AnyObjects]


@pytest.fixture
def client(redis_server: EmbeddedRedis) -> Iterator[SyncClient]:
    with connect(redis_server.url) as client:
        yield client


@pytest.fixture
def keys() -> Keys:
    return Keys(uuid.uuid4().hex)


@pytest.fixture(params=["file", "redis"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "redis" if request.param == "redis" else f"file://{tmp_path}/store"


@pytest.fixture
def at(client: SyncClient, keys: Keys) -> At:
    """The objects of the model at an address."""

    def look(url: str) -> AnyObjects:
        if url == "redis":
            return ObjectsInRedis(client, keys.model)
        return Objects(url, f"{keys.model}/_own")

    return look


@pytest.fixture
def objects(at: At, root: str) -> AnyObjects:
    return at(root)


@pytest.fixture
def begin(client: SyncClient, keys: Keys, at: At, root: str, tmp_path: Path) -> Begin:
    """Lets another writer take over, whoever had the lease before."""

    def make(url: str = root, **given: Any) -> ObjectCheckpoints:
        client.delete(keys.lease)
        lease = Lease(client, keys)
        lease.acquire()
        values = {"folder": tmp_path / "none", "most_bytes": 10_000, **given}
        pointer = Pointer(client, keys, lease)
        made = ObjectCheckpoints(at(url), pointer, **values)
        made.open(lambda ask: ask())
        return made

    return make


def put(checkpoints: ObjectCheckpoints, entries: int, data: bytes = b"x", **note: Any) -> None:
    checkpoints.write(data, version=entries, entries_applied=entries, note=note)


def held(checkpoints: ObjectCheckpoints) -> list[int]:
    return [one.entries_applied for one in checkpoints.kept()]


def test_a_successor_finds_what_was_kept_newest_first_with_its_notes(begin: Begin) -> None:
    first = begin()
    put(first, 3, b"three", sub_task=1)
    put(first, 9, b"nine")
    first.write(b"nine", version=9, entries_applied=9, note={}, twin=True)
    second = begin()
    assert second.epoch == first.epoch + 1
    found = [(one.entries_applied, one.twin, one.read(), one.note) for one in second.kept()]
    assert found == [
        (9, True, b"nine", {}),
        (9, False, b"nine", {}),
        (3, False, b"three", {"sub_task": 1}),
    ]
    assert [one.measure()[1] for one in second.kept()] == [4, 4, 5]


def test_one_whose_epoch_is_old_can_neither_point_nor_overwrite(
    begin: Begin, client: SyncClient, keys: Keys, objects: AnyObjects
) -> None:
    old = begin()
    put(old, 1, b"one")
    new = begin()
    put(new, 2, b"two")
    pointer, there = client.get(keys.checkpoints), set(objects.names())
    with pytest.raises(LeaseLost):
        put(old, 2, b"zombie")
    with pytest.raises(LeaseLost):
        old.write(b"zombie", version=1, entries_applied=1, note={})
    assert client.get(keys.checkpoints) == pointer
    assert there < set(objects.names())  # objects of its own, that nothing points to
    assert [one.read() for one in begin().kept()] == [b"two", b"one"]


def test_orphans_of_earlier_epochs_are_deleted_and_nothing_else(
    begin: Begin, objects: AnyObjects
) -> None:
    old = begin()
    put(old, 1)
    new = begin()
    with pytest.raises(LeaseLost):
        put(old, 7, b"zombie")
    objects.put_new("readme.txt", b"of somebody else")
    put(new, 2)
    kept = {one.name for one in new.kept()}
    assert set(objects.names()) == {*kept, "readme.txt"}
    assert {epoch_of(name) for name in kept} == {old.epoch, new.epoch}


def test_what_need_not_be_kept_is_deleted(begin: Begin, objects: AnyObjects) -> None:
    checkpoints = begin(most_bytes=500)
    for i in range(1, 11):
        note = {BEFORE_BOUNDARY: i} if i <= 6 else {}
        put(checkpoints, i, bytes(100), **note)
        checkpoints.prune({1: 100})
    # The newest three, what a rollback went back to, and as many boundaries as there is room for.
    assert held(checkpoints) == [10, 9, 8, 6, 1]
    assert set(objects.names()) == {one.name for one in checkpoints.kept()}
    tight = begin(most_bytes=1)
    tight.prune()
    assert held(tight) == [10, 9, 8]
    assert len(held(tight)) == NEWEST_KEPT


def test_a_checkpoint_written_anew_takes_the_place_of_the_old_one(
    begin: Begin, objects: AnyObjects
) -> None:
    checkpoints = begin()
    put(checkpoints, 1, b"with raw samples")
    put(checkpoints, 1, b"without")
    assert [one.read() for one in checkpoints.kept()] == [b"without"]
    assert len(set(objects.names())) == 1


@pytest.mark.parametrize("damage", ["gone", "shorter", "other"])
def test_an_object_that_is_damaged_is_told_from_a_whole_one(
    begin: Begin, objects: AnyObjects, damage: str
) -> None:
    put(begin(), 1, b"whole")
    [kept] = begin().kept()
    objects.delete([kept.name])
    if damage != "gone":
        objects.put_new(kept.name, b"who" if damage == "shorter" else b"whale")
    with pytest.raises(InvalidCheckpoint, match=kept.name):
        kept.read()


@pytest.mark.parametrize("pointer", [None, b"no JSON", b'[{"name": "../../etc/passwd"}]'])
def test_where_the_pointer_is_lost_what_the_store_holds_is_taken_newest_epoch_first(
    begin: Begin, client: SyncClient, keys: Keys, pointer: bytes | None
) -> None:
    first = begin()
    put(first, 8, b"of a dead epoch")
    second = begin()
    put(second, 5, b"five")
    put(second, 6, b"six")
    for key in (keys.checkpoints, keys.epoch, keys.fence):
        client.delete(key)
    if pointer is not None:
        client.set(keys.checkpoints, pointer)
    third = begin()
    assert third.epoch > second.epoch  # though Redis knows of none
    assert [one.read() for one in third.kept()][:2] == [b"six", b"five"]


def test_where_nothing_that_is_pointed_to_can_be_read_the_rest_is_tried(begin: Begin) -> None:
    old = begin()
    put(old, 1, b"one")
    new = begin()
    with pytest.raises(LeaseLost):
        put(old, 2, b"of a dead epoch")
    last = begin()
    assert last.epoch == new.epoch + 1
    [kept] = last.kept()
    last.leave_out(kept)
    assert [one.read() for one in last.kept()] == [b"of a dead epoch"]


def test_what_a_folder_held_is_put_into_a_store_that_is_empty(begin: Begin, tmp_path: Path) -> None:
    folder = FolderCheckpoints(tmp_path / "data" / "checkpoints")
    for entries in (1, 2):
        note = {BEFORE_BOUNDARY: entries}
        folder.write(b"%d" % entries, version=entries, entries_applied=entries, note=note)
    taken = begin(folder=folder.directory)
    assert [(one.read(), one.note) for one in taken.kept()] == [
        (b"2", {BEFORE_BOUNDARY: 2}),
        (b"1", {BEFORE_BOUNDARY: 1}),
    ]
    folder.write(b"3", version=3, entries_applied=3, note={})
    assert held(begin(folder=folder.directory)) == [2, 1]  # once, and never again


def test_a_pointer_that_cannot_be_set_leaves_what_was(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, objects: AnyObjects
) -> None:
    checkpoints = begin()
    put(checkpoints, 1)
    whole = checkpoints._pointer.set
    lost = ConnectionError("the answer did not come")

    def fails(to: bytes) -> None:
        whole(to)  # it was set, and nobody here knows
        raise lost

    monkeypatch.setattr(checkpoints._pointer, "set", fails)
    with pytest.raises(ConnectionError):
        put(checkpoints, 2)
    assert held(checkpoints) == [1]
    assert held(begin()) == [2, 1]  # so nothing of it may have been deleted
    monkeypatch.undo()
    again = begin()
    put(again, 3)
    assert set(objects.names()) == {one.name for one in again.kept()}


def test_a_snapshot_that_answers_is_kept_for_as_long_as_it_does(
    begin: Begin, objects: AnyObjects
) -> None:
    first = begin()
    first.write_held(3, b"answers")
    put(first, 3, b"answering")
    for entries in range(4, 9):
        put(first, entries, held=3)
    first.prune()
    second = begin()
    assert second.read_held(3) == b"answers"
    assert held(second) == [8, 7, 6, 3]  # and the version itself, where its snapshot is damaged
    put(second, 9, held=3)
    assert second.read_held(3) == b"answers"
    for entries in (10, 11, 12):
        put(second, entries)
    put(begin(), 13)
    with pytest.raises(InvalidCheckpoint, match="held-3"):
        begin().read_held(3)


# In Redis ---------------------------------------------------------------------------------


def test_a_full_redis_keeps_what_was_learned_so_that_entries_can_be_let_go(
    tmp_path: Path,
) -> None:
    with redis_server_in(tmp_path) as server, connect(server.url) as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(redis.exceptions.OutOfMemoryError):
            client.set("any", "thing")
        objects = ObjectsInRedis(client, "m")
        objects.put_new("a", b"one")
        assert objects.get("a", 3) == b"one"
        objects.delete(["a", "never there"])
        assert objects.names() == {}


def test_redis_takes_small_checkpoints_only_and_says_so(client: SyncClient, keys: Keys) -> None:
    objects = ObjectsInRedis(client, keys.model)
    with pytest.raises(StoreUnavailable, match="GMR_CHECKPOINTS to an object store"):
        objects.put_new("a", bytes(LARGEST + 1))
    assert objects.names() == {}


@pytest.mark.parametrize(("asked", "most"), [(4096, 64), (10, 10)])
def test_what_a_model_keeps_in_redis_is_little_whatever_it_may_keep_elsewhere(
    asked: int, most: int
) -> None:
    own = Settings(redis_url="redis://r", checkpoints="redis", checkpoints_mib=asked)  # type: ignore[arg-type]
    assert most_bytes_of(own) == most * 1024**2
    assert most_bytes_of(own.model_copy(update={"checkpoints": "s3://a/b"})) == asked * 1024**2


def test_a_redis_that_is_away_is_no_damaged_checkpoint(tmp_path: Path) -> None:
    with redis_server_in(tmp_path) as server:
        client = connect(server.url)
        objects = ObjectsInRedis(client, "m")
        objects.put_new("a", b"one")
    for call in (
        lambda: objects.get("a"),
        objects.names,
        objects.clear,
        lambda: objects.delete(["a"]),
        lambda: objects.put_new("b", b"two"),
    ):
        with pytest.raises(StoreUnavailable, match="redis, model m"):
            call()
    client.close()


# Over HTTP --------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    monkeypatch.setattr(objects_module, "RETRIES", 1)
    objects_module._open.cache_clear()
    with s3(monkeypatch) as app:
        yield app
    objects_module._open.cache_clear()


S3 = "s3://models/some/prefix"


@pytest.mark.parametrize(
    "status",
    ["503 Slow Down", "507 Insufficient Storage", "412 Precondition Failed", "403 Forbidden"],
)
def test_a_store_that_refuses_leaves_what_was_and_says_no_secret(
    begin: Begin, server: Faulty, status: str
) -> None:
    checkpoints = begin(S3)
    put(checkpoints, 1, b"one")
    server.faults["PUT"] = refuses(status)
    with pytest.raises(StoreUnavailable) as refused:
        put(checkpoints, 2, b"two")
    assert "s3://models/some/prefix/" in str(refused.value)
    assert "AKIDSECRETOFATEST" not in str(refused.value)
    assert held(checkpoints) == [1]
    server.faults.clear()
    put(checkpoints, 2, b"two")
    assert [one.read() for one in begin(S3).kept()] == [b"two", b"one"]


def test_a_put_whose_answer_was_lost_is_found_to_have_arrived(begin: Begin, server: Faulty) -> None:
    checkpoints = begin(S3)
    server.faults["PUT"] = loses_the_first_answer()
    put(checkpoints, 1, b"one")  # tried again, it is there already: 412
    assert server.asked.count("PUT") == 2
    assert [one.read() for one in begin(S3).kept()] == [b"one"]


def test_a_slow_store_holds_nobody_else_up(begin: Begin, server: Faulty) -> None:
    checkpoints, until = begin(S3), threading.Event()
    put(checkpoints, 1, b"one")
    server.faults["PUT"] = held_up(until)
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(put, checkpoints, 2, b"two")
        assert [one.read() for one in checkpoints.kept()] == [b"one"]
        assert not writing.done()
        until.set()
        writing.result(30)
    assert held(checkpoints) == [2, 1]


def test_a_store_that_cannot_be_reached_is_no_damaged_checkpoint(
    begin: Begin, server: Faulty
) -> None:
    checkpoints = begin(S3)
    put(checkpoints, 1, b"one")
    server.faults["GET"] = refuses("503 Slow Down")
    [kept] = checkpoints.kept()
    with pytest.raises(StoreUnavailable):
        kept.read()
    with pytest.raises(StoreUnavailable):
        begin(S3)


def test_what_is_pointed_to_is_plain_json_without_credentials(
    begin: Begin, server: Faulty, client: SyncClient, keys: Keys
) -> None:
    put(begin(S3), 1, b"one", origin="learned")
    [one] = json.loads(client.get(keys.checkpoints) or b"")
    assert set(one) == {"name", "bytes", "time", "sha256", "note"}
    assert one["note"] == {"origin": "learned"}
