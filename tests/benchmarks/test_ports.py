"""Ports for servers of tests and benchmarks."""

import socket
from pathlib import Path

import pytest

from benchmarks import _ports
from benchmarks._ports import PORTS, free_port
from benchmarks._redis_cluster import BUS, Member

LINUX = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_no_port_is_given_twice_nor_as_the_companion_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_ports, "PORTS", range(PORTS.start, PORTS.start + 100))

    given = [free_port(companion=50) for _ in range(40)]

    assert len({*given, *(port + 50 for port in given)}) == 80


def test_a_port_that_is_taken_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setattr(_ports, "_given", set[int]())
    monkeypatch.setattr(_ports, "PORTS", range(port, port + 1))
    taken = socket.create_server(("127.0.0.1", port))

    with taken, pytest.raises(OSError, match="free"):
        free_port()


def test_a_port_whose_companion_is_taken_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port(companion=1)
    monkeypatch.setattr(_ports, "_given", set[int]())
    monkeypatch.setattr(_ports, "PORTS", range(port, port + 1))
    taken = socket.create_server(("127.0.0.1", port + 1))

    with taken, pytest.raises(OSError, match="free"):
        free_port(companion=1)


@pytest.mark.skipif(not LINUX.exists(), reason="where Linux says which it takes for connections")
def test_no_port_is_one_that_the_system_gives_to_connections() -> None:
    first = int(LINUX.read_text().split()[0])

    assert PORTS.stop - 1 + BUS < first


def test_a_node_whose_port_is_taken_says_so_at_once(tmp_path: Path) -> None:
    node = Member(tmp_path / "node", node_timeout_ms=500)

    with (
        socket.create_server(("127.0.0.1", node.port)),
        pytest.raises(ChildProcessError, match="ended with status 1"),
    ):
        node.start()
    node.client.close()
