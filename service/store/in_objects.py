"""The checkpoints of one model in an object store, which several trainers may reach.

No lock keeps others away. Rules of this module:

1. An object is put under a name that nobody has had: the writer's epoch, its own mark and a number.
   It is never overwritten; what is put is read back and compared.
2. An object is a checkpoint when the pointer in Redis names it, and the pointer is set under the
   fence: a writer whose epoch is old can neither overwrite nor point. Entries are released later.
3. The pointer holds what is kept, newest first, with sizes, checksums and notes. Where Redis has
   lost it, or nothing that it names can be read, what the store holds is tried, newest epoch first.
4. Deleted are objects that the pointer named and names no more, and orphans of epochs before one's
   own. A writer that was replaced since deletes nothing that its successor needs: it never lists
   what the successor puts, and what was not pointed to when it was replaced is needed by nobody.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from core.errors import InvalidCheckpoint
from service.broker.pointer import Pointer
from service.store.in_folder import kept_in
from service.store.kept import (
    TWIN,
    Kept,
    Pins,
    StoreUnavailable,
    answering_in,
    nothing_pinned,
    with_pinned,
    worth_keeping,
)
from service.store.objects import ObjectExists, Objects, Stored
from service.store.objects_in_redis import ObjectsInRedis

logger = logging.getLogger(__name__)

NAME: Final = re.compile(
    r"(?P<epoch>\d{10,18})-(?P<writer>[0-9a-f]{8})-(?P<number>\d{6,18})"
    r"-(?P<version>\d{1,18})-(?P<entries>\d{1,18})(?P<twin>-twin)?\.safetensors"
)

HELD_NAME: Final = re.compile(r"held-(\d{1,18})-\d{10,18}-[0-9a-f]{8}\.snapshot")

SWEEP_S: Final = 3600.0
"""Seconds between two looks for orphans."""

MOST_SWEPT: Final = 1000
"""Orphans that one look deletes."""


AnyObjects = Objects | ObjectsInRedis
"""What of a model is in a store, by a library or by Redis itself."""

Call = Callable[[Callable[[], Any]], Any]


@dataclass(frozen=True, kw_only=True)
class KeptObject(Kept):
    """A checkpoint in a store.

    Arguments:
        objects: Where it is.
        name: Its name there.
        nbytes: Its bytes.
        time: When it was put, in Unix seconds.
        sha256: Of its bytes, in hexadecimal digits; None where the pointer was lost.
    """

    objects: AnyObjects
    name: str
    nbytes: int
    time: float
    sha256: str | None = None

    @property
    def place(self) -> str:
        """Its address."""
        return f"{self.objects.place}/{self.name}"

    def read(self) -> bytes:
        """Its bytes."""
        data = self.objects.get(self.name, self.nbytes)
        if self.sha256 is not None and hashlib.sha256(data).hexdigest() != self.sha256:
            raise InvalidCheckpoint(
                f"{self.place} holds other bytes than were put there. Look after the store."
            )
        return data

    def measure(self) -> tuple[float, int]:
        """When it was written, in Unix seconds, and its bytes."""
        return self.time, self.nbytes

    def to_json(self) -> dict[str, Any]:
        """As the pointer holds it."""
        return {
            "name": self.name,
            "bytes": self.nbytes,
            "time": self.time,
            "sha256": self.sha256,
            "note": self.note,
        }


def parse(text: bytes | None, objects: AnyObjects) -> list[KeptObject] | None:
    """The checkpoints that a pointer names, newest first; None where it is lost.

    Arguments:
        text: The pointer as Redis has it.
        objects: Where they are.
    """
    if text is None:
        return None
    try:
        return [
            KeptObject(
                **_facts(one["name"]),
                objects=objects,
                note=dict(one["note"]),
                nbytes=int(one["bytes"]),
                time=float(one["time"]),
                sha256=one["sha256"],
            )
            for one in json.loads(text)
        ]
    except (KeyError, TypeError, ValueError) as error:
        logger.error("THE POINTER TO %s CANNOT BE READ: %s", objects.place, error)
        return None


def unpointed(
    there: Mapping[str, Stored], named: Sequence[KeptObject], objects: AnyObjects
) -> list[KeptObject]:
    """The checkpoints of a store that its pointer does not name, newest epoch first.

    Arguments:
        there: What the store lists.
        named: By the pointer.
        objects: Where they are.
    """
    known = {one.name for one in named}
    found = [
        KeptObject(**_facts(name), objects=objects, note={}, nbytes=stored.nbytes, time=stored.time)
        for name, stored in there.items()
        if NAME.fullmatch(name) and name not in known
    ]
    return sorted(found, key=lambda one: (-epoch_of(one.name), *_order(one)))


def epoch_of(name: str) -> int:
    """Of whoever put an object; -1 where it is no checkpoint.

    Example:
        >>> epoch_of("0000000003-0a1b2c3d-000001-7-9.safetensors"), epoch_of("readme.txt")
        (3, -1)
    """
    match = NAME.fullmatch(name)
    return -1 if match is None else int(match["epoch"])


def _order(one: KeptObject) -> tuple[int, bool]:
    return -one.entries_applied, not one.twin


def _facts(name: str) -> dict[str, Any]:
    match = NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"{name[:80]!r} is no name of a checkpoint")
    return {
        "name": name,
        "version": int(match["version"]),
        "entries_applied": int(match["entries"]),
        "twin": match["twin"] is not None,
    }


class ObjectCheckpoints:
    """The checkpoints of one model in a store.

    `open` comes before everything else. One thread writes; others may read meanwhile.

    Arguments:
        objects: The folder of the model.
        pointer: Of the model.
        folder: In which the checkpoints of the model were, where it had no store before.
        most_bytes: What kept checkpoints may come to; those before boundaries make room, the
            oldest first.
    """

    def __init__(
        self, objects: AnyObjects, pointer: Pointer, folder: Path, most_bytes: int
    ) -> None:
        self.epoch = 0
        self._folder = folder
        self._objects = objects
        self._pointer = pointer
        self._most_bytes = most_bytes
        self._kept: tuple[KeptObject, ...] = ()  # replaced whole, since two threads look at it
        self._others: tuple[KeptObject, ...] = ()  # that nothing pointed to at the start
        self._stray: set[str] = set()  # that nothing points to any more
        self._left_out: set[str] = set()  # damaged, for people to look at
        self._number = 0
        self._swept_at = -SWEEP_S

    @property
    def place(self) -> str:
        """Where they are, for people."""
        return self._objects.place

    def open(self, call: Call) -> int:
        """Take the fence, and look what there is; the epoch.

        Arguments:
            call: By which to ask Redis, with patience.

        Raises:
            StoreUnavailable: The store does not answer.
            LeaseLost: Another trainer has the lease.
        """
        there = self._objects.names()
        least = 1 + max(map(epoch_of, there), default=0)
        self.epoch = call(lambda: self._pointer.take(least))
        # Only here, when nobody else can point any more, is what is pointed to the last word.
        named = parse(call(self._pointer.read), self._objects)
        self._others = tuple(unpointed(there, named or (), self._objects))
        self._kept = tuple(named or ())
        if named is None:
            self._try_others()
            self._take_from(self._folder)
        return self.epoch

    def _try_others(self) -> None:
        if not self._kept and self._others:
            logger.error("going on from what %s holds, whatever pointed to it", self.place)
            self._kept, self._others = self._others, ()

    def _take_from(self, folder: Path) -> None:
        """Put there what a service kept in its folder that had no store so far."""
        if self._kept or not folder.is_dir():
            return
        must, may = worth_keeping(kept_in(folder), {})
        for one in sorted((*must, *may), key=lambda one: one.entries_applied):
            self.write(
                one.read(),
                version=one.version,
                entries_applied=one.entries_applied,
                note=one.note,
                twin=one.twin,
            )
        if must:
            logger.info("%d checkpoints of %s put into %s", len(must + may), folder, self.place)

    def write(
        self,
        data: bytes,
        *,
        version: int,
        entries_applied: int,
        note: Mapping[str, object],
        twin: bool = False,
    ) -> None:
        """Put a checkpoint; it was read back and is pointed to when this returns.

        Raises:
            StoreUnavailable: The store does not answer, has no room, or gives back other bytes.
            LeaseLost: Another trainer has begun.
        """
        self._sweep()
        self._number += 1
        name = (
            f"{self.epoch:010d}-{self._pointer.writer}-{self._number:06d}"
            f"-{version}-{entries_applied}{TWIN * twin}.safetensors"
        )
        self._stray.add(name)
        # A name that is taken is our own, of an attempt whose answer was lost; or it is not, and
        # then the bytes are others.
        with suppress(ObjectExists):
            self._objects.put_new(name, data)
        try:
            whole = self._objects.get(name, len(data)) == data
        except InvalidCheckpoint:
            whole = False
        if not whole:
            raise StoreUnavailable(f"{self.place}/{name} was put, and gives back other bytes")
        one = KeptObject(
            **_facts(name),
            objects=self._objects,
            note=dict(note),
            nbytes=len(data),
            time=time.time(),
            sha256=hashlib.sha256(data).hexdigest(),
        )
        same = (version, entries_applied, twin)
        others = [
            kept for kept in self._kept if (kept.version, kept.entries_applied, kept.twin) != same
        ]
        self._point([one, *others])

    def leave_out(self, kept: Kept) -> None:
        """Let a damaged checkpoint be none any more; the object stays until the next start."""
        assert isinstance(kept, KeptObject)
        self._left_out.add(kept.name)
        self._kept = tuple(one for one in self._kept if one is not kept)
        self._try_others()

    def kept(self) -> list[KeptObject]:
        """What is pointed to, newest first; where a start found the pointer lost, what there is."""
        return list(self._kept)

    def prune(
        self, gone_back_to: Mapping[int, int] = MappingProxyType({}), pins: Pins = nothing_pinned
    ) -> None:
        """Delete what need not be kept; arguments as in a folder.

        Raises:
            StoreUnavailable: Some may be left.
            LeaseLost: Another trainer has begun.
        """
        must, may = worth_keeping(self._kept, gone_back_to)
        held = sum(one.nbytes for one in (*must, *may))
        while held > self._most_bytes and may:
            held -= may.pop().nbytes
        staying = with_pinned(self._kept, (*must, *may), pins)
        if len(staying) < len(self._kept):
            self._point(staying)

    def write_held(self, version: int, data: bytes) -> None:
        """Keep the snapshot that answers in place of what is learned.

        Raises:
            StoreUnavailable: The store does not answer, or has no room.
        """
        name = f"held-{version}-{self.epoch:010d}-{self._pointer.writer}.snapshot"
        with suppress(ObjectExists):  # of the same version by the same writer: the same bytes
            self._objects.put_new(name, data)

    def read_held(self, version: int) -> bytes:
        """A snapshot that `write_held` kept, the newest epoch's.

        Raises:
            InvalidCheckpoint: It is not there.
            StoreUnavailable: The store does not answer.
        """
        names = (name for name in self._objects.names() if name.startswith(f"held-{version}-"))
        newest = max(names, default=f"held-{version}-0.snapshot")
        return self._objects.get(newest)

    def _point(self, kept: Sequence[KeptObject]) -> None:
        ordered = sorted(kept, key=_order)
        # Where this fails, whether it was done is not known: nothing may be deleted.
        self._pointer.set(json.dumps([one.to_json() for one in ordered]).encode())
        self._stray |= {one.name for one in self._kept}
        self._stray -= {one.name for one in ordered}
        self._kept = tuple(ordered)
        try:
            self._objects.delete(sorted(self._stray))
            self._stray.clear()
        except StoreUnavailable as error:
            logger.warning("not deleted, to be tried again: %s", error)

    def _sweep(self) -> None:
        """Delete what earlier epochs left behind and nothing points to."""
        now = time.monotonic()
        if now - self._swept_at < SWEEP_S:
            return
        self._swept_at = now
        stays = {one.name for one in self._kept} | self._left_out
        try:
            orphans = [
                name
                for name in sorted(self._objects.names())
                if (0 <= epoch_of(name) < self.epoch and name not in stays) or self._is_idle(name)
            ]
            self._objects.delete(orphans[:MOST_SWEPT])
        except StoreUnavailable as error:
            logger.warning("orphans are left in the store: %s", error)
            return
        if orphans:
            logger.info("%d orphans of earlier epochs deleted", len(orphans[:MOST_SWEPT]))

    def _is_idle(self, name: str) -> bool:
        """Whether an object is a snapshot that answered once, and answers for nobody now."""
        match = HELD_NAME.fullmatch(name)
        if match is None or not self._kept:
            return False
        version = int(match[1])
        # Of one that is not older than all that is kept, no checkpoint may speak yet.
        return version not in answering_in(self._kept) and version < self._kept[0].version
