"""Makes a model again from its archive, and says whether it is the same, bit for bit.

Or another one: what the archive holds can be learned with other settings.

Rules of this module:

1. Nothing is changed: the service may run meanwhile.
2. Each entry is applied as the trainer applied it, and to nothing but the state. What the trainer
   decided by the clock or by what had died is told by the records: which entries were rejected, and
   to which state a rollback went back.
3. The state is compared with the checkpoint in which each later part begins, and with all that the
   data dir keeps. Where the two differ, the rest rests on what was made again; but where another
   state of the code has learned what came before, which explains it, on what that has learned.
   So each state of the code answers for what it has learned itself.
4. Where entries are missing, or one cannot be applied, nothing can be made across them: it begins
   anew with the next part. What was made last counts.
5. With other settings there is nothing to compare with, and no state of the archive to begin with.
   All entries that are there are learned, in order. Those that are about the old model are left
   out, and counted: uploads, names of proposals that the new model has not made, and whatever else
   it refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from core.config import EngineConfig
from core.counted import counted
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.errors import GMRError, InvalidCheckpoint, InvalidSettings
from service.archive.parts import ARCHIVE, Stretch, parts_in, timeline
from service.archive.record import Record
from service.atomic_write import write_atomically
from service.settings import Settings
from service.store.in_folder import KeptFile, kept_in
from service.trainer.device import choose_device
from service.trainer.effects import Asked, effect
from service.trainer.provenance import WRITTEN_BY, written_by
from service.trainer.saver import is_without_raw
from service.wire import Control, Limits, RawBatch, read_entry


@dataclass(frozen=True)
class Comparison:
    """A state that was kept, beside the one that was made again.

    Arguments:
        place: Where it is kept.
        entries_applied: Entries that it contains.
        version: Of the model in it.
        equal: Whether the two are the same, bit for bit.
        others: What else than this code has learned some of it, since the two were the same, or
            has written it; empty text for an earlier release, which did not say what it was.
    """

    place: str
    entries_applied: int
    version: int
    equal: bool
    others: tuple[str, ...] = ()

    @property
    def explained(self) -> bool:
        """Whether the two may differ, and do."""
        return not self.equal and bool(self.others)


@dataclass
class Rebuilt:
    """What was made again.

    Arguments:
        begins: Entries that the state contains from which it was made; 0 for nothing.
        entries_applied: Entries that the newest state contains.
        rejected: Those that were dead letters.
        missing: Entries that an archive does not have, between its parts.
        comparisons: With what was kept, in the order of entries.
        notes: What did not go as the records say.
        went_over: Whether the state that it begins with was taken from another state of the code,
            which has learned what came before.
        changes: Settings that the model has in place of its own.
        left_out: Entries that could not be used with these.
        state: The newest.
        config: Of the model.
        code: That has made it.
    """

    begins: int = 0
    entries_applied: int = 0
    rejected: int = 0
    missing: int = 0
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    went_over: bool = False
    changes: Mapping[str, object] = field(default_factory=dict)
    left_out: int = 0
    state: EngineState | None = None
    config: EngineConfig | None = None
    code: str = ""

    @property
    def equal(self) -> bool | None:
        """Whether it is the same as all that was kept; None where there was nothing to compare."""
        return all(one.equal for one in self.comparisons) if self.comparisons else None

    @property
    def explained(self) -> bool | None:
        """Whether nothing differs but what another state of the code has learned; None where
        nothing differs."""
        differing = [one for one in self.comparisons if not one.equal]
        return all(one.explained for one in differing) if differing else None

    @property
    def well(self) -> bool:
        """Whether nothing wants attention."""
        return self.explained is not False and not self.notes

    def described(self) -> list[str]:
        """Its facts in words, a line each."""
        model = None if self.state is None else self.state.model
        entries = counted(self.entries_applied - self.begins, "entry", "entries")
        lines = []
        if model is not None:
            lines.append(
                f"made again: version {model.version}, {counted(model.samples_seen, 'sample')}, "
                f"from {entries}, of which {self.rejected} became dead letters"
            )
        if self.changes:
            told = ", ".join(f"{name} = {value}" for name, value in self.changes.items())
            lines.append(f"another model, with {told}: compared with nothing")
            return lines + [f"LOOK  {note}" for note in self.notes]
        if self.went_over:
            lines.append(
                f"gone on from the checkpoint of entry {self.begins}, up to which other code or "
                f"another processor has learned"
            )
        elif self.begins:
            lines.append(
                f"begun with the checkpoint of entry {self.begins}, the first in the archive"
                + (f"; {self.missing} are missing before it" if self.missing else "")
            )
        for one in self.comparisons:
            verdict = "the same, bit for bit" if one.equal else "ANOTHER ONE"
            if one.explained:
                verdict = "another one, as other code or another processor has learned some of it"
            at = f"entry {one.entries_applied}, version {one.version}"
            lines.append(f"{at}: {verdict} ({one.place})")
        if not self.comparisons:
            lines.append("compared with nothing: no checkpoint is kept of what the archive reaches")
        others = {other for one in self.comparisons if one.explained for other in one.others}
        if others:
            named = (by or "an earlier release, which did not say what it was" for by in others)
            lines += [f"the other: {by}" for by in sorted(named)]
            lines.append(f"this one: {self.code}")
        if self.explained is False:
            lines.append(
                "LOOK  this code has learned that on this kind of processor, and should make the "
                "same model again: look after the memory and the disk, and whether the service had "
                "other GMR_TRAINER_THREADS"
            )
        return lines + [f"LOOK  {note}" for note in self.notes]

    def write(self, path: Path) -> None:
        """Put the newest state into a file, as a checkpoint.

        Raises:
            InvalidSettings: It cannot be written.
        """
        try:
            write_atomically(path, self.to_bytes(), durable=True)
            path.chmod(0o600)  # it may hold raw samples
        except OSError as error:
            raise InvalidSettings(
                f"{path} cannot be written ({error.strerror or error}). Make room, or name another "
                f"place."
            ) from error

    def to_bytes(self) -> bytes:
        """The newest state as a checkpoint, as `PUT /model/checkpoint` takes it."""
        assert self.state is not None
        assert self.config is not None
        return dump(self.state, self.config, {WRITTEN_BY: self.code})

    def to_json(self) -> dict[str, Any]:
        """Its facts."""
        model = None if self.state is None else self.state.model
        return {
            "begins": self.begins,
            "entries_applied": self.entries_applied,
            "entries_rejected": self.rejected,
            "entries_missing": self.missing,
            "entries_left_out": self.left_out,
            "changes": dict(self.changes),
            "version": None if model is None else model.version,
            "samples_seen": None if model is None else model.samples_seen,
            "equal": self.equal,
            "explained": self.explained,
            "code": self.code,
            "compared": [vars(one) for one in self.comparisons],
            "notes": self.notes,
        }


def set_up(settings: Settings) -> None:
    """Let this process compute as a trainer does, on which the last bits depend."""
    torch.set_num_threads(settings.trainer_threads)
    torch.set_flush_denormal(True)


def rebuild(settings: Settings, changes: Mapping[str, object] | None = None) -> Rebuilt:
    """Make the model of the settings again from the archive in its data dir.

    Arguments:
        settings: Of the model.
        changes: Settings of the engine that are to be others; values may be text.

    Raises:
        InvalidSettings: There is no archive, nothing of it can be read, or a change is no setting
            of what is learned.
    """
    folder = settings.data_dir / ARCHIVE
    checkpoints = settings.data_dir / "checkpoints"
    # These first: an archive that is written meanwhile has what they hold.
    kept = kept_in(checkpoints) if checkpoints.is_dir() else []
    stretches = timeline(parts_in(folder))
    if not stretches:
        raise InvalidSettings(
            f"{folder} holds no archive. A trainer keeps one while GMR_ARCHIVE_MIB is set; what it "
            f"read before cannot be had any more."
        )
    wanted = {one.entries_applied for one in kept} | _wanted(stretches)
    again = _Remaking(settings, wanted, changes) if changes else _Rebuilding(settings, wanted)
    for stretch in stretches:
        again.add(stretch)
    again.compare(kept)
    again.look_beyond(kept, stretches[-1].ends)
    if again.done.state is None:
        raise InvalidSettings(
            f"Nothing of the archive in {folder} can be read: {'; '.join(again.done.notes)}."
        )
    return again.done


def _wanted(stretches: list[Stretch]) -> set[int]:
    """How far the states reach to which rollbacks go back."""
    records = (record for stretch in stretches for record in stretch.records())
    return {record.back_to for record in records if record.back_to is not None}


class _Rebuilding:
    """A model on its way.

    Arguments:
        settings: Of the model.
        wanted: Entries applied of the states that are asked for later.
    """

    def __init__(self, settings: Settings, wanted: set[int]) -> None:
        self.done = Rebuilt()
        self._limits = Limits(settings.max_samples, settings.max_features)
        self._device = choose_device(settings.device)
        self._wanted = wanted
        self._states: dict[int, EngineState] = {}
        self._watched_by: dict[int, str] = {}  # the detector of each
        self._learned_by: dict[int, frozenset[str]] = {}  # what else than this code, of each
        self._others: frozenset[str] = frozenset()  # of the state as it stands
        self._went_over_at: set[int] = set()
        self._engine: Engine | None = None
        self._n = 0
        self._stuck = False  # at an entry that cannot be applied

    def add(self, stretch: Stretch) -> None:
        """Go on by one stretch of the archive."""
        done, part = self.done, stretch.part
        goes_on = done.state is not None and not self._stuck and self._n == part.begins
        try:
            base, config, metadata = load(part.base.read_bytes(), self._device)
        except (OSError, InvalidCheckpoint) as error:
            done.notes.append(f"{part.base} cannot be read: {error}")
            if not goes_on:
                return
            # What was made again stands in for it.
        else:
            # Whoever began a part wrote all of it.
            others = self._but_this(metadata, config)
            if goes_on:
                self._meet(base, config, part.base, others)
            else:
                if done.state is not None and not self._stuck:
                    done.missing += part.begins - self._n
                self._begin(base, config, part.begins)
            self._others = others
        for records in _together(stretch.records()):
            if not self._apply(records):
                self._stuck = True
                return

    def compare(self, kept: list[KeptFile]) -> None:
        """Compare what was made again with what is kept."""
        assert self._engine is not None or self.done.state is None
        found = []
        for one, state in self._met(kept):
            try:
                there, config, metadata = load(one.read(), self._device)
            except (OSError, InvalidCheckpoint):  # pruned since, or for `gmr doctor` to tell
                continue
            if is_without_raw(metadata, one.note):
                assert self._engine is not None
                state, there = self._engine.without_raw(state), self._engine.without_raw(there)
            facts = one.place, one.entries_applied, one.version
            others = self._learned_by[one.entries_applied] | self._but_this(metadata, config)
            equal = _same(state, there, config)
            found.append(Comparison(*facts, equal=equal, others=tuple(sorted(others))))
        self.done.comparisons += sorted(found, key=lambda one: one.entries_applied)

    def look_beyond(self, kept: list[KeptFile], ends: int) -> None:
        """Say how much of what is kept lies behind the end of the archive."""
        newest = max((one.entries_applied for one in kept), default=0)
        if newest > ends:
            lacks = counted(newest - ends, "entry", "entries")
            self.done.notes.append(
                f"the archive ends with entry {ends}: {lacks} of the newest checkpoint "
                f"({newest}) came while it was switched off, could not be written, or was damaged. "
                f"What was made again is without them."
            )

    def _met(self, kept: list[KeptFile]) -> Iterator[tuple[KeptFile, EngineState]]:
        for one in kept:
            # Where this went over, the state was taken, not made.
            state = self._states.get(one.entries_applied)
            if state is not None and one.entries_applied not in self._went_over_at:
                yield one, state

    def _but_this(self, metadata: Mapping[str, str], config: EngineConfig) -> frozenset[str]:
        """What wrote a checkpoint, where that was not this code."""
        return frozenset({metadata.get(WRITTEN_BY, "")}) - {written_by(config, self._device)}

    def _begin(self, base: EngineState, config: EngineConfig, begins: int) -> None:
        self._engine = Engine(config, self._device)
        self._states.clear()
        self._went_over_at.clear()
        self._stuck = False
        self.done.begins, self.done.rejected, self.done.config = begins, 0, config
        self.done.code = written_by(config, self._device)
        self.done.went_over, self._others = False, frozenset()
        self._reach(base, begins)

    def _meet(
        self, base: EngineState, config: EngineConfig, place: Path, others: frozenset[str]
    ) -> None:
        """Compare with the state in which a part begins, and go on with its settings."""
        done = self.done
        assert done.state is not None
        assert done.config is not None
        state = done.state
        self._engine = Engine(config, self._device)
        if config.detector != done.config.detector:
            state = self._engine.watched_anew(state)
        done.config, done.code = config, written_by(config, self._device)
        met = Comparison(
            str(place),
            self._n,
            base.model.version,
            equal=_same(state, base, config),
            others=tuple(sorted(self._others | others)),
        )
        done.comparisons.append(met)
        if met.explained:
            state, done.begins, done.rejected, done.went_over = base, self._n, 0, True
            self._went_over_at.add(self._n)
        self._others = frozenset()
        self._reach(state, self._n)

    def _reach(self, state: EngineState, n: int) -> None:
        self.done.state, self._n, self.done.entries_applied = state, n, n
        if n in self._wanted:
            assert self._engine is not None
            self._states[n], self._watched_by[n] = state, self._engine.config.detector
            self._learned_by[n] = self._others

    def _apply(self, records: list[Record]) -> bool:
        """Apply what was applied together; whether one can go on."""
        state, engine, last = self.done.state, self._engine, records[-1]
        assert state is not None
        assert engine is not None
        if last.rejected:
            self.done.rejected += 1
        else:
            try:
                state = self._after(engine, state, records)
            except GMRError as error:
                self.done.notes.append(
                    f"entry {last.entry_id} was applied and cannot be now: {error}"
                )
                return False
        self._reach(state, last.n)
        return True

    def _after(self, engine: Engine, state: EngineState, records: list[Record]) -> EngineState:
        parts = [read_entry(dict(one.fields), self._limits) for one in records]
        batches = [one for one in parts if isinstance(one, RawBatch)]
        asked, record = RawBatch.joined(batches) if len(batches) > 1 else parts[0], records[0]
        kind = asked.kind if isinstance(asked, Control) else None
        if kind == "rollback":
            if record.back_to is None:
                return state
            kept = self._states.get(record.back_to)
            if kept is None:
                raise InvalidCheckpoint(
                    f"it went back to the state after {counted(record.back_to, 'entry', 'entries')}"
                    f", which the archive does not reach"
                )
            self._others |= self._learned_by[record.back_to]
            kept = engine.without_raw(kept) if record.without_raw else kept
            if self._watched_by[record.back_to] != engine.config.detector:
                kept = engine.watched_anew(kept)
            return engine.restore(state, kept, "rollback")[0]
        if isinstance(asked, Control) and kind == "restore":
            return engine.restore(state, self._uploaded(asked), "checkpoint")[0]
        return self._effect(engine, state, asked)

    def _effect(self, engine: Engine, state: EngineState, asked: Asked) -> EngineState:
        return effect(engine, state, asked)[0]

    def _uploaded(self, asked: Control) -> EngineState:
        return load(asked.checkpoint or b"", self._device)[0]


class _Remaking(_Rebuilding):
    """A model with other settings on its way.

    Arguments:
        settings: Of the model that the archive is of.
        wanted: Entries applied of the states that are asked for later.
        changes: As for `rebuild`.
    """

    def __init__(self, settings: Settings, wanted: set[int], changes: Mapping[str, object]) -> None:
        super().__init__(settings, wanted)
        self._settings = settings
        self.done.changes = dict(changes)

    def add(self, stretch: Stretch) -> None:
        """Go on by one stretch of the archive."""
        done, part = self.done, stretch.part
        if self._engine is None:
            try:
                _, config, _ = load(part.base.read_bytes(), self._device)
            except (OSError, InvalidCheckpoint) as error:
                done.notes.append(f"{part.base} cannot be read: {error}")
                return
            config = _changed(config, self._settings, done.changes)
            self._begin(Engine(config, self._device).start(), config, part.begins)
            done.missing = part.begins
        else:
            done.missing += max(0, part.begins - self._n)
        for records in _together(stretch.records()):
            self._apply(records)

    def compare(self, kept: list[KeptFile]) -> None:
        """Nothing was kept of such a model; say what it lacks."""
        done = self.done
        if done.missing:
            lacks = counted(done.missing, "entry", "entries")
            done.notes.append(f"{lacks} that the archive does not have could not be learned.")
        if done.left_out:
            lacks = counted(done.left_out, "entry", "entries")
            done.notes.append(
                f"{lacks} could not be used with these settings: uploads, names of proposals that "
                f"this model has not made, or what it refuses."
            )

    def _apply(self, records: list[Record]) -> bool:
        notes = len(self.done.notes)
        if not super()._apply(records):
            del self.done.notes[notes:]
            self.done.left_out += len(records)
            assert self.done.state is not None
            self._reach(self.done.state, records[-1].n)
        return True

    def _effect(self, engine: Engine, state: EngineState, asked: Asked) -> EngineState:
        if isinstance(asked, Control) and asked.kind == "settings":
            # What this model is to have otherwise, nobody asked for of it.
            own = {
                name: value
                for name, value in (asked.settings or {}).items()
                if name not in self.done.changes
            }
            asked = replace(asked, settings=own)
        return super()._effect(engine, state, asked)

    def _uploaded(self, asked: Control) -> EngineState:
        raise InvalidCheckpoint("an upload is a state of the old model")


def _changed(
    config: EngineConfig, settings: Settings, changes: Mapping[str, object]
) -> EngineConfig:
    """A configuration with other settings.

    Raises:
        InvalidSettings: One says nothing of what is learned, or has a value that will not do.
    """
    parsed = settings.for_model("again", changes).engine_config()
    learned = {one.name for one in fields(EngineConfig)}
    others = sorted(set(changes) - learned)
    if others:
        raise InvalidSettings(
            f"{others[0]} says nothing of what is learned. Expected a setting of the engine, as "
            f"preset or n_components. Leave it out."
        )
    of_preset: dict[str, Any] = {}
    if parsed.preset != config.preset and "preset" in changes:
        # What was chosen for another one is no choice for this.
        usual = EngineConfig(preset=parsed.preset)
        of_preset = {"n_components": None, "n_factors": usual.n_factors, "replay": usual.replay}
    own = {name: getattr(parsed, name) for name in changes}
    return replace(config, **{**of_preset, **own})


def _together(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Records of entries that were applied together; not those that a kill has cut short."""
    group: list[Record] = []
    for record in records:
        group.append(record)
        if len(group) == record.joined:
            yield group
            group = []


def _same(some: EngineState, other: EngineState, config: EngineConfig) -> bool:
    """Whether two states are the same, bit for bit."""
    return dump(some, config, {}) == dump(other, config, {})
