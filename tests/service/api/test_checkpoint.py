"""Tests for GET and PUT /model/checkpoint."""

from __future__ import annotations

from collections.abc import Callable

import httpx2
import pytest

from core.checkpoint import load
from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import (
    SAFETENSORS,
    learned,
    problem,
    samples,
    send,
    serving,
    teach,
    training,
)

BINARY = {"Content-Type": SAFETENSORS}


def test_the_whole_state_can_be_downloaded(taught: httpx2.Client) -> None:
    response = taught.get("/model/checkpoint")
    assert response.headers["content-type"] == SAFETENSORS
    assert response.headers["content-disposition"].startswith("attachment")
    state, config, _ = load(response.content)
    assert state.samples_seen == 600
    assert state.classes == (3, "cat")
    assert config.n_components == 4


def test_another_service_goes_on_from_it(
    taught: httpx2.Client, settings: Callable[..., Settings]
) -> None:
    content = taught.get("/model/checkpoint").content
    drawn = taught.get("/sample?n=4&seed=1").json()["features"]
    made = settings()
    with training(made), serving(made) as client:
        response = client.put("/model/checkpoint", content=content, headers=BINARY)
        assert response.status_code == 200
        assert response.json()["applied"] is True
        assert response.json()["model_version"] >= 1
        model = learned(client)
        assert [row["count"] for row in model["classes"]] == [300, 300]
        assert client.get("/sample?n=4&seed=1").json()["features"] == drawn
        teach(client, batches=1)
        assert learned(client)["samples_seen"] == 700


def test_bytes_that_are_no_checkpoint_never_reach_the_stream(taught: httpx2.Client) -> None:
    content = taught.get("/model/checkpoint").content
    for damaged in (b"", b"nonsense", content[:-1], content[:200] + b"?" + content[201:]):
        response = taught.put("/model/checkpoint", content=damaged, headers=BINARY)
        problem(response, 422, "invalid-checkpoint")
    assert taught.get("/model").json()["backlog"] == 0


def test_a_checkpoint_of_other_features_is_refused(
    taught: httpx2.Client, settings: Callable[..., Settings]
) -> None:
    content = taught.get("/model/checkpoint").content
    made = settings()
    with training(made), serving(made) as client:
        send(client, RawBatch.of(samples(50)[:, :9]))
        assert learned(client)["features"] == 9
        response = client.put("/model/checkpoint", content=content, headers=BINARY)
        document = problem(response, 422, "invalid-request")
        assert "16 features" in document["detail"]
        assert client.get("/model").json()["features"] == 9


def test_other_media_types_are_refused(taught: httpx2.Client) -> None:
    response = taught.put("/model/checkpoint", json={})
    problem(response, 415, "unsupported-media-type")


def test_a_checkpoint_larger_than_a_body_may_be_is_refused(
    settings: Callable[..., Settings],
) -> None:
    with serving(settings(max_body_bytes=2000)) as client:
        response = client.put("/model/checkpoint", content=bytes(2001), headers=BINARY)
        problem(response, 413, "body-too-large")


def test_without_a_trainer_there_is_nothing_to_download(
    blank: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.routes.checkpoint.ANSWER_TIMEOUT_S", 0.2)
    response = blank.get("/model/checkpoint")
    problem(response, 503, "unavailable")
    assert "Retry-After" in response.headers
