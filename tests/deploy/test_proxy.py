"""Tests for deploy/proxy: real proxies before three API processes' worth of servers."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from benchmarks._ports import free_port
from service.api.routes import health
from service.settings import Settings
from tests.service.api.conftest import redis_url  # noqa: F401
from tests.service.api.stack import (
    N_FEATURES,
    make_settings,
    of_model,
    serving,
    teach,
    training,
    wait_until,
)
from tests.service.running import LONGEST_S

CONFIGURED = Path(__file__).parents[2] / "deploy" / "proxy"
MODELS = 9

PROXIES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"no {name} on the PATH"),
    )
    for name in ("haproxy", "nginx")
]


@contextlib.contextmanager
def proxy(name: str, folder: Path, readers: list[str]) -> Iterator[httpx2.Client]:
    """The proxy as configured, but for ports."""
    file = {"haproxy": "haproxy.cfg", "nginx": "nginx.conf"}[name]
    text = (CONFIGURED / file).read_text("utf-8")
    own = free_port()
    text = text.replace("127.0.0.1:8080", f"127.0.0.1:{own}")
    for place, reader in enumerate(readers, 8001):
        text = text.replace(f"127.0.0.1:{place}", reader)
    assert not re.search(r"127\.0\.0\.1:800\d", text)
    (folder / file).write_text(text, "utf-8")
    config = str(folder / file)
    command = {
        "haproxy": ["haproxy", "-db", "-f", config],
        "nginx": ["nginx", "-p", str(folder), "-c", config, "-g", "daemon off;"],
    }[name]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{own}", timeout=LONGEST_S) as client:

            def up() -> bool:
                with contextlib.suppress(httpx2.TransportError):
                    return client.get("/health/live").status_code == 200
                return False

            wait_until(up)
            yield client
    finally:
        process.terminate()
        process.wait(10)


def held(reader: httpx2.Client) -> int:
    """Named models that a reader holds."""
    found = re.search(r"^gmr_api_models (\d+)", reader.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("name", PROXIES)
def test_each_model_is_held_by_one_reader_and_another_takes_over(
    name: str,
    redis_url: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    settings = make_settings(redis_url, tmp_path / "data")
    models = [f"machine-{i}" for i in range(MODELS)]
    with contextlib.ExitStack() as stack:
        stack.enter_context(training(settings))
        ports = [free_port() for _ in range(3)]
        own: list[Settings] = [settings.model_copy(update={"port": port}) for port in ports]
        last = contextlib.ExitStack()
        stack.enter_context(last)
        readers = [stack.enter_context(serving(one)) for one in own[:2]]
        readers.append(last.enter_context(serving(own[2])))
        for reader in readers:  # or the proxy takes none for one that is well
            wait_until(lambda reader=reader: reader.get("/health/ready").status_code == 200)
        hosts = [f"127.0.0.1:{port}" for port in ports]
        front = stack.enter_context(proxy(name, tmp_path, hosts))
        for model in models:
            front.put(f"/models/{model}").raise_for_status()
            with of_model(front, model) as client:
                teach(client, batches=1)
        for _ in range(3):
            for model in models:
                assert front.get(f"/models/{model}/model").json()["samples_seen"] == 100
        shares = [held(reader) for reader in readers]
        assert sum(shares) == MODELS, shares
        assert max(shares) < MODELS, shares
        last.close()  # one reader ends
        for model in models:
            assert front.get(f"/models/{model}/model").json()["samples_seen"] == 100
        assert sum(held(reader) for reader in readers[:2]) == MODELS


@pytest.mark.parametrize("name", PROXIES)
def test_without_a_trainer_questions_are_answered_and_batches_accepted(
    name: str,
    redis_url: str,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "HEARTBEAT_S", 0.0)  # or it counts as gone after half a minute
    settings = make_settings(redis_url, tmp_path / "data")
    with contextlib.ExitStack() as stack:
        with training(settings):
            ports = [free_port() for _ in range(3)]
            own = [settings.model_copy(update={"port": port}) for port in ports]
            readers = [stack.enter_context(serving(one)) for one in own]
            for reader in readers:  # or the proxy takes none for one that is well
                wait_until(lambda reader=reader: reader.get("/health/startup").is_success)
            front = stack.enter_context(
                proxy(name, tmp_path, [f"127.0.0.1:{port}" for port in ports])
            )
            front.put("/models/machine").raise_for_status()
            with of_model(front, "machine") as client:
                teach(client, batches=1)
        assert readers[0].get("/health/ready").status_code == 503
        asked = {"features": [[0.25] * N_FEATURES]}
        until = time.monotonic() + 5  # a proxy that looks has looked three times by then
        while time.monotonic() < until:
            for path in ("classify", "ingest"):
                answer = front.post(f"/models/machine/{path}", json=asked)
                assert answer.is_success, answer.text
            time.sleep(0.2)
