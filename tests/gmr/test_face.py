"""Tests for the package gmr: what a stranger imports, here and from the wheel."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import gmr

ROOT = Path(__file__).parents[2]

TEN_LINES = """
import numpy as np

from gmr import GMRClient, EngineConfig

with GMRClient("http://127.0.0.1:8000") as client:
    client.ingest(np.zeros((2, 3)), ["a", "b"])
    client.wait_until_learned()
    reveal_type(client)
    reveal_type(client.classify(np.zeros((2, 3))).probabilities)
reveal_type(EngineConfig().preset)
"""


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command], cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("name", gmr.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(gmr, name).__name__ == name
    assert name in dir(gmr)


def test_what_is_not_there_is_missed_by_name() -> None:
    with pytest.raises(AttributeError, match="module 'gmr' has no attribute 'Engin'"):
        _ = gmr.Engin


def test_the_client_comes_without_the_model() -> None:
    script = (
        "import sys, gmr; gmr.GMRClient; gmr.GMRError\n"
        "heavy = {'torch', 'numba', 'sklearn', 'scipy', 'matplotlib', 'redis', 'fastapi'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    ran = run(sys.executable, "-c", script, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site-packages of a fresh environment, with the wheel and what it depends on."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    # What is built there stays there.
    copied = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in copied.stdout.split():
        kept = name.split("/")[0] in ("gmr", "core", "service", "clients", "benchmarks")
        if kept or name in ("pyproject.toml", "README.md", "LICENSE"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    build = ("-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder))
    built = run(sys.executable, *build, str(source), cwd=folder)
    assert built.returncode == 0, built.stderr
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    (found,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(found)
    (found / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return found


def test_the_wheel_has_the_face_its_types_and_what_it_needs(site: Path) -> None:
    for name in ("gmr", "core", "service", "clients"):
        assert (site / name / "py.typed").is_file()
    assert (site / "clients/evaluation/templates/report.html").is_file()
    python = site.parents[2] / "bin" / "python"
    script = "import gmr, clients; print(gmr.__file__); print(gmr.Engine(gmr.EngineConfig()))"
    ran = run(str(python), "-I", "-c", script, cwd=site)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith(str(site))


def test_ten_lines_of_a_user_are_checked_against_the_wheel(site: Path, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(TEN_LINES)
    (tmp_path / "mypy.ini").write_text(
        "[mypy]\nstrict = True\n[mypy-torch.*,numba.*,scipy.*]\nfollow_imports = skip\n"
    )
    python = site.parents[2] / "bin" / "python"
    checked = run(
        sys.executable, "-m", "mypy", "--python-executable", str(python), "user.py", cwd=tmp_path
    )
    assert "Success" in checked.stdout, checked.stdout
    for told in ("GMRClient", "ndarray", "str"):
        assert 'Revealed type is "' in checked.stdout
        assert told in checked.stdout
    wrong = TEN_LINES.replace("EngineConfig().preset", "EngineConfig().presets")
    (tmp_path / "user.py").write_text(wrong)
    checked = run(
        sys.executable, "-m", "mypy", "--python-executable", str(python), "user.py", cwd=tmp_path
    )
    assert "attr-defined" in checked.stdout
