"""Tests for the clients.commands.bench module."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from clients.commands import bench, cli
from clients.http.errors import InputError

SCRIPT = '''"""How high is the number?

Some more about it.
"""

from clients.commands.bench import Floor, Measurement, Table


def measure(quick, say):
    say("measuring")
    table = Table("numbers", ("what", "value"), (("the number", "41"),))
    return Measurement((table,), {"number": 41}, (Floor("the number", 41, 42, "units"),))
'''


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of benchmarks with one script, and one file that is none."""
    chosen = tmp_path / "made_up_benchmarks"
    chosen.mkdir()
    (chosen / "height.py").write_text(SCRIPT)
    (chosen / "_shared.py").write_text('"""Helpers."""\n')
    monkeypatch.setattr(bench, "FOLDER", chosen)
    monkeypatch.syspath_prepend(tmp_path)
    return chosen


def run(name: str, out: Path, *, quick: bool) -> tuple[int, str]:
    said = io.StringIO()
    console = Console(file=said, width=100, color_system=None)
    return bench.run(name, quick=quick, out=out, console=console), said.getvalue()


def test_only_scripts_that_measure_are_benchmarks(folder: Path):
    assert bench.names() == {"height": "How high is the number?"}


def test_a_benchmark_prints_its_table_and_keeps_its_numbers(folder: Path, tmp_path: Path):
    status, said = run("height", tmp_path / "out", quick=True)
    assert status == 0
    assert "measuring" in said
    assert "the number" in said
    assert "41" in said
    content = json.loads((tmp_path / "out" / "height.json").read_text())
    assert content["schema"] == bench.SCHEMA
    assert (content["name"], content["quick"], content["values"]) == (
        "height",
        True,
        {"number": 41},
    )
    assert content["hardware"]["cores"] >= 1
    assert content["versions"]["python"]
    assert content["floors"][0]["met"] is False


def test_a_missed_floor_is_an_exit_status_at_full_size_only(folder: Path, tmp_path: Path):
    status, said = run("height", tmp_path, quick=False)
    assert status == 1
    assert "missed" in said
    assert run("height", tmp_path, quick=True)[0] == 0


def test_options_are_passed_on_to_a_benchmark_that_takes_them(folder: Path, tmp_path: Path):
    takes = SCRIPT.replace("quick, say", "quick, say, arguments=()")
    (folder / "width.py").write_text(takes.replace('"number": 41', '"given": list(arguments)'))
    given = ["bench", "width", "--out", str(tmp_path), "--half", "a", "b", "--quick", "--few"]
    result = CliRunner().invoke(cli.app, given)
    assert result.exit_code == 0, result.output
    values = json.loads((tmp_path / "width.json").read_text())["values"]
    assert values == {"given": ["--half", "a", "b", "--few"]}


@pytest.mark.parametrize("given", [["height", "--half", "a"], ["--half"]])
def test_options_that_no_benchmark_takes_are_refused(
    folder: Path, tmp_path: Path, given: list[str]
):
    result = CliRunner().invoke(cli.app, ["bench", *given, "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "--half" in result.output
    assert not (tmp_path / "height.json").exists()


def test_an_unknown_benchmark_lists_the_known_ones(folder: Path, tmp_path: Path):
    with pytest.raises(InputError, match=r"no benchmark 'width'\. Known: height"):
        run("width", tmp_path, quick=True)


def test_an_installed_package_without_benchmarks_says_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bench, "FOLDER", tmp_path / "nowhere")
    with pytest.raises(InputError, match="part of the repository"):
        run("ingest", tmp_path, quick=True)


def test_every_benchmark_asks_a_question_on_one_line():
    assert {"continual", "ingest", "serving"} <= set(bench.names())
    for name, question in bench.names().items():
        assert question.endswith("?"), name


def test_the_benchmark_of_ingesting_runs(tmp_path: Path):
    status, said = run("ingest", tmp_path, quick=True)
    assert status == 0, said
    values = json.loads((tmp_path / "ingest.json").read_text())["values"]
    assert list(values) == ["features", "mfa", "flat"], "the default preset comes first"
    for preset in ("mfa", "flat"):
        assert values[preset]["batch_100"]["samples_seen"] == 1000
        assert values[preset]["batch_100"]["learned_per_second"] > 0
