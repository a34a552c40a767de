"""Publish a read-only model, and follow the latest one.

The trainer writes a snapshot to a store, then puts a short notice into a stream.
Readers follow the notices. The store is a folder where both are on one machine, so
that megabytes per second stay out of Redis' append-only file, or else a Redis key.

Rules of this module:

1. A notice comes after what it speaks of, and says which entries that contains.
2. Taking over a newer snapshot is one assignment. Whoever took the older one from
   `SnapshotFollower.current` finishes with it.
3. A snapshot that cannot be read is left out: the one before goes on answering. Where the fault
   may pass, and nothing newer comes, it is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from core.errors import InvalidCheckpoint
from core.memory.retention import SubTaskRetention
from core.snapshot import ModelInfo, Snapshot
from service.atomic_write import write_atomically
from service.broker.connection import StreamUnavailable
from service.broker.entries import Position
from service.broker.feed import Feed
from service.broker.records import Notice
from service.broker.stream import Stream

logger = logging.getLogger(__name__)

FILES_KEPT: Final = 3
FILE: Final = "file:"
IN_REDIS: Final = "redis"
HELD: Final = "held"
"""Text beside a snapshot: how well past sub-tasks are held, as JSON. Not part of it, because
when that is asked depends on the time there is, and a snapshot on the stream alone."""

NOWHERE: Final = ""
"""Location of a notice while there is no model: entries were applied, nothing was learned."""

WAIT_MS: Final = 1_000
PAUSE_S: Final = 0.5

ASKED_S: Final = 10.0
"""While somebody asks something in so many seconds, each model is made ready before it answers;
else one in so many seconds, which loads what a first question would wait for."""


UNREACHED: Final = (
    ". If this lasts, and the trainer is on another machine, set GMR_SNAPSHOT_STORE=redis for it."
)
UNREAD: Final = (
    " The one before it goes on answering, if there is one. If this lasts, start API and trainer "
    "of the same release."
)


class Publisher:
    """The trainer's way of making a snapshot known.

    Arguments:
        feed: Where notices go.
        files: Where snapshots go; None sends them through Redis.
    """

    def __init__(self, feed: Feed, files: SnapshotFiles | None) -> None:
        self._feed = feed
        self._files = files
        self._location = NOWHERE
        self._info: ModelInfo | None = None
        self._held: tuple[SubTaskRetention, ...] = ()
        self._edition = 0

    def publish(
        self,
        snapshot: Snapshot | None,
        position: Position,
        held: tuple[SubTaskRetention, ...] = (),
    ) -> None:
        """Hand a snapshot to the readers, or only its new position if they have it.

        How well a version holds the past may be asked anew while the version stays, and samples
        may be held back that it has not learned; that makes another edition of it.

        Arguments:
            snapshot: None while there is no model.
            position: What it contains.
            held: How well it, or a version before it, holds past sub-tasks.

        Raises:
            OSError: The file cannot be written.
        """
        data, location = None, self._location
        version = 0 if self._info is None else self._info.model_version
        edition, info = self._edition, self._info
        if snapshot is not None and (
            location == NOWHERE or (snapshot.info, held) != (info, self._held)
        ):
            edition = edition + 1 if snapshot.version == version else 0
            version, info = snapshot.version, snapshot.info
            metadata = {"last_entry_id": position.last_entry_id, HELD: orjson.dumps(held).decode()}
            data = snapshot.to_bytes(metadata)
            location = IN_REDIS + _suffix(edition)
            if self._files is not None:
                location = self._files.write(data, version, position.entries_applied, edition)
                data = None
        self._feed.publish(position, version, location, data)
        self._info, self._location = info, location
        self._held, self._edition = held, edition


class SnapshotFiles:
    """Snapshots as files of one folder; the newest few are kept for slow readers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def sweep(self) -> None:
        """Remove what a trainer that was killed had begun to write. Nobody may be writing."""
        for leftover in self.directory.glob("*.tmp"):
            leftover.unlink(missing_ok=True)

    def write(self, data: bytes, version: int, entries_applied: int, edition: int = 0) -> str:
        """Put a snapshot into the folder; its location for a notice."""
        # Made here and not before: a reader may have no right to.
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = f"{version}-{entries_applied}{_suffix(edition)}.safetensors"
        path = self.directory / name
        # Not forced to disk: after a power failure the trainer publishes anew.
        write_atomically(path, data, durable=False)
        for old in self._by_age()[:-FILES_KEPT]:
            old.unlink(missing_ok=True)
        return FILE + path.name

    def read(self, location: str) -> bytes:
        """The snapshot at a location.

        Raises:
            OSError: It is not there, or no more.
        """
        name = location.removeprefix(FILE)
        if not re.fullmatch(r"\d+-\d+(-\d+)?\.safetensors", name):
            raise FileNotFoundError(f"{name[:80]!r} is no name of a snapshot")
        return (self.directory / name).read_bytes()

    def _by_age(self) -> list[Path]:
        # By what it contains; the clock's resolution may be too coarse to tell.
        return sorted(
            self.directory.glob("*-*.safetensors"),
            key=lambda path: [int(number) for number in path.stem.split("-")[1:]],
        )


