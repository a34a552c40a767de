"""Tests for service.api.connection: what one connection may ask, tried with bare sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import httpx2
import pytest

from service.api import connection
from service.settings import Settings
from tests.service.api.stack import serving, wait_until
from tests.service.running import LONGEST_S

HEAD = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = (
    b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


@pytest.fixture
def connect(blank: httpx2.Client) -> Callable[[], socket.socket]:
    """Opens a connection to a service."""

    def make() -> socket.socket:
        host, port = blank.base_url.host, blank.base_url.port
        assert port is not None
        return socket.create_connection((host, port), timeout=10)

    return make


def everything(reader: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    parts = []
    try:
        while part := reader.recv(65536):
            parts.append(part)
    except ConnectionResetError:  # it closed with bytes of ours unread
        pass
    return b"".join(parts)


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def feed(writer: socket.socket, data: bytes, times: int) -> None:
    """Send until done or cut off."""
    try:
        for _ in range(times):
            writer.sendall(data)
    except OSError:
        pass


@pytest.mark.parametrize(
    ("before", "repeated", "status"),
    [
        (HEAD + b"X-Long: ", b"x" * 65536, 431),
        (b"GET /", b"x" * 65536, 414),
        (HEAD, b"X-Many: %s\r\n" % (b"y" * 4000), 431),
        (b"", b"\r\n" * 30000, 431),
        (CHUNKED + b"0\r\nX-Long: ", b"x" * 65536, 431),
        (CHUNKED + b"1;", b"x" * 65536, 431),
    ],
    ids=["one header", "address", "many headers", "empty lines", "trailer", "chunk extension"],
)
def test_a_head_without_end_is_refused_while_others_are_answered(
    connect: Callable[[], socket.socket],
    blank: httpx2.Client,
    before: bytes,
    repeated: bytes,
    status: int,
) -> None:
    """100 MB of it, as fast as they are taken."""
    with closing(connect()) as attacker:
        attacker.sendall(before)
        sending = threading.Thread(target=feed, args=(attacker, repeated, 1600))
        sending.start()
        for _ in range(20):
            assert blank.get("/health/live").status_code == 200
        answer = everything(attacker)
        sending.join(LONGEST_S)
    assert not answer or status_of(answer) == status


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (HEAD + b"X-Long: " + b"x" * 17000 + b"\r\n\r\n", 431),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (HEAD + b"".join(b"X-%d: 1\r\n" % n for n in range(101)) + b"\r\n", 431),
        (HEAD + b"X-Long: " + b"x" * 12000 + b"\r\n\r\n", 200),
        (HEAD + b"".join(b"X-%d: 1\r\n" % n for n in range(90)) + b"\r\n", 200),
    ],
    ids=["long header", "long address", "many headers", "still short", "still few"],
)
def test_a_head_has_a_limit(
    connect: Callable[[], socket.socket], request_: bytes, status: int
) -> None:
    with closing(connect()) as asking:
        asking.sendall(request_)
        answer = asking.recv(65536)
        assert status_of(answer) == status
        if status != 200:
            assert b"connection: close" in answer
            assert everything(asking) in (b"", answer[len(answer) :])


def test_requests_that_follow_each_other_at_once_are_all_answered(
    connect: Callable[[], socket.socket],
) -> None:
    """The bytes of one request's body are none of the next one's head."""
    body = b'{"features": [[%s]]}' % b", ".join(b"0.5" for _ in range(9000))
    post = (
        b"POST /classify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    with closing(connect()) as asking:
        asking.sendall((post + body) * 3 + HEAD + b"Connection: close\r\n\r\n")
        answers = everything(asking)
    assert answers.count(b"HTTP/1.1 409") == 3  # nothing was learned
    assert answers.count(b"HTTP/1.1 200") == 1


@pytest.fixture
def impatient(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, int]]:
    """A service with little patience and few connections."""
    monkeypatch.setattr(connection, "HEAD_S", 0.3)
    monkeypatch.setattr(connection, "BODY_S", 0.3)
    monkeypatch.setattr(connection, "MAX_CONNECTIONS", 8)
    with serving(settings()) as client:
        assert client.base_url.port is not None
        yield client.base_url.host, client.base_url.port


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", None),
        (HEAD, 408),
        (HEAD + b"X: 1", 408),
        (
            b"POST /ingest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000000\r\n\r\n{",
            None,
        ),
    ],
    ids=["nothing", "half a head", "half a header", "half a body"],
)
def test_a_connection_that_keeps_the_server_waiting_is_closed(
    impatient: tuple[str, int], sent: bytes, status: int | None
) -> None:
    with closing(socket.create_connection(impatient, timeout=10)) as slow:
        slow.sendall(sent)
        answer = everything(slow)
    assert (status_of(answer) if answer else None) in (status, 408)
    if status is not None:
        assert status_of(answer) == status


def test_a_pause_between_two_requests_is_no_delay(impatient: tuple[str, int]) -> None:
    with closing(socket.create_connection(impatient, timeout=10)) as asking:
        for _ in range(2):
            asking.sendall(HEAD + b"\r\n")
            assert status_of(asking.recv(65536)) == 200
            time.sleep(0.5)


def test_there_are_so_many_connections_and_others_are_told(impatient: tuple[str, int]) -> None:
    crowd = [socket.create_connection(impatient, timeout=10) for _ in range(12)]
    try:
        refused = [one for one in crowd if (answer := everything(one)) and status_of(answer) == 503]
        assert refused
    finally:
        for one in crowd:
            one.close()

    def answered() -> bool:
        with closing(socket.create_connection(impatient, timeout=10)) as asking:
            asking.sendall(HEAD + b"Connection: close\r\n\r\n")
            answer = everything(asking)
            return bool(answer) and status_of(answer) == 200

    assert wait_until(answered)
