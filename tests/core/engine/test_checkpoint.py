"""Tests for core.engine.checkpoint: a life that is saved goes on as if nothing happened."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.batch import Batch
from core.config import EngineConfig
from core.density.factors import outline
from core.drift.baselines.paper import PaperState
from core.drift.sequential.detector import SequentialState
from core.engine.checkpoint import EARLIER, FORMAT, dump, features_of, load, verifier
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.errors import InvalidCheckpoint, OtherRelease
from core.memory.class_shares import ClassShares
from core.memory.fingerprints import Fingerprints
from core.memory.reliability import Reliability
from core.snapshot import Snapshot
from core.tensors import pack, unpack
from tests.core.states import Script, assert_identical, leaves, lived, play, scripts, tensors_of
from tests.core.streams import batches, blob

EARLIER_STATES = Path(__file__).parent / "earlier"
"""Of commits, by name: the text of a checkpoint, and the types and shapes of its tensors."""

CONFIGS = {
    "mfa": EngineConfig(n_components=6, n_factors=3, warm_up=200, window=150, seed=3),
    "mfa, no detector": EngineConfig(n_components=30, detector="none", window=2000),
    "flat": EngineConfig(preset="flat", n_components=6, warm_up=200, window=150, seed=3),
    "paper": EngineConfig(preset="paper", n_components=9, warm_up=200, detector="paper"),
    "flat, shadows": EngineConfig(
        preset="flat",
        n_components=6,
        warm_up=200,
        window=150,
        experts=False,
        shadow_detectors="paper,adwin,page_hinkley,kswin",
    ),
    "flat, adwin": EngineConfig(
        preset="flat", n_components=6, warm_up=200, detector="adwin", experts=False
    ),
    "flat, no detector": EngineConfig(
        preset="flat", n_components=3, detector="none", experts=False
    ),
    "paper, sequential": EngineConfig(
        preset="paper", n_components=4, warm_up=200, replay="proportional"
    ),
}


@functools.cache
def held_aside(experts: bool = True) -> tuple[EngineConfig, EngineState]:
    """A state in the middle of a suspicion, with batches set aside, some of them labelled."""
    config = EngineConfig(n_components=12, experts=experts)
    engine = Engine(config)
    state = lived(engine, [0, 1], 20)
    for index, batch in enumerate(batches([2], 12, size=4, seed=5)):
        state, _ = engine.step(state, batch if index % 2 else Batch(batch.features))
        if len(state.pending.set_aside) >= 2:
            return config, state
    raise AssertionError("nothing was set aside")


# Going on ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
@given(script=scripts(least=2, most=9), data=st.data())
@settings(max_examples=8, deadline=None, derandomize=True)
def test_a_life_that_is_saved_and_loaded_anywhere_goes_on_bit_for_bit(
    name: str, script: Script, data: st.DataObject
) -> None:
    config = CONFIGS[name]
    engine = Engine(config)
    cut = data.draw(st.integers(0, len(script)), label="saved after")
    state, _ = play(engine, engine.start(), script[:cut])
    data_bytes = dump(state, config, {"last_entry_id": "5-0"})
    loaded, loaded_config, metadata = load(data_bytes)
    assert (loaded_config, metadata) == (config, {"last_entry_id": "5-0"})
    assert_identical(loaded, state)
    # Nothing is written that is not read: the same content is the same bytes.
    assert dump(loaded, loaded_config, metadata) == data_bytes

    after, events = play(engine, state, script[cut:])
    again, events_again = play(Engine(loaded_config), loaded, script[cut:])
    assert events_again == events
    assert_identical(again, after)


def test_a_life_saved_with_half_filled_windows_and_statistics_goes_on_bit_for_bit() -> None:
    config = EngineConfig(n_components=9, n_factors=3, window=300, detector="none")
    engine = Engine(config)
    unlabelled = list(batches([2], 3, labelled=False))
    state, _ = play(engine, engine.start(), [*batches([0, 1], 3), *unlabelled])
    groups = state.model.learner.groups
    assert 0 < sum(len(group.window) for group in groups) < 300
    assert {group.sums is None for group in groups} == {True, False}
    loaded, _, _ = load(dump(state, config, {}))
    assert_identical(loaded, state)
    rest = [*batches([0, 1, 2], 4, seed=3), "boundary", *batches([2, 3], 4, seed=4)]
    after, events = play(engine, state, list(rest))
    again, events_again = play(engine, loaded, list(rest))
    assert events_again == events
    assert_identical(again, after)


def test_a_life_that_is_scored_in_two_stages_goes_on_bit_for_bit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if 16 features and 6 components were wide and many.
    for name, value in {"FEATURES": 16, "FACTORS": 3, "COMPONENTS": 6}.items():
        monkeypatch.setattr(outline, f"FEWEST_{name}", value)
    monkeypatch.setattr(outline, "DIRECTIONS", 4)
    config = EngineConfig(n_components=30, n_factors=3, window=200, warm_up=200)
    engine = Engine(config)
    script: Script = [*batches([0, 1], 8), "boundary", *batches([2, 3], 6, seed=4)]
    state, _ = play(engine, engine.start(), script[:1])
    assert state.model.learner.directions is None
    state, _ = play(engine, state, script[1:])
    chosen = state.model.learner.directions
    assert chosen.shape == (16, 4)
    watched = state.watch.detector.watch or state.watch.detector.successor
    assert watched.frozen_model.model.density.directions is not None
    loaded, _, _ = load(dump(state, config, {}))
    assert_identical(loaded, state)
    rest: Script = [*batches([2, 3], 3, seed=6), "boundary", *batches([0, 4], 6, seed=5), "settle"]
    after, events = play(engine, state, rest)
    again, events_again = play(engine, loaded, rest)
    assert events_again == events
    assert_identical(again, after)
    # A boundary chooses them anew: other components are to be told apart.
    assert not torch.equal(after.model.learner.directions, chosen)
    assert after.model.learner.directed <= len(after.model.learner)
    x = blob(0, 50, seed=9)
    served = engine.snapshot(after)
    read, _ = Snapshot.from_bytes(served.to_bytes({}))
    for mine, other in zip(read.classify(x), served.classify(x), strict=True):
        assert torch.equal(mine, other) if isinstance(mine, torch.Tensor) else mine == other


@pytest.mark.parametrize("name", ["mfa", "flat"])
def test_a_life_saved_right_after_it_was_quiet_goes_on_bit_for_bit(name: str) -> None:
    config = EngineConfig(preset=name, n_components=9, window=300, detector="none")
    engine = Engine(config)
    state, events = play(engine, engine.start(), [*batches([0, 1], 5), "settle"])
    assert events[-1].kind == "windows_settled"
    loaded, _, _ = load(dump(state, config, {}))
    assert_identical(loaded, state)
    rest = [*batches([0, 1, 2], 2, seed=3), "settle", "boundary", *batches([2], 2), "settle"]
    after, events = play(engine, state, list(rest))
    again, events_again = play(engine, loaded, list(rest))
    assert events_again == events
    assert_identical(again, after)


def test_batches_set_aside_and_the_suspicion_are_saved_too() -> None:
    config, state = held_aside()
    loaded, _, _ = load(dump(state, config, {}))
    assert len(loaded.pending.set_aside) == len(state.pending.set_aside) >= 2
    assert_identical(loaded, state)
    rest = [*batches([2], 6, size=4, seed=6), "settle", *batches([0, 2], 2)]
    engine = Engine(config)
    after, events = play(engine, state, rest)
    again, events_again = play(engine, loaded, rest)
    assert "boundary" in {event.kind for event in events}
    assert events_again == events
    assert_identical(again, after)


@pytest.mark.parametrize("name", ["mfa", "flat"])
def test_what_is_served_after_loading_is_what_was_served_before(name: str) -> None:
    config = CONFIGS[name]
    engine = Engine(config)
    state = lived(engine, [0, 1], 8)
    loaded, _, _ = load(dump(state, config, {}))
    before, after = engine.snapshot(state), engine.snapshot(loaded)
    assert after.to_bytes({}) == before.to_bytes({})
    assert torch.equal(after.sample(9, [1]).features, before.sample(9, [1]).features)


def test_before_anything_was_learned_there_is_a_checkpoint_too() -> None:
    config = EngineConfig(n_features=16, n_components=5)
    engine = Engine(config)
    loaded, _, _ = load(dump(engine.start(), config, {}))
    assert_identical(loaded, engine.start())
    state, _ = engine.step(loaded, Batch.of(blob(0, 10, 1), [0] * 10))
    assert state.model.version == 1


def test_the_number_of_features_is_told_before_a_checkpoint_is_loaded(saved: bytes) -> None:
    engine = Engine(EngineConfig(n_components=5))
    blank = dump(engine.start(), engine.config, {})
    strange = pack(FORMAT, {"x": torch.zeros(3)}, {"state": '{"standardiser": {"shift": "y"}}'})
    for data, expected in ((saved, 16), (blank, None), (strange, None)):
        check = verifier()
        for start in range(0, len(data), 1000):
            check.feed(data[start : start + 1000])
        check.finish()
        assert features_of(check) == expected
        if data is not strange:
            assert load(data)[0].n_features == expected


def test_labels_come_back_with_their_type_and_order() -> None:
    config = EngineConfig(n_components=8)
    engine = Engine(config)
    labels: list[int | str | None] = ["1", 1, "", "七", -5, 2**62]
    state, _ = engine.step(engine.start(), Batch.of(blob(0, 6, 1), labels))
    loaded, _, _ = load(dump(state, config, {}))
    assert loaded.model.classes == ("1", 1, "", "七", -5, 2**62)
    assert [type(label) for label in loaded.model.classes] == [str, int, str, str, int, int]


def test_a_restored_checkpoint_of_fewer_classes_learns_the_others_again() -> None:
    config = EngineConfig(n_components=12)
    engine = Engine(config)
    early = lived(engine, [0], 5)
    late, _ = play(engine, early, list(batches([1, 2], 5)))
    kept, _, _ = load(dump(early, config, {}))
    state, _ = engine.restore(late, kept, "rollback")
    assert state.model.classes == (0,)
    state, _ = play(engine, state, list(batches([2, 0], 5, seed=8)))
    snapshot = engine.snapshot(state)
    assert set(snapshot.classes) == {0, 2}
    codes = snapshot.classify(blob(2, 100, seed=77)).codes
    assert [snapshot.classes[code] for code in codes.tolist()].count(2) > 95


def test_it_does_not_grow_with_the_length_of_the_stream() -> None:
    config = EngineConfig(n_components=6, detector="none", window=400)
    engine = Engine(config)
    state, sizes = engine.start(), []
    for _ in range(3):
        state, _ = play(engine, state, list(batches([0, 1], 12)))
        sizes.append(len(dump(state, config, {})))
    assert sizes[2] < sizes[1] * 1.05


# What is refused --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def saved() -> bytes:
    config, state = held_aside()
    return dump(state, config, {"entries_applied": "22"})


def test_a_truncated_checkpoint_is_refused(saved: bytes) -> None:
    lengths = [*range(0, len(saved), 997), 7, 8, 9, len(saved) - 1]
    for length in lengths:
        with pytest.raises(InvalidCheckpoint):
            load(saved[:length])


@given(place=st.integers(0, 2**31), value=st.integers(1, 255))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_a_checkpoint_with_one_wrong_byte_is_refused(saved: bytes, place: int, value: int) -> None:
    damaged = bytearray(saved)
    damaged[place % len(damaged)] ^= value
    with pytest.raises(InvalidCheckpoint):
        load(bytes(damaged))


def test_every_byte_of_the_description_is_guarded() -> None:
    config, state = held_aside(experts=False)  # of which there are fewer
    saved = dump(state, config, {"entries_applied": "22"})
    header = 8 + int.from_bytes(saved[:8], "little")
    for place in range(0, header, 7):
        damaged = bytearray(saved)
        damaged[place] ^= 1
        with pytest.raises(InvalidCheckpoint):
            load(bytes(damaged))


def test_bytes_appended_to_a_checkpoint_are_refused(saved: bytes) -> None:
    with pytest.raises(InvalidCheckpoint):
        load(saved + b"\0")


def rewritten(saved: bytes, change: dict[str, object]) -> bytes:
    """The checkpoint with parts of its text replaced, and a right checksum."""
    tensors, text = unpack(FORMAT, saved)
    for name, value in change.items():
        text[name] = value if isinstance(value, str) else json.dumps(value)
    return pack(FORMAT, tensors, text)


def test_a_setting_of_a_later_release_is_ignored(saved: bytes) -> None:
    _, config, _ = load(saved)
    state, again, _ = load(rewritten(saved, {"config": {**config.to_dict(), "invented": [1, 2]}}))
    assert again == config
    assert len(state.pending.set_aside) >= 2


def test_a_checkpoint_from_before_the_past_was_looked_back_at_has_none(saved: bytes) -> None:
    _, text = unpack(FORMAT, saved)
    tree = json.loads(text["state"])
    del tree["past"]["retention"]
    state, _, _ = load(rewritten(saved, {"state": tree}))
    assert state.past.retention.sets == ()
    assert len(state.pending.set_aside) >= 2


def test_a_checkpoint_from_before_a_state_had_parts_is_the_same_state(saved: bytes) -> None:
    kept, config, _ = load(saved)
    tree = json.loads(unpack(FORMAT, saved)[1]["state"])
    flat = tree.pop("model")
    for part, names in EARLIER.items():
        flat |= {was: tree[part][now] for now, was in names.items()}
    state, loaded_config, _ = load(rewritten(saved, {"state": flat}))
    # It knew nothing of how reliable answers are, of the shares of classes, or of fingerprints.
    without = kept.with_stream(reliability=Reliability()).with_sub_task(
        class_shares=ClassShares(), fingerprints=Fingerprints()
    )
    assert_identical(state, without)
    assert loaded_config == config
    checked = verifier()
    checked.feed(rewritten(saved, {"state": flat}))
    assert features_of(checked) == kept.n_features


def test_a_checkpoint_that_calls_log_likelihoods_likelihoods_is_the_same_state(
    saved: bytes,
) -> None:
    kept, _, _ = load(saved)
    text = unpack(FORMAT, saved)[1]["state"]
    assert '"log_likelihood":' in text
    earlier = json.loads(text.replace('"log_likelihood":', '"likelihood":'))
    state, _, _ = load(rewritten(saved, {"state": earlier}))
    assert_identical(state, kept)


def test_the_state_of_another_detector_begins_anew_and_the_model_stays(saved: bytes) -> None:
    kept, config, _ = load(saved)
    other = {**config.to_dict(), "detector": "paper"}
    state, _, _ = load(rewritten(saved, {"config": other}))
    assert state.watch.detector == PaperState()
    assert_identical(state.model.learner, kept.model.learner)
    assert state.model.version == kept.model.version


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"preset": "deep"}},
        {"config": {"n_components": 0}},
        {"config": {"n_components": "many"}},
        {"config": []},
        {"config": "no json"},
        {"state": {}},
        {"state": []},
        {"state": '"text"'},
        {"state": "null"},
        {"state": '{"a":' * 5000 + "1" + "}" * 5000},
        {"config": {"preset": "paper", "n_components": 9}},  # but the state is of the other preset
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_with_a_way_out(
    saved: bytes, change: dict[str, object]
) -> None:
    with pytest.raises(InvalidCheckpoint, match=r"does not fit this release|not a file"):
        load(rewritten(saved, change))


def test_of_a_part_that_a_later_release_has_it_is_said_what_and_where(saved: bytes) -> None:
    tree = json.loads(unpack(FORMAT, saved)[1]["state"])
    tree["model"]["invented"] = 1
    with pytest.raises(OtherRelease, match=r"extra fields found \(invented\) @ state\.model"):
        load(rewritten(saved, {"state": tree}))


def test_a_snapshot_is_no_checkpoint() -> None:
    config = EngineConfig(n_components=3)
    engine = Engine(config)
    state, _ = engine.step(engine.start(), Batch(blob(0, 20, 1)))
    with pytest.raises(InvalidCheckpoint, match=r"gmr-snapshot-3.*expected 'gmr-checkpoint-1'"):
        load(engine.snapshot(state).to_bytes({}))


def test_a_tensor_that_is_missing_is_noticed(saved: bytes) -> None:
    tensors, text = unpack(FORMAT, saved)
    del tensors["t0"]
    with pytest.raises(InvalidCheckpoint):
        load(pack(FORMAT, tensors, text))


# Where it is put --------------------------------------------------------------------------


def test_on_a_device_the_model_is_there_and_counts_and_random_state_stay_behind(
    device: torch.device,
) -> None:
    config = EngineConfig(n_components=6, warm_up=200)
    engine = Engine(config, device)
    stream = list(batches([0, 1], 8))
    state, _ = play(engine, engine.start(), stream[:6])
    loaded, _, _ = load(dump(state, config, {}), device)
    assert all(tensor.device.type == device.type for tensor in tensors_of(loaded.model.learner))
    for (path, kept), (_, tensor) in zip(leaves(state), leaves(loaded), strict=True):
        if isinstance(kept, torch.Tensor) and kept.numel():
            assert tensor.device == kept.device, path
    assert loaded.model.calibration.current[0].rows.device.type == "cpu"
    assert loaded.model.random.device.type == "cpu"
    after, _ = play(engine, loaded, stream[6:])
    assert after.stream.batches == 8


def test_a_checkpoint_can_be_dumped_while_the_state_goes_on() -> None:
    config, state = held_aside()
    before = dump(state, config, {})
    play(Engine(config), state, [dataclasses.replace(batch) for batch in batches([2], 5)])
    assert dump(state, config, {}) == before


def test_writing_and_reading_again_generates_no_code(
    saved: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Generating it takes longer than the rest, and other threads wait for it."""
    state, config, _ = load(saved)
    assert dump(state, config, {}) == dump(load(saved)[0], config, {})

    def generated(*_: object, **__: object) -> None:
        raise AssertionError("code is generated")

    with monkeypatch.context() as patched:
        patched.setattr("builtins.compile", generated)
        again = dump(load(saved)[0], config, {})
    assert again == dump(state, config, {})


