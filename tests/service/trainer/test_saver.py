"""Tests for the service.trainer.saver module, with a real engine."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from core.batch import Batch
from core.config import EngineConfig
from core.engine.checkpoint import FORMAT
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.errors import InvalidCheckpoint, InvalidSettings, UnknownVersion
from core.tensors import pack, unpack
from service.broker.connection import StreamUnavailable
from service.broker.entries import Position
from service.store.in_folder import FolderCheckpoints
from service.store.kept import BEFORE_BOUNDARY
from service.trainer.provenance import WRITTEN_BY, written_by
from service.trainer.saver import Checkpoint, Saver
from service.trainer.totals import Totals
from tests.core.states import assert_identical

CONFIG = EngineConfig(n_components=3, warm_up=10)


@pytest.fixture
def checkpoints(tmp_path: Path) -> FolderCheckpoints:
    return FolderCheckpoints(tmp_path)


def learned(n: int, config: EngineConfig = CONFIG, state: EngineState | None = None) -> EngineState:
    """A state that has learned n batches (more)."""
    engine = Engine(config)
    state = state or engine.start()
    generator = torch.Generator().manual_seed(state.stream.batches)
    for _ in range(n):
        features = torch.rand(20, 4, generator=generator)
        state, _ = engine.step(state, Batch.of(features, [0, 1] * 10))
    return state


def checkpoint(state: EngineState, entries: int) -> Checkpoint:
    return Checkpoint(state, Position(f"{entries}-0", entries), Totals(samples_learned=entries))


def same(a: EngineState, b: EngineState) -> bool:
    engine = Engine(CONFIG)
    return engine.snapshot(a).to_bytes({}) == engine.snapshot(b).to_bytes({})


def test_the_newest_state_is_found_again_with_how_it_came_about(
    checkpoints: FolderCheckpoints,
) -> None:
    keeper = Saver(checkpoints, Engine(CONFIG))
    for n in (1, 2, 3):
        keeper.save(checkpoint(learned(n), n))
    keeper.wait()
    assert [saved.position.entries_applied for saved in keeper.finished()] == [1, 2, 3]
    assert keeper.finished() == []
    assert not keeper.busy
    keeper.close()

    recovered = Saver(checkpoints, Engine(CONFIG)).recover()
    assert recovered is not None
    assert recovered.position == Position("3-0", 3)
    assert recovered.totals == Totals(samples_learned=3)
    assert same(recovered.state, learned(3))
    assert same(learned(2, state=recovered.state), learned(2, state=learned(3)))


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_a_version_is_the_one_before_a_boundary_whichever_of_its_files_says_so(
    checkpoints: FolderCheckpoints, order: tuple[bool, bool]
) -> None:
    keeper, state = Saver(checkpoints, Engine(CONFIG)), learned(2)
    for twin in order:
        keeper.save(checkpoint(state, 2), before_boundary=None if twin else 1, twin=twin)
    keeper.close()
    [version] = keeper.versions()
    assert version[BEFORE_BOUNDARY] == 1


def test_where_nothing_was_kept_nothing_is_found(checkpoints: FolderCheckpoints) -> None:
    assert Saver(checkpoints, Engine(CONFIG)).recover() is None


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "other"])
def test_a_damaged_checkpoint_is_left_out_loudly(
    checkpoints: FolderCheckpoints, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Saver(checkpoints, Engine(CONFIG))
    for n in (1, 2):
        keeper.save(checkpoint(learned(n), n))
    keeper.close()
    newest = checkpoints.kept()[0].path
    data = bytearray(newest.read_bytes())
    match damage:
        case "cut":
            del data[len(data) // 2 :]
        case "flip":
            data[-5] ^= 1
        case "empty":
            data.clear()
        case "other":
            data[:] = Engine(CONFIG).snapshot(learned(2)).to_bytes({})
    newest.write_bytes(data)

    with caplog.at_level(logging.ERROR):
        recovered = Saver(checkpoints, Engine(CONFIG)).recover()
    assert recovered is not None
    assert recovered.position.entries_applied == 1
    assert newest.name in caplog.text


@pytest.mark.parametrize("later", ["format", "state", "totals"])
def test_no_checkpoint_is_lost_to_a_release_that_cannot_read_it(
    checkpoints: FolderCheckpoints, later: str
) -> None:
    keeper = Saver(checkpoints, Engine(CONFIG))
    for n in (1, 2, 3):
        keeper.save(checkpoint(learned(n), n))
    keeper.close()
    for kept in checkpoints.kept()[:2]:
        tensors, text = unpack(FORMAT, kept.read())
        if later != "format":
            text[later] = json.dumps(json.loads(text[later]) | {"invented": 1})
        format = "gmr-checkpoint-999" if later == "format" else FORMAT
        kept.path.write_bytes(pack(format, tensors, text))
    there = sorted(checkpoints.directory.iterdir())
    whole = r"3-3\.safetensors is whole, and another release"
    with pytest.raises(InvalidSettings, match=whole) as refused:
        Saver(checkpoints, Engine(CONFIG)).recover()
    line = written_by(CONFIG, torch.device("cpu"))
    # Of another format nothing is known.
    assert (f"another release wrote it ({line}): " in str(refused.value)) == (later != "format")
    assert sorted(checkpoints.directory.iterdir()) == there


def lines_in(checkpoints: FolderCheckpoints) -> list[tuple[str | None, str | None]]:
    """What checkpoints and their notes say of what has written them, newest first."""
    return [
        (unpack(FORMAT, kept.read())[1].get(WRITTEN_BY), kept.note.get(WRITTEN_BY))
        for kept in checkpoints.kept()
    ]


def test_a_checkpoint_says_what_has_written_it_and_is_the_same_bytes_again(
    checkpoints: FolderCheckpoints, tmp_path: Path
) -> None:
    again = FolderCheckpoints(tmp_path / "again")
    for place in (checkpoints, again):
        keeper = Saver(place, Engine(CONFIG))
        keeper.save(checkpoint(learned(2), 2))
        keeper.close()
    line = written_by(CONFIG, torch.device("cpu"))
    assert lines_in(checkpoints) == [(line, line)]
    assert keeper.versions()[0][WRITTEN_BY] == line
    assert checkpoints.kept()[0].read() == again.kept()[0].read()


@pytest.mark.parametrize("wrote", ["0.0.9 of another state", None])
def test_what_wrote_a_checkpoint_first_is_still_known_when_it_is_written_anew(
    checkpoints: FolderCheckpoints, monkeypatch: pytest.MonkeyPatch, wrote: str | None
) -> None:
    def save(n: int, state: EngineState) -> Saver:
        keeper = Saver(checkpoints, Engine(CONFIG))
        keeper.save(checkpoint(state, n), before_boundary=n)
        keeper.close()
        return keeper

    with monkeypatch.context() as before:
        # An earlier release had no such line.
        before.setattr("service.trainer.saver.written_by", lambda *_: wrote or "")
        save(1, learned(1))
    if wrote is None:
        [old] = checkpoints.kept()
        assert WRITTEN_BY not in unpack(FORMAT, old.read())[1]
    for n in (2, 3, 4):
        state = learned(n)
        keeper = save(n, replace(state, sub_task=replace(state.sub_task, number=1)))
    kept = checkpoints.kept()[-1]
    assert (kept.version, kept.note["without_raw"]) == (1, True)
    line = written_by(CONFIG, torch.device("cpu"))
    assert [of_file for of_file, _ in lines_in(checkpoints)] == [line, line, line, wrote]
    # So it is in a copy that somebody asks for.
    assert unpack(FORMAT, keeper.dump(keeper.find(1)))[1].get(WRITTEN_BY) == wrote


def test_a_full_disk_is_told_once_in_a_line_until_there_is_room(
    checkpoints: FolderCheckpoints,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def full(*anything: object, **more: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    keeper = Saver(checkpoints, Engine(CONFIG))
    with caplog.at_level(logging.INFO):
        with monkeypatch.context() as patched:
            patched.setattr(checkpoints, "write", full)
            for n in (1, 2, 3):
                keeper.save(checkpoint(learned(n), n))
                keeper.wait()
        assert keeper.error == "checkpoint not written: [Errno 28] No space left on device"
        [said] = caplog.records
        assert "entry 1-0 was not written: [Errno 28] No space left on device." in said.message
        assert "Traceback" not in caplog.text
        keeper.save(checkpoint(learned(4), 4))
        keeper.close()
    assert keeper.error is None
    assert "entry 4-0 was written" in caplog.records[-1].message


def test_a_state_of_another_kind_of_model_is_refused(checkpoints: FolderCheckpoints) -> None:
    paper = replace(CONFIG, preset="paper", n_components=4)
    keeper = Saver(checkpoints, Engine(CONFIG))
    keeper.save(checkpoint(learned(1), 1))
    keeper.close()
    other = Saver(checkpoints, Engine(paper))
    with pytest.raises(InvalidSettings, match="preset 'mfa'"):
        other.recover()
    with pytest.raises(InvalidCheckpoint, match="preset 'mfa'"):
        other.find(1)
    with pytest.raises(InvalidCheckpoint, match="preset 'mfa'"):
        other.parse(keeper.dump(checkpoint(learned(1), 1)))


def test_another_detector_starts_afresh_on_the_same_model(checkpoints: FolderCheckpoints) -> None:
    keeper = Saver(checkpoints, Engine(CONFIG))
    keeper.save(checkpoint(learned(3), 3))
    keeper.close()
    config = replace(CONFIG, detector="paper")
    recovered = Saver(checkpoints, Engine(config)).recover()
    assert recovered is not None
    assert recovered.state.model.version == 3
    learned(2, config, recovered.state)  # it goes on
    found = Saver(checkpoints, Engine(config)).find(3)
    assert_identical(found.state.watch, recovered.state.watch)


def test_a_kept_version_is_found_by_its_number(checkpoints: FolderCheckpoints) -> None:
    keeper = Saver(checkpoints, Engine(CONFIG))
    keeper.save(checkpoint(learned(1), 1))
    keeper.save(checkpoint(learned(2), 2))
    assert same(keeper.find(1).state, learned(1))
    with pytest.raises(UnknownVersion, match="Kept are 2, 1"):
        keeper.find(7)
    keeper.close()


def test_versions_that_rollbacks_ask_for_are_kept_until_these_are_done(
    checkpoints: FolderCheckpoints, caplog: pytest.LogCaptureFixture
) -> None:
    asked: set[int] = {1, 2}
    away = False

    def pinned(staying: Collection[int], spare: Collection[int]) -> Collection[int]:
        assert not {*staying} & {*spare}
        if away:
            raise StreamUnavailable("Redis is away.")
        return asked & {*spare}

    def kept() -> set[int]:
        keeper.wait()
        return {one["version"] for one in keeper.versions()}

    keeper = Saver(checkpoints, Engine(CONFIG), pins=pinned)
    for n in range(1, 6):
        keeper.save(checkpoint(learned(n), n))
    assert kept() == {1, 2, 3, 4, 5}
    keeper.restored(1, "rollback", 6)
    asked -= {1, 2}
    keeper.save(checkpoint(learned(6), 6))
    assert kept() == {1, 4, 5, 6}  # the entry may be read again
    away = True
    for n in (7, 8):
        keeper.save(checkpoint(learned(n), n))
    assert kept() == {1, 4, 5, 6, 7, 8}  # one of them may be asked for
    assert "may be asked for" in caplog.text
    away = False
    keeper.save(checkpoint(learned(9), 9))
    assert kept() == {7, 8, 9}
    keeper.close()


def test_a_rollback_that_is_done_while_versions_are_let_go_of_keeps_its_own(
    checkpoints: FolderCheckpoints,
) -> None:
    def pinned(staying: Collection[int], spare: Collection[int]) -> Collection[int]:
        if 1 in spare:  # it is decided now, and so no longer held
            keeper.restored(1, "rollback", 6)
        return ()

    keeper = Saver(checkpoints, Engine(CONFIG), pins=pinned)
    for n in range(1, 5):
        keeper.save(checkpoint(learned(n), n))
    keeper.close()
    assert {one["version"] for one in keeper.versions()} == {1, 2, 3, 4}


def test_versions_tell_their_lineage(checkpoints: FolderCheckpoints) -> None:
    keeper = Saver(checkpoints, Engine(CONFIG))
    first, second = learned(1), learned(2)
    keeper.save(checkpoint(first, 1), before_boundary=1)
    keeper.save(checkpoint(second, 2))
    keeper.save(checkpoint(second, 3))  # only the position moved
    keeper.restored(first.model.version, "rollback", 4)
    keeper.save(checkpoint(first, 4))
    third = learned(1, state=first).with_model(version=9)
    keeper.save(checkpoint(third, 5))
    keeper.close()
    lineage = {
        version["version"]: (version["parent"], version["origin"], version.get(BEFORE_BOUNDARY))
        for version in keeper.versions()
    }
    assert lineage == {
        9: (1, "learned", None),
        1: (1, "rollback", None),
        2: (1, "learned", None),
    }


def test_a_version_that_came_from_elsewhere_is_called_so_however_often_it_is_saved(
    checkpoints: FolderCheckpoints,
) -> None:
    def origins(keeper: Saver) -> dict[int, str]:
        keeper.wait()
        return {version["version"]: version["origin"] for version in keeper.versions()}

    keeper = Saver(checkpoints, Engine(CONFIG))
    keeper.save(checkpoint(learned(1), 1))
    fresh = learned(0).with_model(version=2)
    keeper.restored(None, "checkpoint", 2)
    keeper.save(checkpoint(fresh, 2))
    keeper.save(checkpoint(fresh, 3))  # only the position moved
    assert origins(keeper) == {1: "learned", 2: "checkpoint"}
    keeper.close()
    keeper = Saver(checkpoints, Engine(CONFIG))  # after a restart
    keeper.recover()
    keeper.save(checkpoint(fresh, 4))
    keeper.save(checkpoint(learned(2).with_model(version=3), 5))
    assert origins(keeper) == {2: "checkpoint", 3: "learned"}  # the first is not kept any more
    keeper.close()


def test_a_failed_write_is_reported_and_the_next_may_succeed(
    checkpoints: FolderCheckpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Saver(checkpoints, Engine(CONFIG))
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "write", lambda *_, **__: 1 / 0)
        keeper.save(checkpoint(learned(1), 1))
        keeper.wait()
    assert keeper.finished() == []
    assert keeper.error is not None
    keeper.save(checkpoint(learned(1), 1))
    keeper.wait()
    assert len(keeper.finished()) == 1
    assert keeper.error is None
    keeper.close()


def test_no_raw_sample_of_a_sub_task_that_is_over_stays_on_disk(
    checkpoints: FolderCheckpoints,
) -> None:
    engine = Engine(CONFIG)
    keeper = Saver(checkpoints, engine)
    before = learned(2)
    assert engine.snapshot(before).info.window == 40
    keeper.save(checkpoint(before, 2), before_boundary=1)
    keeper.wait()
    # Until the state behind the boundary is durable, a restart needs everything.
    assert engine.snapshot(keeper.find(before.model.version).state).info.window == 40

    after, _ = engine.declare_boundary(before)
    keeper.save(checkpoint(after, 3))
    keeper.wait()
    # So does one that finds the newest checkpoint damaged.
    assert engine.snapshot(keeper.find(before.model.version).state).info.window == 40
    assert keeper.finished()
    keeper.save(checkpoint(after, 3), twin=True)
    keeper.wait()
    assert [saved.position.entries_applied for saved in keeper.finished()] == [3]
    kept = keeper.find(before.model.version).state
    assert engine.snapshot(kept).info.window == 0
    assert torch.equal(
        engine.snapshot(kept).model.tensors[1], engine.snapshot(before).model.tensors[1]
    )
    assert learned(3, state=kept).model.samples_seen == 100
    recovered = keeper.recover()
    assert recovered is not None
    assert same(recovered.state, after)
    keeper.close()