def _suffix(edition: int) -> str:
    """Tells the editions of one version apart."""
    return f"-{edition}" if edition else ""


@dataclass(frozen=True)
class Served:
    """What an API process answers with.

    Arguments:
        snapshot: The model; None while nothing was learned.
        entries_applied: Entries of the stream that it contains: the backlog is counted
            from here.
        last_entry_id: The last of them.
        time: When it was published, Unix seconds.
        held: How well it, or a version before it, holds past sub-tasks: `SubTaskRetention` as JSON.
    """

    snapshot: Snapshot | None
    entries_applied: int
    last_entry_id: str
    time: float
    held: list[dict[str, Any]]


class SnapshotFollower:
    """Keeps `current` at the latest snapshot that was published.

    Arguments:
        stream: Where the notices are.
        directory: The trainer's data dir, if this process can see it.
        device: Where snapshots live.
        replaced: Is called whenever another model has taken over.

    Attributes:
        current: What answers; None before the first.
        unread: Why what was published last does not answer, where only another release, or
            another snapshot, will do; None while it does, or may yet.

    Example:
        follower = SnapshotFollower(stream, settings.data_dir, device="cpu")
        task = asyncio.create_task(follower.run())
    """

    def __init__(
        self,
        stream: Stream,
        directory: Path,
        device: str = "cpu",
        replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self.current: Served | None = None
        self.unread: str | None = None
        self._replaced = replaced
        self._asked_at = self._ready_at = -math.inf
        self._stream = stream
        self._files = SnapshotFiles(directory / "snapshots")
        self._device = device
        self._taken: tuple[str, int] | None = None  # location and version of `current`
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Follow until cancelled, whatever happens to Redis."""
        last: str | None = None
        missed: Notice | None = None
        while True:
            try:
                if last is None:
                    notice = await self._stream.reports.last_notice()
                    last = "0-0" if notice is None else notice.id
                else:
                    notice = await self._stream.reports.next_notice(last, block_ms=WAIT_MS)
                if notice is not None or missed is not None:
                    notice, before = notice or missed, missed
                    assert notice is not None
                    missed = None if await self._take(notice, again=notice == before) else notice
                    last = notice.id
            except StreamUnavailable as error:
                logger.warning("no news of the model for the moment: %s", error)
                # A Redis that lost its data begins its ids anew.
                last = missed = None
                await asyncio.sleep(PAUSE_S)
            except Exception:
                logger.exception("the latest snapshot cannot be taken over; trying again")
                await asyncio.sleep(PAUSE_S)

    def ask(self) -> Snapshot | None:
        """The latest snapshot, to answer with; None while there is none.

        As long as somebody asks, a newer one is made ready before it takes over, so that no
        request waits for what is worked out once for each.
        """
        self._asked_at = time.monotonic()
        return None if self.current is None else self.current.snapshot

    async def changed(self) -> None:
        """Return when `current` is replaced next."""
        await self._news.wait()

    async def _take(self, notice: Notice, *, again: bool) -> bool:
        """Serve what a notice speaks of; False where that may go well another time.

        Arguments:
            notice: Of a snapshot.
            again: Whether it was tried before, and that told.
        """
        model = (notice.location, notice.version)
        snapshot: Snapshot | None = None
        held: list[dict[str, Any]] = []
        if self.current is not None and self._taken == model:
            snapshot, held = self.current.snapshot, self.current.held  # only the position moved
        elif notice.location != NOWHERE:
            try:
                snapshot, held = await self._load(notice)
            except (OSError, InvalidCheckpoint) as error:
                # Replaced meanwhile by a newer one, or written to a folder that this
                # process does not see.
                logger.log(
                    logging.DEBUG if again else logging.ERROR,
                    "snapshot %s (version %d) cannot be read: %s%s",
                    notice.location,
                    notice.version,
                    error,
                    UNREAD if isinstance(error, InvalidCheckpoint) else UNREACHED,
                )
                if isinstance(error, InvalidCheckpoint):
                    self.unread = f"The model that was published last cannot be read: {error}"
                    return True
                return False
        self.unread = None
        self.current = Served(
            snapshot, notice.entries_applied, notice.last_entry_id, notice.time, held
        )
        if model != self._taken:
            self._replaced()
        self._taken = model
        news, self._news = self._news, asyncio.Event()
        news.set()
        return True

    async def _load(self, notice: Notice) -> tuple[Snapshot, list[dict[str, Any]]]:
        if notice.location.startswith(IN_REDIS):
            data = await self._stream.reports.snapshot()
            if data is None:
                raise FileNotFoundError("Redis holds no snapshot")
        else:
            data = await asyncio.to_thread(self._files.read, notice.location)
        # On a thread: requests go on being answered by the one before.
        snapshot, metadata = await asyncio.to_thread(Snapshot.from_bytes, data, self._device)
        now = time.monotonic()
        if now - self._asked_at < ASKED_S or now - self._ready_at >= ASKED_S:
            self._ready_at = now
            await asyncio.to_thread(snapshot.make_ready)
        return snapshot, orjson.loads(metadata.get(HELD, "[]"))