def test_every_thread_reads_and_writes_what_is_its_own(saved: bytes) -> None:
    state, config, _ = load(saved)
    other = Engine(config, "cpu").start()
    wanted = [dump(state, config, {}), dump(other, config, {})] * 8

    def there_and_back(data: bytes) -> bytes:
        state, config, _ = load(data)
        return dump(state, config, {})

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(there_and_back, wanted)) == wanted


def test_components_of_an_earlier_release_were_named_after_their_family() -> None:
    config = CONFIGS["mfa"]
    engine = Engine(config)
    state, _ = play(engine, engine.start(), [*batches([0, 1], 3), "settle", "boundary"])
    state, _ = play(engine, state, [*batches([2], 1), "settle"])
    tensors, text = unpack(FORMAT, dump(state, config, {}))
    text["state"] = text["state"].replace('"components"', '"analysers"')
    loaded, _, _ = load(pack(FORMAT, tensors, text))
    assert_identical(loaded.model.learner, state.model.learner)


def test_of_an_earlier_release_ranks_say_the_bins_of_likelihoods() -> None:
    config = CONFIGS["mfa"]
    engine = Engine(config)
    state = lived(engine, [0, 1], 30)
    tensors, text = unpack(FORMAT, dump(state, config, {}))
    text["state"], n = re.subn(r', "edges": "[^"]*"|"edges": "[^"]*", ', "", text["state"])
    assert n > 0
    loaded, _, _ = load(pack(FORMAT, tensors, text))
    assert_identical(loaded.watch.detector, state.watch.detector)


