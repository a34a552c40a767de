"""Tests for the core.config module."""

from __future__ import annotations

import json
import math

import pytest

from core.config import DETECTORS, PACES, PRESETS, REPLAYS, EngineConfig
from core.errors import InvalidSettings


def test_the_defaults_are_allowed_and_survive_json() -> None:
    config = EngineConfig()
    assert EngineConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_every_field_survives_json() -> None:
    config = EngineConfig(
        preset="dcgmm",
        n_components=49,
        n_factors=4,
        n_features=3,
        variance_floor=0.5,
        detector="paper",
        shadow_detectors="adwin,kswin",
        ert=50_000.0,
        warm_up=7,
        outlier_c=1.0,
        outlier_false_positive_rate=0.1,
        image="7,9",
        sharpening=5,
        pace="published",
        replay="constant",
        replay_factor=0.5,
        window=9,
        set_aside_limit=11,
        label_wait_samples=17,
        cooldown=400,
        awaiting_limit=19,
        proposal_samples=23,
        experts=False,
        max_classes=13,
        seed=2**40,
    )
    shifted, default = EngineConfig(shift=1), EngineConfig()
    for name, value in {**config.to_dict(), "shift": shifted.shift}.items():
        assert value != getattr(default, name), f"{name} is not tested"
    for one in (config, shifted):
        assert EngineConfig.from_dict(json.loads(json.dumps(one.to_dict()))) == one


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_checkpoint_of_a_replay_that_its_preset_no_longer_has_is_read(preset: str) -> None:
    old = {**EngineConfig(preset=preset).to_dict(), "replay": "constant"}
    assert EngineConfig.from_dict(old) == EngineConfig(preset=preset)
    with pytest.raises(InvalidSettings, match="replay is 'best'"):
        EngineConfig.from_dict({**old, "replay": "best"})


def test_settings_of_later_releases_are_ignored_and_missing_ones_take_their_default() -> None:
    config = EngineConfig.from_dict({"n_components": 5, "invented_later": True})
    assert config == EngineConfig(n_components=5)


@pytest.mark.parametrize(
    ("preset", "replay", "mode"),
    [
        ("mfa", "auto", "analytic"),
        ("flat", "auto", "analytic"),
        ("flat", "analytic", "analytic"),
        ("paper", "auto", "constant"),
        ("paper", "constant", "constant"),
        ("paper", "proportional", "proportional"),
    ],
)
def test_every_preset_has_its_own_kinds_of_replay(preset: str, replay: str, mode: str) -> None:
    assert EngineConfig(preset=preset, replay=replay).replay_mode == mode


@pytest.mark.parametrize(
    ("preset", "replay", "reason"),
    [
        ("dcgmm", "analytic", "has to draw"),
        ("paper", "analytic", "has to draw"),
        ("mfa", "constant", "draws no sample"),
        ("flat", "proportional", "draws no sample"),
    ],
)
def test_a_replay_that_the_preset_does_not_have_is_refused_with_the_reason(
    preset: str, replay: str, reason: str
) -> None:
    with pytest.raises(InvalidSettings, match=f"'{preset}' has no '{replay}' replay.*{reason}"):
        EngineConfig(preset=preset, replay=replay)


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("preset", PRESETS), ("detector", DETECTORS), ("pace", PACES), ("replay", REPLAYS)],
)
def test_names_that_do_not_exist_are_refused_with_those_that_do(
    name: str, allowed: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidSettings, match=f"{name} is 'best'") as caught:
        EngineConfig(**{name: "best"})
    assert all(choice in str(caught.value) for choice in allowed)


@pytest.mark.parametrize(
    "name",
    [
        "n_components",
        "n_features",
        "warm_up",
        "window",
        "set_aside_limit",
        "label_wait_samples",
        "awaiting_limit",
    ],
)
@pytest.mark.parametrize("value", [0, -1])
def test_counts_start_at_one(name: str, value: int) -> None:
    with pytest.raises(InvalidSettings, match=f"{name} is {value}; it must be at least 1"):
        EngineConfig(**{name: value})
    EngineConfig(**{name: 1})


@pytest.mark.parametrize("value", [-1, 1, 9])
def test_a_proposal_needs_samples_whose_mean_shows_none_of_them(value: int) -> None:
    with pytest.raises(InvalidSettings, match=f"proposal_samples is {value}; .* at least 10"):
        EngineConfig(proposal_samples=value)
    assert not EngineConfig(proposal_samples=0).proposal_samples


@pytest.mark.parametrize("value", [0.0, -0.05, math.nan, math.inf])
def test_the_variance_floor_is_a_positive_number(value: float) -> None:
    with pytest.raises(InvalidSettings, match="variance_floor is"):
        EngineConfig(variance_floor=value)


@pytest.mark.parametrize("name", ["outlier_c", "replay_factor"])
@pytest.mark.parametrize("value", [-0.1, math.nan, math.inf])
def test_factors_are_numbers_that_are_not_negative(name: str, value: float) -> None:
    with pytest.raises(InvalidSettings, match=f"{name} is"):
        EngineConfig(**{name: value})
    EngineConfig(**{name: 0.0})


@pytest.mark.parametrize(
    ("image", "shape"), [("28,28", (28, 28, 1)), (" 4, 6 ", (4, 6, 1)), ("32,32,3", (32, 32, 3))]
)
def test_the_shape_of_an_image_is_read_from_text(image: str, shape: tuple[int, int, int]) -> None:
    assert EngineConfig(image=image).image_shape == shape
    assert EngineConfig().image_shape is None


@pytest.mark.parametrize("shift", [-1, 5])
def test_images_are_shifted_by_a_few_pixels_at_most(shift: int) -> None:
    with pytest.raises(InvalidSettings, match=f"shift is {shift}; it must be from 0, .* to 4"):
        EngineConfig(shift=shift)
    EngineConfig(shift=4)


@pytest.mark.parametrize("preset", ["paper", "dcgmm"])
def test_a_preset_that_cannot_shift_is_refused(preset: str) -> None:
    with pytest.raises(InvalidSettings, match=f"shift is 1, which preset '{preset}' cannot do"):
        EngineConfig(preset=preset, shift=1)


@pytest.mark.parametrize("image", ["", "28", "28x28", "28,28,1,1", "28,-1", "28,0", "0,3,1"])
def test_text_that_is_no_shape_is_refused(image: str) -> None:
    with pytest.raises(InvalidSettings, match="image is"):
        EngineConfig(image=image)
