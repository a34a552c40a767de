"""Tests for clients.commands.evaluate: a whole evaluation, and what is refused before it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from clients.commands.evaluate import evaluate, evaluate_command
from clients.data.datasets import load_dataset
from clients.data.tasks import SLT
from clients.evaluation.listener import Silent
from clients.evaluation.plan import Plan
from clients.evaluation.results import Milestone
from clients.http.client import GMRClient
from clients.http.errors import InputError
from service.settings import Settings
from tests.clients.evaluation.test_report import a_run, an_evaluation
from tests.service.forked_service import ForkedService, forked_service

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (Plan("digits", labelled=1.5), "labelled share is 1.5"),
        (Plan("digits", url="http://127.0.0.1:1", seeds=(0, 1)), "2 seeds need as many"),
        (Plan("digits", url="http://127.0.0.1:1", settings={"preset": "paper"}), "preset"),
        (Plan("digits", slt="0,1/77"), "77"),
        (Plan("digits", slt="D3-3"), "no SLT called"),
    ],
)
def test_a_plan_that_cannot_work_is_refused_before_anything_starts(plan: Plan, message: str):
    with pytest.raises(InputError, match=message):
        evaluate(plan, Silent(), "gmr evaluate")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkedService]:
    """One as it is by default but for its components, to whose address evaluations go."""
    usual = {name: getattr(Settings(), name) for name in ("warm_up", "settle_after_s")}
    folder = tmp_path_factory.mktemp("service")
    with forked_service(folder, n_components=60, checkpoint_interval_s=5, **usual) as running:
        running.wait_until_it_answers()
        yield running


class Witness(Silent):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.samples = 0
        self.milestones: list[Milestone] = []

    def sent(self, samples: int) -> None:
        self.samples += samples

    def measured(self, milestone: Milestone) -> None:
        self.milestones.append(milestone)


def test_an_evaluation_of_a_running_service(service: ForkedService):
    witness = Witness()
    plan = Plan("digits", slt="0,1/2,3/4,5", epochs=8, url=service.url, labelled=0.5)
    evaluation, drawn = evaluate(plan, witness, "gmr evaluate digits")
    (run,) = evaluation.runs
    digits, slt = load_dataset("digits"), SLT.parse(plan.slt)

    # Everything was sent, once per epoch, and the service agrees.
    n = 8 * len(slt.rows(digits.train_y))
    assert sum(run.history.samples) == witness.samples == n
    assert run.model["samples_seen"] + run.model["unknown"] == n
    assert 0.4 < sum(run.history.labelled) / n < 0.6
    assert evaluation.data.train_samples == n // 8
    assert run.model["backlog"] == run.model["set_aside"] == run.model["waiting"] == 0

    # Every batch is accounted for.
    assert len(run.history) == len(run.history.inlier_rate) == len(run.history.sub_task)
    assert np.isfinite(run.history.inlier_rate[-20:]).all()
    assert np.isfinite(run.history.prequential_accuracy[-20:]).all()

    # It learned, kept what it had learned, and found both changes at once.
    assert witness.milestones == list(run.milestones)
    assert [milestone.accuracy_seen > 0.85 for milestone in run.milestones] == [True] * 3
    scores = run.scores()
    assert scores["accuracy"] == run.milestones[-1].accuracy_joint > 0.85
    assert run.sample_quality is not None
    assert run.sample_quality.purity_of_test_samples > 0.9
    assert scores["sample_purity"] > 0.9
    assert scores["sample_coverage"] > 0.3
    assert scores["forgetting"] < 0.1
    assert (scores["boundaries_found"], scores["boundaries_false"]) == (2, 0)
    assert scores["boundary_delay_batches"] <= 3

    # It says by itself how well it holds the two past sub-tasks, of its final model.
    assert [set(row.classes) for row in run.held] == [{0, 1}, {2, 3}]
    assert {row.model_version for row in run.held} == {run.model["model_version"]}
    assert [len(row["classes"]) for row in run.model["held"]] == [2, 2]
    for index, row in enumerate(run.held):
        assert row.own_then.accuracy > 0.9
        assert 0 <= row.own_now.probability <= 1
        # These test data are those of the accuracy matrix, with classes weighing the same.
        assert row.test_now.accuracy == pytest.approx(run.matrix[-1, index], abs=0.05)
        assert row.test_then.accuracy == pytest.approx(run.matrix[index, index], abs=0.05)
        assert np.isfinite(row.test_now.log_likelihood)

    # Classes still to come cannot be named.
    assert run.matrix.shape == (3, 3)
    assert run.matrix[np.triu_indices(3, 1)].tolist() == [0, 0, 0]
    assert np.sum(run.confusion) == evaluation.data.test_samples == len(slt.rows(digits.test_y))

    # Samples of every class, and outliers told apart.
    assert list(drawn) == list(range(6))
    assert {np.shape(images) for images in drawn.values()} == {(6, 64)}
    assert {test.name: test.auroc > 0.9 for test in run.outliers}["uniform noise"]
    assert run.speed.ingest.requests == len(run.history)
    assert run.speed.samples_per_second > 100


def test_a_service_that_has_learned_before_is_refused(service: ForkedService):
    with GMRClient(service.url) as client:
        if client.model().samples_seen == 0:
            client.ingest(load_dataset("digits").train_x[:300])
            client.wait_until_learned()
    with pytest.raises(InputError, match=r"has learned [\d,]+ samples already.*--allow-warm"):
        evaluate(Plan("digits", url=service.url), Silent(), "gmr evaluate")


def test_a_service_that_has_learned_before_can_be_allowed(service: ForkedService):
    with GMRClient(service.url) as client:
        model = client.model()
        before = model.samples_seen + model.unknown
    plan = Plan("digits", slt="6,7", url=service.url, limit=200, allow_warm=True)
    evaluation, _ = evaluate(plan, Silent(), "gmr evaluate")
    (run,) = evaluation.runs
    assert evaluation.protocol.service.get("warm", False) is (before > 0)
    assert sum(run.history.samples) == 200
    assert run.model["samples_seen"] + run.model["unknown"] == before + 200
    # Positions are of what this run sent, and the earlier stream's boundaries are not its own.
    assert all(found.batch <= 2 for found in run.found)


def test_fresh_models_learn_the_same_sub_tasks_where_a_reference_is_wanted(service: ForkedService):
    plan = Plan("digits", slt="8/9", url=service.url, limit=150, allow_warm=True, reference=True)
    evaluation, _ = evaluate(plan, Silent(), "gmr evaluate")
    (run,) = evaluation.runs
    first, second = run.reference
    assert np.isnan(first)
    # A fresh model that is shown one class alone knows it from its second batch on.
    sent = [
        samples
        for task, samples in zip(run.history.sub_task, run.history.samples, strict=True)
        if task == 1
    ]
    assert second == pytest.approx(1 - sent[0] / sum(sent))
    assert np.isfinite(run.scores()["forward_transfer"])
    with GMRClient(service.url) as client:
        assert {model.state for model in client.models()} <= {"leaving"}


def test_the_command_runs_a_service_of_its_own_and_writes_the_report(tmp_path: Path):
    command = [
        *(sys.executable, "-W", "error", "-m", "clients.commands.cli", "evaluate", "digits"),
        *("--slt", "0/1", "--limit", "140", "--epochs", "3", "--seeds", "2"),
        *("--components", "20", "--set", "publish_interval_s=0.1"),
        *("--report", str(tmp_path / "report"), "--compare", str(tmp_path / "older")),
    ]
    (tmp_path / "older").mkdir()
    older = json.dumps(an_evaluation(a_run()).to_dict())
    (tmp_path / "older" / "report.json").write_text(older, encoding="utf-8")
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert ended.returncode == 0, ended.stderr
    assert "digits, 0/1, 2 seeds" in ended.stdout
    assert "seed 1, sub-task 1 (1): 420 samples, accuracy" in ended.stdout
    assert ended.stderr == ""
    content = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [run["seed"] for run in content["runs"]] == [0, 1]
    assert [run["model"]["samples_seen"] for run in content["runs"]] == [840, 840]
    assert all(run["model"]["components"] <= 20 for run in content["runs"])
    assert content["command"].startswith("gmr evaluate digits --slt 0/1")
    assert (tmp_path / "report" / "report.html").stat().st_size > 50_000
    assert (tmp_path / "report" / "inlier_rate.png").is_file()
    assert "older was measured otherwise" in (tmp_path / "report" / "report.html").read_text()


def test_a_table_with_categories_is_evaluated_by_its_encoding(tmp_path: Path):
    rng = np.random.default_rng(0)
    path, encoding = tmp_path / "pumps.csv", tmp_path / "pumps.json"
    rows = [
        f"p{i},{'worn' if i % 2 else 'ok'},{'eco' if i % 3 else 'boost'},"
        f"{4 * (i % 2) + rng.normal():.3f},{rng.normal():.3f}"
        for i in range(400)
    ]
    path.write_text("\n".join(["id,state,mode,load,speed", *rows, "p,ok,eco,1,fast"]) + "\n")
    gmr = (sys.executable, "-W", "error", "-m", "clients.commands.cli")
    evaluated = (*gmr, "evaluate", str(path), "--slt", "ok/worn", "--components", "10")
    evaluated += ("--label-column", "state", "--report", str(tmp_path / "report"))

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)

    bare = run(*evaluated, "--id-column", "id")
    assert bare.returncode == 2
    assert "or encode it (`gmr encoding`)" in " ".join(bare.stderr.split())
    apart = ("--label-column", "state", "--drop", "id,speed", "--out", str(encoding))
    made = run(*gmr, "encoding", str(path), *apart)
    assert made.returncode == 0, made.stderr
    ended = run(*evaluated, "--encoding", str(encoding), "--set", "publish_interval_s=0.1")
    assert ended.returncode == 0, ended.stderr
    content = json.loads((tmp_path / "report" / "report.json").read_text())
    assert content["data"]["features"] == 3
    assert content["data"]["classes"] == ["ok", "worn"]


def test_a_report_that_cannot_be_read_costs_no_run(tmp_path: Path):
    with pytest.raises(InputError, match=r"report\.json cannot be read"):
        evaluate_command("digits", compare=[tmp_path / "report.json"])


def test_a_setting_without_a_value_is_explained():
    command = [
        *(sys.executable, "-m", "clients.commands.cli", "evaluate", "digits", "--set", "preset")
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert "expected NAME=VALUE" in " ".join(ended.stderr.split())
