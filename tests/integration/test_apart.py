"""`gmr trainer` and `gmr api` run apart against a Redis of one's own, snapshots through Redis.

Runs on the `redis-server` of the system where there is one, else on the packaged binary, on which
every other test runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks._ports import free_port
from clients.http.client import GMRClient
from service.settings import Settings
from service.supervisor.embedded import find_binary
from tests.service.forked import Forked, forked

COMMAND = "from clients.commands.cli import main; main()"
MODULES = ("service.api.app", "clients.commands.serving")


@contextlib.contextmanager
def process(command: list[str], log: Path, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
    """A child process; killed at the end if it is still there."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("GMR_")}
    with (
        log.open("wb") as output,
        subprocess.Popen(
            command, env={**environment, **variables}, stdout=output, stderr=output
        ) as child,
    ):
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


@pytest.fixture
def redis_url(tmp_path: Path) -> Iterator[str]:
    """A Redis that listens on a port, as an operator would run one."""
    binary = shutil.which("redis-server") or str(find_binary(Settings().redis_binary).path)
    port = free_port()
    options = ["--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always"]
    command = [binary, "--port", str(port), "--dir", str(tmp_path), *options]
    with process(command, tmp_path / "redis.log"):
        yield f"redis://127.0.0.1:{port}"


def blobs(label: int, n: int, seed: int) -> np.ndarray:
    """Samples of a class in [0, 1], with shape (n, 8)."""
    noise = np.random.default_rng([label, seed]).normal(size=(n, 8)) * 0.03
    features = np.random.default_rng(label).uniform(0.1, 0.9, 8) + noise
    return np.clip(features, 0, 1).astype(np.float32)


def test_trainer_and_apis_on_a_redis_of_ones_own(redis_url: str, tmp_path: Path) -> None:
    ports = free_port(), free_port()
    gmr = [sys.executable, "-m", "clients.commands.cli"]
    common = {"GMR_REDIS_URL": redis_url, "GMR_DEVICE": "cpu"}

    def trainer() -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        folder = str(tmp_path / "trainer")
        return process([*gmr, "trainer"], tmp_path / "trainer.log", GMR_DATA_DIR=folder, **common)

    def api(place: int) -> contextlib.AbstractContextManager[subprocess.Popen[bytes]]:
        # A folder of its own: nothing but Redis joins it to the trainer.
        folder = str(tmp_path / f"api{place}")
        command = [*gmr, "api", "--port", str(ports[place])]
        return process(command, tmp_path / f"api{place}.log", GMR_DATA_DIR=folder, **common)

    def trainer_forked() -> contextlib.AbstractContextManager[Forked]:
        variables = {"GMR_DATA_DIR": str(tmp_path / "trainer"), **common}
        log = tmp_path / "trainer2.log"
        return forked(COMMAND, "trainer", variables=variables, output=log, modules=MODULES)

    def api_forked(place: int) -> contextlib.AbstractContextManager[Forked]:
        variables = {"GMR_DATA_DIR": str(tmp_path / f"api{place}"), **common}
        log, port = tmp_path / f"api{place}.log", str(ports[place])
        given = ("api", "--port", port)
        return forked(COMMAND, *given, variables=variables, output=log, modules=MODULES)

    urls = [f"http://127.0.0.1:{port}" for port in ports]
    # Of each command, the first is a process from its start, and the second a fork.
    with api(0), api_forked(1), GMRClient(urls[0]) as one, GMRClient(urls[1]) as other:
        with trainer() as child:
            one.wait_until_ready(60)
            other.wait_until_ready(60)
            for seed in range(12):
                features = np.concatenate([blobs(0, 25, seed), blobs(1, 25, seed)])
                one.ingest(features, [0] * 25 + [1] * 25)
            one.wait_until_learned(60)
            before = one.model()
            assert before.samples_seen == 600
            child.send_signal(signal.SIGTERM)
            assert child.wait(30) == 0

        # Without a trainer the last model answers, and batches are accepted and kept.
        assert other.classify(blobs(1, 5, 99)).labels.tolist() == [1] * 5
        one.ingest(blobs(2, 50, 7), [2] * 50)

        with trainer_forked():
            other.wait_until_ready(60)
            other.wait_until_learned(60)
            deadline = time.monotonic() + 30
            while other.model().samples_seen < 650:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            after = other.model()
            assert after.samples_seen == 650
            assert after.model_version > before.model_version
            one.wait_until_learned(60)
            answers = [client.classify(blobs(2, 20, 98)) for client in (one, other)]
            assert [answer.labels.tolist() for answer in answers] == [[2] * 20] * 2
            drawn = [client.sample(n=4, classes=[0], seed=3) for client in (one, other)]
            assert drawn[0].model_version == drawn[1].model_version
            np.testing.assert_array_equal(drawn[0].features, drawn[1].features)
