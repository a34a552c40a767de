"""Tests for core.experts in the engine: what a sample is called where classes move."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import eq

import pytest
import torch
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.engine.checkpoint import FORMAT, dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.events import BatchLearned, BatchScored, Event
from core.experts.gaussians import HORIZONS
from core.experts.panel import (
    NEIGHBOURS,
    Panel,
    Rules,
)
from core.snapshot import Snapshot
from core.tensors import pack, unpack
from tests.core.experts.made import even, samples
from tests.core.states import assert_identical, lived_through, play


def moving(batches: int, seed: int, size: int = 100, start: int = 0) -> list[Batch]:
    """Four classes on a circle, a turn in 40 batches of 100."""
    generator = torch.Generator().manual_seed(seed)
    stream = []
    for index in range(start, start + batches):
        codes = torch.randint(4, (size,), generator=generator)
        at = index * size + torch.arange(size)
        angle = 2 * math.pi * (codes / 4 + at / 4_000)
        centre = torch.stack([angle.cos(), angle.sin()], 1) * 3
        noise = torch.randn(size, 2, generator=generator) * 0.4
        stream.append(Batch.of(centre + noise, codes.tolist()))
    return stream


def accuracy(events: Sequence[Event]) -> float:
    scored = [
        event.prequential_accuracy
        for event in events
        if isinstance(event, BatchLearned) and event.prequential_accuracy is not None
    ]
    return sum(scored) / len(scored)


def engine(**settings: object) -> Engine:
    return Engine(EngineConfig(**{"n_components": 25, **settings}))  # type: ignore[arg-type]


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_change_in_the_middle_of_a_batch_is_followed_in_the_next(preset: str) -> None:
    own = engine(preset=preset)
    state, named = own.start(), list[float]()
    for index in range(12):
        x, codes = samples(100, 4, index)
        turned = 100 * index + torch.arange(100) >= 1030
        state, events = own.step(state, Batch.of(x.float(), torch.where(turned, 2 - codes, codes)))
        named += [
            event.prequential_accuracy
            for event in events
            if isinstance(event, BatchScored) and event.prequential_accuracy is not None
        ]
    before, during, after = named[-3:]
    assert before > 0.9
    assert during < 0.8
    assert after > 0.8


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_classes_that_keep_moving_are_followed(preset: str) -> None:
    alone = engine(preset=preset, experts=False)
    _, events = play(alone, alone.start(), moving(45, 0))
    without = accuracy(events[20:])
    advised = engine(preset=preset)
    _, events = play(advised, advised.start(), moving(45, 0))
    assert accuracy(events[20:]) > 0.95
    assert without < 0.8


def answers(one: Engine, state: EngineState, x: Tensor) -> list[object]:
    return [state.model.classes[code] for code in one.snapshot(state).classify(x).codes.tolist()]


def far(code: int, n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=generator) + 8 * torch.eye(6)[code % 6]


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_classes_that_do_not_come_any_more_are_not_forgotten(preset: str) -> None:
    one = engine(preset=preset, n_components=40)
    state = one.start()
    for code in range(6):
        stream = [Batch.of(far(code, 100, 10 * code + i), [code] * 100) for i in range(10)]
        state, _ = play(one, state, stream)
    for code in range(6):
        assert answers(one, state, far(code, 100, 999)).count(code) >= 95


def test_what_the_answer_is_counts_as_the_accuracy() -> None:
    one = engine()
    state, _ = lived_through(one, moving, 10, 0)
    [batch] = moving(1, 5, start=10)
    codes = one.snapshot(state).classify(batch.features).codes
    _, events = one.step(state, batch)
    [scored] = [event for event in events if isinstance(event, BatchLearned)]
    named = torch.tensor([state.model.classes[code] for code in codes.tolist()])
    truth = torch.tensor([batch.vocabulary[code] for code in batch.codes.tolist()])  # type: ignore[union-attr]
    assert scored.prequential_accuracy == pytest.approx(float((named == truth).double().mean()))


def test_a_label_that_is_new_is_heard_once() -> None:
    one = engine()
    state = one.start()
    total = 0
    for index, n_classes in enumerate([1, 2, 3, 3]):
        x, codes = samples(64, 3, index, n_classes)
        state, _ = one.step(state, Batch.of(x.float(), codes.tolist()))
        total += 64
        panel = state.model.panel
        assert panel is not None
        torch.testing.assert_close(
            panel.gaussians.mass[HORIZONS.index(math.inf)].sum(),
            torch.tensor(float(total)).double(),
        )


def steady(batches: int, seed: int) -> Iterator[Batch]:
    for index in range(batches):
        x, codes = samples(100, 2, 100 * seed + index)
        yield Batch.of(x.float(), codes.tolist())


def test_labels_of_set_aside_samples_are_heard_once_and_at_once() -> None:
    one = engine()
    state, _ = lived_through(one, steady, 30, 0)
    held = 0
    for batch in steady(10, 1):
        before = state.model.panel
        state, _ = one.step(state, replace(batch, features=batch.features + 0.5))
        held += bool(state.pending.set_aside)
        assert before is not None
        assert state.model.panel is not None
        told = state.model.panel.gaussians.mass[-1].sum() - before.gaussians.mass[-1].sum()
        torch.testing.assert_close(told, torch.tensor(100.0).double())
    assert held


def new_class(batches: int, size: int = 20) -> Iterator[Batch]:
    for index in range(batches):
        generator = torch.Generator().manual_seed(1000 + index)
        yield Batch.of(torch.randn(size, 2, generator=generator) - 9, ["new"] * size)


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_class_is_answered_before_the_model_has_learned_it(preset: str) -> None:
    one = engine(preset=preset)
    state, _ = lived_through(one, steady, 30, 0)
    first, second, *_ = new_class(2)
    before = state.model.version
    state, _ = one.step(state, first)
    assert state.pending.set_aside
    assert "new" not in state.model.classes
    snapshot = one.snapshot(state)
    assert snapshot.version > before
    assert snapshot.answers == (*state.model.classes, "new")
    assert "new" not in snapshot.classes
    again, _ = Snapshot.from_bytes(snapshot.to_bytes({}))
    for version in (snapshot, again):
        said = version.classify(second.features)
        assert said.probabilities.shape == (20, 4)
        assert (said.codes == 3).sum() >= 18
        known, codes = samples(100, 2, 77)
        named = [version.answers[code] for code in version.classify(known.float()).codes.tolist()]
        assert sum(map(eq, named, codes.tolist())) >= 90
        drawn = version.sample(50, seed=0)
        assert int(drawn.codes.max()) < 3
    state, events = one.step(state, second)
    [scored] = [event for event in events if isinstance(event, BatchScored)]
    assert scored.prequential_accuracy is not None
    assert scored.prequential_accuracy >= 0.9


def test_of_outliers_that_were_named_no_class_is_left() -> None:
    one = engine()
    state, _ = lived_through(one, steady, 30, 0)
    far_away = Batch.of(torch.full((20, 2), 60.0) + torch.rand(20, 2), ["freak"] * 20)
    state, _ = one.step(state, far_away)
    assert state.pending.set_aside
    assert "freak" in one.snapshot(state).answers
    state, events = play(one, state, list(steady(3, 1)))
    assert [event.kind for event in events if event.kind == "outlier_burst"]
    assert one.snapshot(state).answers == state.model.classes
    assert state.model.panel is not None
    assert "freak" not in state.model.panel.labels


def test_a_class_keeps_its_column_whichever_is_learned_first() -> None:
    one = engine(detector="none")
    x, codes = samples(200, 3, 0)
    panel = Panel.start(3)
    assert panel is not None
    state, _ = one.step(one.start(), Batch.of(x.float(), codes.tolist()))
    assert state.model.panel is not None
    state = state.with_model(panel=state.model.panel.of_classes((2, 0, 1)))
    said = one.snapshot(state).classify(x.float())
    named = torch.tensor([state.model.classes[code] for code in said.codes.tolist()])
    assert float((named == codes).double().mean()) > 0.9


def test_labels_that_come_late_are_heard() -> None:
    one = engine(detector="none")
    x, codes = samples(64, 3, 0)
    state, _ = one.step(one.start(), Batch.of(x.float(), codes.tolist()))
    x, codes = samples(40, 3, 1)
    ids = [f"s{row}" for row in range(40)]
    state, _ = one.step(state, Batch.of(x.float(), [None] * 40, ids))
    before = state.model.panel
    state, _ = one.label(state, ids, codes.tolist())
    assert before is not None
    assert state.model.panel is not None
    assert float(state.model.panel.gaussians.mass[-1].sum()) == pytest.approx(104)
    assert not torch.equal(before.weights, state.model.panel.weights)


@pytest.mark.parametrize("image", [None, "2,3"])
def test_images_have_no_experts(image: str | None) -> None:
    x = torch.rand(50, 2, 3, generator=torch.Generator().manual_seed(0))
    batch = Batch.of(x if image is None else x.reshape(50, 6), [0, 1] * 25)
    one = engine(image=image)
    state, _ = one.step(one.start(), batch)
    assert state.model.panel is None
    assert one.snapshot(state).experts is None


@pytest.mark.parametrize("settings_", [{"experts": False}, {"preset": "paper"}])
def test_nor_has_who_wants_none(settings_: dict[str, object]) -> None:
    one = engine(**settings_)
    state, _ = play(one, one.start(), moving(2, 0))
    assert state.model.panel is None


def test_a_snapshot_with_experts_survives_its_bytes() -> None:
    one = engine()
    state, _ = lived_through(one, moving, 12, 0)
    snapshot = one.snapshot(state)
    again, _ = Snapshot.from_bytes(snapshot.to_bytes({}))
    x = moving(1, 3)[0].features
    assert torch.equal(again.classify(x).probabilities, snapshot.classify(x).probabilities)
    without = replace(snapshot, experts=None).classify(x).probabilities
    assert not torch.equal(without, snapshot.classify(x).probabilities)


def test_who_joins_experts_of_an_earlier_release_begins_with_nothing_and_goes_on() -> None:
    one = engine()
    state, _ = lived_through(one, moving, 12, 0)
    tensors, text = unpack(FORMAT, dump(state, one.config, {}))
    tree = json.loads(text["state"])
    panel = tree["model"]["panel"]
    del panel["neighbours"]
    weights = tensors[panel["weights"]]
    tensors[panel["weights"]] = weights[:9] / weights[:9].sum()
    del panel["mix"]
    earlier, _, _ = load(pack(FORMAT, tensors, {**text, "state": json.dumps(tree)}))
    assert earlier.model.panel is not None
    assert earlier.model.panel.neighbours.size == 0
    assert float(earlier.model.panel.weights.sum()) == pytest.approx(1)
    assert bool((earlier.model.panel.weights > 0).all())
    assert torch.equal(earlier.model.panel.mix, earlier.model.panel.weights)
    later, _ = play(one, earlier, moving(12, 1))
    assert later.model.panel is not None
    assert later.model.panel.neighbours.samples == 12 * 100
    again, _, _ = load(dump(later, one.config, {}))
    assert_identical(again, later)


def test_a_panel_of_an_earlier_release_is_read_and_sums_count_as_their_mass() -> None:
    one = engine()
    state, _ = lived_through(one, moving, 12, 0)
    tensors, text = unpack(FORMAT, dump(state, one.config, {}))
    tree = json.loads(text["state"])
    del tree["model"]["panel"]["gaussians"]["mass_squares"]
    del tree["model"]["panel"]["mix"]
    tree["model"]["panel"]["ahead"] = 1
    earlier, _, _ = load(pack(FORMAT, tensors, {**text, "state": json.dumps(tree)}))
    assert earlier.model.panel is not None
    assert torch.equal(earlier.model.panel.mix, earlier.model.panel.weights)
    sums = earlier.model.panel.gaussians
    assert torch.equal(sums.mass_squares, sums.mass)
    later, _ = play(one, earlier, moving(12, 1))
    again, _, _ = load(dump(later, one.config, {}))
    assert_identical(again, later)


def test_a_snapshot_of_an_earlier_release_answers_without_who_joined_since() -> None:
    one = engine()
    state, _ = lived_through(one, moving, 12, 0)
    rules = one.snapshot(state).experts
    assert rules is not None
    tensors = rules.tensors()
    for name in NEIGHBOURS:
        del tensors[name]
    tensors["weights"] = tensors["weights"][:9] / tensors["weights"][:9].sum()
    earlier = Rules.read(tensors)
    x = moving(1, 3)[0].features.double()
    advice = earlier.advice(x, even(len(x), 3))
    assert advice.weights[9:].tolist() == [0, 0]
    expected = torch.einsum("e,enc->nc", advice.weights[:9], advice.opinions[:9])
    assert torch.equal(advice.probabilities, expected)


@pytest.mark.parametrize("at", [3, 11])
def test_a_life_saved_while_samples_wait_goes_on_bit_for_bit(at: int) -> None:
    one = engine()
    stream = moving(20, 0, size=7)
    half, _ = play(one, one.start(), stream[:at])
    assert half.model.panel is not None
    assert len(half.model.panel.rows)
    kept, _, _ = load(dump(half, one.config, {}))
    assert_identical(play(one, kept, stream[at:])[0], play(one, half, stream[at:])[0])


def test_at_a_boundary_no_sample_waits_on_and_no_sum_is_of_a_sample_or_two() -> None:
    one = engine(detector="none")
    state, _ = play(one, one.start(), moving(5, 0, size=40))
    rare = torch.tensor([[7.0, 7.0], [8.0, -8.0]])
    state, _ = one.step(state, Batch.of(rare, ["rare", "rare"]))
    assert one.snapshot(state).info.heard == 202  # micro-clusters of a sample each
    state, _ = one.declare_boundary(state)
    assert state.model.panel is not None
    assert one.snapshot(state).info.heard == 0
    assert state.model.panel.neighbours.size > 0
    code = state.model.classes.index("rare")
    panel = state.model.panel
    for part in (panel.gaussians, panel.joint, panel.forests, panel.neighbours):
        assert not bool(part.mass[:, code].any())
    for part in (state.model.panel.gaussians, state.model.panel.joint):
        assert float(part.mass[-1].sum()) == pytest.approx(200)
    assert not bool(state.model.panel.gaussians.sums[:, code].any())
    assert not bool(state.model.panel.joint.cross[..., code].any())


def test_the_first_samples_by_which_strays_are_told_are_in_no_state_that_is_kept() -> None:
    one = engine(detector="none")
    state, _ = play(one, one.start(), moving(2, 0, size=30))

    def held(of: EngineState) -> list[int]:
        assert of.model.panel is not None
        assert of.model.standardiser is not None
        stretches = (of.model.standardiser.stretch, of.model.panel.standardiser.stretch)
        return [0 if stretch is None else len(stretch.first) for stretch in stretches]

    assert held(state) == [60, 60]
    assert held(one.without_raw(state)) == [0, 0]
    assert held(one.declare_boundary(state)[0]) == [0, 0]
    # Those of a hundred have done.
    assert held(play(one, state, moving(1, 1, size=50))[0]) == [0, 0]


def clusters(n: int, of: int, seed: int) -> tuple[Tensor, list[int]]:
    """Samples of so many of four clusters, and which each is of."""
    centres = 4 * torch.randn(4, 16, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    kinds = torch.randint(of, (n,), generator=generator)
    noise = torch.randn(n, 16, generator=generator)
    return centres[kinds] + noise, kinds.tolist()


def clustered(batches: int) -> Iterator[Batch]:
    for seed in range(batches):
        x, kinds = clusters(100, 4, seed)
        yield Batch.of(x, [str(kind) for kind in kinds])


@pytest.mark.parametrize("wrong", ["wrong", "1"])
@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_labels_of_one_class_do_not_rename_the_others(preset: str, wrong: str) -> None:
    """A tree that has just begun anew knows one class, and finds every sample to be of it."""
    engine = Engine(EngineConfig(preset=preset))
    state, _ = lived_through(engine, clustered, 30)
    asked, kinds = clusters(400, 4, 99)
    for seed in range(3):
        x, _ = clusters(100, 1, 50 + seed)
        state, _ = engine.step(state, Batch.of(x, [wrong] * 100))
        snapshot = engine.snapshot(state)
        named = [snapshot.answers[code] for code in snapshot.classify(asked).codes.tolist()]
        pairs = [
            (name, str(kind))
            for name, kind in zip(named, kinds, strict=True)
            if kind and str(kind) != wrong
        ]
        assert sum(name == kind for name, kind in pairs) >= 0.98 * len(pairs)


def pump(label: str, n: int, seed: int) -> Tensor:
    """Samples of a pump: a worn one looks much like one that is in order."""
    generator = torch.Generator().manual_seed(1000 * seed + len(label))
    x = torch.randn(n, 8, generator=generator)
    x[:, :4] += torch.randn(n, 1, generator=generator)
    if label == "worn":
        x[:, 0] += 1.5
        x[:, 1] += 2
    if label == "fault":
        x[:, 2] += 6
        x[:, 3] -= 5
    return x


@pytest.mark.parametrize("preset", ["mfa", "flat"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_class_is_not_forgotten_while_only_classes_that_look_like_it_come(
    preset: str, seed: int
) -> None:
    one = engine(preset=preset)
    state = one.start()
    for index in range(20):
        x = pump("ok", 100, 100 * seed + index)
        state, _ = one.step(state, Batch.of(x, ["ok"] * 100))
    for index in range(6):
        x = torch.cat([pump("worn", 97, 100 * seed + index), pump("fault", 3, index)])
        order = torch.randperm(100, generator=torch.Generator().manual_seed(index))
        labels = [("worn", "fault")[row >= 97] for row in order.tolist()]
        state, _ = one.step(state, Batch.of(x[order], labels))
    snapshot = one.snapshot(state)
    for label in ("ok", "worn"):
        codes = snapshot.classify(pump(label, 500, 77)).codes
        assert int((codes == snapshot.classes.index(label)).sum()) > 250, label
