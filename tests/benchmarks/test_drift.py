"""Tests for benchmarks.drift and its parts: cases, records, tables, and all of it, small."""

from __future__ import annotations

import doctest
import importlib
import io
import json
import pkgutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import benchmarks.detection
from benchmarks import drift
from benchmarks.comparison.store import Store
from benchmarks.detection import families
from benchmarks.detection.case import TOLD, Answer, Group, Question, answers
from benchmarks.detection.families import FAMILIES, SMALL, clouds, data_named, null, pairs, slt
from benchmarks.detection.figure import delays
from benchmarks.detection.measures import Matching, Score, run_time
from benchmarks.detection.outsider import MMD, Discrepancy
from benchmarks.detection.record import Record, record
from benchmarks.detection.stream import Change, DriftStream
from benchmarks.detection.table import Row
from benchmarks.drift import COMPARED, Work, plan_of, quick_plan, whole
from clients.commands import bench
from clients.http.errors import InputError
from core.config import EngineConfig

FLAT = EngineConfig(preset="flat", n_components=20, warm_up=300, experts=False)
TINY = replace(SMALL, per_class=500, second=200)
PAIRS = Group("pairs", "digits", 50)
TAUGHT = {"preset": "flat", "n_components": 20, "warm_up": 300, "experts": False}
ASKED = Question(PAIRS, "sequential", (), TAUGHT, TINY)

MODULES = ["benchmarks.drift"] + [
    f"benchmarks.detection.{module.name}"
    for module in pkgutil.iter_modules(benchmarks.detection.__path__)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name: str) -> None:
    outcome = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert outcome.failed == 0


@pytest.fixture(scope="module")
def pair() -> DriftStream:
    return next(iter(pairs(data_named("digits", TINY), TINY)))


# A record


def test_a_boundary_is_an_alarm_at_the_end_of_its_batch(pair: DriftStream) -> None:
    said = record(pair, FLAT, 50, trace=True)
    (alarm,) = said.alarms["sequential"]
    assert 500 < alarm <= 600
    (boundary,) = [event for event in said.events if event["kind"] == "boundary"]
    assert boundary["sample_index"] == alarm - 50
    assert (said.batches, said.samples) == (14, 700)
    trace = said.trace
    assert trace is not None
    assert trace.ends == list(range(50, 701, 50))
    assert len(trace.statistics) == len(trace.armed) == 14
    assert said.armed_samples == 50 * sum(trace.armed)
    assert Record.from_dict(json.loads(json.dumps(said.to_dict()))) == said


def test_shadows_are_heard_beside_the_deciding_detector(pair: DriftStream) -> None:
    config = replace(FLAT, detector="none", shadow_detectors="paper,adwin")
    said = record(pair, config, 50)
    assert set(said.alarms) == {"none", "paper", "adwin"}
    assert said.alarms["none"] == []
    assert all(500 < said.alarms[name][0] <= 600 for name in ("paper", "adwin"))


def test_an_oracle_declares_boundaries_where_they_are(pair: DriftStream) -> None:
    said = record(pair, replace(FLAT, detector="none"), 64, told=True)
    (boundary,) = [event for event in said.events if event["kind"] == "boundary"]
    assert (boundary["sample_index"], boundary["detector"]) == (500, "declared")
    assert said.alarms == {"none": []}


def test_without_labels_there_is_no_accuracy() -> None:
    stream = next(iter(slt(data_named("digits", TINY), replace(TINY, per_class=100))))
    blind = record(stream, FLAT, 100, labelled=False)
    seeing = record(stream, FLAT, 100)
    assert (blind.accuracy, blind.prequential) == (None, None)
    assert seeing.accuracy is not None
    assert seeing.accuracy > 0.7


# A case


def test_a_case_is_measured_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = list(answers(ASKED, store))
    assert [answer.kept for answer in first] == [False] * 3
    again = list(answers(ASKED, store))
    assert [answer.kept for answer in again] == [True] * 3
    assert [one.said for one in again] == [one.said for one in first]
    other = replace(ASKED, settings={**ASKED.settings, "warm_up": 301})
    assert not next(iter(answers(other, store))).kept


def test_an_interruption_loses_one_stream(tmp_path: Path) -> None:
    begun = answers(ASKED, Store(tmp_path))
    next(begun)
    begun.close()
    assert [answer.kept for answer in answers(ASKED, Store(tmp_path))] == [True, False, False]


