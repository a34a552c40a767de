"""Tests for GET /model, its versions, and going back to one of them."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from service.api.routes.model import ModelState, Versions
from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import (
    N_FEATURES,
    labels,
    learned,
    problem,
    samples,
    send,
    serving,
    teach,
    training,
    wait_until,
)


def test_the_model_says_what_it_is(taught: httpx2.Client) -> None:
    response = taught.get("/model")
    model = response.json()
    ModelState.model_validate(model)
    assert response.headers["X-Model-Version"] == str(model["model_version"])
    assert model["features"] == N_FEATURES
    assert model["classes"] == [{"label": 3, "count": 300}, {"label": "cat", "count": 300}]
    assert (model["samples_seen"], model["batches_seen"], model["backlog"]) == (600, 6, 0)
    assert model["components"] <= 4
    assert model["parameters"] > 0
    assert model["last_entry_id"]


def test_before_anything_is_learned_there_is_a_model_of_version_0(api: httpx2.Client) -> None:
    send(api, RawBatch.of(samples(10), labels(10)))
    model = api.get("/model").json()
    ModelState.model_validate(model)
    assert (model["model_version"], model["samples_seen"], model["backlog"]) == (0, 0, 1)
    assert model["features"] == N_FEATURES
    assert api.get("/model/versions").json() == {"model_version": 0, "versions": []}


def test_an_unknown_version_is_not_found_and_the_kept_ones_are_listed(
    taught: httpx2.Client,
) -> None:
    kept = [row["version"] for row in taught.get("/model/versions").json()["versions"]]
    response = taught.post("/model/rollback", json={"version": 10**6})
    document = problem(response, 404, "unknown-version")
    assert (document["unknown"], document["known"]) == (10**6, kept)


@pytest.mark.parametrize("body", ["{}", "[]", "{", '{"version": -1}', '{"version": 1, "x": 2}'])
def test_a_rollback_needs_a_version(taught: httpx2.Client, body: str) -> None:
    headers = {"Content-Type": "application/json"}
    problem(taught.post("/model/rollback", content=body, headers=headers), 422, "invalid-request")


def test_an_older_version_is_served_again(settings: Callable[..., Settings]) -> None:
    made = settings(checkpoint_interval_s=0)
    with training(made), serving(made) as client:
        teach(client, batches=2)
        wait_until(lambda: client.get("/model/versions").json()["versions"])
        kept = client.get("/model/versions").json()
        Versions.model_validate(kept)
        version = kept["versions"][0]["version"]
        drawn = client.get("/sample?seed=4").json() if version == kept["model_version"] else None

        for i in range(3):
            send(client, RawBatch.of(samples(100, seed=50 + i), ["dog"] * 100))
        assert {"label": "dog", "count": 300} in learned(client)["classes"]

        response = client.post("/model/rollback", json={"version": version})
        assert response.status_code == 200
        answer = response.json()
        assert (answer["applied"], answer["model_version"]) == (True, version)
        model = learned(client)
        assert model["model_version"] == version
        assert "dog" not in [row["label"] for row in model["classes"]]
        if drawn is not None:
            assert client.get("/sample?seed=4").json() == drawn


def test_a_rollback_without_a_trainer_waits_in_the_stream(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.routes.model.APPLY_TIMEOUT_S", 0.2)
    made = settings(checkpoint_interval_s=0)
    with serving(made) as client:
        with training(made):
            teach(client, batches=2)
            kept = wait_until(lambda: client.get("/model/versions").json()["versions"])
        response = client.post("/model/rollback", json={"version": kept[0]["version"]})
        assert response.status_code == 202
        assert response.json()["applied"] is False
        assert client.get("/model").json()["backlog"] == 1
        with training(made):
            assert learned(client)["model_version"] == kept[0]["version"]
