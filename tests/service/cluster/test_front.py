"""Tests for an API process that answers for a cluster: real trainers of buckets, without Ray."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from service.broker.connection import connect
from service.broker.keys import Keys
from service.cluster.buckets import bucket_of, settings_of
from service.cluster.plan import agree
from service.settings import Settings
from service.upkeep.doctor import examine
from tests.service.api.stack import (
    at_rest,
    labels,
    learned,
    make_settings,
    of_model,
    problem,
    samples,
    serving,
    teach,
    training,
)

BUCKETS = 3
LED = (0, 1)
"""Buckets with a trainer."""


def name_in(bucket: int, *, after: int = 0) -> str:
    """A name of a model that belongs to a bucket."""
    names = (f"pump-{number}" for number in range(after, after + 1000))
    return next(name for name in names if bucket_of(name, BUCKETS) == bucket)


def begin(settings: Settings, buckets: int) -> None:
    with connect(str(settings.redis_address())) as client:
        agree(client, settings.model, buckets, buckets)


def works(metrics: str) -> dict[str, bool]:
    """What is told of each bucket's trainer."""
    families = {family.name: family for family in text_string_to_metric_families(metrics)}
    samples = families["gmr_bucket_works"].samples
    return {sample.labels["bucket"]: bool(sample.value) for sample in samples}


