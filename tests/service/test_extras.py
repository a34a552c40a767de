"""Tests for the service.extras module: what is not installed is told before anything starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from core.drift.baselines.river import RIVER
from core.errors import InvalidSettings
from service.extras import OF_RIVER, check_extras
from service.settings import Settings

ROOT = Path(__file__).parents[2]

WITHOUT_RIVER = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "river" else found(name, *rest)
from service.supervisor.run import serve
from service.settings import Settings
sys.exit(serve(Settings.load()))
"""


def test_the_detectors_of_the_library_are_those_that_the_engine_knows() -> None:
    assert set(OF_RIVER) == set(RIVER)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"detector": "kswin"}, "detector names 'kswin'"),
        ({"shadow_detectors": "paper, adwin"}, "shadow_detectors names 'adwin'"),
    ],
)
def test_a_library_that_is_missing_is_named_with_its_cure(
    values: dict[str, str], named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InvalidSettings) as caught:
        check_extras(Settings.load(values))
    assert named in str(caught.value)
    assert "pip install 'gmr-stream[river]'" in str(caught.value)
    check_extras(Settings.load({"shadow_detectors": "paper"}))


def test_a_service_that_lacks_a_library_says_so_before_it_names_its_address(
    tmp_path: Path,
) -> None:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GMR_")}
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_RIVER],
        env={
            **plain,
            "PYTHONPATH": str(ROOT),
            "GMR_DATA_DIR": str(tmp_path),
            "GMR_PORT": "0",
            "GMR_SHADOW_DETECTORS": "adwin",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == 2
    assert "pip install" in run.stderr
    assert run.stdout == ""
    assert not (tmp_path / "redis").exists()
