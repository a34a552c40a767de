"""Tests for clients.evaluation.mlflow_run: MLflow itself where it is installed, else its seam."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from clients.commands.evaluate import evaluate_command
from clients.evaluation.mlflow_run import check_installed, log_evaluation, parameters
from clients.evaluation.report import Report, write_report
from clients.extras import MissingExtra
from clients.http.errors import ClientError
from tests.clients.evaluation.test_report import a_run, an_evaluation

EVALUATION = an_evaluation(a_run(0), a_run(1))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return write_report(EVALUATION, {}, tmp_path_factory.mktemp("report"))


class Recorder(ModuleType):
    """What is asked of MLflow, by run."""

    def __init__(self) -> None:
        super().__init__("mlflow")
        self.runs: dict[str, dict[str, Any]] = {}
        self.open: list[str] = []
        self.uri = ""

    def set_tracking_uri(self, uri: str) -> None:
        self.uri = uri

    def set_experiment(self, name: str) -> None:
        if self.uri == "http://away":
            raise sys.modules["mlflow.exceptions"].MlflowException("no answer")

    @contextlib.contextmanager
    def start_run(self, run_name: str, nested: bool = False) -> Iterator[Any]:
        assert nested == bool(self.open)
        self.runs[run_name] = {"params": {}, "metrics": {}, "files": [], "tags": {}}
        self.open.append(run_name)
        yield SimpleNamespace(info=SimpleNamespace(run_id=run_name))
        self.open.pop()

    def _now(self) -> dict[str, Any]:
        return self.runs[self.open[-1]]

    def log_params(self, params: dict[str, str]) -> None:
        self._now()["params"] |= params

    def log_param(self, name: str, value: object) -> None:
        self._now()["params"][name] = value

    def set_tags(self, tags: dict[str, str]) -> None:
        self._now()["tags"] |= tags

    def set_tag(self, name: str, value: str) -> None:
        self._now()["tags"][name] = value

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        for name, value in metrics.items():
            assert math.isfinite(value)
            self._now()["metrics"].setdefault(name, []).append((step, value))

    def log_artifact(self, path: str) -> None:
        self._now()["files"].append(Path(path).name)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    module, exceptions = Recorder(), ModuleType("mlflow.exceptions")
    exceptions.MlflowException = type("MlflowException", (Exception,), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setitem(sys.modules, "mlflow.exceptions", exceptions)
    return module


def test_a_parent_has_the_means_and_the_report_and_each_seed_a_child(
    recorder: Recorder, report: Report
) -> None:
    parent = log_evaluation(EVALUATION, report, "file:store")
    assert recorder.uri == "file:store"
    assert list(recorder.runs) == [parent, "seed 0", "seed 1"]
    means = recorder.runs[parent]
    assert means["params"] == parameters(EVALUATION)
    assert means["params"]["slt"] == EVALUATION.protocol.slt
    assert means["metrics"]["accuracy"] == [(None, EVALUATION.summary()["accuracy"].mean)]
    assert "report.html" in means["files"]
    assert sorted(means["files"]) == sorted(path.name for path in report.files)
    for run in EVALUATION.runs:
        child = recorder.runs[f"seed {run.seed}"]
        assert child["params"] == {"seed": run.seed}
        assert child["metrics"]["forgetting"] == [(None, run.scores()["forgetting"])]
        seen = [(m.sub_task, m.accuracy_seen) for m in run.milestones]
        assert child["metrics"]["accuracy_seen"] == seen


def test_what_is_not_known_is_left_out(recorder: Recorder, report: Report) -> None:
    single = an_evaluation(a_run(0))
    nothing = replace(single.runs[0], found=(), boundaries=replace(a_run().boundaries, matches=()))
    log_evaluation(replace(single, runs=(nothing,)), report, "file:store")
    for run in recorder.runs.values():
        assert "boundary_delay_batches" not in run["metrics"]
        assert "accuracy.std" not in run["metrics"]


def test_a_store_that_is_away_is_told_after_the_report_was_written(
    recorder: Recorder, report: Report
) -> None:
    with pytest.raises(ClientError, match="MLflow at http://away: no answer Its report is"):
        log_evaluation(EVALUATION, report, "http://away")


@pytest.mark.skipif(find_spec("mlflow") is not None, reason="mlflow is installed")
def test_without_the_extra_the_command_says_so_before_the_run() -> None:
    with pytest.raises(MissingExtra, match=r"gmr-stream\[mlflow\]"):
        check_installed()
    with pytest.raises(MissingExtra, match=r"gmr-stream\[mlflow\]"):
        evaluate_command("digits", mlflow="file:store")


READ_BACK = """
import sys
from tests.clients.evaluation.test_report import a_run, an_evaluation
from clients.evaluation.mlflow_run import log_evaluation
from clients.evaluation.report import write_report
from pathlib import Path

folder = Path(sys.argv[1])
evaluation = an_evaluation(a_run(0), a_run(1))
uri = (folder / "store").as_uri()
run_id = log_evaluation(evaluation, write_report(evaluation, {}, folder / "report"), uri)

from mlflow.tracking import MlflowClient

client = MlflowClient(uri)
run = client.get_run(run_id)
assert run.data.metrics["accuracy"] == evaluation.summary()["accuracy"].mean
assert run.data.params["batch_size"] == "100"
files = {file.path for file in client.list_artifacts(run_id)}
assert {"report.html", "report.json", "accuracy.svg"} <= files
children = client.search_runs([run.info.experiment_id], f"tags.mlflow.parentRunId = '{run_id}'")
assert {child.data.params["seed"] for child in children} == {"0", "1"}
steps = client.get_metric_history(children[0].info.run_id, "accuracy_seen")
assert [metric.step for metric in steps] == [0, 1, 2]
"""


@pytest.mark.skipif(find_spec("mlflow") is None, reason="mlflow-skinny is not installed")
def test_mlflow_itself_reads_it_back(tmp_path: Path) -> None:
    command = [sys.executable, "-c", READ_BACK, str(tmp_path)]  # away from our strict warnings
    root = Path(__file__).parents[3]
    environment = {**os.environ, "MLFLOW_ALLOW_FILE_STORE": "true"}  # no database in a test
    ended = subprocess.run(
        command, cwd=root, env=environment, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
