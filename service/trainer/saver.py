"""Keeps the trainer's state: writes it down in the background, finds it again.

Rules of this module:

1. A state is immutable, so writing one down needs no pause in learning: only the
   reference is handed over, and the bytes are made on a thread of their own.
2. Writes finish in the order in which they were asked for, and are told by `finished`, on the
   caller's thread. What they make safe to forget is `service.trainer.releases`' business.
3. A failed write loses nothing: the entries stay in the stream until one succeeds.
4. A start goes on from the newest checkpoint or, where that is damaged, from the one before it:
   so neither of these two is rewritten. One that another release wrote is not damaged.
"""

from __future__ import annotations

import json
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch

from core.config import EngineConfig
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.engine.trial import check_values, try_out
from core.errors import (
    GMRError,
    InvalidCheckpoint,
    InvalidSettings,
    OtherRelease,
    UnknownVersion,
)
from service.broker.branch import Branch
from service.broker.entries import Position, came_at_ms, next_id
from service.broker.names_in_checkpoint import names_in, with_them
from service.store.kept import (
    BEFORE_BOUNDARY,
    HELD,
    CheckpointStore,
    Kept,
    Pins,
    StoreUnavailable,
    nothing_pinned,
)
from service.trainer.faults import is_machines
from service.trainer.gate import Gate
from service.trainer.ledger import Ledger
from service.trainer.provenance import WRITTEN_BY, writer_of, written_by
from service.trainer.totals import Totals

logger = logging.getLogger(__name__)

WITHOUT_RAW: Final = "without_raw"
"""Of a checkpoint that holds no raw sample any more, in its note and in the checkpoint itself."""

GONE_BACK_TO: Final = "gone_back_to"
MOST_GONE_BACK_TO: Final = 10

FINAL_WAIT_S: Final = 60.0


@dataclass(frozen=True)
class Checkpoint:
    """A state and how it came about.

    Arguments:
        state: The engine's.
        position: Entries of the input stream that it contains.
        totals: What was counted on the way; a copy, not to be changed any more.
        branch: Which of those entries the state does not come from.
        open_from: The first entry that the model has not learned, of those that it contains: a
            batch set aside, which a rollback forgets. None where there is none.
        ledger: What became of its samples; None where an earlier release did not count.
        gate: Whether what it has learned is served; None without a gate.
        without_raw: Whether the raw samples of the state were let go since.
        written_by: What wrote it first; empty where an earlier release did not say. None for one
            that is yet to be written.
    """

    state: EngineState
    position: Position
    totals: Totals
    branch: Branch = field(default_factory=Branch)
    open_from: str | None = None
    ledger: Ledger | None = None
    gate: Gate | None = None
    without_raw: bool = False
    written_by: str | None = None

    @property
    def first_not_held(self) -> str:
        """The first entry that a rollback to this state drops."""
        return self.open_from or next_id(self.position.last_entry_id)


@dataclass(frozen=True)
class Saved:
    """A checkpoint that is on disk now, and was read back."""

    file: str
    position: Position
    seconds: float
    time: float  # Unix seconds
    nbytes: int
    samples: tuple[str, int] = ("0-0", 0)  # since which entry they are counted, and how many


