"""What a service says of itself, in words."""

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
from service.broker.connection import connect
from service.broker.keys import Keys
from service.wire import RawBatch
from tests.service.api.stack import (
    learned,
    make_settings,
    redis_server,
    samples,
    send,
    serving,
    training,
    wait_until,
)


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


def _compared(client: httpx2.Client) -> dict[str, Any] | None:
    drift: dict[str, Any] | None = client.get("/drift").json()["feature_drift"]
    return drift if drift and drift["drifting"] is not None else None


@pytest.mark.parametrize("images", [True, False])
def test_status_tells_of_features_that_drift_where_samples_are_no_images(
    redis_url: str, tmp_path: Path, images: bool
) -> None:
    made = make_settings(redis_url, tmp_path, detector="none")
    with training(made), serving(made) as client:
        for i in range(20):
            x = samples(100, seed=i)
            x = (255 * x).astype(np.uint8).reshape(100, 4, 4) if images else x
            send(client, RawBatch.of(x)).raise_for_status()
        learned(client)
        compared = wait_until(lambda: _compared(client))
        assert compared["drifting"] == 0
        done = CliRunner().invoke(app, ["status", "--url", str(client.base_url)])
    assert done.exit_code == 0, done.output
    assert ("none drifts" in done.output) is not images


def test_status_tells_of_dead_letters_while_there_are_some(redis_url: str, tmp_path: Path) -> None:
    made = make_settings(redis_url, tmp_path)
    with serving(made) as client, GMRClient(str(client.base_url)) as asking, training(made):
        send(client, RawBatch.of(samples(20))).raise_for_status()
        learned(client)
        assert "dead letters" not in status(client)
        with connect(made.redis_address_of_ones_own()) as redis:
            # What a program writes past the API is not looked at before its turn.
            entry: dict[Any, Any] = dict(RawBatch.of(samples(20)[:, :3]).to_entry())
            redis.xadd(Keys(made.model).input, entry)
        wait_until(lambda: asking.dead_letters().total)
        said = status(client)
        assert "dead letters" in said
        assert "1 entry that could not be used (gmr deadletters list)" in said
        asking.drop_dead_letters()
        assert "dead letters" not in status(client)


def status(client: httpx2.Client) -> str:
    done = CliRunner().invoke(app, ["status", "--url", str(client.base_url)])
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())
