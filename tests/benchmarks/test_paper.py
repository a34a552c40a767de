"""Tests for benchmarks.paper: the plan, and all of it at the quick size."""

from __future__ import annotations

import doctest
import importlib
import io
import json
import pkgutil
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

import benchmarks.comparison
from benchmarks import paper
from benchmarks.comparison.curriculum import DATA, slts_of
from benchmarks.paper import Plan, Work, plan_of, quick_plan
from benchmarks.systems.registry import SYSTEMS
from clients.commands import bench
from clients.http.errors import InputError
from core.config import PRESETS
from tests.benchmarks.comparison_parts import make_nearest_mean

MODULES = ["benchmarks.paper"] + [
    f"benchmarks.comparison.{module.name}"
    for module in pkgutil.iter_modules(benchmarks.comparison.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name))
    assert outcome.failed == 0


# The plan


def test_the_whole_plan_holds_every_slt_of_every_data_set_for_every_system() -> None:
    cells = Plan().cells()
    assert len(set(cells)) == len(cells)
    assert len(cells) == len(SYSTEMS) * 3 * sum(len(slts_of(data)) for data in DATA)
    assert {cell.system for cell in cells} >= {*PRESETS, "ewc", "gr", "lda", "fine-tuning"}


def test_a_first_seed_of_everything_comes_before_a_second_of_anything() -> None:
    cells = Plan().cells()
    assert [cell.seed for cell in cells] == sorted(cell.seed for cell in cells)
    assert cells[0].system == "lda"
    assert cells[-1].system == "gr"


def test_options_choose_cells() -> None:
    systems, data = ["--systems", "mfa,flat", "ewc"], ["--data", "mnist", "devanagari"]
    plan = plan_of([*systems, *data, "--slt", "D10", "0,1/2", "--seeds", "3", "4"])
    assert plan.presets == ("mfa", "flat")
    cells = plan.cells()
    assert len(cells) == 3 * 2 * 2 * 2
    assert {cell.slt.name for cell in cells} == {"D10", "0,1/2"}
    assert {cell.seed for cell in cells} == {3, 4}


def test_small_results_have_a_folder_of_their_own() -> None:
    assert plan_of(["--quick"]).folder != plan_of([]).folder
    assert plan_of(["--quick", "--folder", "here"]).folder == Path("here")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--systems", "magic"], "no system 'magic'. Known: .*mfa"),
        (["--data", "mnist", "--slt", "D11"], "no SLT called 'D11'"),
        (["--data", "mnist", "--slt", "D24x1"], "no SLT called 'D24x1'"),
    ],
)
def test_options_that_ask_for_what_does_not_exist_are_refused(
    options: list[str], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        plan_of(options)


# All of it


def test_a_data_set_that_is_not_at_hand_is_left_out_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper, "known_datasets", lambda: ("digits",))
    said: list[str] = []
    plan = Plan(("lda",), ("devanagari",), seeds=(0,), parts=("cells",), folder=tmp_path)
    measurement = Work(plan, said.append).carry_out()
    assert said == ["devanagari is not at hand: left out"]
    assert measurement.tables == ()


def test_tables_are_written_even_when_it_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(name: str, *rest: object) -> object:
        if name == "flat":
            raise KeyboardInterrupt
        return make_nearest_mean(name, *rest)  # type: ignore[arg-type]

    plan = quick_plan(tmp_path, ("lda", "flat"))
    with pytest.raises(KeyboardInterrupt):
        Work(plan, lambda text: None, make).carry_out()  # type: ignore[arg-type]
    page = (tmp_path / "digits.md").read_text()
    assert "* D10, flat: seeds 0" in page
    assert "lda: seeds" not in page


def test_a_failure_misses_the_floor(tmp_path: Path) -> None:
    def make(*args: object) -> object:
        raise ValueError("broken")

    plan = Plan(("lda",), ("digits",), ("D10",), (0,), ("cells",), True, tmp_path)
    measurement = Work(plan, lambda text: None, make).carry_out()  # type: ignore[arg-type]
    assert not measurement.floors[0].met
    assert measurement.values["failures"] == {"digits D10 lda seed 0": "ValueError: broken"}


def test_the_quick_size_measures_judges_and_draws_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = ("lda", "flat", "fine-tuning")
    monkeypatch.setattr(paper, "quick_plan", partial(quick_plan, systems=chosen))
    said = io.StringIO()
    console = Console(file=said, width=120, color_system=None)
    assert bench.run("paper", quick=True, out=tmp_path, console=console) == 0

    values = json.loads((tmp_path / "paper.json").read_text())
    assert values["floors"][0]["met"], said.getvalue()
    folder = tmp_path / "paper-quick"
    rows = json.loads((folder / "digits.json").read_text())["rows"]
    means = {(row["slt"], row["system"]): row["accuracy"]["mean"] for row in rows}
    assert len(means) == 6
    assert means["D2-2-2-2-2a", "flat"] > 90
    assert means["D2-2-2-2-2a", "fine-tuning"] < 40  # forgets all but the last sub-task
    assert means["D2-2-2-2-2a", "lda"] == pytest.approx(means["D10", "lda"])
    (flat,) = json.loads((folder / "samples.json").read_text())["rows"]
    assert flat["with_noise"]["purity"] > 0.9
    assert flat["nearness"]["stored"] == 0
    drawn = {path.name for path in (folder / "figures").iterdir()}
    assert drawn == {"boundaries-digits-flat.png", "likelihoods.png", "conditional-samples.png"}
    assert all(path.stat().st_size > 5000 for path in (folder / "figures").iterdir())

    # Run again, nothing is measured and nothing learned.
    said.seek(0)
    said.truncate()
    bench.run("paper", quick=True, out=tmp_path, console=console)
    for words in ("seed 0", "learns"):
        assert words not in said.getvalue()