def test_batches_do_not_hide_when_the_alarm_came(tmp_path: Path) -> None:
    for answer in answers(ASKED, Store(tmp_path)):
        (found,) = answer.matching("sequential").matches
        assert found.delay_samples <= 50 * found.delay_batches


# Frouros


def test_the_discrepancy_finds_another_class_and_starts_anew(pair: DriftStream) -> None:
    pytest.importorskip("frouros", reason="its versions of numpy are older: not in dev")
    early = Discrepancy(reference=150, calibration=250, ert=5000)
    said = early.watch(pair, 50)
    assert any(500 < alarm <= 700 for alarm in said.alarms[MMD])
    assert said.samples == 700
    assert said.armed_samples > 0


def test_the_discrepancy_is_quiet_while_nothing_changes() -> None:
    pytest.importorskip("frouros", reason="its versions of numpy are older: not in dev")
    stream = list(null(clouds(8000), replace(SMALL, null=8000)))[1]
    assert len(Discrepancy().watch(stream, 100).alarms[MMD]) <= 1


def test_the_discrepancy_does_not_depend_on_the_batches(pair: DriftStream) -> None:
    pytest.importorskip("frouros", reason="its versions of numpy are older: not in dev")
    settings = Discrepancy(reference=150, calibration=250)
    small, large = (settings.watch(pair, size).alarms[MMD] for size in (10, 100))
    assert [-(-alarm // 100) * 100 for alarm in small] == large


# Tables and pictures


def row(detector: str, found: int, false: int, delay: int = 2) -> Row:
    matches = tuple([delay] * found)
    samples = tuple(100 * one for one in matches)
    score = Score(1, 100, 10_000, 4, found, false, 0, matches, samples, 0.5)
    return Row(PAIRS, detector, score, run_time(false, 10_000), 50_000, 9000, float("nan"))


def test_a_row_says_what_was_measured() -> None:
    cells = row("adwin", 3, 2).cells()
    assert cells[:7] == ("adwin", "3 of 4", "2, 2, 2", "200, 200, 200", "2", "20.00", "0.600")
    assert "5,000 (" in cells[9]
    assert cells[10:] == ("50,000", "", "50")
    assert row("adwin", 0, 0).cells()[9].startswith("above ")


def test_the_oracle_is_not_judged() -> None:
    cells = row(TOLD, 0, 0).cells()
    assert cells[1] == "told"
    assert cells[4] == cells[5] == ""


def test_a_row_is_json(tmp_path: Path) -> None:
    values = row("paper", 0, 0).to_dict()
    assert json.loads(json.dumps(values, allow_nan=False))["run_time"] is None
    assert values["family"] == "pairs"


def test_a_shadow_has_alarms_and_no_time_of_its_own() -> None:
    said = Record({"none": [], "adwin": [1100]}, [], 20, 2000, 1000, 0, None, None, 1.0)
    labels = np.zeros(2000, np.int64)
    stream = DriftStream("x", np.zeros((1, 2)), labels, labels, (Change(1000, "abrupt"),))
    made = Row.of(PAIRS, "adwin", [Answer(stream, 100, said, False)], None, shadow=True)
    assert (made.detector, made.score.found) == ("adwin (shadow)", 1)
    assert made.cells()[-1] == ""


def test_the_picture_has_a_point_per_detector_that_decides() -> None:
    figure = delays(
        [row("sequential", 4, 0), row("adwin", 4, 3), row("none", 0, 0), row(TOLD, 0, 0)]
    )
    assert figure is not None
    (axes,) = figure.axes
    assert len(axes.lines) == 3
    heights = [float(np.asarray(line.get_ydata())[0]) for line in axes.lines]
    assert heights[:2] == [2, 2]
    assert heights[2] > 2, "nothing found is shown, above all that was"


def test_without_changes_there_is_no_picture() -> None:
    quiet = Score.pooled([(Matching((), (), (), 0), 10, 1000)])
    null_row = Row(PAIRS, "adwin", quiet, run_time(0, 1000), None, 0, float("nan"))
    assert delays([null_row]) is None


# The plan


def test_the_whole_plan_holds_every_family_and_every_detector() -> None:
    plan = whole()
    assert {group.family for group in plan.groups} == set(FAMILIES)
    assert set(COMPARED) <= set(plan.detectors)
    told = [one for one in plan.questions() if one.detector == TOLD]
    assert {one.group.family for one in told} == {"slt"}
    assert len({(one.group, one.detector) for one in plan.questions()}) == len(plan.questions())


def test_options_choose_groups_detectors_and_settings() -> None:
    chosen = ["--families", "null,pairs", "--data", "digits", "--batches", "1", "mixed"]
    more = ["--detectors", "paper", "--shadows", "adwin", "--set", "n_components=7", "preset=flat"]
    plan = plan_of([*chosen, *more, "--size", "pairs=2", "repeat=1", "--unlabelled"])
    assert {(group.family, group.batch) for group in plan.groups} == {
        (family, batch) for family in ("null", "pairs") for batch in (1, 0)
    }
    assert {group.data for group in plan.groups} == {"digits"}
    question = plan.questions()[0]
    config = question.config()
    assert (config.detector, config.shadows, config.n_components) == ("paper", ("adwin",), 7)
    assert (plan.size.pairs, plan.labelled) == (2, False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--families", "slow"], "no family 'slow'. Known: slt"),
        (["--detectors", "magic"], "no detector 'magic'. Known: sequential"),
        (["--shadows", "magic"], "no detector 'magic'"),
        (["--set", "colour=1"], "no setting 'colour'. Known: preset"),
        (["--set", "preset=magic"], "preset is 'magic'"),
        (["--size", "length=1"], "no setting 'length'. Known: per_class"),
        (["--batches", "many"], "'many' is no batch size"),
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
    monkeypatch.setattr(drift, "known_datasets", lambda: ("digits",))
    said: list[str] = []
    plan = replace(quick_plan(tmp_path), groups=(Group("slt", "mnist", 100),), cost=0)
    measurement = Work(plan, said.append).carry_out()
    assert said == ["mnist is not at hand: left out"]
    assert measurement.tables == ()


def test_a_detector_that_fails_misses_the_floor_and_the_others_go_on(tmp_path: Path) -> None:
    settings = {**TAUGHT, "shadow_detectors": "paper"}
    plan = replace(
        quick_plan(tmp_path),
        groups=(PAIRS,),
        detectors=("paper", "sequential"),
        settings=settings,
        size=replace(TINY, pairs=1),
        cost=0,
    )
    measurement = Work(plan, lambda text: None).carry_out()
    assert not measurement.floors[0].met
    (failure,) = measurement.values["failures"].values()
    assert "decides already" in failure
    assert len(measurement.values["rows"]) == 1


def test_the_quick_size_compares_and_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def small(folder: Path) -> drift.Plan:
        return replace(
            quick_plan(folder, ("slt", "pairs", "null")),
            size=replace(TINY, null=1500),
            cost=250,
            settings=TAUGHT,
        )

    monkeypatch.setattr(drift, "quick_plan", small)
    monkeypatch.setattr(families, "SLTS", families.SLTS[::4])  # the hardest, and one of two parts
    said = io.StringIO()
    run = partial(
        bench.run,
        "drift",
        quick=True,
        out=tmp_path,
        console=Console(file=said, width=120, color_system=None),
    )
    assert run() == 0
    values = json.loads((tmp_path / "drift.json").read_text())["values"]
    assert values["failures"] == {}
    found = {(one["family"], one["detector"]): one for one in values["rows"]}
    assert len(found) == 7
    assert found["pairs", "sequential"]["found"] == 3
    assert found["slt", TOLD]["accuracy"] > 0.8
    assert {one["detector"] for one in values["regret_points"]} == {"sequential", "paper"}
    costs = values["microseconds_per_sample"]
    assert set(costs) == {"sequential", "paper"}
    assert all(0 < one["100"] < one["1"] for one in costs.values())
    folder = tmp_path / "drift-quick"
    assert "## null, clouds, batches of 100" in (folder / "drift.md").read_text()
    assert json.loads((folder / "drift.json").read_text())["rows"] == values["rows"]
    assert (folder / "drift.png").stat().st_size > 5000

    said.seek(0)
    said.truncate()
    assert run() == 0
    assert " found, " not in said.getvalue(), "nothing is measured twice"


def test_where_nothing_changes_alarms_that_were_taken_back_count_as_well() -> None:
    stream = next(iter(null(clouds(2000), replace(SMALL, null=2000))))
    taken_back = [{"kind": "outlier_burst"}, {"kind": "prior_shift"}, {"kind": "replay"}]
    said = Record({"sequential": [900]}, taken_back, 20, 2000, 1500, 0, None, None, 1.0)
    made = Row.of(PAIRS, "sequential", [Answer(stream, 100, said, False)], 1000.0)
    assert made.score.false == 1
    assert made.achieved.mean == 1500 / 3
