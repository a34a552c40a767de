"""Tests for GET /health/live and /health/ready."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
import redis
from typer.testing import CliRunner

from clients.commands.cli import app
from core.engine.engine import Engine
from core.snapshot import FORMAT
from core.tensors import pack, unpack
from service.broker.connection import connect
from service.broker.keys import Keys
from service.broker.snapshots import SnapshotFollower
from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import (
    labels,
    learned,
    make_settings,
    of_model,
    problem,
    redis_server,
    samples,
    send,
    serving,
    training,
    wait_until,
)


def test_a_service_that_has_learned_nothing_is_ready(settings: Callable[..., Settings]) -> None:
    made = settings()
    with training(made), serving(made) as client:
        response = wait_until(lambda: _good(client.get("/health/ready")))
        assert response.json() == {"status": "ready"}
        assert "\ngmr_trainer_works 1.0\n" in client.get("/metrics").text


def publish_again(settings: Settings, data: bytes) -> None:
    """Make other bytes known as the snapshot after the newest."""
    (settings.data_dir / "snapshots" / "99-1.safetensors").write_bytes(data)
    published = Keys(settings.model).published
    with connect(str(settings.redis_address())) as client:
        [(_, notice)] = client.xrevrange(published, count=1)
        version = str(int(notice[b"version"]) + 1).encode()
        client.xadd(
            published, {**notice, b"version": version, b"location": b"file:99-1.safetensors"}
        )


def test_a_model_that_a_later_release_published_is_not_taken_for_none(
    settings: Callable[..., Settings],
) -> None:
    made = settings(snapshot_store="directory")
    folder = made.data_dir / "snapshots"
    with training(made):
        with serving(made) as client:
            send(client, RawBatch.of(samples(20), labels(20))).raise_for_status()
            learned(client)
        now = {path: path.read_bytes() for path in folder.iterdir()}
        for path, data in now.items():
            path.write_bytes(pack("gmr-snapshot-99", *unpack(FORMAT, data)))
        with serving(made) as client:
            why = "The file is of format 'gmr-snapshot-99'"
            for answer in (
                client.post("/classify", json={"features": samples(1).tolist()}),
                client.get("/health/startup"),
                client.get("/health/ready"),
            ):
                assert why in problem(answer, 503, "unavailable")["detail"]
            # The next one that it can read answers.
            send(client, RawBatch.of(samples(20), labels(20))).raise_for_status()
            learned(client)
            assert client.get("/health/ready").json() == {"status": "ready"}
            # And goes on answering where that which follows cannot be read.
            publish_again(made, pack("gmr-snapshot-99", {}, {}))
            wait_until(lambda: "held" in client.get("/health/ready").json())
            assert why in client.get("/health/ready").json()["held"]
            rows = samples(1).tolist()
            assert client.post("/classify", json={"features": rows}).status_code == 200


def test_a_process_has_begun_once_redis_answers_and_the_published_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis_server(tmp_path / "redis") as server:
        made = make_settings(server.url, tmp_path / "data")
        with serving(made) as client:
            assert client.get("/health/startup").json() == {"status": "started"}
            with training(made):
                send(client, RawBatch.of(samples(20))).raise_for_status()
                learned(client)
        # A process that begins later has a model to load first.
        monkeypatch.setattr("service.api.app.FIRST_MODEL_S", 0.0)
        monkeypatch.setattr(SnapshotFollower, "run", _never)
        with serving(made) as other:
            document = problem(other.get("/health/startup"), 503, "unavailable")
            assert document["reasons"] == ["The model that was published last is not loaded yet."]
        monkeypatch.undo()
        with serving(made) as third:
            assert wait_until(lambda: _good(third.get("/health/startup")))
            server.stop()
            # Whatever happens then is for the other probes to say.
            assert third.get("/health/startup").status_code == 200
            assert third.get("/health/ready").status_code == 503
    with serving(make_settings("redis://127.0.0.1:1", tmp_path / "away")) as away:
        problem(away.get("/health/startup"), 503, "unavailable")


async def _never(follower: SnapshotFollower) -> None:
    """Load nothing."""
    await asyncio.Event().wait()


def test_without_a_trainer_it_is_alive_but_not_ready(blank: httpx2.Client) -> None:
    assert blank.get("/health/live").json() == {"status": "live"}
    document = problem(blank.get("/health/ready"), 503, "unavailable")
    assert document["reasons"] == ["No trainer has reported yet."]
    assert "\ngmr_trainer_works 0.0\n" in blank.get("/metrics").text


def test_a_trainer_that_has_fallen_silent_is_noticed(
    settings: Callable[..., Settings], redis_url: str
) -> None:
    made = settings()
    with serving(made) as client, redis.Redis.from_url(redis_url) as connection:
        reported_at = time.time() - 100
        connection.set(Keys(made.model).status, orjson.dumps({"time": reported_at}))
        document = problem(client.get("/health/ready"), 503, "unavailable")
        told = re.fullmatch(r"The trainer last reported (\d+) seconds ago\.", *document["reasons"])
        measured = re.search(
            r"^gmr_trainer_heartbeat_age_seconds (\S+)$", client.get("/metrics").text, re.MULTILINE
        )
        most = time.time() - reported_at
        assert told
        assert 100 <= int(told[1]) <= round(most)
        assert measured
        assert 100 <= float(measured[1]) <= most


def test_a_trainer_that_refuses_to_start_says_why(
    settings: Callable[..., Settings], redis_url: str
) -> None:
    made = settings()
    status = {"time": time.time(), "state": "refused", "error": "6 entries are missing."}
    with serving(made) as client, redis.Redis.from_url(redis_url) as connection:
        connection.set(Keys(made.model).status, orjson.dumps(status))
        document = problem(client.get("/health/ready"), 503, "unavailable")
        assert document["reasons"] == ["The trainer does not start: 6 entries are missing."]
        assert "\ngmr_trainer_works 0.0\n" in client.get("/metrics").text


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (
            {"stalled_s": 130.0, "step_s": 130.0},
            "The trainer has hung for 130 seconds after entry 5-0.",
        ),
        (
            {"stalled_s": 0.0, "step_s": 1300.0},
            "The trainer has computed for 1300 seconds after entry 5-0 without an end.",
        ),
        (
            {"stalled_s": 0.0, "step_s": 1.0, "saving_s": 1300.0},
            "The trainer has been writing a checkpoint for 1300 seconds.",
        ),
        (
            {"stalled_s": 0.0, "step_s": 130.0, "starts": 3},
            "The trainer has begun 3 times in a row without getting further than entry 5-0; "
            "its log says why it ended.",
        ),
    ],
)
def test_a_trainer_that_breathes_and_does_not_go_on_is_not_ready(
    settings: Callable[..., Settings], redis_url: str, facts: dict[str, float], reason: str
) -> None:
    made = settings()
    status = {"time": time.time(), "state": "running", "last_entry_id": "5-0", **facts}
    with serving(made) as client, redis.Redis.from_url(redis_url) as connection:
        connection.set(Keys(made.model).status, orjson.dumps(status))
        assert problem(client.get("/health/ready"), 503, "unavailable")["reasons"] == [reason]
        status |= {"stalled_s": 0.0, "step_s": 110.0, "saving_s": 1100.0, "starts": 2}
        connection.set(Keys(made.model).status, orjson.dumps(status))
        assert client.get("/health/ready").status_code == 200


def test_a_redis_that_goes_away_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.broker.caller.RETRY_S", 0.3)
    monkeypatch.setattr("service.api.routes.health.PATIENCE_S", 0.2)
    monkeypatch.setattr("service.api.routes.metrics.PATIENCE_S", 0.2)
    with redis_server(tmp_path / "redis") as server:
        made = make_settings(server.url, tmp_path / "data")
        with training(made), serving(made) as client:
            batch = RawBatch.of(samples(10), batch_id="kept")
            first = send(client, batch).json()
            learned(client)

            server.stop()
            assert client.get("/health/live").status_code == 200
            document = problem(client.get("/health/ready"), 503, "unavailable")
            assert document["reasons"] == ["Redis does not answer."]
            response = send(client, RawBatch.of(samples(10, seed=1), batch_id="lost"))
            problem(response, 503, "stream-unavailable")
            assert int(response.headers["Retry-After"]) >= 1
            # What was learned can be asked for all the while.
            body = {"features": samples(2).tolist()}
            assert client.post("/outliers", json=body).status_code == 200
            text = client.get("/metrics").text
            assert "gmr_redis_up 0.0" in text
            assert "gmr_backlog_entries " not in text

            server.start()
            wait_until(lambda: client.get("/health/ready").status_code == 200)
            assert send(client, batch).json()["entry_id"] == first["entry_id"]
            assert send(client, RawBatch.of(samples(10, seed=2))).status_code == 202
            assert learned(client)["samples_seen"] == 20
            assert "gmr_redis_up 1.0" in client.get("/metrics").text


def test_a_redis_without_memory_is_an_error_that_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with redis_server(tmp_path / "redis") as server:
        made = make_settings(server.url, tmp_path / "data")
        with serving(made) as client, redis.Redis.from_url(server.url) as connection:
            send(client, RawBatch.of(samples(10)))
            connection.config_set("maxmemory", 1)
            response = send(client, RawBatch.of(samples(10, seed=1), batch_id="again"))
            document = problem(response, 503, "stream-unavailable")
            assert "memory" in document["detail"]
            connection.config_set("maxmemory", 0)
            response = send(client, RawBatch.of(samples(10, seed=1), batch_id="again"))
            assert (response.status_code, response.json()["backlog"]) == (202, 2)


def _good(response: httpx2.Response) -> httpx2.Response | None:
    return response if response.status_code == 200 else None


def test_a_named_model_that_fails_is_not_ready_and_the_others_are(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Engine.snapshot

    def snapshot(engine: Engine, *given: Any) -> Any:
        if engine.config.n_components == 3:
            raise ZeroDivisionError("a fault of one model")
        return real(engine, *given)

    monkeypatch.setattr("service.trainer.named_models.FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr(Engine, "snapshot", snapshot)
    made = settings()
    with training(made), serving(made) as client:
        for name, own in (("bad", {"n_components": 3}), ("good", {})):
            client.put(f"/models/{name}", json={"settings": own}).raise_for_status()
            with of_model(client, name) as model:
                send(model, RawBatch.of(samples(20))).raise_for_status()
        with of_model(client, "good") as good:
            learned(good)
            assert good.get("/health/ready").status_code == 200
        wait_until(lambda: client.get("/models/bad").json()["state"] == "failing")
        with of_model(client, "bad") as bad:
            [reason] = problem(bad.get("/health/ready"), 503, "unavailable")["reasons"]
            assert "'bad'" in reason
            assert "ZeroDivisionError: a fault of one model" in reason
            assert bad.get("/v2/health/ready").status_code == 503
            found = CliRunner().invoke(app, ["status", "--url", str(bad.base_url)])
            assert found.exit_code == 1
            assert "a fault of one model" in " ".join(found.stdout.split())
        assert client.get("/health/ready").status_code == 200
        monkeypatch.undo()
        with of_model(client, "bad") as bad:
            wait_until(lambda: _good(bad.get("/health/ready")))
