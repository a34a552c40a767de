"""Tests for names of features that travel with a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.http.client import GMRClient
from core.engine.checkpoint import FORMAT, load
from core.tensors import pack, unpack
from service.settings import Settings
from tests.service.api.stack import (
    N_FEATURES,
    SAFETENSORS,
    at_rest,
    learned,
    problem,
    samples,
    serving,
    teach,
    training,
    wait_until,
)

BINARY = {"Content-Type": SAFETENSORS}
PATH = "/model/feature-names"
NAMES = [f"sensor {i}" for i in range(N_FEATURES - 1)] + ["pressão"]
OTHERS = [f"column {i}" for i in range(N_FEATURES)]


def kept(client: httpx2.Client) -> list[str] | None:
    names: list[str] | None = client.get(PATH).json()["feature_names"]
    return names


def put(client: httpx2.Client, names: list[str]) -> None:
    client.put(PATH, json={"feature_names": names}).raise_for_status()


def upload(client: httpx2.Client, content: bytes) -> httpx2.Response:
    return client.put("/model/checkpoint", content=content, headers=BINARY)


def versions(client: httpx2.Client) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = client.get("/model/versions").json()["versions"]
    return kept


def with_names(content: bytes, names: str | None) -> bytes:
    """The same checkpoint, with this where its names are; None as an earlier release wrote it."""
    tensors, text = unpack(FORMAT, content)
    text.pop("feature_names", None)
    return pack(FORMAT, tensors, text if names is None else {**text, "feature_names": names})


@pytest.fixture(scope="module")
def content(taught: httpx2.Client) -> bytes:
    """A checkpoint that has the names along."""
    put(taught, NAMES)
    response = taught.get("/model/checkpoint")
    assert int(response.headers["content-length"]) == len(response.content)
    return response.content


def test_names_travel_and_put_a_table_in_order_at_the_other_end(
    content: bytes, settings: Callable[..., Settings], tmp_path: Path
) -> None:
    made = settings(max_models=2)
    table = tmp_path / "turned.csv"
    rows = samples(20)[:, ::-1] + 4 * np.eye(N_FEATURES, dtype=np.float32)[3]  # of sensor 12
    table.write_text(
        "\n".join([",".join(reversed(NAMES)), *(",".join(map(str, row)) for row in rows)])
    )
    with training(made), serving(made) as client:
        url = str(client.base_url).rstrip("/")
        answer = upload(client, content)
        assert (answer.status_code, answer.json()["warning"]) == (200, None)
        assert kept(client) == NAMES
        told = CliRunner().invoke(app, ["ingest", str(table), "--url", url, "--wait"])
        assert told.exit_code == 0, told.output
        assert "another order" in told.output
        assert kept(client) == NAMES
        assert learned(client)["samples_seen"] == 620
        recent = load(client.get("/model/checkpoint").content)[0].model.standardiser
        before = load(content)[0].model.standardiser
        assert recent is not None
        assert before is not None
        assert int(np.argmax((recent.shift - before.shift).numpy())) == 12

        # So does a named model, from which they go on.
        with GMRClient(url) as asking:
            asking.make_model("m")
        with GMRClient(url, model="m") as named:
            named.restore(content)
            assert named.feature_names() == tuple(NAMES)
            assert (
                unpack(FORMAT, named.checkpoint())[1]["feature_names"]
                == (unpack(FORMAT, content)[1]["feature_names"])
            )
            put(client, OTHERS)
            assert named.feature_names() == tuple(NAMES)

        # One that the trainer refuses changes no names.
        tensors, text = unpack(FORMAT, content)
        text["config"] = text["config"].replace('"preset": "mfa"', '"preset": "flat"')
        refused = problem(upload(client, pack(FORMAT, tensors, text)), 422, "invalid-request")
        assert "does not fit" in refused["detail"]
        assert kept(client) == OTHERS


HOSTILE = {
    "no JSON": "sensor",
    "no list": '{"a": 1}',
    "no texts": "[" + ", ".join(["1"] * N_FEATURES) + "]",
    "half a character": '["\\ud800"' + ', "x"' * (N_FEATURES - 1) + "]",
    "too few": '["x"]',
    "too deep": "[" * 100_000,
    "empty": '[""' + ', "x"' * (N_FEATURES - 1) + "]",
    "not to be printed": '["\\u001b[31m"' + ', "x"' * (N_FEATURES - 1) + "]",
    "too long": f'["{"x" * 201}"' + ', "x"' * (N_FEATURES - 1) + "]",
}


def test_names_in_a_checkpoint_take_the_place_of_others_unless_it_is_refused(
    content: bytes, settings: Callable[..., Settings]
) -> None:
    made = settings()
    with training(made), serving(made) as client:
        teach(client, batches=1)
        put(client, OTHERS)
        for kind, names in HOSTILE.items():
            refused = problem(upload(client, with_names(content, names)), 422, "invalid-checkpoint")
            assert "names of features" in refused["detail"], kind
        assert learned(client)["samples_seen"] == 100
        assert client.get("/deadletters").json()["deadletters"] == []  # none got that far
        assert kept(client) == OTHERS

        answer = upload(client, with_names(content, None))
        assert (answer.status_code, answer.json()["warning"]) == (200, None)
        assert kept(client) == OTHERS

        answer = upload(client, content)
        assert answer.status_code == 200
        assert "take the place of others" in answer.json()["warning"]
        assert kept(client) == NAMES
        assert learned(client)["samples_seen"] == 600


def test_a_kept_version_travels_with_the_names_of_now(live: httpx2.Client) -> None:
    version = at_rest(live)["model_version"]
    wait_until(lambda: version in [one["version"] for one in versions(live)])
    put(live, NAMES)
    response = live.get(f"/model/checkpoint?version={version}")
    assert response.status_code == 200, response.text
    _, text = unpack(FORMAT, response.content)
    assert text["feature_names"] == '["' + '","'.join(NAMES) + '"]'
    live.delete(PATH).raise_for_status()
    _, text = unpack(FORMAT, live.get(f"/model/checkpoint?version={version}").content)
    assert "feature_names" not in text
