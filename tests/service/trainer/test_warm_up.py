"""Tests for the service.trainer.warm_up module: loops are compiled before they are needed."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from core.config import EngineConfig
from core.experts.opinions import complete
from service.settings import Settings
from service.trainer import host as trainer
from service.trainer import warm_up


@pytest.fixture
def warmed_up(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set by a warm-up, which takes no time."""
    done = threading.Event()
    monkeypatch.setattr(warm_up, "warm_up", done.set)
    return done


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({}, True),
        ({"experts": False}, True),
        ({"detector": "none"}, True),
        ({"detector": "paper", "experts": False}, False),
        ({"detector": "none", "experts": False}, False),
        ({"detector": "paper", "shadow_detectors": "sequential", "experts": False}, True),
    ],
)
def test_loops_are_warmed_up_meanwhile_where_a_detector_or_experts_have_loops(
    settings: dict[str, Any], wanted: bool, warmed_up: threading.Event
) -> None:
    warm_up.warm_up_meanwhile(EngineConfig(**settings))
    for thread in threading.enumerate():
        if thread.name == "warm-up":
            thread.join()
    assert warmed_up.is_set() is wanted


@pytest.mark.usefixtures("main_in_this_process")
def test_a_trainer_that_starts_warms_up(
    monkeypatch: pytest.MonkeyPatch, warmed_up: threading.Event
) -> None:
    class Idle:
        def __init__(self, settings: Settings, lease: object = None) -> None:
            pass

        def run(self) -> None:
            assert warmed_up.wait(10)

    monkeypatch.setattr(trainer, "Trainer", Idle)
    assert trainer.main(Settings.load({})) == 0


@pytest.mark.parametrize("kept", [True, False])
def test_who_starts_where_no_loops_are_kept_is_told_that_they_are_compiled(
    kept: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    warmed_up: threading.Event,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "experts" / "__pycache__").mkdir(parents=True)
    if kept:
        (tmp_path / "experts" / "__pycache__" / "opinions.py312.nbi").touch()
    monkeypatch.setattr(warm_up, "FOLDER", tmp_path)
    with caplog.at_level(logging.INFO):
        warm_up.warm_up_meanwhile(EngineConfig(detector="paper", experts=False))
        assert not caplog.records  # nobody needs them
        warm_up.warm_up_meanwhile(EngineConfig())
    assert warmed_up.wait(10)
    assert len(caplog.records) == (0 if kept else 1)
    assert kept or "they are compiled now" in caplog.text


def test_loops_are_kept_where_they_are_looked_for() -> None:
    cache: Any = complete._cache  # type: ignore[attr-defined]  # of numba
    assert Path(cache.cache_path).name == "__pycache__"
    assert Path(cache.cache_path).is_relative_to(warm_up.FOLDER)
    assert Path(cache._cache_file._index_name).suffix == ".nbi"
