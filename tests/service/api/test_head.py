"""Tests for HEAD: what GET answers, without the body."""

from __future__ import annotations

import httpx2
import pytest

from tests.service.api.stack import problem
from tests.service.api.test_query import DOCUMENT

GETS = [path for path, methods in DOCUMENT["paths"].items() if "get" in methods]
PAGES = ["/", "/docs", "/openapi.json", "/problems", "/problems/not-found"]
ENDLESS = "/events"
# These differ between two answers because of the clock, or of the trainer's counting.
VARIES = {"date", "content-length", "x-request-id"}


@pytest.mark.parametrize("path", [path for path in (*GETS, *PAGES) if path != ENDLESS])
def test_head_answers_as_get_does_without_the_body(taught: httpx2.Client, path: str) -> None:
    address = path.replace("{id}", "1-1")
    if path == "/sample":
        address += "?seed=1"
    # What the service keeps may change between two answers, a version of the model for one, but not
    # around one of both.
    got, head, again = taught.get(address), taught.head(address), taught.get(address)
    assert head.status_code == got.status_code
    assert head.content == b""
    assert _told(head) in (_told(got), _told(again))
    if path in ("/health/live", "/model/versions", "/docs", "/openapi.json", "/sample"):
        lengths = {len(got.content), len(again.content)}
        assert int(head.headers["content-length"]) in lengths


def _told(answer: httpx2.Response) -> dict[str, str]:
    """Its headers, but for those that vary."""
    return {name: value for name, value in answer.headers.items() if name not in VARIES}


def test_head_of_a_connection_leaves_it_usable(taught: httpx2.Client) -> None:
    for _ in range(3):
        assert taught.head("/health/live").status_code == 200
        assert taught.get("/health/live").json() == {"status": "live"}


def test_an_answer_without_end_has_no_head(blank: httpx2.Client) -> None:
    response = blank.head(ENDLESS)
    assert response.status_code == 405
    assert response.headers["Allow"] == "GET"
    document = problem(blank.delete(ENDLESS), 405, "method-not-allowed")
    assert document["detail"].startswith("DELETE is no method")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/model", "GET, HEAD"),
        ("/model/checkpoint", "GET, PUT, HEAD"),
        ("/ingest", "GET, POST, HEAD"),
        ("/labels", "POST"),
        ("/events", "GET"),
        ("/docs", "GET, HEAD"),
    ],
)
def test_a_wrong_method_is_answered_with_all_right_ones(
    blank: httpx2.Client, path: str, allowed: str
) -> None:
    response = blank.patch(path)
    problem(response, 405, "method-not-allowed")
    assert response.headers["Allow"] == allowed


def test_a_route_without_get_has_no_head(blank: httpx2.Client) -> None:
    response = blank.head("/labels")
    assert response.status_code == 405
    assert response.headers["Allow"] == "POST"


def test_head_refuses_what_get_refuses(taught: httpx2.Client) -> None:
    assert taught.head("/sample?class=2").status_code == 422


def test_requests_by_head_are_counted_as_such(blank: httpx2.Client) -> None:
    blank.head("/health/live")
    text = blank.get("/metrics").text
    assert 'gmr_http_requests_total{method="HEAD",route="/health/live",status="200"}' in text