class Saver:
    """Writes checkpoints of one engine and reads them back.

    Arguments:
        checkpoints: Where they are.
        engine: Whose states they are.
        thread: Of one worker, on which bytes are made; shared by several, or one's own.
        saving: Is entered for as long as a write takes.
        pins: Takes, on that thread, the versions that stay and those that could go, and gives
            which of the latter an accepted rollback names that is still to come.
    """

    def __init__(
        self,
        checkpoints: CheckpointStore,
        engine: Engine,
        thread: ThreadPoolExecutor | None = None,
        saving: Callable[[], AbstractContextManager[None]] = nullcontext,
        pins: Pins = nothing_pinned,
    ) -> None:
        self._checkpoints = checkpoints
        self._saving = saving
        self._pins = pins
        self._engine = engine
        self._written_by = written_by(engine.config, engine.device)
        self._shared = thread is not None
        self._thread = thread or ThreadPoolExecutor(1, "gmr-checkpoints")
        self._pending: deque[Future[Saved | None]] = deque()
        self._newest: int | None = None  # version of the last one asked for
        self._parent: int | None = None  # the version that one grew from
        self._origin: str | None = None  # of the next one, where it does not grow from the last
        self._told: tuple[int, str] | None = None  # version, and how that one came about
        self._gone_back_to: dict[int, int] = {}  # of the latest rollbacks, as `prune` takes it
        self.error: str | None = None
        self.checkpoint_time: float | None = None  # of the newest on disk, Unix seconds
        self.nbytes = 0  # of that one
        self.unsaved_since: float | None = None
        """When the first entry came, Unix seconds, while no checkpoint is on disk."""

    # Writing --------------------------------------------------------------------

    def save(
        self, checkpoint: Checkpoint, *, before_boundary: int | None = None, twin: bool = False
    ) -> None:
        """Write a state down in the background.

        Arguments:
            checkpoint: What to write.
            before_boundary: Number of the boundary that comes right after it.
            twin: Whether it was written down before, and this is the second file of it.
        """
        state, position = checkpoint.state, checkpoint.position
        if state.model.version != self._newest:
            self._parent, self._newest = self._newest, state.model.version
        if self._origin is not None:
            self._told, self._origin = (state.model.version, self._origin), None
        origin_known = self._told is not None and self._told[0] == state.model.version
        note: dict[str, Any] = {
            "version": state.model.version,
            "parent": self._parent,
            "origin": self._told[1] if self._told is not None and origin_known else "learned",
            "time": time.time(),
            "entries_applied": position.entries_applied,
            "last_entry_id": position.last_entry_id,
            "sub_task": state.sub_task.number,
            "samples_seen": state.model.samples_seen,
            "batches_seen": state.model.batches_seen,
            "classes": len(state.model.classes),
            WRITTEN_BY: self._written_by,
        }
        if before_boundary is not None:
            note[BEFORE_BOUNDARY] = before_boundary
        if checkpoint.gate is not None and checkpoint.gate.hold is not None:
            note[HELD] = checkpoint.gate.hold.version
        if self._gone_back_to:
            note[GONE_BACK_TO] = [[*pair] for pair in self._gone_back_to.items()]
        self._pending.append(self._thread.submit(self._write, checkpoint, note, twin))

    def restored(self, version: int | None, origin: str, entries_applied: int) -> None:
        """Say that the next state saved does not grow from the last one saved.

        Arguments:
            version: The kept version that it grows from; None for one from elsewhere.
            origin: "rollback" or "checkpoint".
            entries_applied: With the entry that asked for it.
        """
        if version is not None:
            # Read again, the entry must find the version again.
            latest = [*self._gone_back_to.items(), (version, entries_applied)][-MOST_GONE_BACK_TO:]
            self._gone_back_to = dict(latest)
        self._parent = self._newest = version
        self._origin = origin

    def read(self, entry_id: str) -> None:
        """An entry is part of the state."""
        if self.checkpoint_time is None and self.unsaved_since is None:
            self.unsaved_since = came_at_ms(entry_id) / 1000

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return any(not future.done() for future in self._pending)

    def finished(self) -> list[Saved]:
        """The checkpoints that came to disk since the last call, oldest first."""
        saved = []
        while self._pending and self._pending[0].done():
            one = self._pending.popleft().result()
            if one is not None:
                saved.append(one)
                self.checkpoint_time, self.nbytes = one.time, one.nbytes
                self.unsaved_since = None
        return saved

    def wait(self) -> None:
        """Return when every write asked for is done."""
        wait(self._pending, FINAL_WAIT_S)

    def close(self) -> None:
        """Finish what is under way."""
        if self._shared:
            wait(self._pending, FINAL_WAIT_S)
        else:
            self._thread.shutdown()

    def dump(self, checkpoint: Checkpoint, names: Sequence[str] | None = None) -> bytes:
        """A state as the bytes of a checkpoint.

        Arguments:
            checkpoint: The state.
            names: Of its features, where it is sent away; they are no part of the state.
        """
        return self._dump(checkpoint, self._engine.config, names)

    def _dump(
        self, checkpoint: Checkpoint, config: EngineConfig, names: Sequence[str] | None = None
    ) -> bytes:
        metadata = {
            "last_entry_id": checkpoint.position.last_entry_id,
            "entries_applied": str(checkpoint.position.entries_applied),
            "totals": checkpoint.totals.to_json(),
            "branch": checkpoint.branch.to_json().decode(),
            WITHOUT_RAW: json.dumps(checkpoint.without_raw),
        }
        by = self._written_by if checkpoint.written_by is None else checkpoint.written_by
        if by:
            metadata[WRITTEN_BY] = by
        if checkpoint.open_from is not None:
            metadata["open_from"] = checkpoint.open_from
        if checkpoint.ledger is not None:
            metadata["ledger"] = checkpoint.ledger.to_json()
        if checkpoint.gate is not None:
            metadata["gate"] = checkpoint.gate.to_json()
        if names is not None:
            metadata = with_them(metadata, names)
        return dump(checkpoint.state, config, metadata)

    def _write(self, checkpoint: Checkpoint, note: dict[str, Any], twin: bool) -> Saved | None:
        torch.set_num_threads(1)  # beside the one that learns
        started = time.perf_counter()
        position = checkpoint.position
        try:
            with self._saving():
                data = self.dump(checkpoint)
                self._checkpoints.write(
                    data,
                    version=checkpoint.state.model.version,
                    entries_applied=position.entries_applied,
                    note={**note, "bytes": len(data)},
                    twin=twin,
                )
                self._prune()
                self._let_raw_samples_go(checkpoint.state.sub_task.number)
        except Exception as error:
            # Whatever it is: learning goes on, and the next write may succeed.
            told, self.error = self.error, f"checkpoint not written: {error}"
            if self.error != told:
                logger.error(
                    "the checkpoint of entry %s was not written: %s. Learning goes on, and entries "
                    "stay in the stream until one is written.",
                    position.last_entry_id,
                    error,
                    exc_info=not isinstance(error, OSError),  # a full disk says all by its name
                )
            return None
        if self.error is not None:
            logger.info("the checkpoint of entry %s was written", position.last_entry_id)
        self.error = None
        file = f"{checkpoint.state.model.version}-{position.entries_applied}-{twin}"
        ledger = checkpoint.ledger or Ledger()
        samples = ledger.since, ledger.accepted
        seconds = time.perf_counter() - started
        return Saved(file, position, seconds, time.time(), len(data), samples)

    def _prune(self) -> None:
        """Delete what need not be kept, the versions of rollbacks that are still to come apart."""
        done = self._gone_back_to

        def pinned(staying: Collection[int], spare: Collection[int]) -> Collection[int]:
            try:
                to_come = self._pins(staying, spare)
            except GMRError as error:
                logger.warning("no checkpoint is deleted, one of them may be asked for: %s", error)
                return spare
            # In this order: a rollback that was done in between is among those that are done.
            return {*to_come, *dict(self._gone_back_to.items() - done.items())}

        self._checkpoints.prune(done, pinned)

    def _let_raw_samples_go(self, sub_task: int) -> None:
        """Rewrite the kept checkpoints of earlier sub-tasks without their raw samples.

        They serve a rollback only: the newest two are what a restart goes on from.
        """
        for kept in self._checkpoints.kept()[2:]:
            if kept.note.get(WITHOUT_RAW) or kept.note.get("sub_task", sub_task) >= sub_task:
                continue
            try:
                checkpoint, config = self._read(kept)
            except InvalidCheckpoint:
                continue  # whoever asks for it is told
            state = self._engine.without_raw(checkpoint.state)
            bare = replace(checkpoint, state=state, without_raw=True)
            data = self._dump(bare, config)
            self._checkpoints.write(
                data,
                version=kept.version,
                entries_applied=kept.entries_applied,
                note={**kept.note, "bytes": len(data), WITHOUT_RAW: True},
                twin=kept.twin,
            )

    # Reading --------------------------------------------------------------------

    def recover(self) -> Checkpoint | None:
        """The newest state that can be read; None where none was ever kept.

        Raises:
            InvalidSettings: It belongs to another kind of model than the settings ask for, or
                another release wrote it.
            StoreUnavailable: What is kept cannot be read for the moment.
        """
        while found := self._checkpoints.kept():
            kept = found[0]
            for version, applied in kept.note.get(GONE_BACK_TO, ()):
                self._gone_back_to.setdefault(version, applied)
            try:
                checkpoint, config = self._read(kept)
            except StoreUnavailable:
                raise  # whether it is damaged is not known
            except OtherRelease as error:
                # An older one would lack what this one holds, and leaving it out would lose it.
                by = writer_of(kept)
                raise InvalidSettings(
                    f"{kept.place} is whole, and another release wrote it"
                    f"{f' ({by})' if by else ''}: {error} Nothing was "
                    f"changed, and no older checkpoint is taken instead. Start that release, or "
                    f"a later one; or bring a backup of before into another data dir (gmr restore)."
                ) from error
            except (OSError, InvalidCheckpoint) as error:
                logger.error("CHECKPOINT %s IS LEFT OUT: %s", kept.place, error)
                self._checkpoints.leave_out(kept)
                continue
            if (difference := _difference(self._engine.config, config)) is not None:
                then, now = difference
                raise InvalidSettings(
                    f"The checkpoint {kept.place} was made with {then}, but the settings say "
                    f"{now}. Expected the same kind of model: change the settings back, or choose "
                    f"another --data-dir. Where the model has an archive, `gmr rebuild --set` "
                    f"learns it with other settings."
                )
            if config.detector != self._engine.config.detector:
                logger.warning("the detector starts afresh: it was %s before", config.detector)
                fresh = self._engine.watched_anew(checkpoint.state)
                checkpoint = replace(checkpoint, state=fresh)
            self.checkpoint_time, self.nbytes = kept.measure()
            self._newest, self._parent = checkpoint.state.model.version, kept.note.get("parent")
            self._told = checkpoint.state.model.version, str(kept.note.get("origin", "learned"))
            return checkpoint
        return None

    def find(self, version: int) -> Checkpoint:
        """The kept state of a version, and how it came about.

        Raises:
            UnknownVersion: It is not kept.
            InvalidCheckpoint: It belongs to another kind of model.
        """
        self.wait()
        kept = self._checkpoints.kept()
        for one in kept:
            if one.version == version:
                checkpoint, config = self._read(one)
                self._check_kind(config)
                if config.detector != self._engine.config.detector:
                    fresh = self._engine.watched_anew(checkpoint.state)
                    checkpoint = replace(checkpoint, state=fresh)
                return checkpoint
        raise UnknownVersion.among(version, (one.version for one in kept))

    def parse(self, data: bytes) -> tuple[EngineState, tuple[str, ...] | None]:
        """The state in an uploaded checkpoint, and the names of its features, if it has some.

        Raises:
            InvalidCheckpoint: It cannot be read, belongs to another kind of model, or is none
                that an engine can go on from.
        """
        state, config, text = load(data, self._engine.device)
        self._check_kind(config)
        check_values(state)
        return state, names_in(text, state.n_features)

    def try_out(self, state: EngineState) -> None:
        """Return where the engine can go on from a state.

        Raises:
            InvalidCheckpoint: It cannot.
        """
        try:
            try_out(self._engine, state)
        except InvalidCheckpoint:
            raise
        except Exception as error:
            if is_machines(error):
                raise
            raise InvalidCheckpoint(
                f"The checkpoint cannot be gone on from: an attempt ended with "
                f"{type(error).__name__}: {str(error)[:300]}. Nothing was changed. Take another "
                f"copy, or one of the same release."
            ) from error

    def versions(self) -> list[dict[str, Any]]:
        """What is kept, newest first, each version once, as `save` noted it."""
        versions: dict[int, dict[str, Any]] = {}
        for kept in self._checkpoints.kept():
            facts = {"version": kept.version, "entries_applied": kept.entries_applied}
            told = versions.setdefault(kept.version, {**facts, **kept.note})
            twins = told["entries_applied"] == kept.entries_applied
            if twins and BEFORE_BOUNDARY in kept.note:
                # The other file of the version was written before the boundary was known.
                told.setdefault(BEFORE_BOUNDARY, kept.note[BEFORE_BOUNDARY])
        return list(versions.values())

    def _read(self, kept: Kept) -> tuple[Checkpoint, EngineConfig]:
        state, config, metadata = load(kept.read(), self._engine.device)
        try:
            position = Position(metadata["last_entry_id"], int(metadata["entries_applied"]))
            totals = Totals.from_json(metadata["totals"])
            branch = Branch(boundaries=totals.boundaries)  # an earlier release told of none
            if "branch" in metadata:
                branch = Branch.from_json(metadata["branch"])
            ledger = Ledger.from_json(metadata["ledger"]) if "ledger" in metadata else None
            gate = Gate.from_json(metadata["gate"]) if "gate" in metadata else None
        except (KeyError, TypeError, ValueError) as error:
            raise OtherRelease(
                f"The checkpoint does not say how far into the stream it reaches, or what was "
                f"counted until then, as this release has it ({error!r}). Use one that a trainer "
                f"of this release wrote."
            ) from error
        found = Checkpoint(
            state,
            position,
            totals,
            branch,
            open_from=metadata.get("open_from"),
            ledger=ledger,
            gate=gate,
            without_raw=is_without_raw(metadata, kept.note),
            written_by=metadata.get(WRITTEN_BY, ""),
        )
        return found, config

    def _check_kind(self, config: EngineConfig) -> None:
        if (difference := _difference(self._engine.config, config)) is not None:
            then, now = difference
            raise InvalidCheckpoint(
                f"The checkpoint was made with {then}, but the settings say {now}. Expected the "
                f"same kind of model. Load it into a service, or a named model, with {then}."
            )


def is_without_raw(metadata: Mapping[str, str], note: Mapping[str, object]) -> bool:
    """Whether a checkpoint holds no raw sample any more.

    It says so itself. Its note is another file, which may have been read before the checkpoint was
    rewritten.

    Arguments:
        metadata: Of the checkpoint.
        note: Speaks for a checkpoint of a release that wrote it there alone.
    """
    said = metadata.get(WITHOUT_RAW)
    return bool(note.get(WITHOUT_RAW)) if said is None else said == "true"


def _difference(now: EngineConfig, then: EngineConfig) -> tuple[str, str] | None:
    """Why a state made with other settings cannot go on with these: what it has, and what these
    say; None when it can."""
    if then.preset != now.preset:
        return f"preset {then.preset!r}", f"{now.preset!r}"
    if now.facts.grid and then.budget != now.budget:
        return f"{then.budget} components", f"{now.budget}"
    if now.facts.factors and then.n_factors != now.n_factors:
        return f"{then.n_factors} factors", f"{now.n_factors}"
    return None
