"""Tests for the Dockerfile, as far as they go without an engine to build it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from service.settings import Settings

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "Dockerfile").read_text("utf-8")
INSTRUCTIONS = [
    line.split(None, 1)
    for line in re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^\s*#.*\n", "", TEXT)).splitlines()
    if line
]


def arguments(name: str) -> list[str]:
    return [rest for instruction, rest in INSTRUCTIONS if instruction == name]


def test_it_is_built_in_one_stage_and_run_in_another() -> None:
    build, run = arguments("FROM")
    assert build.endswith("AS build")
    assert run == "python:${PYTHON}"
    assert re.search(r"^ARG PYTHON=3\.1[12]-slim-\w+$", TEXT, re.MULTILINE)


def test_everything_that_is_copied_exists_and_is_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    assert "*" in ignored
    for copy in arguments("COPY"):
        if copy.startswith("--from"):
            continue
        *sources, _ = copy.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert f"!{source}" in ignored


def test_torch_is_the_version_of_the_project_from_an_index_of_choice() -> None:
    wanted = re.search(r'"(torch==[\d.]+)"', (ROOT / "pyproject.toml").read_text("utf-8"))
    assert wanted
    install = next(run for run in arguments("RUN") if "torch==" in run)
    assert install.endswith(wanted[1])
    assert '--index-url "${TORCH_INDEX}"' in install
    assert any(argument.startswith("TORCH_INDEX=") for argument in arguments("ARG"))


def test_it_does_not_run_as_root() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", arguments("USER")[-1])
    names = [instruction for instruction, _ in INSTRUCTIONS]
    assert names.index("USER") < names.index("ENTRYPOINT")


def test_it_starts_the_command_and_checks_its_health() -> None:
    assert json.loads(arguments("ENTRYPOINT")[0]) == ["gmr"]
    assert json.loads(arguments("CMD")[0]) == ["serve"]
    (check,) = arguments("HEALTHCHECK")
    assert json.loads(check[check.index("CMD") + 3 :])[:3] == [
        "python",
        "-m",
        "service.api.probe",
    ]


def test_its_variables_are_settings() -> None:
    variables = re.findall(r"GMR_\w+", " ".join(arguments("ENV")))
    assert variables
    for variable in variables:
        assert variable.removeprefix("GMR_").lower() in Settings.model_fields


def test_loops_are_compiled_for_the_processor_that_they_will_run_on() -> None:
    """A read-only file system keeps nothing, and what was kept is found by the processor's name."""
    runs = arguments("RUN")
    assert runs.index("gmr compile") > next(
        place for place, run in enumerate(runs) if run == 'pip install ".[${EXTRAS}]"'
    )
    build, run = TEXT.split("FROM")[1:]
    for stage in (build, run):
        assert "NUMBA_CPU_NAME=${CPU_NAME}" in stage
        assert "NUMBA_CPU_FEATURES=${CPU_FEATURES}" in stage
    assert "CPU_NAME=generic" in arguments("ARG")
    assert "gmr compile" not in run
