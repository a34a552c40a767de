"""Tests for service.cluster.local: what it does beside Ray, which is simulated."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from core.errors import InvalidSettings
from service.broker.connection import connect
from service.cluster.plan import agree
from tests.service.api.stack import make_settings, redis_server, wait_until
from tests.service.cluster.simulated_ray import SimulatedRay


@pytest.fixture(autouse=True)
def ray(monkeypatch: pytest.MonkeyPatch) -> SimulatedRay:
    made = SimulatedRay({"a": 1})
    made.install(monkeypatch)
    return made


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.parametrize("by_variable", [False, True])
def test_a_ray_that_is_not_there_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, by_variable: bool
) -> None:
    from service.cluster.local import attach

    address = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("RAY_ADDRESS", address if by_variable else "ray.example:1")
    with pytest.raises(InvalidSettings, match=f"No Ray answers at {address}.*ray start --head"):
        attach(None if by_variable else address, "plant")


def test_hosts_import_nothing_from_the_folder_in_which_they_are_begun(
    ray: SimulatedRay, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from service.cluster.local import attach

    folders: list[str] = []
    init = sys.modules["ray"].init
    monkeypatch.setattr("ray.init", lambda **named: (folders.append(os.getcwd()), init(**named)))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.chdir(tmp_path)  # Ray has all hosts import from where it is connected to
    attach(None, "plant")
    assert not (Path(*folders) / "service").exists()
    assert Path(*folders) != tmp_path == Path.cwd()


@pytest.mark.parametrize("address", ["ray.example", "local", "ray.example:x", ":6379"])
def test_what_is_no_address_of_ray_is_told(address: str) -> None:
    from service.cluster.local import attach

    with pytest.raises(InvalidSettings, match=f"{address!r}; expected HOST:PORT"):
        attach(address, "plant")


def test_a_machine_without_ray_is_told(ray: SimulatedRay, monkeypatch: pytest.MonkeyPatch) -> None:
    from service.cluster.local import attach

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ray.runs = False
    with pytest.raises(InvalidSettings, match="No Ray answers on this machine"):
        attach(None, "plant")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_is_asked_to_end_by_signals_that_are_ignored_otherwise(number: signal.Signals) -> None:
    from service.cluster.local import asked_to_end

    before = signal.signal(number, signal.SIG_IGN)
    try:
        with asked_to_end() as asked:
            signal.raise_signal(number)
            assert asked.is_set()
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


def test_an_api_and_a_redis_that_are_killed_are_begun_again(tmp_path: Path) -> None:
    from service.cluster.local import Local, tend

    port = free_port()

    def answers() -> bool:
        with suppress(OSError):
            return (
                "ready"
                in urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready").read().decode()
            )
        return False

    with redis_server(tmp_path / "redis") as server:
        settings = make_settings(server.url, tmp_path, port=port)
        with connect(server.url) as client:
            agree(client, settings.model, 1, 1)
        asked = threading.Event()
        made = Local(settings, None, "", server)
        tending = threading.Thread(target=tend, args=(made, asked))
        tending.start()
        try:
            wait_until(answers)
            pid = server.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: server.pid != pid)
            wait_until(answers)
            [api] = children("service.api")
            os.kill(api, signal.SIGKILL)
            wait_until(lambda: children("service.api") not in ([], [api]))
            wait_until(answers)
        finally:
            asked.set()
            tending.join(30)
        assert not tending.is_alive()
    assert children("service.api") == []


def children(module: str) -> list[int]:
    """Processes of a module that this process began and that live."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and module in (folder / "cmdline").read_text():
                found.append(int(folder.name))
    return found


class Node:
    """A node of Ray's `cluster_utils`: its raylet may die."""

    def __init__(self, place: str) -> None:
        self.node_ip_address = place
        self.dead: list[tuple[str, object]] = []

    def dead_processes(self) -> list[tuple[str, object]]:
        return self.dead


class Nodes:
    """A `Cluster` of Ray."""

    def __init__(self) -> None:
        self.head_node = Node("127.0.0.2")
        self.worker_nodes = {Node("127.0.0.3"), Node("127.0.0.4")}

    def remove_node(self, node: Node, allow_graceful: bool) -> None:
        self.worker_nodes.remove(node)

    def add_node(self, node_ip_address: str, num_cpus: int) -> None:
        self.worker_nodes.add(Node(node_ip_address))


def test_a_node_that_died_is_begun_again_and_a_head_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from service.cluster import local

    class Api:
        def __init__(self, *_: object) -> None:
            pass

        def nothing(self, *_: object) -> None:
            pass

        start = watch = stop = nothing

    monkeypatch.setattr(local, "Part", Api)
    nodes = Nodes()
    died = max(nodes.worker_nodes, key=lambda node: node.node_ip_address)
    made = local.Local(make_settings("redis://127.0.0.1:1", tmp_path), nodes, "")
    failed: list[Exception] = []

    def work() -> None:
        try:
            local.tend(made, threading.Event())
        except Exception as error:
            failed.append(error)

    tending = threading.Thread(target=work, daemon=True)
    tending.start()
    died.dead = [("raylet", None)]
    wait_until(lambda: died not in nodes.worker_nodes and len(nodes.worker_nodes) == 2)
    assert {node.node_ip_address for node in nodes.worker_nodes} == {"127.0.0.3", "127.0.0.4"}
    assert "the node of Ray on 127.0.0.4 died; beginning another there" in caplog.text
    nodes.head_node.dead = [("gcs_server", None)]
    tending.join(20)
    assert "Give `gmr cluster up --local` again" in str(failed[0])
