"""Tests for benchmarks.streams: it runs, keeps its cells, and says what is left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import streams
from benchmarks.classification import registry
from benchmarks.streams import QUICK_OPPONENTS, QUICK_STREAMS, Plan, Work, entrants, plan_of
from clients.commands.bench import run
from clients.http.errors import InputError


def test_the_quick_size_runs_and_writes_its_tables(tmp_path: Path) -> None:
    assert run("streams", quick=True, out=tmp_path, console=Console(quiet=True)) == 0
    values = json.loads((tmp_path / "streams.json").read_text())["values"]
    (standing,) = values["standings"]
    assert tuple(standing["courses"]) == QUICK_STREAMS
    for own in standing["courses"].values():
        assert tuple(own) == ("mfa", "flat", *QUICK_OPPONENTS)
    assert not values["failures"]
    page = (tmp_path / "streams-quick" / "streams.md").read_text()
    assert "| board-fields | b |" in page


def plan(tmp_path: Path, *streams_: str) -> Plan:
    own = entrants(("flat",), ("default", "never"), ("knn", "last-label"))
    return Plan(streams_, own, samples=300, folder=tmp_path)


def test_what_is_measured_is_not_measured_again(tmp_path: Path) -> None:
    said: list[str] = []
    first = Work(plan(tmp_path, "circle", "plane"), said.append).done()
    assert len(said) == 8
    assert len(list((tmp_path / "cells").rglob("*.json"))) == 8
    again = Work(plan(tmp_path, "circle", "plane"), said.append).done()
    assert len(said) == 8
    assert again.values == first.values
    (next((tmp_path / "cells" / "plane").rglob("knn*.json"))).unlink()
    Work(plan(tmp_path, "circle", "plane"), said.append).done()
    assert len(said) == 9
    assert said[-1].startswith("plane, as-is, B=100, knn: ")


def test_without_river_its_streams_and_classifiers_are_left_out_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "has_river", lambda: False)
    said: list[str] = []
    own = entrants((), (), ("majority", "naive-bayes"))
    found = Work(Plan(("circle", "sea-abrupt"), own, samples=100, folder=tmp_path), said.append)
    values = found.done().values
    assert values["standings"][0]["courses"].keys() == {"circle"}
    assert values["standings"][0]["courses"]["circle"].keys() == {"majority"}
    assert "pip install" in said[0]
    assert said[0].endswith("left out are sea-abrupt, naive-bayes")


def test_a_stream_whose_file_is_not_there_is_left_out_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str, units: str, samples: int, seed: int) -> None:
        raise InputError(f"no {name}")

    monkeypatch.setattr(streams, "made", missing)
    said: list[str] = []
    Work(plan(tmp_path, "elec2"), said.append).done()
    assert said == ["elec2 is left out: no elec2"]


def test_somebody_who_fails_is_reported_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def predict(self, x: object) -> None:
            raise RuntimeError("broken")

    monkeypatch.setitem(registry.OPPONENTS, "knn", lambda stream, seed: Broken())
    found = Work(plan(tmp_path, "circle"), lambda text: None).done()
    assert list(found.values["failures"].values()) == ["RuntimeError: broken"]
    assert set(found.values["standings"][0]["courses"]["circle"]) == {
        "flat",
        "flat-never",
        "last-label",
    }
    assert not found.floors[0].met


def test_few_samples_are_learned_and_the_rest_is_asked_for(tmp_path: Path) -> None:
    own = entrants(("flat",), ("default",), ("knn-scaled", "majority"))
    few = Plan(("wine-random", "circle"), own, folder=tmp_path, few=True)
    first = Work(few, lambda text: None).done()
    (values,) = first.values["beginnings"]
    assert values["found"].keys() == {"wine-random"}, "circle moves on: nothing can be held out"
    accuracies = {
        name: found[0]["accuracies"] for name, found in values["found"]["wine-random"].items()
    }
    assert accuracies["flat"].keys() == {"100"}, "of 178 samples 142 are learned"
    assert accuracies["knn-scaled"]["100"] > 0.85 > 0.6 > accuracies["majority"]["100"]
    assert Work(few, lambda text: None).done().values == first.values


def test_options() -> None:
    asked = (
        "--streams board sea --half b --presets mfa --detector default,never --opponents none "
        "--units as-is unit --batch 1 10 --samples 3000 --seeds 0 1 --set n_factors=5"
    )
    plan = plan_of(asked.split())
    assert plan.streams == ("board-fields", "plane")
    assert [one.name for one in plan.entrants] == ["mfa", "mfa-never"]
    assert plan.entrants[1].settings == {"n_factors": 5, "detector": "none"}
    assert (plan.units, plan.batches, plan.samples, plan.seeds) == (
        ("as-is", "unit"),
        (1, 10),
        3000,
        (0, 1),
    )


@pytest.mark.parametrize(
    "options",
    [
        "--streams nowhere",
        "--opponents nobody",
        "--presets none",
        "--detector sometimes",
        "--units miles",
        "--batch 0",
        "--samples many",
        "--set speed=3",
    ],
)
def test_what_is_not_there_is_refused(options: str) -> None:
    with pytest.raises(InputError):
        plan_of(options.split())
