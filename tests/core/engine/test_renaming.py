"""Tests for classes that are called otherwise from some moment on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.batch import Batch, Label
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState, Mode
from core.errors import ClassExists, InvalidLabels, UnknownClass
from core.events import ClassRenamed
from tests.core.states import Script, assert_identical, lived, play, scripts
from tests.core.streams import batches, blob

CONFIG = EngineConfig(preset="flat", warm_up=300, ert=50_000, n_components=16)
OLD, NEW = 2, "two again"


def renamed_by(engine: Engine, state: EngineState, label: Label, to: Label) -> EngineState:
    return engine.rename_class(state, label, to)[0]


def called(script: Script) -> Script:
    """The same script, with the new name in place of the old one."""
    return [
        part
        if isinstance(part, str) or part.codes is None
        else replace(part, vocabulary=tuple(NEW if one == OLD else one for one in part.vocabulary))
        for part in script
    ]


@pytest.mark.parametrize("preset", ["flat", "mfa", "paper"])
@settings(max_examples=25, deadline=None)
@given(before=scripts(least=2), after=scripts(most=5), experts=st.booleans())
def test_it_is_as_if_the_class_had_always_had_that_name(
    preset: str, before: Script, after: Script, experts: bool
) -> None:
    engine = Engine(replace(CONFIG, preset=preset, experts=experts))
    # It is a class, whatever else there is.
    before = [Batch.of(blob(5, 30, seed=1), [OLD] * 30), *before]
    state = renamed_by(engine, play(engine, engine.start(), before)[0], OLD, NEW)
    always = play(engine, engine.start(), called(before))[0]
    always = always.changed() if always.model.version else always
    assert_identical(state, always)
    one, told = play(engine, state, called(after))
    other, as_told = play(engine, always, called(after))
    assert told == as_told
    assert_identical(one, other)


def test_labels_and_samples_that_wait_for_each_other_go_by_the_new_name() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, OLD], 8)
    x = blob(OLD, 40, seed=5)
    state, _ = engine.step(state, Batch.of(x[:20], None, [*range(20)]))
    state, _ = engine.label(state, [100], [OLD])  # its sample has yet to come
    state, _ = engine.label(state, [101], [NEW])  # of a name that no class has yet
    state = renamed_by(engine, state, OLD, NEW)
    before = dict(zip(state.model.classes, state.model.class_counts, strict=True))
    state, _ = engine.label(state, [*range(20)], [NEW] * 20)
    state, _ = engine.step(state, Batch.of(x[20:22], None, [100, 101]))
    after = dict(zip(state.model.classes, state.model.class_counts, strict=True))
    assert after == {**before, NEW: before[NEW] + 22}


def test_a_batch_that_is_set_aside_may_have_both_names() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, OLD], 8)
    both = Batch.of(blob(OLD, 4, seed=5), [OLD, NEW, None, 0])
    state = state.with_pending(set_aside=(both,))
    state = replace(state, model=replace(state.model, panel=None))  # has heard of no other name
    (waits,) = renamed_by(engine, state, OLD, NEW).pending.set_aside
    assert waits.plain_labels == [NEW, NEW, None, 0]


def test_labels_that_came_while_the_model_was_frozen_go_by_the_new_name() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, OLD], 8)
    state, _ = engine.step(state, Batch.of(blob(OLD, 5, seed=5), None, [*range(5)]))
    state, _ = engine.change_mode(state, Mode.FROZEN)
    state, _ = engine.label(state, [*range(5)], [OLD] * 5)
    state, events = engine.rename_class(state, OLD, NEW, "ann", "a typing error")
    assert events == [
        ClassRenamed(NEW, OLD, "ann", "a typing error", 0, state.model.version),
    ]
    state, _ = engine.change_mode(state, Mode.LEARN)
    assert set(state.model.classes) == {0, NEW}


def test_answers_are_the_same_under_the_new_name_and_the_old_one_is_another_class() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, OLD], 8)
    then, x = engine.snapshot(state), blob(OLD, 20, seed=3)
    state = renamed_by(engine, state, OLD, NEW)
    now = engine.snapshot(state)
    assert now.version > then.version  # a version has one answer for ever
    assert now.classes == tuple(NEW if one == OLD else one for one in then.classes)
    assert torch.equal(now.classify(x).probabilities, then.classify(x).probabilities)
    drawn, as_before = now.sample(5, [NEW], seed=0), then.sample(5, [OLD], seed=0)
    assert torch.equal(drawn.features, as_before.features)
    state, _ = engine.step(state, next(batches([OLD], 1)))
    assert set(state.model.classes) | set(engine.naming.labels(state)) == {0, NEW, OLD}


def test_a_rollback_behind_it_brings_the_old_name_back() -> None:
    engine = Engine(CONFIG)
    before = lived(engine, [0, OLD], 8)
    state = renamed_by(engine, before, OLD, NEW)
    state, _ = engine.restore(state, before, "rollback")
    assert state.model.classes == before.model.classes


@pytest.mark.parametrize(
    ("label", "to", "error", "told"),
    [
        (7, "x", UnknownClass, "never seen the class 7"),
        ("2", "x", UnknownClass, "never seen the class '2'"),
        (OLD, 0, ClassExists, "a class 0 already"),
        (OLD, OLD, ClassExists, "a class 2 already"),
        (OLD, 1.5, InvalidLabels, "1.5"),
        (OLD, True, InvalidLabels, "True"),
    ],
)
def test_what_cannot_be_is_refused_and_said(
    label: Any, to: Any, error: type[Exception], told: str
) -> None:
    engine = Engine(CONFIG)
    with pytest.raises(error, match=told):
        engine.rename_class(lived(engine, [0, OLD], 8), label, to)
