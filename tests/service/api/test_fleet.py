"""Tests for GET /models?detail=true and `gmr models list`: what many models have come to."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.http.client import GMRClient
from service.broker import many_reports
from service.broker.connection import connect
from service.broker.keys import Keys
from service.settings import Settings
from tests.service.api.stack import (
    at_rest,
    make_settings,
    of_model,
    problem,
    samples,
    serving,
    teach,
    training,
    wait_until,
)
from tests.service.metrics_text import read
from tests.service.running import LONGEST_S

OPERATOR = "operator-key-of-32-characters-0"
NAMES = [f"sensor {i}" for i in range(16)]
NOTHING = {
    "phase": None,
    "samples_seen": None,
    "newest_sample_time": None,
    "boundaries": None,
    "boundary": None,
}


@pytest.fixture(scope="module")
def settings(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return make_settings(
        redis_url,
        tmp_path_factory.mktemp("fleet"),
        admin_key=SecretStr(OPERATOR),
        unload_after_s=0.5,
    )


@pytest.fixture(scope="module")
def fleet(settings: Settings) -> Iterator[httpx2.Client]:
    """A model that has changed in one feature, a quiet one, and a new one."""
    with training(settings), serving(settings) as service:
        service.headers["Authorization"] = f"Bearer {OPERATOR}"
        for name in ("changed", "quiet", "new"):
            service.put(f"/models/{name}").raise_for_status()
        with model_of(service, "quiet") as quiet:
            teach(quiet, batches=4)
            at_rest(quiet)
        with model_of(service, "changed") as changed:
            teach(changed, batches=8)
            changed.put("/model/feature-names", json={"feature_names": NAMES}).raise_for_status()
            for seed in range(20, 28):
                rows = samples(100, seed=seed)
                rows[:, 5] += np.float32(3.0)
                changed.post("/ingest", json={"features": rows.tolist()}).raise_for_status()
            at_rest(changed)
            wait_until(lambda: changed.get("/drift/boundaries").json()["boundaries"])
        yield service


def model_of(service: httpx2.Client, name: str) -> httpx2.Client:
    client = of_model(service, name)
    client.headers["Authorization"] = service.headers["Authorization"]
    return client


def details(service: httpx2.Client) -> dict[str, Any]:
    answer = service.get("/models", params={"detail": "true"})
    return {model["name"]: model["detail"] for model in answer.raise_for_status().json()["models"]}


def test_the_list_says_which_models_have_changed_and_in_what(fleet: httpx2.Client) -> None:
    found = details(fleet)
    assert set(found) == {"changed", "quiet", "new"}
    with model_of(fleet, "changed") as changed:
        [*_, boundary] = changed.get("/drift/boundaries").json()["boundaries"]
        drift = changed.get("/drift").json()
        learned = changed.get("/model").json()["samples_seen"]
    told = found["changed"]
    assert told["boundary"] == {
        "id": boundary["id"],
        "time": boundary["time"],
        "severity": boundary["severity"],
        "feature": 5,
        "feature_name": "sensor 5",
        "dropped": False,
    }
    assert 0 < told["boundary"]["severity"] <= 1
    assert told["boundaries"] == drift["boundaries"] >= 1
    assert (told["samples_seen"], told["phase"]) == (learned, drift["phase"])
    assert told["newest_sample_time"] == drift["newest_sample_time"]
    assert 0 <= time.time() - told["newest_sample_time"] < LONGEST_S
    assert found["quiet"]["boundary"] is None
    assert (found["quiet"]["boundaries"], found["quiet"]["samples_seen"]) == (0, 400)
    assert found["quiet"]["newest_sample_time"] < told["newest_sample_time"]
    assert found["new"] == NOTHING
    plain = fleet.get("/models").json()["models"]
    assert [model["detail"] for model in plain] == [None] * 3
    problem(fleet.get("/models", params={"detail": "perhaps"}), 422, "invalid-request")


def test_a_page_of_models_is_read_at_a_time(
    fleet: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = details(fleet)
    monkeypatch.setattr(many_reports, "AT_ONCE", 2)
    assert details(fleet) == whole


def test_names_of_another_number_of_features_are_none(
    fleet: httpx2.Client, settings: Settings
) -> None:
    key = Keys(settings.model).named("changed").feature_names
    with connect(settings.redis_address_of_ones_own()) as redis:
        kept = redis.get(key)
        redis.set(key, json.dumps(["one"]))
        assert details(fleet)["changed"]["boundary"]["feature_name"] is None
        redis.set(key, kept)


def test_a_key_for_some_models_is_told_of_those(fleet: httpx2.Client) -> None:
    with GMRClient(str(fleet.base_url), api_key=OPERATOR) as client:
        key = client.make_api_key("crew", ["read"], ["qui*"]).key
    with GMRClient(str(fleet.base_url), api_key=key) as reader:
        [only] = reader.models(detail=True)
        assert only.name == "quiet"
        assert only.detail is not None
        assert only.detail.samples_seen == 400
        assert [model.detail for model in reader.models()] == [None]


def test_the_command_has_a_row_for_each(
    fleet: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("GMR_API_KEY", OPERATOR)

    def gmr(*typed: str) -> str:
        result = CliRunner().invoke(app, [*typed, "--url", str(fleet.base_url)])
        assert result.exit_code == 0, result.output
        return result.output

    rows = {line.split()[0]: line for line in gmr("models", "list").splitlines() if line.strip()}
    assert "newest boundary" in rows["name"]
    assert rows["changed"].rstrip().endswith("sensor 5")
    assert f"{details(fleet)['changed']['samples_seen']:,}" in rows["changed"]
    assert "%" in rows["changed"]
    assert rows["new"].split()[2:] == ["-"] * 7
    document = json.loads(gmr("models", "list", "--json"))
    assert {model["name"]: model["detail"] for model in document["models"]} == details(fleet)


def test_a_boundary_that_a_rollback_dropped_is_told_so(fleet: httpx2.Client) -> None:
    with model_of(fleet, "changed") as changed:
        kept = changed.get("/model/versions").json()["versions"]
        version = min(row["version"] for row in kept if row["before_boundary"] is not None)
        changed.post("/model/rollback", json={"version": version}).raise_for_status()
        wait_until(lambda: changed.get("/drift").json()["boundaries"] == 0)
        newest = changed.get("/drift").json()["newest_sample_time"]
    told = details(fleet)["changed"]
    assert (told["boundaries"], told["boundary"]["dropped"]) == (0, True)
    assert told["newest_sample_time"] == newest is not None


def test_when_the_newest_samples_came_outlives_the_trainer(redis_url: str, tmp_path: Path) -> None:
    own = make_settings(redis_url, tmp_path)
    with serving(own) as service:
        with training(own):
            teach(service, batches=2)
            at_rest(service)
            first = wait_until(lambda: service.get("/drift").json()["newest_sample_time"])
            wait_until(lambda: shown(service) == first)
        with training(own):
            wait_until(lambda: service.get("/drift").json()["loaded"])
            wait_until(lambda: shown(service) == first)
            assert service.get("/drift").json()["newest_sample_time"] == first
            service.put("/drift/ert", json={"ert": 9000}).raise_for_status()
            assert service.get("/drift").json()["newest_sample_time"] == first
            teach(service, batches=1)
            wait_until(lambda: service.get("/drift").json()["newest_sample_time"] > first)


def shown(service: httpx2.Client) -> float | None:
    """The same as the metrics have it, once they do."""
    return read(service.get("/metrics").content).get("gmr_newest_sample_timestamp_seconds")
