"""Tests for clients.evaluation.comparison and recorded: evaluations side by side."""

from __future__ import annotations

import csv
import json
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_ind

from clients.evaluation import figures
from clients.evaluation.comparison import Comparison, Difference
from clients.evaluation.recorded import Recorded, read_all, read_recorded
from clients.evaluation.report import write_report
from clients.evaluation.report_page import page
from clients.evaluation.results import Evaluation
from clients.http.errors import InputError
from tests.clients.evaluation.test_report import Page, a_run, an_evaluation, drawn


def recorded(evaluation: Evaluation, name: str) -> Recorded:
    return Recorded.of(json.loads(json.dumps(evaluation.to_dict())), name)


def written(evaluation: Evaluation, folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(evaluation.to_dict()), encoding="utf-8")


def worse(evaluation: Evaluation, by: float) -> Evaluation:
    """The same, with accuracies that are lower."""
    return replace(
        evaluation,
        runs=tuple(
            replace(
                run,
                milestones=tuple(
                    replace(
                        one,
                        accuracy_seen=one.accuracy_seen - by,
                        accuracy_joint=one.accuracy_joint - by,
                    )
                    for one in run.milestones
                ),
            )
            for run in evaluation.runs
        ),
    )


def test_the_interval_of_a_difference_is_that_of_welch() -> None:
    rng = np.random.default_rng(0)
    here, there = rng.normal(0.9, 0.01, 5), rng.normal(0.88, 0.03, 3)
    difference = Difference.of(list(here), list(there))
    low, high = ttest_ind(here, there, equal_var=False).confidence_interval()
    assert difference.value - difference.half_width == pytest.approx(low)
    assert difference.value + difference.half_width == pytest.approx(high)


def test_a_single_seed_has_no_interval_and_no_verdict() -> None:
    difference = Difference.of([0.9], [0.5, 0.6])
    assert math.isnan(difference.half_width)
    assert not difference.certain
    assert math.isnan(Difference.of([], [0.5]).value)


def test_a_report_has_another_one_beside_it(tmp_path: Path) -> None:
    this = an_evaluation(a_run(0), a_run(1), a_run(2))
    written(worse(this, 0.2), tmp_path / "older")
    written(this, tmp_path / "equal")
    compared = read_all([tmp_path / "older" / "report.json", tmp_path / "equal"])
    report = write_report(this, drawn(), tmp_path / "this", compared)
    read = Page(report.html.read_text(encoding="utf-8"))
    row = (
        r"accuracy 95\.0 ± 1\.0 % 75\.0 ± 1\.0 % 95\.0 ± 1\.0 % \+20\.0 ± 2\.3 better 0\.0 ± 2\.3 "
    )
    assert re.search(row, read.words)
    minus = "\N{MINUS SIGN}"
    assert f"this {minus} older this {minus} equal" in read.words
    assert any(label.startswith("Compared accuracy. ") for label in read.figures)
    assert "measured otherwise" not in read.words
    text = report.markdown.read_text(encoding="utf-8")
    assert "| +20.0 ± 2.3 (better) | 0.0 ± 2.3 |" in text
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()}) == 1
    with report.scores.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["evaluation"] for row in rows} == {"this", "older", "equal"}
    [accuracy] = [
        row["value"]
        for row in rows
        if (row["evaluation"], row["seed"], row["score"]) == ("older", "1", "accuracy")
    ]
    assert float(accuracy) == pytest.approx(0.75)


def test_less_forgetting_is_better_and_more_is_worse() -> None:
    this = an_evaluation(a_run(0), a_run(1))
    kept = tuple(
        replace(run, milestones=tuple(replace(one, accuracy_per_sub_task=(0.9,) * 3) for one in ms))
        for run, ms in ((run, run.milestones) for run in this.runs)
    )
    better = replace(this, runs=kept)
    for here, there, verdict in ((better, this, "better"), (this, better, "worse")):
        content = Comparison(recorded(here, "this"), (recorded(there, "other"),)).content()
        (row,) = [one for one in content["rows"] if one["name"] == "forgetting"]
        assert [one["verdict"] for one in row["differences"]] == [verdict]


def test_what_was_not_the_same_is_said() -> None:
    this = an_evaluation(a_run())
    other = replace(
        this,
        data=replace(this.data, name="mnist", source="mnist"),
        protocol=replace(this.protocol, batch_size=50, sub_tasks=this.protocol.sub_tasks[:2]),
        hardware={"cores": 64},
    )
    comparison = Comparison(recorded(this, "this"), (recorded(other, "other"),))
    content = comparison.content()
    assert not comparison.same_sub_tasks
    assert {row["name"]: row["values"] for row in content["facts"]} == {
        "data": ["digits (digits)", "mnist (mnist)"],
        "batch size": ["100", "50"],
        "machine: cores": ["2", "64"],
    }
    first, second = content["warnings"]
    assert first.startswith("other was measured otherwise (data)")
    assert "another machine" in second


def test_other_sub_tasks_of_the_same_data_are_told_and_drawn() -> None:
    this = an_evaluation(a_run())
    run = a_run()
    milestones = tuple(
        replace(one, accuracy_per_sub_task=one.accuracy_per_sub_task[:2])
        for one in run.milestones[:2]
    )
    protocol = replace(this.protocol, slt="0,1/2,3", sub_tasks=this.protocol.sub_tasks[:2])
    fewer = replace(this, protocol=protocol, runs=(replace(run, milestones=milestones),))
    comparison = Comparison(recorded(this, "this"), (recorded(fewer, "fewer"),))
    words = Page(page(this, comparison=comparison)).words
    assert "fewer was measured otherwise (sub-tasks)" in words
    curves = {one.name: one.seen for one in comparison.all}
    assert "fewer" in figures.to_svg(figures.compared_accuracy(curves))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file"),
        ("{", "is no JSON"),
        ("[]", "has the schema None"),
        ('{"schema": "gmr-evaluation/0"}', "expected 'gmr-evaluation/1'"),
        ('{"schema": "gmr-evaluation/1"}', "is not whole: KeyError at 'protocol'"),
    ],
)
def test_what_is_no_report_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "report.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_recorded(path, "other")


def test_reports_are_called_by_what_tells_them_apart(tmp_path: Path) -> None:
    for folder in ("mfa/mnist", "flat/mnist", "paper"):
        written(an_evaluation(a_run()), tmp_path / folder)
    both = [tmp_path / "mfa/mnist", tmp_path / "flat/mnist/report.json"]
    assert [one.name for one in read_all(both)] == ["mfa/mnist", "flat/mnist"]
    assert [one.name for one in read_all([tmp_path / "paper"])] == ["paper"]
    twice = [tmp_path / "paper", tmp_path / "paper" / "report.json"]
    assert [one.name for one in read_all(twice)] == ["paper (1)", "report (2)"]


def test_a_report_that_is_called_as_this_one_is_told_apart(tmp_path: Path) -> None:
    this = an_evaluation(a_run())
    written(worse(this, 0.2), tmp_path / "this")
    report = write_report(this, {}, tmp_path / "new", read_all([tmp_path / "this"]))
    with report.scores.open(encoding="utf-8", newline="") as file:
        assert {row["evaluation"] for row in csv.DictReader(file)} == {"this", "this one"}
