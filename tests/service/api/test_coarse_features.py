"""Features that float32 is too coarse for, however samples come: GET /model tells them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.http.client import GMRClient
from service.wire import RawBatch
from tests.service.api.stack import (
    learned,
    make_settings,
    samples,
    send,
    serving,
    training,
    wait_until,
)

SECONDS = 1.8e9  # since 1970

NAMES = ["load", "at", "heat"]


def table(*, offset: float = SECONDS) -> np.ndarray:
    """Samples (200, 3) of float64, of which the second feature is a time within minutes."""
    x = np.random.default_rng(0).normal(size=(200, 3))
    x[:, 1] = offset + 40 * x[:, 1]
    return x


@pytest.fixture
def client(redis_url: str, tmp_path: Path) -> Iterator[httpx2.Client]:
    made = make_settings(redis_url, tmp_path, detector="none")
    with training(made), serving(made) as client:
        yield client


def told(client: httpx2.Client) -> list[dict[str, Any]]:
    """What GET /model tells once all is learned and the trainer has reported since."""
    learned(client)

    def known() -> list[list[dict[str, Any]]] | None:
        rows = client.get("/model").json()["coarse_features"]
        return None if rows is None else [rows]

    return wait_until(known)[0]


def status(client: httpx2.Client) -> str:
    done = CliRunner().invoke(
        app, ["status", "--url", str(client.base_url)], env={"COLUMNS": "300"}
    )
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_the_model_tells_features_of_json_by_their_names(client: httpx2.Client) -> None:
    before = client.get("/model").json()
    assert before["model_version"] == 0
    assert before["coarse_features"] is None
    body = {"features": table().tolist()}
    client.post("/ingest", json=body).raise_for_status()
    [row] = told(client)
    assert row["mean"] == pytest.approx(SECONDS, abs=200)
    assert (row["feature"], row["name"], row["spacing"]) == (1, None, 128.0)
    assert row["deviation"] < 20 * 128
    client.put("/model/feature-names", json={"feature_names": NAMES}).raise_for_status()
    assert told(client) == [{**row, "name": "at"}]
    with GMRClient(str(client.base_url)) as ours:
        [found] = ours.model().coarse_features or ()
    assert vars(found) == {**row, "name": "at"}
    said = status(client)
    assert "float32 is too coarse for at (feature 1): near 1.8e+09 numbers are 128 apart" in said
    assert "Subtract an offset before sending, for example the first time stamp; then reset" in said


def test_it_tells_features_of_binary_batches_that_were_float32_before(
    client: httpx2.Client,
) -> None:
    x = np.round(table() / 1e4) * 1e4  # one number for all
    send(client, RawBatch.of(x)).raise_for_status()
    [row] = told(client)
    assert (row["feature"], row["deviation"], row["spacing"]) == (1, 0.0, 128.0)


def test_it_tells_none_of_usual_tables_and_of_images(
    client: httpx2.Client, redis_url: str, tmp_path: Path
) -> None:
    send(client, RawBatch.of(table(offset=1e5))).raise_for_status()
    assert told(client) == []
    assert "too coarse" not in status(client)
    made = make_settings(redis_url, tmp_path / "images", detector="none")
    with training(made), serving(made) as other:
        x = (255 * samples(200)).astype(np.uint8).reshape(200, 4, 4)
        send(other, RawBatch.of(x)).raise_for_status()
        assert told(other) == []
