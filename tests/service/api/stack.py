"""A whole service for tests: real Redis, a real trainer, the real HTTP server.

The trainer and the server run on threads of the test process, which starts in
milliseconds; tests/integration runs them as processes.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import httpx2
import numpy as np
from pydantic import SecretStr

from service.api.app import Server, create_app, server_config
from service.broker.lease import DirectoryLock
from service.settings import Settings
from service.supervisor.embedded import EmbeddedRedis, find_binary
from service.trainer.host import Trainer
from service.wire import RawBatch
from tests.service.running import LONGEST_S
from tests.service.running import wait_until as wait_until

SAFETENSORS = "application/vnd.safetensors"
SIDE = 4
N_FEATURES = SIDE * SIDE
CLASSES = (3, "cat")


@contextlib.contextmanager
def redis_server(directory: Path) -> Iterator[EmbeddedRedis]:
    """An embedded Redis with its data in a folder."""
    lock = DirectoryLock(directory, "test")
    server = EmbeddedRedis(directory, find_binary(), 256, lock)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        lock.release()


def make_settings(url: str, directory: Path, **overrides: Any) -> Settings:
    """Settings of a small, quick model with a name of its own, without experts beside it."""
    values: dict[str, Any] = {
        "redis_url": SecretStr(url),
        "data_dir": directory,
        "model": uuid.uuid4().hex,
        "device": "cpu",
        "port": 0,
        "n_components": 4,
        "warm_up": 100,
        "experts": False,  # more than half of what a labelled batch costs
        "publish_interval_s": 0.05,
        "settle_after_s": 0.2,
    }
    return Settings(**{**values, **overrides})


@contextlib.contextmanager
def training(settings: Settings) -> Iterator[Trainer]:
    """A trainer at work."""
    made: Future[Trainer] = Future()

    def work() -> None:
        # Made here, because a trainer sets up the arithmetic of the thread that makes it.
        try:
            made.set_result(Trainer(settings))
        except BaseException as error:
            made.set_exception(error)
        else:
            made.result().run()

    thread = threading.Thread(target=work, name="trainer")
    thread.start()
    trainer = made.result(LONGEST_S)
    try:
        yield trainer
    finally:
        trainer.stop()
        thread.join(LONGEST_S)
        assert not thread.is_alive()


@contextlib.contextmanager
def serving(settings: Settings) -> Iterator[httpx2.Client]:
    """An API process's worth of server, and a client of it."""
    app = create_app(settings)
    server = Server(server_config(app, settings), app)
    thread = threading.Thread(target=server.run, name="api")
    thread.start()
    try:
        wait_until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        with plain_client(f"http://127.0.0.1:{port}") as client:
            yield client
    finally:
        server.should_exit = True
        thread.join(LONGEST_S)
        assert not thread.is_alive()


def plain_client(url: str) -> httpx2.Client:
    """A client without TLS: to read the authorities of the machine takes longer than a request."""
    return httpx2.Client(base_url=url, timeout=LONGEST_S, verify=False)


def of_model(client: httpx2.Client, name: str) -> httpx2.Client:
    """A client of a named model of the same service."""
    return plain_client(f"{client.base_url}/models/{name}")


def learned(client: httpx2.Client) -> dict[str, Any]:
    """GET /model once everything accepted has been learned."""

    def done() -> dict[str, Any] | None:
        # While loops are compiled in this very process Redis may be slow to answer: 503.
        answer = client.get("/model")
        model: dict[str, Any] = answer.json()
        return model if answer.status_code == 200 and model["backlog"] == 0 else None

    return wait_until(done)


def at_rest(client: httpx2.Client) -> dict[str, Any]:
    """GET /model once the windows of a quiet stream are learned: no version comes by itself."""
    return wait_until(lambda: (model := learned(client))["waiting"] == 0 and model)


def samples(n: int, *, seed: int = 0, level: float = 0.0) -> np.ndarray:
    """Two blobs in the unit cube, with shape (n, 16); odd rows are the second blob."""
    noise = np.random.default_rng(seed).normal(0, 0.05, (n, N_FEATURES))
    centres = np.where(np.arange(n)[:, None] % 2, 0.75, 0.25)
    return np.clip(centres + level + noise, 0, 1).astype(np.float32)


def labels(n: int) -> list[int | str]:
    """The class of each row of `samples`."""
    return [CLASSES[i % 2] for i in range(n)]


def teach(client: httpx2.Client, batches: int = 6, n: int = 100) -> None:
    """Send labelled batches and wait until they are learned."""
    for i in range(batches):
        batch = RawBatch.of(samples(n, seed=i), labels(n))
        send(client, batch).raise_for_status()
    learned(client)


def send(client: httpx2.Client, batch: RawBatch, **options: Any) -> httpx2.Response:
    """POST /ingest with a binary body."""
    headers = {"Content-Type": SAFETENSORS, **options.pop("headers", {})}
    return client.post("/ingest", content=batch.to_safetensors(), headers=headers, **options)


def problem(response: httpx2.Response, status: int, name: str) -> dict[str, Any]:
    """The problem document, checked for what all of them share."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["type"] == f"/problems/{name}"
    assert document["status"] == status
    assert unquote(document["instance"]) == response.request.url.path
    assert document["title"]
    assert str(document["detail"]).endswith((".", "?"))
    return document
