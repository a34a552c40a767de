"""Tests for settings that are asked for while a model runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.batch import Batch
from core.config import EngineConfig
from core.engine import checkpoint
from core.engine.asked_settings import ADJUSTABLE, NOTHING_ASKED, AskedSettings, Value
from core.engine.engine import Engine
from core.engine.state import EngineState, Mode
from core.errors import InvalidLabels, InvalidRequest
from core.events import Event, LabelsMissed, ModelRestored, SettingsChanged
from tests.core.states import Script, assert_identical, lived, play, scripts
from tests.core.streams import batches, blob

CONFIG = EngineConfig(preset="flat", warm_up=300, ert=50_000, experts=False)

SPOKEN_OF: dict[str, st.SearchStrategy[Value]] = {
    "cooldown": st.sampled_from([0, 100, 400, 2000]),
    "outlier_c": st.floats(0.5, 4),
    "outlier_false_positive_rate": st.floats(0.001, 0.4),
    "set_aside_limit": st.sampled_from([1, 60, 300]),
    "label_wait_samples": st.sampled_from([1, 150, 400]),
    "awaiting_limit": st.sampled_from([1, 50, 200]),
    "proposal_samples": st.sampled_from([0, 10, 400]),
    "max_classes": st.sampled_from([2, 3, 50]),
}


def with_ids(script: Script, first: int = 0) -> Script:
    """The same script, whose unlabelled batches have ids, so that their labels are waited for.

    Arguments:
        first: Place of the script's first part among all parts.
    """
    return [
        replace(part, sample_ids=tuple(range(1000 * place, 1000 * place + len(part))))
        if isinstance(part, Batch) and part.codes is None
        else part
        for place, part in enumerate(script, first)
    ]


def settled(engine: Engine, state: EngineState, script: Script) -> tuple[EngineState, list[Event]]:
    """The state after a script, without the batches that are refused."""
    happened: list[Event] = []
    for part in script:
        try:
            state, events = play(engine, state, [part])
        except InvalidLabels:
            events = []
        happened += events
    return state, happened


def changed_by(engine: Engine, state: EngineState, **changes: Value) -> EngineState:
    """A state with other settings, which were not in force before."""
    state, [event] = engine.change_settings(state, changes)
    assert isinstance(event, SettingsChanged)
    return state


def test_every_setting_that_can_be_asked_for_is_one_of_the_engine_and_is_tried() -> None:
    assert set(SPOKEN_OF) == set(ADJUSTABLE)
    assert set(ADJUSTABLE) < {*CONFIG.to_dict()}


@settings(max_examples=20, deadline=None)
@given(
    before=scripts(least=1, most=5),
    after=scripts(least=1, most=5),
    changes=st.fixed_dictionaries({}, optional=SPOKEN_OF).filter(bool),
    preset=st.sampled_from(["flat", "mfa"]),
)
def test_a_setting_that_is_asked_for_does_what_a_restart_with_it_does(
    before: Script, after: Script, changes: dict[str, Value], preset: str
) -> None:
    config = EngineConfig(preset=preset, n_components=12, warm_up=100, experts=preset == "mfa")
    engine = Engine(config)
    state, _ = play(engine, engine.start(), with_ids(before))
    after = with_ids(after, len(before))
    asked, _ = engine.change_settings(state, changes)
    asked, told = settled(engine, asked, after)

    values: dict[str, Any] = dict(changes)
    if "outlier_c" in values:
        values.setdefault("outlier_false_positive_rate", None)
    restarted = Engine(replace(config, **values))
    if restarted.config.outlier_c != 2 or restarted.config.outlier_false_positive_rate != 0.05:
        state = state.changed() if state.model.version else state
    state, same = settled(restarted, state, after)
    assert told == same
    assert_identical(replace(asked, asked=NOTHING_ASKED), state)
    if state.model.version:
        one, other = engine.snapshot(asked), restarted.snapshot(state)
        assert repr(one.info) == repr(other.info)  # it may hold NaN
        x = blob(0, 50, seed=3)
        assert torch.equal(one.outliers(x).inliers, other.outliers(x).inliers)


def strangers(n: int) -> Script:
    """Unlabelled batches of known classes, of which a fifth is of a class that nobody has named."""
    return [
        Batch(torch.cat([batch.features[20:], blob(16, 20, 500 + index)]))
        for index, batch in enumerate(batches([0, 1], n, seed=60, labelled=False))
    ]


NAMELESS = EngineConfig(n_components=24, detector="none", experts=False)


@pytest.mark.parametrize(
    ("config", "after", "changes"),
    [
        (NAMELESS, strangers(12), {"proposal_samples": 0}),
        (NAMELESS, strangers(12), {"proposal_samples": 20}),
        (NAMELESS, strangers(12), {"proposal_samples": 150}),
        (CONFIG, [*batches([0, 2], 30, size=10, seed=4, labelled=False)], {"set_aside_limit": 15}),
        (CONFIG, with_ids([*batches([0, 1], 4, seed=5, labelled=False)]), {"awaiting_limit": 30}),
        (
            CONFIG,
            with_ids([*batches([0, 1], 4, seed=5, labelled=False)]),
            {"label_wait_samples": 150},
        ),
    ],
)
def test_a_setting_that_is_asked_for_makes_the_difference_that_a_restart_would(
    config: EngineConfig, after: Script, changes: dict[str, Any]
) -> None:
    engine, restarted = Engine(config), Engine(replace(config, **changes))
    state = lived(engine, [0, 1], 20)
    asked, told = play(engine, changed_by(engine, state, **changes), after)
    same, as_told = play(restarted, state, after)
    assert told == as_told
    assert_identical(replace(asked, asked=NOTHING_ASKED), same)
    _, without = play(engine, state, after)
    assert told != without


def test_samples_that_wait_are_let_go_as_the_new_limit_says() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 8, seed=1)
    [waiting, more] = with_ids([*batches([0, 1], 2, seed=5, labelled=False)])
    state, _ = play(engine, state, [waiting])
    assert state.pending.awaiting.samples == 100
    asked = changed_by(engine, state, awaiting_limit=30)
    asked, events = play(engine, asked, [more])
    assert asked.pending.awaiting.samples == 30
    [missed] = [one for one in events if isinstance(one, LabelsMissed)]
    assert (missed.samples, missed.reason) == (170, "limit")


def test_more_classes_are_taken_at_once_and_fewer_drop_none() -> None:
    engine = Engine(replace(CONFIG, max_classes=2))
    state = lived(engine, [0, 1], 4, seed=1)
    [third] = batches([2], 1)
    with pytest.raises(InvalidLabels, match="gmr settings max_classes=N"):
        engine.step(state, third)
    asked = changed_by(engine, state, max_classes=3)
    asked, _ = engine.step(asked, third)
    asked = changed_by(engine, asked, max_classes=1)
    assert set(asked.model.classes) == {0, 1, 2}
    asked, _ = engine.step(asked, third)
    with pytest.raises(InvalidLabels):
        engine.step(asked, next(batches([3], 1)))


def test_only_what_changes_answers_makes_a_new_version() -> None:
    engine, x = Engine(CONFIG), blob(0, 400, seed=3, spread=0.12)
    state = lived(engine, [0, 1], 12, seed=1)
    version, usual = state.model.version, engine.snapshot(state).outliers(x).inliers
    same = changed_by(engine, state, max_classes=5)
    assert same.model.version == version
    # What is in force already changes no answer, by whomever it is wanted.
    assert changed_by(engine, state, outlier_false_positive_rate=0.05).model.version == version
    strict = changed_by(engine, state, outlier_false_positive_rate=0.4)
    assert strict.model.version == strict.model.last_version == version + 1
    assert engine.snapshot(strict).outliers(x).inliers.sum() < usual.sum()
    by_c = changed_by(engine, state, outlier_c=0.5)
    assert engine.snapshot(by_c).info.outlier_c == 0.5
    assert engine.snapshot(by_c).false_positive_rate is None
    as_before = changed_by(engine, by_c, outlier_c=None)
    assert as_before.asked == NOTHING_ASKED
    assert as_before.model.version == version + 2
    assert torch.equal(engine.snapshot(as_before).outliers(x).inliers, usual)


def test_before_the_first_batch_there_is_no_version_to_change() -> None:
    engine = Engine(CONFIG)
    state = changed_by(engine, engine.start(), outlier_c=3.0)
    assert state.model.version == 0
    state, _ = play(engine, state, list(batches([0, 1], 3)))
    assert engine.snapshot(state).info.outlier_c == 3


def test_the_event_says_what_is_in_force_and_what_was() -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 4, seed=1)
    state, [event] = engine.change_settings(
        state, {"proposal_samples": 20, "outlier_false_positive_rate": None}, "ada", "rare faults"
    )
    assert event == SettingsChanged(
        {"proposal_samples": 20, "outlier_false_positive_rate": 0.05},
        {"proposal_samples": 50, "outlier_false_positive_rate": 0.05},
        "ada",
        "rare faults",
        0,
        state.model.version,
    )
    assert engine.change_settings(state, {"proposal_samples": 20}) == (state, [])
    assert engine.change_settings(state, {}) == (state, [])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"preset": "mfa"}, "'preset' cannot be changed while the model runs"),
        ({"n_components": 3}, "Expected outlier_c, outlier_false_positive_rate"),
        ({"max_classes": 0}, "max_classes is 0; it must be at least 1"),
        ({"max_classes": 2.0}, r"max_classes is 2\.0; expected a whole number"),
        ({"max_classes": True}, "max_classes is True"),
        ({"outlier_c": "2"}, "outlier_c is '2'; expected a number"),
        ({"outlier_c": float("nan")}, "outlier_c is nan"),
        ({"outlier_false_positive_rate": 1.0}, "above 0 and below 1"),
        ({"proposal_samples": 3}, "at least 10"),
    ],
)
def test_what_cannot_be_asked_for_is_refused_and_said(changes: dict[str, Any], told: str) -> None:
    engine = Engine(CONFIG)
    state = lived(engine, [0, 1], 4, seed=1)
    with pytest.raises(InvalidRequest, match=told):
        engine.change_settings(state, {"awaiting_limit": 7, **changes})
    assert state.asked == NOTHING_ASKED


def test_a_checkpoint_holds_what_was_asked_for() -> None:
    engine = Engine(CONFIG)
    state = changed_by(engine, lived(engine, [0, 1], 4, seed=1), outlier_c=3.0, max_classes=9)
    loaded, config, _ = checkpoint.load(checkpoint.dump(state, CONFIG, {}))
    assert loaded.asked == AskedSettings(outlier_c=3.0, max_classes=9)
    assert config == CONFIG
    assert_identical(loaded, state)


def test_a_rollback_leaves_them_in_force_under_a_version_of_its_own_where_answers_differ() -> None:
    engine, x = Engine(CONFIG), blob(0, 400, seed=3, spread=0.12)
    early = lived(engine, [0, 1], 5, seed=1)
    state, _ = play(engine, early, list(batches([0, 1], 3, seed=2)))
    limited = changed_by(engine, state, max_classes=5)
    back, [restored] = engine.restore(limited, early, "rollback")
    assert (back.asked, back.model.version) == (limited.asked, early.model.version)
    strict = changed_by(engine, state, outlier_false_positive_rate=0.4)
    back, [restored] = engine.restore(strict, early, "rollback")
    assert isinstance(restored, ModelRestored)
    assert back.asked == strict.asked
    assert restored.model_version == back.model.version == strict.model.version + 1
    assert back.model.samples_seen == early.model.samples_seen
    uploaded, _ = engine.restore(strict, early, "checkpoint")
    assert (uploaded.asked, uploaded.model.version) == (strict.asked, strict.model.version + 1)
    verdicts = [engine.snapshot(one).outliers(x).inliers.sum() for one in (back, early)]
    assert verdicts[0] < verdicts[1]


@pytest.mark.parametrize("mode", [Mode.FROZEN, Mode.DETECT_ONLY])
def test_a_model_at_rest_heeds_them(mode: Mode) -> None:
    engine, x = Engine(CONFIG), blob(0, 400, seed=3, spread=0.12)
    state, _ = engine.change_mode(lived(engine, [0, 1], 12, seed=1), mode)
    asked = changed_by(engine, state, outlier_false_positive_rate=0.4)
    inliers = [engine.snapshot(one).outliers(x).inliers.sum() for one in (asked, state)]
    assert inliers[0] < inliers[1]
    asked, _ = engine.change_mode(asked, Mode.LEARN)
    assert asked.asked.values == {"outlier_false_positive_rate": 0.4}
