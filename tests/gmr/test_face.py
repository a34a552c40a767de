"""Tests for the package gmr: what a stranger imports."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gmr
from clients.data.datasets import load_dataset
from clients.extras import LIBRARIES, naming_the_extra

ROOT = Path(__file__).parents[2]


def run(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command], cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize("name", gmr.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(gmr, name).__name__.split(".")[-1] == name
    assert name in dir(gmr)


def test_what_is_not_there_is_missed_by_name() -> None:
    with pytest.raises(AttributeError, match="module 'gmr' has no attribute 'Engin'"):
        _ = gmr.Engin


def test_type_checkers_read_the_same_names_from_the_same_places() -> None:
    """They read the imports, Python the table."""
    (block,) = (
        node
        for node in ast.parse(Path(gmr.__file__).read_text("utf-8")).body
        if isinstance(node, ast.If) and any(isinstance(one, ast.ImportFrom) for one in node.body)
    )
    read = {
        alias.name: (one.module, getattr(gmr, alias.name))
        for one in block.body
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
    }
    assert sorted(read) == sorted(gmr.__all__)
    for name, (module, value) in read.items():
        assert module is not None
        assert getattr(importlib.import_module(module), name) is value


def test_modules_are_imported_by_their_name_alone() -> None:
    script = (
        "import gmr.events, gmr.checkpoint\n"
        "from gmr.events import BoundaryDetected\n"
        "from gmr.checkpoint import dump, load\n"
        "import core.events\n"
        "assert gmr.events.BoundaryDetected is BoundaryDetected is core.events.BoundaryDetected"
    )
    ran = run(sys.executable, "-c", script, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr


def test_every_event_of_the_engine_is_public() -> None:
    module = importlib.import_module("core.events")
    classes = {
        name
        for name, one in vars(module).items()
        if getattr(one, "__module__", "") == "core.events"
    }
    assert {*gmr.events.__all__} == classes
    assert all(getattr(gmr.events, name) is getattr(module, name) for name in classes)


def test_events_need_no_model_and_checkpoints_say_what_to_install() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from gmr.events import BoundaryDetected\n"
        "try:\n    import gmr.checkpoint\n"
        "except ImportError as error:\n    print(type(error).__name__, error)\n"
    )
    ran = run(sys.executable, "-c", script, cwd=ROOT)
    assert ran.stdout.startswith("MissingExtra gmr.checkpoint needs the extra 'engine'"), ran


def test_a_name_whose_library_is_missing_says_what_to_install() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "try:\n    from gmr import Engine\n"
        "except ImportError as error:\n    print(type(error).__name__, error)\n"
    )
    ran = run(sys.executable, "-c", script, cwd=ROOT)
    assert ran.stdout.strip() == (
        "MissingExtra gmr.Engine needs the extra 'engine', of which torch is not installed: "
        "pip install 'gmr-stream[engine]'"
    )


def test_a_data_set_whose_library_is_missing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(gmr.InputError, match=r"digits needs .* pip install 'gmr-stream\[engine\]'"):
        load_dataset("digits")


def test_other_failures_of_an_import_are_not_taken_for_a_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match="of_nobody") as caught:  # noqa: SIM117
        with naming_the_extra("gmr.Engine", "engine"):
            importlib.import_module("of_nobody")
    assert not isinstance(caught.value, gmr.MissingExtra)


def test_an_extra_is_required_without_an_import() -> None:
    script = (
        "import sys, clients.extras\n"
        "clients.extras.require('this', 'serve')\n"
        "print('torch' in sys.modules)"
    )
    assert run(sys.executable, "-c", script, cwd=ROOT).stdout.strip() == "False"


@pytest.mark.parametrize("extra", sorted(LIBRARIES))
def test_what_is_looked_for_is_what_an_extra_declares(extra: str) -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    def distributions(requirements: list[str]) -> set[str]:
        found = set()
        for one in map(Requirement, requirements):
            if canonicalize_name(one.name) == "gmr-stream":
                for named in one.extras:
                    found |= distributions(declared["optional-dependencies"][named])
            elif one.marker is None:  # what some machines lack is looked for where it is used
                found.add(canonicalize_name(one.name))
        return found

    homes = metadata.packages_distributions()
    # One that is not installed here goes by the name that it is imported by.
    looked_for = {canonicalize_name(homes.get(name, [name])[0]) for name in LIBRARIES[extra]}
    assert looked_for == distributions(declared["optional-dependencies"][extra])


def test_the_client_comes_without_the_model() -> None:
    script = (
        "import sys, gmr; gmr.GMRClient; gmr.GMRError\n"
        "heavy = {'torch', 'numba', 'sklearn', 'scipy', 'matplotlib', 'redis', 'fastapi'}\n"
        "sys.exit(str(heavy & set(sys.modules)) if heavy & set(sys.modules) else 0)"
    )
    ran = run(sys.executable, "-c", script, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
