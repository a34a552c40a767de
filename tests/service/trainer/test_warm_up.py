"""Tests for the service.trainer.warm_up module: loops are compiled before they are needed."""

from __future__ import annotations

import errno
import fcntl
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
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


# Several processes


HOLDER = """
import fcntl, os, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process_compiles(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """One that has the turn, until it ends."""
    command = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        try:
            yield holder
        finally:
            holder.kill()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where loops are kept: a folder of the test's own."""
    monkeypatch.setattr(warm_up, "FOLDER", tmp_path)
    return tmp_path


def test_of_those_that_start_together_one_compiles_and_the_others_read_what_it_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    did = []

    def compile_or_load() -> None:
        if (folder / "kept").exists():
            did.append("read")
            return
        time.sleep(0.3)
        (folder / "kept").touch()
        did.append("compiled")

    monkeypatch.setattr(warm_up, "warm_up", compile_or_load)
    # Each has the folder open for itself, as processes have.
    starting = [threading.Thread(target=warm_up.warm_up_in_turn) for _ in range(3)]
    for one in starting:
        one.start()
    for one in starting:
        one.join(20)
    assert did == ["compiled", "read", "read"]
    assert [path.name for path in folder.iterdir()] == ["kept"]  # and no lock


def test_the_turn_of_a_process_that_was_killed_is_over(
    folder: Path, warmed_up: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    with another_process_compiles(folder) as holder, caplog.at_level(logging.INFO):
        warm_up.warm_up_meanwhile(EngineConfig())
        assert not warmed_up.wait(0.5)
        holder.kill()
        assert warmed_up.wait(10)
    assert "Another process compiles or loads the loops" in caplog.text


def test_a_process_that_is_stopped_while_it_compiles_is_not_waited_for_for_ever(
    folder: Path,
    warmed_up: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(warm_up, "PATIENCE_S", 0.3)
    with another_process_compiles(folder):
        warm_up.warm_up_in_turn()
    assert warmed_up.is_set()
    assert "compiled here as well" in caplog.text


@pytest.mark.parametrize("why", ["read-only", "no locks"])
def test_where_nothing_can_be_kept_or_locked_nobody_waits(
    why: str, folder: Path, warmed_up: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    if why == "read-only":
        monkeypatch.setattr("os.access", lambda *_: False)
    else:
        monkeypatch.setattr(fcntl, "flock", refuse)
    with another_process_compiles(folder):
        warm_up.warm_up_in_turn()
    assert warmed_up.is_set()
