"""Tests for the service.trainer.warm_up module: loops are compiled before they are needed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from core.config import EngineConfig
from service.settings import Settings
from service.trainer import host as trainer
from service.trainer import warm_up as rehearsal


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set by a rehearsal, which takes no time."""
    done = threading.Event()
    monkeypatch.setattr(rehearsal, "rehearse", done.set)
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
def test_it_is_rehearsed_meanwhile_where_a_detector_or_experts_have_loops(
    settings: dict[str, Any], wanted: bool, rehearsed: threading.Event
) -> None:
    rehearsal.rehearse_meanwhile(EngineConfig(**settings))
    for thread in threading.enumerate():
        if thread.name == "rehearsal":
            thread.join()
    assert rehearsed.is_set() is wanted


@pytest.mark.usefixtures("main_in_this_process")
def test_a_trainer_that_starts_rehearses(
    monkeypatch: pytest.MonkeyPatch, rehearsed: threading.Event
) -> None:
    class Idle:
        def __init__(self, settings: Settings, lease: object = None) -> None:
            pass

        def run(self) -> None:
            assert rehearsed.wait(10)

    monkeypatch.setattr(trainer, "Trainer", Idle)
    assert trainer.main(Settings.load({})) == 0
