"""Tests for service.api.bodies and body_budget: how much of all requests is in memory at a time."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing

import httpx2
import orjson
import pytest

from service.api import bodies, body_budget
from service.settings import MIB, Settings
from tests.service.api.stack import problem, serving, wait_until

KIB = 1024


@pytest.fixture
def tight(settings: Callable[..., Settings]) -> Iterator[httpx2.Client]:
    """A service with 1 MiB for the bodies of all requests."""
    with serving(settings(max_bodies_mib=1, max_body_bytes=800 * KIB)) as client:
        yield client


def half_sent(client: httpx2.Client, path: str, size: int) -> socket.socket:
    """A connection on which a body of so many bytes has come, and one more is awaited."""
    assert client.base_url.port is not None
    connection = socket.create_connection((client.base_url.host, client.base_url.port), 10)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {size + 1}\r\n\r\n"
    )
    connection.sendall(head.encode() + b" " * size)
    return connection


def budgets_of(monkeypatch: pytest.MonkeyPatch) -> list[body_budget.BodyBudget]:
    """The budget of a service, once a part of a body has come, and again for each part."""
    budgets: list[body_budget.BodyBudget] = []
    hold = body_budget.BodyBudget.hold

    def seen(budget: body_budget.BodyBudget, request: object, n: int) -> None:
        budgets.append(budget)
        hold(budget, request, n)  # type: ignore[arg-type]

    monkeypatch.setattr(body_budget.BodyBudget, "hold", seen)
    return budgets


@pytest.mark.parametrize("path", ["/ingest", "/labels", "/model/rollback"])
def test_all_bodies_together_have_one_budget(
    tight: httpx2.Client, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    budgets = budgets_of(monkeypatch)
    body = b'{"features": [[1]]}' + b" " * (500 * KIB)
    headers = {"Content-Type": "application/json"}

    def refused() -> httpx2.Response | None:
        answer = tight.post("/classify", content=body, headers=headers)
        return answer if answer.status_code == 503 else None

    with closing(half_sent(tight, path, 600 * KIB)):
        # Had another body come meanwhile, this one would be refused.
        wait_until(lambda: budgets and budgets[0].held >= 600 * KIB)
        document = problem(wait_until(refused), 503, "too-many-bodies")
        assert document["held"] + len(body) > document["limit"] == MIB
        assert tight.post("/classify", json={"features": [[1]]}).status_code == 409
    assert wait_until(lambda: not refused())


def test_whatever_becomes_of_a_request_its_memory_is_given_back(
    tight: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets = budgets_of(monkeypatch)
    for path in ("/ingest", "/classify", "/labels", "/keys", "/model/rollback"):
        for content in (b"{", b'{"features": [[1, 2]]}', b"{}" + b" " * (300 * KIB)):
            tight.post(path, content=content, headers={"Content-Type": "application/json"})
        half_sent(tight, path, 100 * KIB).close()
    assert len(budgets) >= 15
    assert wait_until(lambda: budgets[0].held == 0)


def test_one_body_of_the_largest_size_always_has_room() -> None:
    assert Settings(max_bodies_mib=1, max_body_bytes=5 * MIB).bodies_bytes == 5 * MIB
    assert Settings(max_bodies_mib=9, max_body_bytes=5 * MIB).bodies_bytes == 9 * MIB


@pytest.mark.parametrize(("n", "beside"), [(10, False), (30_000, True)])
def test_a_large_body_is_read_beside_the_loop(
    blank: httpx2.Client, monkeypatch: pytest.MonkeyPatch, n: int, beside: bool
) -> None:
    threads = []
    parse = bodies.parse_json

    def seen(*arguments: object) -> object:
        threads.append(threading.current_thread().name)
        return parse(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(bodies, "parse_json", seen)
    body = orjson.dumps({"features": [[0.5] * n]})
    blank.post("/classify", content=body, headers={"Content-Type": "application/json"})
    (name,) = threads
    assert name.startswith("gmr-parse") is beside


def test_a_body_of_a_few_fields_has_a_limit_of_its_own(blank: httpx2.Client) -> None:
    """Each wrong field takes hundreds of bytes, and a large body of them half a minute."""
    headers = {"Content-Type": "application/json"}
    body = b'{"version": 1}' + b" " * bodies.FIELDS_BYTES
    answer = blank.post("/model/rollback", content=body, headers=headers)
    document = problem(answer, 413, "body-too-large")
    assert (document["limit"], document["got"]) == (bodies.FIELDS_BYTES, len(body))
    assert "a few fields" in document["detail"]
    answer = blank.post("/model/rollback", content=body[:-100], headers=headers)
    problem(answer, 404, "unknown-version")


def test_of_many_faults_none_is_described(blank: httpx2.Client) -> None:
    unknown = {f"field {i}": 1 for i in range(bodies.MOST_FAULTS)}
    document = problem(blank.post("/model/rollback", json=unknown), 422, "invalid-request")
    assert document["detail"].startswith("The body has 101 faults. Expected a JSON object with ")
    del unknown["field 0"]
    document = problem(blank.post("/model/rollback", json=unknown), 422, "invalid-request")
    assert document["field"] == "version"


def test_the_first_wrong_name_of_a_feature_is_the_last_that_is_looked_at(
    blank: httpx2.Client,
) -> None:
    answer = blank.put("/model/feature-names", json={"feature_names": [1] * 200_000})
    assert problem(answer, 422, "invalid-request")["field"] == "feature_names.0"
    names = {"feature_names": ["x" * 200] * 6000}
    problem(blank.put("/model/feature-names", json=names), 422, "invalid-request")