@pytest.fixture(scope="module")
def cluster(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    made = make_settings(
        redis_url, tmp_path_factory.mktemp("cluster"), cluster=True, api_models=2, max_models=5
    )
    begin(made, BUCKETS)
    return made


@pytest.fixture(scope="module")
def front(cluster: Settings) -> Iterator[httpx2.Client]:
    """One API process before a cluster of which one bucket has no trainer."""
    with ExitStack() as stack:
        for bucket in LED:
            stack.enter_context(training(settings_of(cluster, bucket)))
        yield stack.enter_context(serving(cluster))


def test_models_of_all_buckets_are_made_taught_and_asked_at_one_address(
    front: httpx2.Client, cluster: Settings
) -> None:
    names = [name_in(bucket) for bucket in LED]
    for name in names:
        assert front.put(f"/models/{name}").status_code == 201
        with of_model(front, name) as model:
            teach(model)
    for bucket, name in zip(LED, names, strict=True):
        with of_model(front, name) as model:
            rows = samples(20, seed=9).tolist()
            assert model.post("/classify", json={"features": rows}).json()["labels"] == labels(20)
            assert model.get("/model").json()["name"] == f"{cluster.model}-b{bucket:03d}/{name}"
            assert model.get("/health/ready").status_code == 200
            at_rest(model)  # else it may just settle, which is an entry
        found = front.get(f"/models/{name}").json()
        assert (found["samples_seen"], found["backlog"], found["classes"]) == (600, 0, 2)
        inputs = [{"name": "features", "shape": [20, 16], "datatype": "FP32", "data": rows}]
        answer = front.post(f"/v2/models/{name}/infer", json={"inputs": inputs}).json()
        assert answer["model_name"] == name
    listed = front.get("/models").json()
    assert {model["name"] for model in listed["models"]} >= set(names)
    assert listed["most"] == BUCKETS * 5
    detailed = front.get("/models", params={"detail": "true"}).json()["models"]
    told = {model["name"]: model["detail"] for model in detailed}
    assert all(told[name]["samples_seen"] == 600 for name in names)
    assert all(told[name]["newest_sample_time"] is not None for name in names)
    with connect(str(cluster.redis_address())) as client:
        for bucket, name in zip(LED, names, strict=True):
            keys = Keys(settings_of(cluster, bucket).model)
            assert client.hexists(keys.models, name)
    metrics = front.get("/metrics").text
    assert "gmr_trainer_heartbeat_age_seconds" in metrics
    assert works(metrics) == {
        f"{cluster.model}-b{bucket:03d}": bucket in LED for bucket in range(3)
    }
    assert sum(
        float(line.split()[-1]) for line in metrics.splitlines() if line.startswith("gmr_models{")
    ) >= len(names)


def test_all_buckets_share_the_models_that_a_process_holds(front: httpx2.Client) -> None:
    for bucket in LED:
        for after in (1000, 2000):
            name = name_in(bucket, after=after)
            assert front.put(f"/models/{name}").status_code == 201
            assert front.get(f"/models/{name}/model").status_code == 200
    held = [one for one in front.get("/metrics").text.splitlines() if "gmr_api_models " in one]
    assert held[-1] == "gmr_api_models 2.0"
    for bucket in LED:
        for after in (1000, 2000):
            name = name_in(bucket, after=after)
            assert front.delete(f"/models/{name}").status_code == 202


def test_a_misspelt_name_is_looked_for_in_all_buckets(front: httpx2.Client) -> None:
    meant = "compressor-hall-4"
    misspelt = next(
        name
        for letter in "abcdefghijklmnopqrstuvw"
        if bucket_of(name := f"compressor-ha{letter}l-4", BUCKETS) != bucket_of(meant, BUCKETS)
    )
    assert front.put(f"/models/{meant}").status_code == 201
    for path in (f"/models/{misspelt}/drift", f"/models/{misspelt}"):
        assert meant in problem(front.get(path), 404, "unknown-model")["detail"]


def test_a_bucket_without_a_trainer_does_not_take_the_process_out_of_service(
    front: httpx2.Client,
) -> None:
    name = name_in(2)
    assert front.put(f"/models/{name}").status_code == 201
    assert front.get("/health/ready").status_code == 200
    found = problem(front.get(f"/models/{name}/health/ready"), 503, "unavailable")
    assert found["reasons"] == ["No trainer has reported yet."]
    with of_model(front, name) as model:
        batch = {"features": samples(20).tolist(), "labels": labels(20)}
        assert model.post("/ingest", json=batch).status_code == 202  # kept until there is one
        assert model.get("/model").json()["backlog"] == 1


def test_a_process_that_was_not_told_that_it_answers_for_a_cluster_says_so(
    redis_url: str, tmp_path: Path
) -> None:
    settings = make_settings(redis_url, tmp_path)
    with serving(settings) as client:
        found = problem(client.get("/health/ready"), 503, "unavailable")
        assert found["reasons"] == ["No trainer has reported yet."]
        begin(settings, 2)
        found = problem(client.get("/health/ready"), 503, "unavailable")
        assert "--cluster true" in found["detail"]


def test_a_first_batch_makes_a_model_in_its_bucket(redis_url: str, tmp_path: Path) -> None:
    settings = make_settings(redis_url, tmp_path, cluster=True, models_on_demand=True)
    begin(settings, 1)
    with training(settings_of(settings, 0)), serving(settings) as client:
        with of_model(client, "new") as model:
            batch = {"features": samples(20).tolist(), "labels": labels(20)}
            assert model.post("/ingest", json=batch).status_code == 202
            assert learned(model)["samples_seen"] == 20
        assert [one["name"] for one in client.get("/models").json()["models"]] == ["new"]


def test_a_cluster_that_is_begun_later_is_found_without_a_restart(
    redis_url: str, tmp_path: Path
) -> None:
    settings = make_settings(redis_url, tmp_path, cluster=True)
    with serving(settings) as client:
        detail = problem(client.put("/models/pump"), 503, "unavailable")["detail"]
        assert settings.model in detail
        assert "gmr cluster up" in detail
        assert client.get("/health/live").status_code == 200
        assert client.get("/health/ready").status_code == 200  # with no trainer anywhere
        begin(settings, 2)
        assert client.put("/models/pump").status_code == 201


def test_the_doctor_of_a_cluster_looks_at_all_its_buckets(
    front: httpx2.Client, cluster: Settings
) -> None:
    name = name_in(0, after=6000)
    assert front.put(f"/models/{name}").status_code == 201
    elsewhere = cluster.model_copy(update={"data_dir": cluster.data_dir / "of-the-hosts"})
    found = {one.subject: one for one in examine(elsewhere).findings}
    assert "data dir" not in found  # hosts have theirs, on their nodes
    assert found["cluster"].found == f"{BUCKETS} buckets"
    for bucket in range(BUCKETS):
        trainer = found[f"bucket {bucket}: trainer"]
        holder = "holds the lease" if bucket in LED else "nobody"
        assert holder in trainer.found
        assert (trainer.advice is None) == (bucket in LED)
        # Of a store that is not named, nothing is said to be lost.
        assert "GMR_CHECKPOINTS" in str(found[f"bucket {bucket}: checkpoints"].advice)
    assert not any(one.blocks for one in found.values())
    stored = cluster.model_copy(update={"checkpoints": "redis"})
    report = examine(stored)
    assert f"bucket 0: model {name}: stream" in {one.subject for one in report.findings}
    assert f"bucket 0/{name}" in {model.name for model in report.models}


def test_the_audit_trail_says_who_changed_which_model(
    front: httpx2.Client,
) -> None:
    name = name_in(1, after=5000)
    front.put(f"/models/{name}")
    paths = [record["path"] for record in front.get("/audit").json()["actions"]]
    assert f"/models/{name}" in paths


def test_the_oldest_heartbeat_of_all_buckets_is_told(redis_url: str, tmp_path: Path) -> None:
    settings = make_settings(redis_url, tmp_path, cluster=True)
    begin(settings, 3)
    with connect(redis_url) as client:
        for bucket, ago in ((1, 500.0), (2, 100.0)):
            status = json.dumps({"time": time.time() - ago})
            client.set(Keys(settings_of(settings, bucket).model).status, status)
    with serving(settings) as client_of_api:
        metrics = client_of_api.get("/metrics").text
    [age] = [
        float(line.split()[-1])
        for line in metrics.splitlines()
        if line.startswith("gmr_trainer_heartbeat_age_seconds ")
    ]
    assert 500 <= age < 600


def test_whether_each_bucket_is_led_is_told(redis_url: str, tmp_path: Path) -> None:
    """One works, one has been silent for long, and one never had a host."""
    settings = make_settings(redis_url, tmp_path, cluster=True)
    begin(settings, 3)
    with connect(redis_url) as client:
        for bucket, ago in ((1, 500.0), (2, 1.0)):
            status = json.dumps({"time": time.time() - ago, "started": True})
            client.set(Keys(settings_of(settings, bucket).model).status, status)
    with serving(settings) as client_of_api:
        metrics = client_of_api.get("/metrics").text
    led = {f"{settings.model}-b{bucket:03d}": bucket == 2 for bucket in range(3)}
    assert works(metrics) == led
    assert "gmr_trainer_works" not in metrics


def test_a_key_for_some_models_counts_for_them_in_whichever_bucket_they_are(
    redis_url: str, tmp_path: Path
) -> None:
    operator = "operator-key-of-32-characters-0"
    made = make_settings(redis_url, tmp_path, cluster=True, admin_key=SecretStr(operator))
    begin(made, BUCKETS)
    names = [name_in(bucket) for bucket in range(BUCKETS)]
    with serving(made) as client:
        client.headers["Authorization"] = f"Bearer {operator}"
        for name in (*names, "press"):
            client.put(f"/models/{name}").raise_for_status()
        asked = {"name": "pump", "roles": ["admin"], "models": [names[1], "press*"]}
        key = client.post("/keys", json=asked).raise_for_status().json()["key"]
        client.headers["Authorization"] = f"Bearer {key}"
        listed = client.get("/models").json()
        assert listed["default"] is None
        assert [model["name"] for model in listed["models"]] == [names[1], "press"]
        assert client.get(f"/models/{names[1]}/model").status_code == 200
        assert client.get(f"/v2/models/{names[1]}").status_code == 200
        assert client.put("/models/press-2").status_code == 201
        for path in (names[0], names[2], f"{made.model}-b000", f"{made.model}-b001", "none"):
            told = problem(client.get(f"/models/{path}/model"), 403, "forbidden")
            assert told["models"] == [names[1], "press*"]
            assert client.get(f"/v2/models/{path}").status_code == 403
        for path in ("/model", "/metrics", "/keys"):
            problem(client.get(path), 403, "forbidden")
        unknown = problem(client.get("/models/press-3/model"), 404, "unknown-model")
        assert set(unknown["known"]) == {"press", "press-2"}
        assert "There are 3 for this key" in unknown["detail"]
