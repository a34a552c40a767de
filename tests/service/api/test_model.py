"""Tests for GET /model, its versions, and going back to one of them."""

from __future__ import annotations

import errno
import io
import time
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from clients.commands.cli import app
from service.api.metrics import CHECKPOINT_AGE
from service.api.routes.model import ModelState, Version, Versions
from service.settings import Settings
from service.trainer.saver import Saver
from service.wire import RawBatch
from tests.service.api.stack import (
    N_FEATURES,
    labels,
    learned,
    of_model,
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
    assert model["held"] == []


@pytest.mark.parametrize(
    ("image", "shape"),
    [(None, [4, 4]), ("2,8", [2, 8]), ("4,4,1", [4, 4, 1])],
)
def test_the_model_says_of_which_shape_its_images_are(
    settings: Callable[..., Settings], image: str | None, shape: list[int]
) -> None:
    made = settings(image=image)
    with training(made), serving(made) as client:
        assert client.get("/model").json()["image_shape"] is None
        images = (255 * samples(100)).astype(np.uint8)
        send(client, RawBatch.of(images, labels(100))).raise_for_status()
        assert learned(client)["image_shape"] == shape


@pytest.mark.parametrize("shape", [(2, 8), (4, 4), (2, 2, 4), (4, 4, 1)])
@pytest.mark.parametrize("whole", [True, False])
def test_images_are_of_the_shape_in_which_they_came(
    settings: Callable[..., Settings], shape: tuple[int, ...], whole: bool
) -> None:
    """As bytes from 0 to 255, or in whichever unit."""
    made, png = settings(), {"Accept": "image/png"}
    with training(made), serving(made) as client:
        for i in range(2):
            images = samples(100, seed=i).reshape(100, *shape)
            images = (255 * images).astype(np.uint8) if whole else 1000 * images
            send(client, RawBatch.of(images, labels(100))).raise_for_status()
        assert learned(client)["image_shape"] == list(shape)
        drawn = client.get("/sample?n=1", headers=png)
        assert client.get("/sample?n=1&shape=2,8", headers=png).status_code == 200
    if shape == (2, 2, 4):
        assert drawn.status_code == 406  # nor is it taken for a square of 16
        return
    picture = Image.open(io.BytesIO(drawn.content))
    assert (picture.width > 3 * picture.height) == (shape == (2, 8))


def test_a_table_has_no_shape_even_where_it_could_be_drawn(taught: httpx2.Client) -> None:
    assert taught.get("/model").json()["image_shape"] is None


def test_the_model_says_how_well_it_holds_the_past(settings: Callable[..., Settings]) -> None:
    made = settings()
    with training(made), serving(made) as client:
        teach(client, batches=4)
        client.post("/drift/boundary").raise_for_status()
        for i in range(4):
            send(client, RawBatch.of(samples(100, seed=50 + i, level=0.1), ["dog"] * 100))
        learned(client)

        def asked_last() -> dict[str, Any] | None:
            model: dict[str, Any] = client.get("/model").json()
            told = [row["model_version"] for row in model["held"]]
            return model if told == [model["model_version"]] else None

        # Once the stream is quiet, without another entry in it.
        model = wait_until(asked_last)
        ModelState.model_validate(model)
        assert model["backlog"] == 0
        assert model["samples_seen"] == 800
        (row,) = model["held"]
        assert (row["sub_task"], row["samples"]) == (0, 256)
        assert [(one["label"], one["samples"]) for one in row["classes"]] == [
            (3, 128),
            ("cat", 128),
        ]
        assert row["accuracy_then"] > 0.95
        assert 0 <= row["accuracy_now"] <= 1
        assert row["probability_then"] >= row["probability_now"]
        wait_until(lambda: "gmr_held_sub_tasks 1.0" in client.get("/metrics").text)

        # Before the boundary there was no past.
        versions = client.get("/model/versions").json()["versions"]
        (before,) = [kept["version"] for kept in versions if kept.get("before_boundary") == 1]
        client.post("/model/rollback", json={"version": before}).raise_for_status()
        assert learned(client)["held"] == []


def test_before_anything_is_learned_there_is_a_model_of_version_0(api: httpx2.Client) -> None:
    send(api, RawBatch.of(samples(10), labels(10)))
    model = api.get("/model").json()
    ModelState.model_validate(model)
    assert (model["model_version"], model["samples_seen"], model["backlog"]) == (0, 0, 1)
    assert ModelState.model_fields.keys() <= model.keys()
    assert model["held"] == []
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
        version = client.get("/model").json()["model_version"]

        def kept() -> list[int]:
            listed = client.get("/model/versions").json()
            Versions.model_validate(listed)
            assert all(entry.keys() >= Version.model_fields.keys() for entry in listed["versions"])
            return [entry["version"] for entry in listed["versions"]]

        wait_until(lambda: version in kept())
        drawn = client.get("/sample?seed=4").json()

        # One batch, so that the version is still among the few that are kept.
        send(client, RawBatch.of(samples(300, seed=50), ["dog"] * 300))
        assert {"label": "dog", "count": 300} in learned(client)["classes"]

        response = client.post("/model/rollback", json={"version": version})
        assert response.status_code == 200
        answer = response.json()
        assert (answer["applied"], answer["model_version"]) == (True, version)
        model = learned(client)
        assert model["model_version"] == version
        assert "dog" not in [row["label"] for row in model["classes"]]
        assert client.get("/sample?seed=4").json() == drawn


def test_a_rollback_without_a_trainer_waits_in_the_stream(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.control.APPLY_TIMEOUT_S", 0.2)
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


def test_an_archive_that_is_not_written_is_told(settings: Callable[..., Settings]) -> None:
    made = settings(archive_mib=1)
    (made.data_dir / "archive").write_text("a file where a folder should be", "utf-8")
    with training(made), serving(made) as client:
        assert client.get("/model").json()["archive_error"] is None
        wait_until(lambda: "gmr_archive_failing 0.0" in client.get("/metrics").text)
        send(client, RawBatch.of(samples(20))).raise_for_status()
        told = wait_until(lambda: client.get("/model").json()["archive_error"])
        assert told.startswith("archive not written")
        found = CliRunner().invoke(app, ["status", "--url", str(client.base_url)])
        assert "not written" in found.stdout
        wait_until(lambda: "gmr_archive_failing 1.0" in client.get("/metrics").text)
        assert learned(client)["samples_seen"] == 20


def test_a_checkpoint_that_is_not_written_is_told(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(saver: Saver, checkpoint: Any) -> bytes:
        raise OSError(errno.ENOSPC, "No space left on device")

    def ages(client: httpx2.Client) -> list[float]:
        lines = client.get("/metrics").text.splitlines()
        return [float(line.split()[1]) for line in lines if line.startswith(CHECKPOINT_AGE)]

    made = settings(checkpoint_interval_s=0.1)
    with training(made), serving(made) as client:
        client.put("/models/own").raise_for_status()
        with of_model(client, "own") as own:
            for one in (client, own):
                assert one.get("/model").json()["checkpoint_error"] is None
                assert ages(one) == []
            with monkeypatch.context() as patched:
                patched.setattr(Saver, "dump", full)
                sent = time.time()
                for one in (client, own):
                    send(one, RawBatch.of(samples(20))).raise_for_status()
                    wait_until(lambda one=one: one.get("/model").json()["checkpoint_error"])
                    told = one.get("/model").json()["checkpoint_error"]
                    assert told.startswith("checkpoint not written")
                    assert "No space left" in told
                    [age] = wait_until(lambda one=one: ages(one))
                    assert 0 <= age <= time.time() - sent + 1
                    found = CliRunner().invoke(app, ["status", "--url", str(one.base_url)])
                    assert "not written" in found.stdout
                assert "No space left" in client.get("/models/own").json()["checkpoint_error"]
                assert client.get("/health/ready").status_code == 200
            for one in (client, own):  # once there is room, by itself
                send(one, RawBatch.of(samples(20, seed=1))).raise_for_status()
                wait_until(lambda one=one: not one.get("/model").json()["checkpoint_error"])
                assert ages(one)
            assert client.get("/models/own").json()["checkpoint_error"] is None
