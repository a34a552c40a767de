"""The clients against a real service: API, trainer and embedded Redis, over HTTP."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from clients.data.datasets import Dataset, load_dataset
from clients.data.tasks import SLT, stream
from clients.evaluation.local import LocalService
from clients.http.answers import (
    Classification,
    DriftState,
    ModelInfo,
    OutlierScores,
    ServiceEvent,
)
from clients.http.async_client import AsyncGMRClient
from clients.http.client import GMRClient
from clients.http.errors import NotLearnedYet, RequestConflict, RequestRefused
from clients.sending.resume import ResumeFile
from core.errors import InvalidBatch
from tests.service.running import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset("digits")


@dataclass(frozen=True)
class Live:
    """A running service, and what it said after it had learned two sub-tasks."""

    url: str
    learned: ModelInfo
    drift: DriftState


@pytest.fixture(scope="module")
def live(digits: Dataset) -> Iterator[Live]:
    with LocalService(settings={"n_components": 30}) as service, GMRClient(service.url) as client:
        assert client.model().model_version == 0
        for ask in (client.classify, client.outliers):
            with pytest.raises(NotLearnedYet):
                ask(digits.test_x[:1])
        for sub_task in stream(SLT.parse("D5-5a"), digits.train_x, digits.train_y, epochs=3):
            for features, labels in sub_task.batches(50):
                assert not client.ingest(features, labels).duplicate
        learned = client.wait_until_learned(60)
        yield Live(service.url, learned, client.drift())


@pytest.fixture
def url(live: Live) -> str:
    return live.url


@pytest.fixture
def client(url: str) -> Iterator[GMRClient]:
    with GMRClient(url) as client:
        yield client


def test_what_was_sent_was_learned(live: Live, digits: Dataset) -> None:
    info = live.learned
    assert info.samples_seen == 3 * len(digits.train_x)
    assert info.features == 64
    assert set(info.labels) == set(range(10))
    assert sum(known.count for known in info.classes) == info.samples_seen
    assert info.set_aside == info.backlog == 0


def test_classes_are_named_with_their_probabilities(client: GMRClient, digits: Dataset) -> None:
    found = client.classify(digits.test_x)
    assert (found.labels == digits.test_y).mean() > 0.85
    assert found.probabilities.shape == (360, 10)
    assert np.allclose(found.probabilities.sum(axis=1), 1, atol=1e-4)
    assert (found.probabilities.argmax(axis=1) == found.codes).all()
    assert found.model_version == client.model().model_version


def by_one_version(client: GMRClient, x: np.ndarray) -> tuple[OutlierScores, Classification]:
    """Two answers about the same; a stream that rests may bring a version between the two."""
    for _ in range(10):
        rated = client.outliers(x, false_positive_rate=0.25)
        asked = client.classify(x, p_values=True)
        if rated.model_version == asked.model_version:
            return rated, asked
    raise AssertionError("ten new versions, though nothing is sent")


def test_what_was_never_seen_is_an_outlier(client: GMRClient, digits: Dataset) -> None:
    usual, strange = client.outliers(digits.test_x), client.outliers(255 - digits.test_x)
    assert usual.inliers.mean() > 0.7
    assert strange.inliers.mean() < 0.1
    assert usual.p_values is not None
    assert (usual.score, usual.threshold) == ("p_value", 0.05)
    assert (usual.inliers == (usual.p_values > 0.05)).all()
    assert usual.scales is not None
    assert usual.scales.shape == usual.inliers.shape
    by_c = [client.outliers(digits.test_x, c=c) for c in (0.5, 2.0)]
    assert by_c[0].threshold > by_c[1].threshold
    assert (by_c[0].inliers == (by_c[0].log_likelihoods >= by_c[0].threshold)).all()
    rated, asked = by_one_version(client, digits.test_x)
    assert (rated.score, rated.threshold) == ("p_value", 0.25)
    assert rated.p_values is not None
    assert (rated.inliers == (rated.p_values > 0.25)).all()
    assert rated.calibration > 0
    odd = client.classify(255 - digits.test_x, unknown_rate=0.01)
    assert odd.unknown is not None
    assert odd.unknown.mean() > 0.9
    assert [label is None for label in odd.labels] == (odd.codes == -1).tolist()
    plain = client.classify(digits.test_x)
    assert (plain.p_values, plain.unknown, asked.unknown) == (None, None, None)
    assert asked.p_values is not None
    assert np.array_equal(asked.p_values, rated.p_values)


def test_samples_are_drawn_of_the_classes_asked_for(client: GMRClient) -> None:
    drawn = client.sample(12, [7, 3], seed=5)
    assert set(drawn.labels.tolist()) == {3, 7}
    assert drawn.features.shape == (12, 64)
    assert drawn.features.dtype == np.float32
    again = client.sample(12, [7, 3], seed=5)
    assert (again.features == drawn.features).all()
    assert (drawn.labels == 7).sum() == (drawn.labels == 3).sum() == 6
    fresh = client.sample(5)
    assert fresh.seed != client.sample(5).seed
    assert (client.sample(5, seed=fresh.seed).features == fresh.features).all()
    assert (client.classify(drawn.features).labels == drawn.labels).mean() > 0.5


def test_samples_can_be_asked_to_be_surer_and_without_noise(client: GMRClient) -> None:
    plain = client.sample(40, [7], seed=5)
    sure = client.sample(40, [7], seed=5, min_probability=0.99, noise=False)
    assert sure.probabilities.shape == sure.short.shape == (40,)
    assert (sure.short == (sure.probabilities < np.float32(0.99))).all()
    assert sure.features.var(axis=0).sum() < plain.features.var(axis=0).sum()
    with pytest.raises(RequestRefused, match="from 0 to 1") as error:
        client.sample(1, min_probability=1.5)
    assert error.value.status == 422


def test_samples_come_as_a_picture_too(client: GMRClient) -> None:
    assert client.sample_image(4, [1], shape=(8, 8)).startswith(b"\x89PNG")


def test_an_unknown_class_is_answered_with_the_known_ones(client: GMRClient) -> None:
    with pytest.raises(RequestRefused, match="never seen the class 'dog'") as error:
        client.sample(3, ["dog"])
    assert error.value.status == 404
    assert set(error.value.context["known"]) == set(range(10))  # type: ignore[call-overload]


def test_the_boundary_is_reported_where_it_was(live: Live, client: GMRClient) -> None:
    (boundary,) = [b for b in client.boundaries() if b.boundary == 1]
    n_batches = 44  # of the first sub-task: three passes over 728 samples, 50 at a time
    assert n_batches <= boundary.batch_index <= n_batches + 3
    assert boundary.version_after > boundary.version_before
    assert boundary.evidence
    assert boundary not in client.boundaries(since=boundary.id)
    assert live.drift.sub_task == live.drift.boundaries == 1


def test_the_boundary_is_explained(client: GMRClient) -> None:
    listed = client.boundaries()[0]
    whole = client.boundary(listed.id)
    told = whole.explanation
    assert whole.estimated_start_entry_id is not None
    assert whole.version_after == listed.version_after
    assert told.samples >= told.examined > 0
    assert told.effect is not None
    assert told.features[0].share >= told.features[-1].share > 0
    assert told.features == listed.explanation.features
    assert not listed.explanation.prototypes
    assert all(group.samples >= 10 for group in told.prototypes)
    assert len(told.contributions) == len(told.prototypes[0].features) == 64
    assert client.boundary_image(listed.id).startswith(b"\x89PNG")
    with pytest.raises(RequestRefused) as error:
        client.boundary("1-1")
    assert listed.id in error.value.context["known"]  # type: ignore[operator]


def test_the_history_has_a_row_per_batch(client: GMRClient) -> None:
    rows = client.history(1000)
    assert [row.batch_index for row in rows] == list(range(len(rows)))
    assert len(client.history(2)) == 2
    assert rows[-1].prequential_accuracy is not None


def test_outliers_of_a_burst_can_be_looked_at(client: GMRClient, digits: Dataset) -> None:
    before, kept = client.drift(), client.quarantine(1000)
    assert (before.phase, before.ert, before.recurrence_of) == ("armed", 1e7, None)
    assert (before.armed_in, before.unarmed_reason) == (0, None)
    usual = digits.train_x[digits.train_y >= 5].reshape(-1, 64)
    noise = np.random.default_rng(0).integers(0, 256, (12, 64), dtype=np.uint8)
    client.ingest(np.concatenate([usual[:40], noise, usual[40:140]]))
    client.wait_until_learned(60)
    after = client.drift()
    assert (after.bursts, after.boundaries) == (before.bursts + 1, before.boundaries)
    assert after.phase == "armed"
    found = client.quarantine(1000)[len(kept) :]
    features = {tuple(np.rint(np.multiply(one.features, 255)).astype(int)) for one in found}
    assert features >= {tuple(row) for row in noise.astype(int)}
    assert len(found) <= len(noise) + 10
    assert {one.label for one in found} == {None}
    assert client.quarantine(2) == found[-2:]


def test_the_same_id_is_learned_once_and_means_one_batch(
    client: GMRClient, digits: Dataset
) -> None:
    first = client.ingest(digits.train_x[:5], batch_id="once")
    again = client.ingest(digits.train_x[:5], batch_id="once")
    assert (first.duplicate, again.duplicate) == (False, True)
    assert first.entry_id == again.entry_id
    with pytest.raises(RequestConflict, match="used before"):
        client.ingest(digits.train_x[:6], batch_id="once")


def test_a_wrong_number_of_features_is_refused_with_the_right_one(client: GMRClient) -> None:
    with pytest.raises(RequestRefused) as error:
        client.ingest(np.zeros((2, 3)))
    assert error.value.status == 422
    assert error.value.context == {"expected": 64, "got": 3}


def test_a_declared_boundary_is_followed_as_it_happens(client: GMRClient, url: str) -> None:
    found: list[ServiceEvent] = []
    connected = threading.Event()

    def follow() -> None:
        with GMRClient(url) as follower:
            # From the beginning: the boundary already found is the sign that it is connected.
            for event in follower.events("0", kinds=("boundary",)):
                found.append(event)
                connected.set()
                if event.data["detector"] == "declared":
                    return

    listener = threading.Thread(target=follow, daemon=True)
    listener.start()
    assert connected.wait(10)
    client.declare_boundary()
    listener.join(10)
    assert not listener.is_alive()
    assert [event.kind for event in found] == ["boundary"] * len(found)
    assert found[-1].data["sub_task"] == found[0].data["sub_task"] + len(found) - 1


def written_down(client: GMRClient) -> bool:
    """Whether the newest version that is listed holds all that was applied: none goes after it."""
    newest = max(int(version.raw["entries_applied"]) for version in client.versions())
    return newest == client.ledger().entries_applied


def test_a_version_can_be_served_again_and_a_checkpoint_restored(
    client: GMRClient, digits: Dataset
) -> None:
    client.wait_until_learned(30)
    client.freeze()  # else a quiet stream settles: a version that comes, and an old one that goes
    wait_until(lambda: written_down(client))
    before, state = client.model(), client.checkpoint()
    oldest = min(client.versions(), key=lambda version: version.version)
    assert client.rollback(oldest.version).applied
    assert client.model().model_version == oldest.version
    assert client.model().samples_seen == oldest.samples_seen < before.samples_seen
    assert client.restore(state).applied
    assert client.model().samples_seen == before.samples_seen
    with pytest.raises(RequestRefused):
        client.restore(state[:-1])
    with pytest.raises(RequestRefused, match="99999 is not kept"):
        client.rollback(99_999)
    client.thaw()


@pytest.mark.anyio
async def test_a_model_is_frozen_and_thawed_by_both_clients(
    url: str, client: GMRClient, digits: Dataset
) -> None:
    client.wait_until_learned(30)
    version = client.model().model_version
    assert client.freeze("a test", by="ada").model_version == version
    assert client.model().mode == "frozen"
    async with AsyncGMRClient(url) as other:
        assert (await other.detect_only()).applied
        assert (await other.model()).mode == "detect_only"
        assert (await other.thaw()).applied
        assert (await other.set_ert(50_000)).applied
        assert (await other.change_settings({"max_classes": 60}, reason="more")).applied
        assert (await other.settings())["max_classes"].value in (60, 1000)  # as reported last
        assert (await other.freeze()).applied
        assert client.thaw().applied
        assert client.detect_only().applied
        assert client.thaw().applied
        client.ingest(digits.train_x[:40], digits.train_y[:40])
        entry = await other.declare_boundary("the winter begins", by="ada")
        client.wait_until_learned(30)
        [boundary] = [one for one in client.boundaries() if one.entry_id == entry]
        await other.add_note(boundary.id, "It is cold.")
    note = client.add_note(boundary.id, "Very.", by="bo")
    said = client.boundary(boundary.id).notes
    assert [(one.text, one.by) for one in said] == [
        ("the winter begins", "ada"),
        ("It is cold.", None),
        ("Very.", "bo"),
    ]
    assert said[-1] == note
    assert client.drift().ert == 50_000
    assert client.set_ert(None).applied
    wait_until(lambda: client.settings()["max_classes"].value == 60)
    assert client.change_settings({"max_classes": None}).applied
    wait_until(lambda: not client.settings()["max_classes"].asked)
    assert client.drift().mode == "learn"


@pytest.mark.anyio
async def test_a_class_is_called_otherwise_by_both_clients(url: str, client: GMRClient) -> None:
    labels = client.wait_until_learned(30).labels
    async with AsyncGMRClient(url) as other:
        assert (await other.rename_class(9, "nine", reason="a test", by="ada")).applied
        assert set((await other.model()).labels) == {*labels, "nine"} - {9}
        # As where the first answer was lost.
        with pytest.raises(RequestRefused, match="never seen the class 9"):
            await other.rename_class(9, "nine")
        with pytest.raises(RequestConflict, match="a class 8 already"):
            await other.rename_class("nine", 8)
    assert list(client.sample(3, ["nine"], seed=1).labels) == ["nine"] * 3
    assert client.rename_class("nine", 9).applied
    assert client.model().labels == labels
    [event, _] = client.kept_events(kinds=["class_renamed"])
    assert (event.data["label"], event.data["by"]) == ("nine", "ada")


@pytest.mark.anyio
async def test_two_classes_become_one_by_both_clients(url: str, client: GMRClient) -> None:
    labels = client.wait_until_learned(30).labels
    version = client.model().model_version
    x = np.random.default_rng(3).random((10, client.model().features), np.float32)
    client.ingest(x, labels=["nin", "nien"] * 5)
    assert set(client.wait_until_learned(30).labels) == {*labels, "nin", "nien"}
    async with AsyncGMRClient(url) as other:
        assert (await other.merge_classes("nin", "nien", reason="a test", by="ada")).applied
        assert set((await other.model()).labels) == {*labels, "nien"}
        with pytest.raises(RequestRefused, match="never seen the class 'nin'"):
            await other.merge_classes("nin", "nien")
    assert client.merge_classes("nien", labels[0]).applied
    assert client.model().labels == labels
    assert client.model().model_version > version
    [event, _] = client.kept_events(kinds=["classes_merged"])
    assert (event.data["label"], event.data["label_before"]) == ("nien", "nin")


@pytest.mark.anyio
async def test_columns_of_a_frame_are_taken_by_their_names_by_both_clients(
    url: str, client: GMRClient
) -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(["low", "high"], 200)
    x = rng.normal(size=(200, 2)) + np.where(labels == "low", 0, 20)[:, None] * [1, -1]
    frame = pd.DataFrame(x, columns=["heat", "load"])
    turned = frame[["load", "heat"]]
    client.make_model("frames", {"n_components": 4})
    with GMRClient(url, model="frames") as one:
        one.ingest(frame, labels)
        one.wait_until_learned(30)
        one.name_features(["heat", "load"])
        assert (one.classify(turned).labels == labels).all()
        assert one.outliers(turned).log_likelihoods == pytest.approx(
            one.outliers(x).log_likelihoods
        )
        assert one.ingest(turned, labels, batch_id="a").samples == 200
        # The same samples in the model's order: one batch with its id twice.
        assert one.ingest(x, labels, batch_id="a").duplicate
    async with AsyncGMRClient(url, model="frames") as other:
        assert ((await other.classify(turned)).labels == labels).all()
        assert (await other.ingest(turned, labels, batch_id="a")).duplicate
        assert (await other.outliers(turned)).inliers.mean() > 0.8
        with pytest.raises(InvalidBatch, match="'load' is missing, and 'lod' is unknown"):
            await other.classify(frame.rename(columns={"load": "lod"}))
        await other.name_features(["load", "heat"])
        assert ((await other.classify(frame)).labels != labels).any()
    client.take_down_model("frames")


def test_metrics_and_readiness_are_answered(client: GMRClient) -> None:
    assert "gmr_samples_ingested_total" in client.metrics()
    assert client.ready().ready


@pytest.mark.anyio
async def test_the_asynchronous_client_gives_the_same_answers(
    url: str, client: GMRClient, digits: Dataset
) -> None:
    async with AsyncGMRClient(url) as other:
        await other.wait_until_ready(5)
        await other.wait_until_learned(30)
        found = await other.classify(digits.test_x)
        assert (found.labels == client.classify(digits.test_x).labels).all()
        drawn = await other.sample(4, seed=2)
        assert (drawn.features == client.sample(4, seed=2).features).all()
        assert await other.model() == client.model()
        assert await other.drift() is not None
        assert await other.history(2) == client.history(2)
        async for event in other.events("0"):
            assert event.data["kind"] == event.kind
            break


def test_the_quickstart_runs_as_it_is_printed(url: str, tmp_path: Path) -> None:
    path = Path(__file__).parents[3] / "examples" / "client_quickstart.py"
    accuracy = runpy.run_path(str(path))["main"](url, tmp_path)
    assert accuracy > 0.85
    assert (tmp_path / "samples.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "model.safetensors").stat().st_size > 1000


# gmr ingest


def ingest(path: Path, url: str, home: Path, *options: str) -> subprocess.Popen[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("GMR_")},
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "XDG_STATE_HOME": str(home),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "clients.commands.cli", "ingest", str(path), "--url", url, *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_progress(home: Path, samples: int) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for path in home.glob("gmr-stream/ingest/*.json"):
            if ResumeFile(path, {}).load().samples >= samples:
                return
        time.sleep(0.02)
    raise AssertionError("ingest made no progress")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT], ids=["killed", "ctrl-c"])
def test_an_interrupted_file_is_finished_without_losing_or_repeating_a_sample(
    client: GMRClient, url: str, digits: Dataset, tmp_path: Path, end: signal.Signals
) -> None:
    # Another order than anything sent before, so that no id is known.
    order = np.random.default_rng(int(end)).permutation(len(digits.train_x))
    features, labels = digits.train_x[order], digits.train_y[order]
    np.savez(tmp_path / "digits.npz", features=features, labels=labels)
    before = client.wait_until_learned(30).samples_seen + client.drift().quarantined
    options = ("--batch-size", "20")

    first = ingest(tmp_path / "digits.npz", url, tmp_path, *options, "--rate", "600")
    wait_for_progress(tmp_path, 200)
    first.send_signal(end)
    _, complaint = first.communicate(timeout=30)
    if end == signal.SIGINT:
        assert first.returncode == 130
        assert "Run the same command again" in " ".join(complaint.split())

    second = ingest(tmp_path / "digits.npz", url, tmp_path, *options, "--wait")
    told, complaint = second.communicate(timeout=60)
    assert second.returncode == 0, complaint
    sent = int(told.split(" samples in ")[0].replace(",", ""))
    assert sent < len(features)  # it went on, and did not begin anew
    # Where it was interrupted decides how it is cut, and perhaps what passes for outliers.
    learned = client.wait_until_learned(30).samples_seen
    assert learned + client.drift().quarantined == before + len(features)

    more = np.concatenate([features, features[::50]])
    np.savez(tmp_path / "digits.npz", features=more, labels=np.concatenate([labels, labels[::50]]))
    third = ingest(tmp_path / "digits.npz", url, tmp_path, *options, "--wait")
    told, complaint = third.communicate(timeout=60)
    assert f"begins with {len(features):,} samples that were sent" in " ".join(complaint.split())
    assert f"{len(more) - len(features)} samples in 2 batches, 0 of them there before" in told
