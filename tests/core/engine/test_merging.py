"""Tests for two classes that become one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.batch import Batch, Label
from core.class_merge import ClassMerge
from core.config import EngineConfig
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState, Mode
from core.engine.trial import check_values, try_out
from core.errors import InvalidLabels, ModelAtRest, UnknownClass
from core.events import ClassesMerged
from core.experts.new_names import NewNames
from core.model.readout import LinearReadout
from tests.core.states import Script, assert_finite, assert_identical, lived, play, scripts
from tests.core.streams import batches, blob

CONFIG = EngineConfig(preset="flat", warm_up=300, ert=50_000, n_components=16)
OLD, INTO = 2, "two"
PRESETS = ["flat", "mfa", "paper"]


def merged_by(engine: Engine, state: EngineState, label: Label, into: Label) -> EngineState:
    return engine.merge_classes(state, label, into)[0]


def counts_of(state: EngineState) -> dict[Label, int]:
    return dict(zip(state.model.classes, state.model.class_counts, strict=True))


def misnamed(engine: Engine, n_batches: int = 10) -> EngineState:
    """A stream of two classes, of which one goes by two names in turns."""
    state = engine.start()
    for index, batch in enumerate(batches([0, OLD], n_batches)):
        names = [INTO if one == OLD and index % 2 else one for one in batch.plain_labels]
        state, _ = engine.step(state, batch.labelled(names))
    return state


@pytest.mark.parametrize("preset", PRESETS)
@settings(max_examples=25, deadline=None)
@given(before=scripts(least=2), after=scripts(most=5), experts=st.booleans(), data=st.data())
def test_whatever_came_before_two_classes_are_one_and_the_stream_goes_on(
    preset: str, before: Script, after: Script, experts: bool, data: st.DataObject
) -> None:
    engine = Engine(replace(CONFIG, preset=preset, experts=experts))
    begin: Script = [Batch.of(blob(5, 30, seed=1), [OLD] * 10 + [INTO] * 10 + [0] * 10)]
    state, _ = play(engine, engine.start(), [*begin, *before])
    label, into = data.draw(st.permutations(engine.naming.labels(state)))[:2]
    merged, events = engine.merge_classes(state, label, into, "ann", "a typing error")
    version = merged.model.version
    assert events == [
        ClassesMerged(into, label, "ann", "a typing error", state.sub_task.number, version)
    ]
    assert version > state.model.version
    assert set(engine.naming.labels(merged)) == set(engine.naming.labels(state)) - {label}
    counts = counts_of(state)
    expected = {**counts, into: counts.get(into, 0) + counts.get(label, 0)}
    expected.pop(label, None)
    assert {**expected, **counts_of(merged)} == expected
    check_values(merged)
    loaded = load(dump(merged, engine.config, {}))[0]
    assert_identical(loaded, merged)
    try_out(engine, merged)
    one, told = play(engine, merged, after)
    again, as_told = play(engine, loaded, after)
    assert told == as_told
    assert_identical(one, again)
    assert_finite(one)


@pytest.mark.parametrize("experts", [False, True])
@pytest.mark.parametrize("preset", ["flat", "mfa"])
def test_one_class_is_as_likely_as_both_were_together(preset: str, experts: bool) -> None:
    engine = Engine(replace(CONFIG, preset=preset, experts=experts, n_components=200))
    state = misnamed(engine)
    state, _ = engine.declare_boundary(state)  # nothing waits in windows
    x = torch.cat([blob(0, 50, seed=9), blob(OLD, 50, seed=9)])
    then = engine.snapshot(state)
    now = engine.snapshot(merged_by(engine, state, OLD, INTO))
    places = [then.classes.index(one) for one in (OLD, INTO)]
    both = then.classify(x).probabilities[:, places].sum(1)
    own = now.classify(x).probabilities[:, now.classes.index(INTO)]
    if experts:  # of votes that are squared a sum is more than both
        assert float((own - both).min()) > -0.01
        assert float((own > 0.5).float().mean()) == 0.5
    else:
        torch.testing.assert_close(own, both, atol=1e-5, rtol=0)


def test_a_linear_classifier_gives_one_class_what_it_gave_two() -> None:
    engine = Engine(replace(CONFIG, preset="paper", experts=False))
    state = misnamed(engine, 40)
    then, now = (
        engine.learner.readout(one.model.learner)
        for one in (state, merged_by(engine, state, OLD, INTO))
    )
    assert isinstance(then, LinearReadout)
    assert isinstance(now, LinearReadout)
    weight = then.weight
    own = torch.eye(len(weight))  # each component with all the responsibility
    both = torch.softmax(own @ weight + then.bias, -1)[
        :, [state.model.classes.index(one) for one in (OLD, INTO)]
    ].sum(1)
    one = torch.softmax(own @ now.weight + now.bias, -1)[:, -1]
    torch.testing.assert_close(one, both)
    torch.testing.assert_close(now.weight.sum(1), torch.zeros(len(weight)), atol=1e-4, rtol=0)


@pytest.mark.parametrize("preset", PRESETS)
def test_what_went_by_two_names_is_named_and_drawn_as_one(preset: str) -> None:
    engine = Engine(replace(CONFIG, preset=preset))
    state = merged_by(engine, misnamed(engine, 40), OLD, INTO)
    snapshot, x = engine.snapshot(state), blob(OLD, 200, seed=3)
    assert snapshot.classes == (0, INTO)
    named = snapshot.classify(x).probabilities.argmax(1)
    assert float((named == 1).float().mean()) > 0.95
    drawn = snapshot.sample(200, [INTO], seed=0).features
    assert float((drawn.mean(0) - x.mean(0)).abs().max()) < 0.1


@pytest.mark.parametrize("seed", [0, 1])
def test_samples_of_both_names_are_typical_as_before(seed: int) -> None:
    """Also where the windows of both, which end with it, have samples that nobody has fitted."""
    generator = torch.Generator().manual_seed(seed)
    centres = 2 * torch.randn(2, 6, generator=generator)

    def drawn(n: int) -> tuple[Tensor, Tensor]:
        codes = torch.randint(2, (n,), generator=generator)
        rows = centres[codes] + torch.randn(n, 6, generator=generator)
        rows[:, 0] = (torch.rand(n, generator=generator) < 0.1).float()
        rows[:, 1] = (rows[:, 2] > 1).float()
        return rows, codes

    engine = Engine(EngineConfig(detector="none"))
    state = engine.start()
    for _ in range(33):
        rows, codes = drawn(100)
        wrong = torch.rand(100, generator=generator) < 0.3
        names = [
            0 if code == 0 else (INTO, OLD)[slip]
            for code, slip in zip(codes, wrong.int(), strict=True)
        ]
        state, _ = engine.step(state, Batch.of(rows, names))
    rows, _ = drawn(2000)
    for one in (state, merged_by(engine, state, OLD, INTO)):
        p_values = engine.snapshot(one).outliers(rows).p_values
        assert p_values is not None
        assert float((p_values < 0.05).double().mean()) < 0.09


def test_labels_and_samples_that_wait_for_each_other_are_of_the_one_class() -> None:
    engine = Engine(CONFIG)
    state, x = misnamed(engine), blob(OLD, 40, seed=5)
    state, _ = engine.step(state, Batch.of(x[:20], None, [*range(20)]))
    state, _ = engine.label(state, [100], [OLD])  # its sample has yet to come
    state, _ = engine.settle(state)
    before = counts_of(state)
    state = merged_by(engine, state, OLD, INTO)
    state, _ = engine.label(state, [*range(20)], [INTO] * 20)
    state, _ = engine.step(state, Batch.of(x[20:21], None, [100]))
    assert counts_of(state) == {0: before[0], INTO: before[OLD] + before[INTO] + 21}


def test_a_batch_that_is_set_aside_may_have_a_class_that_the_model_has_yet_to_learn() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, OLD], 8)
    both = Batch.of(blob(OLD, 4, seed=5), [OLD, INTO, None, 0])
    state = state.with_pending(set_aside=(both,))
    state = engine.naming.taught(state, both, None)
    assert set(engine.naming.labels(state)) == {0, OLD, INTO}
    for label, into in ((OLD, INTO), (INTO, OLD)):
        merged = merged_by(engine, state, label, into)
        assert merged.pending.set_aside[0].plain_labels == [into, into, None, 0]
        assert set(engine.naming.labels(merged)) == {0, into}
        assert counts_of(merged) == {0: counts_of(state)[0], into: counts_of(state)[OLD]}


def test_the_old_label_is_another_class_and_a_rollback_brings_both_back() -> None:
    engine = Engine(CONFIG)
    before = misnamed(engine)
    state = merged_by(engine, before, OLD, INTO)
    later, _ = engine.step(state, next(batches([OLD], 1)))
    assert set(engine.naming.labels(later)) == {0, INTO, OLD}
    state, _ = engine.restore(state, before, "rollback")
    assert state.model.classes == before.model.classes


def test_sub_tasks_of_both_names_are_held_as_one_class() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, OLD], 8)
    state, _ = engine.declare_boundary(state)
    for batch in batches([OLD], 6, seed=1):
        state, _ = engine.step(state, batch.labelled([INTO] * len(batch)))
    state, _ = engine.declare_boundary(state)
    first, second = engine.held(merged_by(engine, state, OLD, INTO))
    assert [one.label for one in first.classes] == [0, INTO]
    assert [one.label for one in second.classes] == [INTO]
    assert min(one.accuracy_now or 0 for one in (first, second)) > 0.95


@pytest.mark.parametrize(
    ("label", "into", "error", "told"),
    [
        (7, 0, UnknownClass, "never seen the class 7"),
        (0, "2", UnknownClass, "never seen the class '2'"),
        (OLD, OLD, InvalidLabels, "part of itself"),
        (OLD, 1.5, InvalidLabels, "1.5"),
    ],
)
def test_what_cannot_be_is_refused_and_said(
    label: Any, into: Any, error: type[Exception], told: str
) -> None:
    engine = Engine(CONFIG)
    with pytest.raises(error, match=told):
        engine.merge_classes(lived(engine, [0, OLD], 8), label, into)


def test_a_model_at_rest_keeps_its_classes() -> None:
    engine = Engine(CONFIG)
    state, _ = engine.change_mode(lived(engine, [0, OLD], 8), Mode.FROZEN)
    with pytest.raises(ModelAtRest, match="cannot become one"):
        engine.merge_classes(state, OLD, 0)


def test_what_counts_by_class_beside_the_model_counts_both_as_one() -> None:
    engine = Engine(replace(CONFIG, preset="mfa", experts=True))
    state = engine.start()
    for index, batch in enumerate(batches([0, OLD, 5], 12)):
        names = [INTO if one == OLD and index % 2 else one for one in batch.plain_labels]
        state, _ = engine.step(state, batch.labelled(names))
    merged = merged_by(engine, state, OLD, INTO)
    codes = [state.model.classes.index(one) for one in (OLD, INTO)]
    now = merged.model.classes.index(INTO)
    last = merged.model.classes.index(5)  # whose code has fallen
    assert last == state.model.classes.index(5) - 1

    def by_class(one: EngineState) -> list[Tensor]:
        assert one.model.panel is not None
        shares, names = one.sub_task.class_shares, one.model.panel.new_names
        counted = [one.stream.reliability.answers, one.stream.reliability.usual, names.came]
        return [*counted, names.heard, shares.reference, *shares.blocks]

    pairs = [
        (before, after)
        for before, after in zip(by_class(state), by_class(merged), strict=True)
        if len(before)
    ]
    assert len(pairs) >= 5
    for before, after in pairs:
        assert len(after) == len(before) - 1
        torch.testing.assert_close(after[now], before[codes].sum(0))
        torch.testing.assert_close(after[last], before[last + 1])
    marks, as_before = merged.sub_task.fingerprints, state.sub_task.fingerprints
    assert ((marks.codes == now) == np.isin(as_before.codes, codes)).all()
    assert ((marks.codes == last) == (as_before.codes == last + 1)).all()
    assert (marks.codes == last).any()


def test_no_class_is_a_new_name_of_one_that_is_no_more() -> None:
    names = NewNames.start(4)
    codes = torch.tensor([1, 2, 3] * 20)
    names = names.counted(torch.tensor([2, 3, 1] * 20), codes)
    assert names.taken_for.tolist() == [-1, 2, 3, 1]
    merged = names.with_merged_classes(ClassMerge(gone=1, into=2))
    # Both are taken for the last, and the last for both.
    assert merged.taken_for.tolist() == [-1, 2, 1]
    came = names.came.tolist()
    assert merged.came.tolist() == pytest.approx([0, came[1] + came[2], came[3]])
    itself = names.with_merged_classes(ClassMerge(gone=2, into=1))
    assert itself.taken_for.tolist() == [-1, -1, 1]
    assert float(itself.share[1]) == 0


@pytest.mark.parametrize("preset", ["flat", "mfa"])
def test_one_class_has_as_many_components_as_one_may_have(preset: str) -> None:
    engine = Engine(replace(CONFIG, preset=preset, experts=False, n_components=15))
    state = misnamed(engine, 40)
    for one, most in ((state, 5), (merged_by(engine, state, OLD, INTO), 8)):
        assert int(torch.bincount(one.model.learner.owner).max()) <= most