def test_experts_of_an_earlier_release_have_counted_no_new_names() -> None:
    config = CONFIGS["mfa"]
    engine = Engine(config)
    state = lived(engine, [0, 1], 30)
    tensors, text = unpack(FORMAT, dump(state, config, {}))
    tree = json.loads(text["state"])
    del tree["model"]["panel"]["new_names"]
    text["state"] = json.dumps(tree)
    loaded, _, _ = load(pack(FORMAT, tensors, text))
    assert loaded.model.panel is not None
    assert not len(loaded.model.panel.new_names.came)
    more, _ = play(engine, loaded, batches([0, 1], 2))
    assert more.model.panel is not None
    assert float(more.model.panel.new_names.came.sum()) > 0


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_components_of_an_earlier_release_expected_no_votes(preset: str) -> None:
    config = CONFIGS[preset]
    engine = Engine(config)
    state = lived(engine, [0, 1], 8)
    tensors, text = unpack(FORMAT, dump(state, config, {}))
    text["state"], n = re.subn(r', "vote_baseline": "[^"]*"', "", text["state"])
    assert n > 0
    loaded, _, _ = load(pack(FORMAT, tensors, text))
    assert_identical(loaded.model.learner, state.model.learner)  # every sample had a label


@pytest.mark.parametrize("path", sorted(EARLIER_STATES.glob("*.json")), ids=lambda path: path.stem)
def test_a_state_of_an_earlier_release_is_read_as_a_whole(path: Path) -> None:
    """By its shape: the text of a checkpoint that the commit wrote, and zeros for its tensors."""
    kept = json.loads(path.read_bytes())
    tensors = {
        name: torch.zeros(shape, dtype=getattr(torch, dtype))
        for name, (dtype, shape) in kept["tensors"].items()
    }
    text = {part: json.dumps(kept[part]) for part in ("state", "config")}
    state, config, _ = load(pack(FORMAT, tensors, text))
    tree = kept["state"]
    assert config.preset == "mfa"
    assert state.model.version == tree["model"]["version"]
    assert state.model.panel is not None
    assert state.pending.awaiting.raw_samples > 0
    assert state.watch.armed
    detector = state.watch.detector  # it did not begin anew
    assert isinstance(detector, SequentialState)
    assert detector.samples == tree["watch"]["detector"]["samples"] > 0
    # What is written of it today is read today.
    again, _, _ = load(dump(state, config, {}))
    assert_identical(again, state)


