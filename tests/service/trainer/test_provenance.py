"""Tests for the service.trainer.provenance module: what a checkpoint says of its writer."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from core.config import EngineConfig
from core.extensions import offered
from service.trainer.provenance import (
    DECIDING,
    DIGEST,
    LIBRARIES,
    code,
    code_of,
    digest_of,
    written_by,
)

ROOT = Path(__file__).parents[3]
CPU = torch.device("cpu")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of what decides about bits, elsewhere and without what Python has compiled."""
    for name in DECIDING:
        to = tmp_path / "else where" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, to)
    return tmp_path / "else where"


def test_the_digest_is_that_of_the_sources_wherever_they_lie(sources: Path) -> None:
    assert digest_of(sources) == DIGEST == digest_of(ROOT)
    one = sources / "core" / "engine" / "step.py"
    one.write_bytes(one.read_bytes().replace(b"\n", b"\r\n"))
    (sources / "core" / "engine" / "notes.txt").write_text("no source", "utf-8")
    assert digest_of(sources) == DIGEST


@pytest.mark.parametrize(
    "name", ["core/engine/step.py", "service/wire/batch.py", "service/trainer/effects.py"]
)
def test_the_digest_is_another_one_with_each_change_of_a_source(sources: Path, name: str) -> None:
    path = sources / name
    with path.open("a", encoding="utf-8") as file:
        file.write("# more\n")
    changed = digest_of(sources)
    assert changed != DIGEST
    path.rename(path.with_name("moved.py"))
    assert digest_of(sources) not in (DIGEST, changed)


def test_the_line_names_release_sources_libraries_and_processor_in_a_few_dozen_bytes() -> None:
    config = EngineConfig()
    line = written_by(config, CPU)
    assert DIGEST in line
    assert all(f"{name} {version}" in line for name, version in LIBRARIES.items())
    assert line.startswith(code(config))
    assert line != code(config) == code_of(line)
    assert len(line.encode()) < 120
    assert written_by(config, torch.device("cuda")) == f"{code(config)} on cuda"
    assert code_of("") == ""


def test_packages_of_which_the_model_has_a_part_count_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "of_a_stranger-1.7.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: of-a-stranger\nVersion: 1.7\n")
    (package / "entry_points.txt").write_text("[gmr.detectors]\nddm = ddm:make\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("core.extensions.offered", offered.__wrapped__)
    monkeypatch.setattr("core.config.offered", offered.__wrapped__)
    assert "stranger" not in code(EngineConfig())
    assert code(EngineConfig(detector="ddm")) == f"{code(EngineConfig())}, of-a-stranger 1.7"


def test_a_library_that_is_chosen_by_the_detector_counts_too() -> None:
    pytest.importorskip("river")
    assert "river" not in code(EngineConfig())
    assert ", river " in code(EngineConfig(detector="adwin"))
