"""Tests for the wheel, in an environment that has what it declares and nothing else.

The environment is fresh and offline: it gets links to those libraries of this one that the
wheel requires, directly or through others, without any extra. So torch is not there, nor is
whatever somebody forgot to declare.
"""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PACKAGES = ("gmr", "core", "service", "clients", "benchmarks")

TEN_LINES = """
from typing import Any, assert_type

import numpy as np
from numpy.typing import NDArray

from gmr import EngineConfig, GMRClient, InvalidBatch

with GMRClient("http://127.0.0.1:8000") as client:
    client.ingest(np.zeros((2, 3)), ["a", "b"])
    assert_type(client, GMRClient)
    assert_type(client.classify(np.zeros((2, 3))).labels, NDArray[Any])
    client.ask()  # type: ignore[attr-defined]
assert_type(EngineConfig().preset, str)
assert_type(InvalidBatch("wrong").context, dict[str, object])
from gmr import Nobody  # type: ignore[attr-defined]
"""
"""Strict checking wants every one of its exceptions to be needed: names without types fail."""


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*map(str, command)], cwd=cwd, capture_output=True, text=True, env={"COLUMNS": "200"}
    )


def required(requirements: list[str], extra: str = "") -> Iterator[metadata.Distribution]:
    """What these requirements bring, and what that requires, as installed here."""
    for one in map(Requirement, requirements):
        if one.marker is None or one.marker.evaluate({"extra": extra}):
            found = metadata.distribution(one.name)
            yield found
            for named in ("", *one.extras):
                yield from required(found.requires or [], named)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built without a network from a copy of the source."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    kept = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    assert kept.returncode == 0, kept.stderr
    for name in kept.stdout.splitlines():
        ours = name.split("/")[0] in PACKAGES or name in ("pyproject.toml", "README.md", "LICENSE")
        if ours and (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = ("-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation")
    built = run(sys.executable, *build, "-w", folder, source, cwd=folder)
    assert built.returncode == 0, built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def binaries(wheel: Path) -> Path:
    """The commands of an environment with the wheel and what it requires."""
    folder = wheel.parent / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    install = ("-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index")
    ran = run(sys.executable, *install, "--no-compile", wheel, cwd=folder)
    assert ran.returncode == 0, ran.stderr
    (site,) = (folder / "lib").glob("python3*/site-packages")
    (installed,) = metadata.distributions(name="gmr-stream", path=[str(site)])
    for library in required(installed.requires or []):
        for top in {file.parts[0] for file in library.files or () if file.parts[0] != ".."}:
            here, there = Path(str(library.locate_file(top))), site / top
            if top != "__pycache__" and not there.exists():
                there.symlink_to(here)
    return folder / "bin"


def test_what_is_heavy_is_not_there(binaries: Path, tmp_path: Path) -> None:
    """Else the tests below would show nothing."""
    heavy = ("torch", "numba", "sklearn", "scipy", "matplotlib", "fastapi", "redis")
    script = f"import importlib.util as i; print([n for n in {heavy} if i.find_spec(n)])"
    assert run(binaries / "python", "-c", script, cwd=tmp_path).stdout.strip() == "[]"


def test_the_client_is_complete(binaries: Path, tmp_path: Path) -> None:
    script = (
        "import gmr\n"
        "with gmr.GMRClient('http://127.0.0.1:1', retry=gmr.RetryPolicy(total_s=0)) as client:\n"
        "    try:\n        client.ingest([[1.0, 2.0]], ['a'])\n"
        "    except gmr.ServiceUnreachable:\n        print('sent', gmr.__file__)\n"
    )
    ran = run(binaries / "python", "-c", script, cwd=tmp_path)
    assert ran.stdout.startswith(f"sent {binaries.parent}"), ran.stderr


@pytest.mark.parametrize("command", ["", "ingest", "labels", "deadletters"])
def test_commands_that_speak_http_are_there(command: str, binaries: Path, tmp_path: Path) -> None:
    ran = run(binaries / "gmr", *command.split(), "--help", cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "Usage: gmr" in ran.stdout


def test_a_file_is_read_before_nobody_answers(binaries: Path, tmp_path: Path) -> None:
    (tmp_path / "few.csv").write_text("a,b\n1,2\n3,4\n")
    url = ("--url", "http://127.0.0.1:1")
    ran = run(binaries / "gmr", "ingest", "few.csv", *url, cwd=tmp_path)
    assert ran.returncode == 1, ran.stderr
    assert "127.0.0.1:1" in ran.stderr


def test_versions_are_told(binaries: Path, tmp_path: Path) -> None:
    told = dict(
        line.split() for line in run(binaries / "gmr", "version", cwd=tmp_path).stdout.splitlines()
    )
    assert told["gmr-stream"] == metadata.version("gmr-stream")
    assert "torch" not in told


@pytest.mark.parametrize("command", ["serve", "demo"])
def test_a_command_whose_extra_is_missing_says_which(
    command: str, binaries: Path, tmp_path: Path
) -> None:
    ran = run(binaries / "gmr", command, cwd=tmp_path)
    assert ran.returncode == 2
    assert ran.stderr.strip() == (
        f"Error: gmr {command} needs the extra 'serve', of which torch is not installed: "
        f"pip install 'gmr-stream[serve]'"
    )


def test_the_types_come_along(binaries: Path) -> None:
    (site,) = (binaries.parent / "lib").glob("python3*/site-packages")
    for name in ("gmr", "core", "service", "clients"):
        assert (site / name / "py.typed").is_file()
    assert (site / "clients/evaluation/templates/report.html").is_file()
    assert (site / "clients/evaluation/templates/report.md").is_file()


def test_ten_lines_of_a_user_are_checked_strictly(binaries: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(TEN_LINES)
    checked = run(
        *(sys.executable, "-m", "mypy", "--strict", "--python-executable", binaries / "python"),
        *("--cache-dir", tmp_path / "cache", "user.py"),
        cwd=tmp_path,
    )
    assert "Success" in checked.stdout, checked.stdout + checked.stderr


def test_the_dashboard_is_in_the_wheel(wheel: Path) -> None:
    folder = ROOT / "service" / "api"
    wanted = {path.relative_to(ROOT) for path in (folder / "static").rglob("*") if path.is_file()}
    with zipfile.ZipFile(wheel) as archive:
        assert {str(path) for path in wanted} <= set(archive.namelist())
