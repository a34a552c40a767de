"""Tests for the service.upkeep.rebuild module: an archive makes the model again, bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from core.batch import Batch
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.errors import InvalidSettings
from service.archive.parts import parts_in
from service.archive.record import Record
from service.archive.writer import Archive
from service.settings import Settings
from service.store.in_folder import kept_in
from service.trainer.applier import Applier
from service.trainer.provenance import WRITTEN_BY, written_by
from service.trainer.saver import Checkpoint, Saver
from service.upkeep.rebuild import Rebuilt, rebuild
from service.wire import Control, RawBatch, RawLabels
from tests.service.conftest import MakeSettings
from tests.service.running import (
    ask,
    batch,
    downloaded,
    learned_directly,
    send,
    sub_tasks,
    training,
    upload,
    wait_for_backlog,
    wait_until,
)
from tests.service.trainer.test_writer import published

STREAM = sub_tasks(0, 1, batches=10)


@pytest.fixture
def kept(settings: MakeSettings) -> Settings:
    return settings(archive_mib=64)


@pytest.fixture
def kept_with_experts(settings: MakeSettings) -> Settings:
    """They hold single samples, with which a rollback does otherwise."""
    return settings(archive_mib=64, experts=True)


def learn(settings: Settings, *requests: RawBatch | RawLabels | Control) -> None:
    """One life of a trainer."""
    with training(settings):
        send(settings, *requests)
        wait_for_backlog(settings)


def assert_same(done: Rebuilt, entries: int) -> None:
    assert done.notes == []
    assert [one for one in done.comparisons if not one.equal] == []
    assert done.equal is True
    assert (done.begins, done.entries_applied, done.missing) == (0, entries, 0)


def test_a_model_is_made_again_over_boundaries_and_restarts(kept_with_experts: Settings) -> None:
    kept = kept_with_experts
    for part in (STREAM[:7], STREAM[7:14], STREAM[14:]):
        learn(kept, *part)
    done = rebuild(kept)
    assert_same(done, 20)
    assert done.state is not None
    assert done.state.sub_task.number == 1
    # Two later starts, and the newest checkpoints, one before the boundary among them.
    assert len(done.comparisons) >= 5
    assert {one.entries_applied for one in done.comparisons} >= {7, 14, 20}


def test_all_that_a_stream_may_hold_is_done_again(kept_with_experts: Settings) -> None:
    kept = kept_with_experts
    names = [f"s{i}" for i in range(20)]
    with training(kept):
        send(kept, *STREAM[:6], Control("release"))  # of nothing
        send(kept, RawBatch.of(batch(0, 50).features, sample_ids=names))
        send(kept, RawLabels.of(names[:15], [0] * 15))
        send(kept, Control("mode", mode="frozen"), batch(0, 70), Control("mode", mode="learn"))
        send(kept, Control("boundary", by="ada"), *STREAM[10:16], Control("settle"))
        send(kept, Control("aim", samples=5000, by="ada"), Control("boundary"), Control("boundary"))
        wait_for_backlog(kept)
    done = rebuild(kept)
    assert_same(done, 23)
    assert done.rejected == 2  # nothing to release, and a boundary right after another


def test_rollbacks_and_uploads_are_done_again(kept_with_experts: Settings) -> None:
    kept = kept_with_experts
    learn(kept, *STREAM[:10])
    earlier = ask_for_checkpoint(kept)
    learn(kept, *STREAM[10:])
    [before] = [
        one for one in kept_in(kept.data_dir / "checkpoints") if "before_boundary" in one.note
    ]
    assert before.note["without_raw"]
    learn(kept, Control("rollback", version=before.version))
    learn(kept, *(batch(2, seed) for seed in range(8)))
    with training(kept):
        upload(kept, earlier)
        send(kept, *(batch(3, seed) for seed in range(5)))
        wait_for_backlog(kept)
    done = rebuild(kept)
    assert_same(done, 35)
    records = [record for part in parts_in(archive_of(kept)) for record in part.records()]
    assert [(one.n, one.back_to) for one in records if one.back_to] == [
        (21, before.entries_applied)
    ]


def test_a_rollback_behind_a_change_of_the_detector_is_done_again(kept: Settings) -> None:
    learn(kept, *STREAM[:14])
    [before] = [
        one for one in kept_in(kept.data_dir / "checkpoints") if "before_boundary" in one.note
    ]
    other = kept.model_copy(update={"detector": "adwin"})
    learn(other, Control("rollback", version=before.version))
    learn(other, *(batch(0, seed) for seed in range(50, 53)))
    assert_same(rebuild(other), 18)


def test_what_a_killed_trainer_had_read_is_read_once_more(
    kept: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(kept, *STREAM[:5])
    with monkeypatch.context() as patched:
        apply = Applier.apply

        def dying(self: Applier, before: object, entry: object) -> object:
            if getattr(before, "position").entries_applied == 9:  # noqa: B009
                raise MemoryError
            return apply(self, before, entry)  # type: ignore[arg-type]

        patched.setattr(Applier, "apply", dying)
        with pytest.raises(MemoryError), training(kept):  # noqa: PT012
            send(kept, *STREAM[5:12])
            wait_until(lambda: len(parts_in(archive_of(kept))) == 2)
    learn(kept, *STREAM[12:])
    assert_same(rebuild(kept), 20)


def test_what_a_checkpoint_holds_is_in_the_archive_before(
    kept: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, synced, saved = [0], [0], list[int]()
    append, sync, save = Archive.append, Archive.sync, Saver.save

    def appending(self: Archive, records: Sequence[Record], base: Any) -> None:
        append(self, records, base)
        written.append(records[-1].n)

    def syncing(self: Archive) -> None:
        sync(self)
        synced.append(written[-1])

    def saving(self: Saver, checkpoint: Checkpoint, **how: Any) -> None:
        saved.append(checkpoint.position.entries_applied)
        assert synced[-1] >= saved[-1]
        save(self, checkpoint, **how)

    monkeypatch.setattr(Archive, "append", appending)
    monkeypatch.setattr(Archive, "sync", syncing)
    monkeypatch.setattr(Saver, "save", saving)
    for part in (STREAM[:7], STREAM[7:]):
        learn(kept, *part)
    assert saved[-1] == 20


def test_a_model_is_made_again_where_all_checkpoints_are_lost(
    kept: Settings, settings: MakeSettings
) -> None:
    learn(kept, *STREAM)
    wanted = ask_for_checkpoint(kept)
    shutil.rmtree(kept.data_dir / "checkpoints")
    done = rebuild(kept)
    assert done.equal is None  # there is nothing to compare with
    state, config, _ = load(wanted)
    assert done.to_bytes() == dump(state, config, {WRITTEN_BY: done.code})
    other = settings(model=kept.model + "-again", data_dir=kept.data_dir / "again")
    with training(other):
        upload(other, done.to_bytes())
        wait_for_backlog(other)
        assert published_samples(other) == 400


def test_a_checkpoint_may_be_rewritten_meanwhile(
    kept: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(kept, *STREAM)
    found = kept_in(kept.data_dir / "checkpoints")
    assert any(one.note.get("without_raw") for one in found)
    # Their notes were read before.
    early = [replace(one, note={}) for one in found]
    monkeypatch.setattr("service.upkeep.rebuild.kept_in", lambda _: early)
    assert_same(rebuild(kept), 20)


def test_an_archive_that_began_late_begins_with_a_checkpoint(
    kept: Settings, settings: MakeSettings
) -> None:
    learn(settings(), *STREAM[:8])
    learn(kept, *STREAM[8:])
    done = rebuild(kept)
    assert (done.begins, done.entries_applied, done.equal) == (8, 20, True)


def test_a_gap_is_told_and_what_follows_is_made_again(
    kept: Settings, settings: MakeSettings
) -> None:
    learn(kept, *STREAM[:8])
    learn(settings(), *STREAM[8:12])  # without
    learn(kept, *STREAM[12:])
    done = rebuild(kept)
    assert (done.begins, done.entries_applied, done.missing) == (12, 20, 4)
    assert done.equal is True


def test_a_gap_at_the_end_is_told(kept: Settings, settings: MakeSettings) -> None:
    learn(kept, *STREAM[:8])
    learn(settings(), *STREAM[8:12])  # without
    done = rebuild(kept)
    assert (done.entries_applied, done.well) == (8, False)
    [note] = done.notes
    assert note.startswith("the archive ends with entry 8: 4 entries of the newest checkpoint (12)")


def test_a_model_that_is_another_one_is_told(
    kept: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(kept, *STREAM)
    step = Engine.step

    def other(self: Engine, state: EngineState, one: Batch) -> object:
        return step(self, state, replace(one, features=one.features * 0.999))

    monkeypatch.setattr(Engine, "step", other)
    done = rebuild(kept)
    assert (done.equal, done.explained, done.well) == (False, False, False)
    assert not all(one.equal for one in done.comparisons)
    assert {one.others for one in done.comparisons} == {()}


OTHER = "0.0.9 0123456789ab, torch 2.0.0, numpy 2.0.0, numba 0.60.0 on znver9"


def learn_by_another_code(
    kept: Settings,
    monkeypatch: pytest.MonkeyPatch,
    *requests: RawBatch | Control,
    line: str = OTHER,
    scale: float = 0.999,
) -> None:
    """One life of a trainer that computes otherwise."""
    step = Engine.step

    def other(self: Engine, state: EngineState, one: Batch) -> object:
        return step(self, state, replace(one, features=one.features * scale))

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "step", other)
        patched.setattr("service.trainer.saver.written_by", lambda *_: line)
        learn(kept, *requests)


@pytest.mark.parametrize("line", [OTHER, ""])  # an earlier release did not say what it was
def test_what_another_state_of_the_code_has_learned_may_differ_and_the_rest_is_compared(
    kept: Settings, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    learn_by_another_code(kept, monkeypatch, *STREAM[:10], line=line)
    done = rebuild(kept)
    assert (done.equal, done.explained, done.well) == (False, True, True)
    assert {one.others for one in done.comparisons} == {(line,)}
    assert "LOOK" not in "\n".join(done.described())
    learn(kept, *STREAM[10:13])
    learn(kept, *STREAM[13:])
    done = rebuild(kept)
    assert (done.equal, done.explained, done.well, done.notes) == (False, True, True, [])
    assert (done.begins, done.entries_applied, done.went_over) == (10, 20, True)
    differing = [one for one in done.comparisons if not one.equal]
    assert [(one.entries_applied, one.others) for one in differing] == [(10, (line,))]
    same = {one.entries_applied for one in done.comparisons if one.equal}
    assert {13, 20} <= same
    assert not same & set(range(11))
    told = "\n".join(done.described())
    assert (line or "an earlier release, which did not say what it was") in told
    assert "gone on from the checkpoint of entry 10, up to which other code" in told
    assert done.to_json()["explained"] is True
    state, config, _ = load(ask_for_checkpoint(kept))
    assert done.to_bytes() == dump(state, config, {WRITTEN_BY: done.code})


def test_a_fault_behind_an_upgrade_is_told(kept: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    learn_by_another_code(kept, monkeypatch, *STREAM[:10])
    this = written_by(kept.engine_config(), torch.device("cpu"))
    learn_by_another_code(kept, monkeypatch, *STREAM[10:], line=this)
    done = rebuild(kept)
    assert (done.equal, done.explained, done.well) == (False, False, False)
    assert all(not one.others for one in done.comparisons if one.entries_applied > 10)
    assert "LOOK  this code has learned that" in "\n".join(done.described())


def test_another_state_of_the_code_that_makes_the_same_bits_hides_no_fault(
    kept: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn_by_another_code(kept, monkeypatch, *STREAM[:10], scale=1.0)
    learn(kept, *STREAM[10:])
    done = rebuild(kept)
    assert_same(done, 20)
    assert (done.explained, done.went_over) == (None, False)
    this = written_by(kept.engine_config(), torch.device("cpu"))
    learn_by_another_code(kept, monkeypatch, batch(0, 50), line=this)
    assert rebuild(kept).explained is False


def test_a_rollback_over_an_upgrade_is_done_again(
    kept: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn_by_another_code(kept, monkeypatch, *STREAM[:14])
    [before] = [
        one for one in kept_in(kept.data_dir / "checkpoints") if "before_boundary" in one.note
    ]
    later = [batch(1, seed) for seed in range(80, 84)]
    learn(kept, *STREAM[14:], Control("rollback", version=before.version), *later)
    done = rebuild(kept)
    assert (done.explained, done.well, done.entries_applied) == (True, True, 25)
    newest = [one for one in done.comparisons if one.entries_applied == 25]
    assert newest
    assert all(OTHER in one.others for one in newest)
    learn(kept, batch(1, 90))
    done = rebuild(kept)
    assert (done.explained, done.begins) == (True, 25)
    assert all(one.equal for one in done.comparisons if one.entries_applied > 25)


def test_a_damaged_entry_ends_what_can_be_made(kept: Settings) -> None:
    learn(kept, *STREAM)
    [part] = parts_in(archive_of(kept))
    data = bytearray(part.path.read_bytes())
    data[len(data) // 2] ^= 1
    part.path.write_bytes(bytes(data))
    done = rebuild(kept)
    assert 5 < done.entries_applied < 15
    assert all(one.equal for one in done.comparisons)


def test_a_damaged_base_is_told_and_what_was_made_again_stands_in_for_it(kept: Settings) -> None:
    learn(kept, *STREAM[:8])
    learn(kept, *STREAM[8:])
    _, second = parts_in(archive_of(kept))
    whole = rebuild(kept)
    second.base.write_bytes(second.base.read_bytes()[:-1])
    done = rebuild(kept)
    assert (done.begins, done.entries_applied, done.equal, done.well) == (0, 20, True, False)
    assert str(second.base) in done.notes[0]
    assert done.to_bytes() == whole.to_bytes()
    assert len(done.comparisons) == len(whole.comparisons) - 1


def test_a_rollback_beyond_the_archive_ends_what_can_be_made_and_a_later_part_goes_on(
    kept: Settings, settings: MakeSettings
) -> None:
    learn(settings(), *STREAM)
    [before] = [
        one for one in kept_in(kept.data_dir / "checkpoints") if "before_boundary" in one.note
    ]
    learn(kept, batch(1, 50), Control("rollback", version=before.version))
    done = rebuild(kept)
    assert (done.begins, done.entries_applied, done.well) == (20, 21, False)
    assert "which the archive does not reach" in done.notes[0]
    learn(kept, batch(0, 60))
    done = rebuild(kept)
    assert (done.begins, done.entries_applied, done.missing) == (22, 23, 0)
    assert (done.equal, done.well) == (True, False)


# With other settings -----------------------------------------------------------------------


def test_what_an_archive_holds_is_learned_with_other_settings(kept: Settings) -> None:
    for part in (STREAM[:7], STREAM[7:]):
        learn(kept, *part)
    done = rebuild(kept, {"preset": "flat", "n_components": "9", "warm_up": 200})
    other = kept.model_copy(update={"preset": "flat", "n_components": 9, "warm_up": 200})
    there = learned_directly(other, STREAM)
    assert done.to_bytes() == dump(there, other.engine_config(), {WRITTEN_BY: done.code})
    assert (done.well, done.equal, done.notes) == (True, None, [])
    assert (done.entries_applied, done.left_out, done.missing) == (20, 0, 0)
    assert "another model, with preset = flat, n_components = 9" in "\n".join(done.described())
    assert done.to_json()["changes"]["preset"] == "flat"


def test_with_another_preset_its_own_budget_holds_and_all_else_stays(kept: Settings) -> None:
    learn(kept, *STREAM[:2])
    same, other = (rebuild(kept, {"preset": one}).config for one in ("mfa", "flat"))
    assert same == kept.engine_config()
    assert other == replace(kept.engine_config(), preset="flat", n_components=None, n_factors=20)


def test_what_is_about_the_old_model_alone_is_left_out_and_counted(kept: Settings) -> None:
    learn(kept, *STREAM[:10])
    earlier = ask_for_checkpoint(kept)
    with training(kept):
        upload(kept, earlier)
        send(kept, *STREAM[10:])
        wait_for_backlog(kept)
    done = rebuild(kept, {"seed": 7})
    assert (done.left_out, done.entries_applied, done.well) == (1, 21, False)
    assert done.notes == [
        "1 entry could not be used with these settings: uploads, names of proposals that this "
        "model has not made, or what it refuses."
    ]
    again = dump(learned_directly(seeded(kept), STREAM), done.config, {WRITTEN_BY: done.code})
    assert done.to_bytes() == again


def test_a_rollback_is_done_in_the_other_model_too(kept: Settings) -> None:
    learn(kept, *STREAM[:14])
    [before] = [
        one for one in kept_in(kept.data_dir / "checkpoints") if "before_boundary" in one.note
    ]
    learn(kept, Control("rollback", version=before.version), batch(0, 50))
    done = rebuild(kept, {"seed": 7})
    assert (done.left_out, done.entries_applied) == (0, 16)
    assert done.state is not None
    assert done.state.model.samples_seen == 20 * (before.version + 1)


def test_what_an_archive_does_not_have_is_told_of_the_other_model(
    kept: Settings, settings: MakeSettings
) -> None:
    learn(settings(), *STREAM[:4])  # without
    learn(kept, *STREAM[4:10])
    learn(settings(), *STREAM[10:12])
    learn(kept, *STREAM[12:])
    done = rebuild(kept, {"seed": 7})
    learned = [*STREAM[4:10], *STREAM[12:]]
    assert done.missing == 6
    assert done.notes == ["6 entries that the archive does not have could not be learned."]
    again = dump(learned_directly(seeded(kept), learned), done.config, {WRITTEN_BY: done.code})
    assert done.to_bytes() == again


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"presett": "flat"}, "preset"),
        ({"preset": "flatt"}, "flat"),
        ({"archive_mib": 3}, "'archive_mib' is no setting of a model"),
        ({"join_samples": 3}, "join_samples says nothing of what is learned"),
    ],
)
def test_a_change_that_is_none_is_refused(
    kept: Settings, changes: dict[str, object], complaint: str
) -> None:
    learn(kept, *STREAM[:2])
    with pytest.raises(InvalidSettings, match=complaint):
        rebuild(kept, changes)


def seeded(settings: Settings) -> Settings:
    return settings.model_copy(update={"seed": 7})


def test_without_an_archive_one_is_told_how_to_have_one(settings: MakeSettings) -> None:
    made = settings()
    learn(made, *STREAM[:2])
    assert not archive_of(made).exists()
    with pytest.raises(InvalidSettings, match="GMR_ARCHIVE_MIB"):
        rebuild(made)


def archive_of(settings: Settings) -> Path:
    return settings.data_dir / "archive"


def published_samples(settings: Settings) -> int:
    seen: int = published(settings).info.samples_seen
    return seen


def ask_for_checkpoint(settings: Settings) -> bytes:
    with training(settings):
        data: bytes = ask(settings, downloaded)
        return data
