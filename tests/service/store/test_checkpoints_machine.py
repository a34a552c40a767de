"""What a place for checkpoints promises, as a state machine on a folder and on an object store."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.errors import InvalidCheckpoint
from service import atomic_write
from service.broker.connection import SyncClient, connect
from service.broker.fenced import LeaseLost
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.broker.pointer import Pointer
from service.store import in_folder
from service.store.in_folder import FolderCheckpoints
from service.store.in_objects import AnyObjects, ObjectCheckpoints
from service.store.kept import (
    BEFORE_BOUNDARY,
    BOUNDARIES_KEPT,
    NEWEST_KEPT,
    CheckpointStore,
    StoreUnavailable,
)
from service.store.objects import Objects
from service.store.objects_in_redis import ObjectsInRedis
from service.supervisor.embedded import EmbeddedRedis

Key = tuple[int, bool]
"""Entries applied, and whether it is a twin."""


Instant = tuple[Any, str]
"""A step of a write: what owns it, and its name."""


class Promises(RuleBasedStateMachine):
    """A trainer that writes, is killed, and begins again; and one that was replaced."""

    begin: Callable[[Path, Keys], CheckpointStore]
    instants: tuple[Instant, ...]

    def __init__(self) -> None:
        super().__init__()
        self.root, self.keys = Path(tempfile.mkdtemp(prefix="promises-")), Keys(uuid.uuid4().hex)
        self.store = type(self).begin(self.root, self.keys)
        self.old: CheckpointStore | None = None
        self.entries = 0
        self.there: dict[Key, bytes] = {}  # acknowledged, and not damaged since
        self.perhaps: dict[Key, set[bytes]] = {}  # of writes that may have been cut short
        self.boundaries: list[Key] = []
        self.left_out: set[Key] = set()  # boundaries that the pointer may name at the next start

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def _write(self, entries: int, twin: bool, boundary: int | None) -> None:
        data = f"{entries} {uuid.uuid4()}".encode() if not twin else self.there[entries, False]
        note = {} if boundary is None else {BEFORE_BOUNDARY: boundary}
        self.perhaps.setdefault((entries, twin), set()).add(data)
        self.store.write(data, version=entries, entries_applied=entries, note=note, twin=twin)
        self.there[entries, twin] = data
        if boundary is not None:
            self.boundaries.append((entries, twin))

    def _keys(self) -> list[Key]:
        return [(one.entries_applied, one.twin) for one in self.store.kept()]

    def _notes(self) -> dict[Key, object]:
        """Of what was acknowledged."""
        kept = {(one.entries_applied, one.twin): one.note for one in self.store.kept()}
        return {key: note for key, note in kept.items() if key in self.there}

    # What a trainer does --------------------------------------------------------

    @rule(more=st.integers(1, 3), boundary=st.booleans())
    def write(self, more: int, boundary: bool) -> None:
        """A newer one."""
        self.entries += more
        self._write(self.entries, False, self.entries if boundary else None)

    @precondition(lambda self: (self.entries, False) in self.there)
    @rule()
    def write_twin(self) -> None:
        """A second one of the newest."""
        self._write(self.entries, True, None)

    @rule(more=st.integers(1, 3), instant=st.integers(0, 3), after=st.booleans())
    def is_cut_short(self, more: int, instant: int, after: bool) -> None:
        """A write that fails, or a trainer that ends, before or after one of its steps."""
        owner, name = self.instants[instant % len(self.instants)]
        step = getattr(owner, name)

        def fails(*given: object, **named: object) -> object:
            if after:
                step(*given, **named)
            raise StoreUnavailable("cut short")

        self.entries += more
        with mock.patch.object(owner, name, fails), contextlib.suppress(StoreUnavailable):
            self._write(self.entries, False, None)

    @rule()
    def prune(self) -> None:
        """What is not worth keeping goes."""
        before = self._keys()[:NEWEST_KEPT]
        self.store.prune()
        kept = self._keys()
        assert len(kept) <= NEWEST_KEPT + BOUNDARIES_KEPT
        assert set(before) <= set(kept) <= {*before, *self.boundaries, *self.left_out}
        marked = self.boundaries[-BOUNDARIES_KEPT:]
        assert {key for key in marked if key in self.there} <= set(kept)
        self.there = {key: data for key, data in self.there.items() if key in kept}

    @rule()
    def restart(self) -> None:
        """Another one goes on, with the same."""
        before = self._notes()
        self.old, self.store = self.store, type(self).begin(self.root, self.keys)
        assert self._notes() == before

    @precondition(lambda self: isinstance(self.old, ObjectCheckpoints) and self.there)
    @rule()
    def the_old_one_wakes(self) -> None:
        """It changes nothing."""
        assert self.old is not None
        key = self.entries + 1, False
        self.perhaps.setdefault(key, set()).add(b"zombie")  # of use where nothing else is left
        with pytest.raises(LeaseLost):
            self.old.write(b"zombie", version=key[0], entries_applied=key[0], note={})
        assert key not in self._keys()

    @precondition(lambda self: self.store.kept())
    @rule()
    def newest_is_damaged(self) -> None:
        """A start leaves it out."""
        newest = self.store.kept()[0]
        self.store.leave_out(newest)
        key = newest.entries_applied, newest.twin
        self.there.pop(key, None)
        self.left_out |= {key} & set(self.boundaries)
        self.boundaries = [one for one in self.boundaries if one != key]

    # What always holds ----------------------------------------------------------

    @invariant()
    def what_was_acknowledged_is_there(self) -> None:
        """Whole, newest first, and beside it nothing that nobody wrote."""
        kept = {(one.entries_applied, one.twin): one for one in self.store.kept()}
        acknowledged = [key for key in kept if key in self.there]
        assert acknowledged == sorted(self.there, reverse=True)
        for key, one in kept.items():
            if key in self.there:
                assert one.read() == self.there[key]
            else:
                with contextlib.suppress(InvalidCheckpoint):  # it was swept away meanwhile
                    assert one.read() in self.perhaps[key]


def hold(begin: Callable[[Path, Keys], CheckpointStore], *instants: Instant) -> None:
    """Run the machine."""
    bound = type("Bound", (Promises,), {"begin": staticmethod(begin), "instants": instants})
    case = bound.TestCase
    case.settings = of_hypothesis(max_examples=40, stateful_step_count=30, deadline=None)
    case("runTest").runTest()


def test_a_folder_keeps_its_promises() -> None:
    hold(
        lambda root, _: FolderCheckpoints(root),
        (os, "fsync"),
        (Path, "rename"),
        (atomic_write, "force_names"),
        (in_folder, "_read_from_disk"),
    )


def test_a_store_keeps_its_promises(redis_server: EmbeddedRedis) -> None:
    pytest.importorskip("obstore", reason="the extra store is not installed")
    with connect(redis_server.url) as client:
        hold(
            lambda root, keys: _opened(client, root, keys),
            (Objects, "put_new"),
            (Objects, "get"),
            (Pointer, "set"),
        )


def test_redis_keeps_the_promises_of_a_store(redis_server: EmbeddedRedis) -> None:
    with connect(redis_server.url) as client:
        hold(
            lambda root, keys: _opened(client, root, keys, ObjectsInRedis(client, keys.model)),
            (ObjectsInRedis, "put_new"),
            (ObjectsInRedis, "get"),
            (Pointer, "set"),
        )


def _opened(
    client: SyncClient, root: Path, keys: Keys, objects: AnyObjects | None = None
) -> ObjectCheckpoints:
    client.delete(keys.lease)
    lease = Lease(client, keys)
    lease.acquire()
    objects = objects or Objects(f"file://{root}/store", f"{keys.model}/_own")
    made = ObjectCheckpoints(objects, Pointer(client, keys, lease), root / "none", 10**6)
    made.open(lambda ask: ask())
    return made
