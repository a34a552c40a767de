"""Tests for the clients.evaluation.local module, with real services."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from clients.evaluation.local import LocalService, ServiceStopped, free_port
from clients.http.client import GMRClient
from clients.http.errors import InputError, ServiceUnreachable
from clients.http.retry import RetryPolicy

ROOT = Path(__file__).resolve().parents[3]


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def test_a_service_lives_as_long_as_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # None of these may reach it: the first would break it, the second change the model.
    monkeypatch.setenv("GMR_REDIS_URL", "redis://127.0.0.1:1")
    monkeypatch.setenv("GMR_PRESET", "paper")
    log = tmp_path / "log.txt"
    with LocalService(settings={"n_components": 7, "seed": None}, log=log) as service:
        with GMRClient(service.url) as client:
            assert client.ready().ready
            assert client.model().raw["preset"] == "mfa"
            client.ingest([[0.0, 1.0]] * 40 + [[1.0, 0.0]] * 40, [0] * 40 + [1] * 40)
            assert client.wait_until_learned(60).components <= 7
        assert service.data_dir.is_dir()
        assert service.stop() == 0
    # Stopped for the second time, by the end of the block, which does no harm.
    assert not is_listening(service.port)
    assert not service.data_dir.exists()
    assert log.stat().st_size > 0
    with (
        GMRClient(service.url, retry=RetryPolicy(total_s=0)) as client,
        pytest.raises(ServiceUnreachable),
    ):
        client.model()


def test_a_service_that_does_not_start_says_why(tmp_path: Path):
    settings = {"redis_binary": tmp_path / "none"}
    service = LocalService(settings=settings, log=tmp_path / "log.txt")
    with pytest.raises(ServiceStopped, match=r"exit status 2(?s:.*)GMR_REDIS_BINARY") as caught:
        service.start()
    assert str(tmp_path / "log.txt") in str(caught.value)


def test_a_service_that_dies_is_noticed(tmp_path: Path):
    with LocalService(data_dir=tmp_path / "data") as service:
        service.check()
        os.kill(service.pid, signal.SIGKILL)
        assert wait_until(lambda: died(service), 10)
    assert service.data_dir == tmp_path / "data"
    assert service.data_dir.is_dir()  # a directory that was given is kept


def died(service: LocalService) -> bool:
    try:
        service.check()
    except ServiceStopped as error:
        return "exit status -9" in str(error)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_a_killed_client_takes_its_service_with_it(tmp_path: Path):
    program = (
        "import os, pathlib, signal, sys\n"
        "from clients.evaluation.local import LocalService\n"
        "service = LocalService(data_dir=pathlib.Path(sys.argv[1]))\n"
        "service.start()\n"
        "print(service.port, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    port = int(ended.stdout)
    assert wait_until(lambda: not is_listening(port), 20)


def test_a_taken_port_is_not_chosen():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) not in (port, 0)


def test_a_free_port_is_taken_as_wished():
    wished = free_port()
    assert free_port(wished) == wished


def test_a_chosen_port_is_not_given_to_somebody_else():
    port = free_port()
    with socket.socket() as somebody, pytest.raises(OSError, match="in use"):
        somebody.bind(("127.0.0.1", port))
    with socket.socket() as service:
        service.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        service.bind(("127.0.0.1", port))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"foo": 1}, r"--foo is no setting\."),
        ({"n_facters": 1}, r"Did you mean --n-factors\?"),
        ({"ert": "0"}, "ert is 0 "),
    ],
)
def test_a_setting_that_will_not_do_is_one_clear_error(settings: dict[str, object], complaint: str):
    with pytest.raises(InputError, match=complaint) as caught, LocalService(settings=settings):
        pass
    for noise in ("Usage", "\n", "│", "exit status", "pattern"):
        assert noise not in str(caught.value)