def test_what_an_earlier_release_called_otherwise_is_read() -> None:
    config = CONFIGS["mfa"]
    engine = Engine(config)
    state = lived(engine, [0, 1], 30)
    assert state.watch.armed
    tensors, text = unpack(FORMAT, dump(state, config, {}))
    for names in (
        {
            "unsorted": "waiting",
            "n_unsorted": "n_waiting",
            "suspected": "withheld",
            # Other parts of a state have scores as well.
            '{"scores": {"ranking"': '{"earlier": {"ranking"',
        },
        {
            "dependence": "conditions",
            "thinning": "stride",
            "autocorrelation_time": "pace",
            "log_bias": "drift",
        },
    ):
        for now, was in names.items():
            now, was = (one if one.startswith("{") else f'"{one}"' for one in (now, was))
            assert now in text["state"], now
            text["state"] = text["state"].replace(now, was)
        loaded, _, _ = load(pack(FORMAT, tensors, text))
        assert_identical(loaded.watch.detector, state.watch.detector)


def test_a_model_remembers_the_shape_in_which_images_came_first() -> None:
    """Through a checkpoint and a snapshot, also where their features are no intensities."""
    engine = Engine(EngineConfig(preset="flat", n_components=4))
    images = torch.rand(100, 2, 3, 3, generator=torch.Generator().manual_seed(0))
    state, _ = engine.step(engine.start(), Batch(40 * images))
    state, _ = engine.step(state, Batch(40 * images.flatten(1)))
    state, _, _ = load(dump(state, engine.config, {}))
    snapshot, _ = Snapshot.from_bytes(engine.snapshot(state).to_bytes({}))
    assert snapshot.info.image_shape == (2, 3, 3)
    table, _ = engine.step(engine.start(), Batch(images.flatten(1)))
    assert engine.snapshot(table).info.image_shape == ()


def test_threads_write_and_read_checkpoints_beside_each_other() -> None:
    engine = Engine(CONFIGS["flat"])
    states = [lived(engine, [label, 2], 3) for label in (0, 1)]
    written = [dump(state, engine.config, {}) for state in states]

    def again(place: int) -> bytes:
        state, _, _ = load(written[place % 2])
        return dump(state, engine.config, {})

    with ThreadPoolExecutor(4) as threads:
        for place, data in enumerate(threads.map(again, range(40))):
            assert data == written[place % 2]
