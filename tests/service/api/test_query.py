"""Tests for the query: what no route reads is refused, and nothing is done."""

from __future__ import annotations

import re
import string
from typing import Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.api.app import create_app
from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import SAFETENSORS, problem, samples

DOCUMENT = create_app(Settings(redis_url="redis://127.0.0.1:1")).openapi()  # type: ignore[arg-type]
IGNORES = {("get", "/metrics")}
"""Prometheus may be told to add parameters of its own."""

OTHER_FORM = "/v2"
"""Its errors have the form of its protocol: tests/service/api/test_inference.py."""

OPERATIONS = [
    (method, path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if (method, path) not in IGNORES and not path.startswith(OTHER_FORM)
]
NAMES = st.text(string.ascii_lowercase + "_-. \u00e9", min_size=1, max_size=60)

QUICK = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def declared(operation: dict[str, Any]) -> dict[str, bool]:
    """Parameter of the query -> whether it is a list, as the document says."""
    return {
        parameter["name"]: "array" in str(parameter["schema"])
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    }


def ask(
    client: httpx2.Client, method: str, path: str, query: list[tuple[str, str]]
) -> httpx2.Response:
    """A request that would be carried out, if it were not for its query."""
    body: dict[str, Any] = {}
    if path in ("/ingest", "/classify", "/outliers"):
        body["content"] = RawBatch.of(samples(2)).to_safetensors()
        body["headers"] = {"Content-Type": SAFETENSORS}
    elif path == "/labels":
        body["json"] = {"sample_ids": ["a"], "labels": ["b"]}
    elif path == "/model/rollback":
        body["json"] = {"version": 1}
    elif (method, path) == ("put", "/model/checkpoint"):
        body = {"content": b"x", "headers": {"Content-Type": SAFETENSORS}}
    return client.request(method, path.replace("{id}", "1-1"), params=query, **body)


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_every_route_refuses_a_parameter_that_it_does_not_have(
    blank: httpx2.Client, method: str, path: str, operation: dict[str, Any]
) -> None:
    before = blank.get("/model").json()["backlog"]
    document = problem(ask(blank, method, path, [("foo", "1")]), 422, "invalid-request")
    assert "'foo'" in document["detail"]
    assert document["parameter"] == "foo"
    assert document["known"] == sorted(declared(operation))
    assert document["errors"][0]["where"] == "query.foo"
    assert blank.get("/model").json()["backlog"] == before


@QUICK
@given(which=st.sampled_from(OPERATIONS), name=NAMES, value=st.text(max_size=5))
def test_any_unknown_name_is_named_and_nothing_is_done(
    blank: httpx2.Client, which: tuple[str, str, dict[str, Any]], name: str, value: str
) -> None:
    method, path, operation = which
    if name in declared(operation):
        return
    before = blank.get("/model").json()["backlog"]
    document = problem(ask(blank, method, path, [(name, value)]), 422, "invalid-request")
    assert document["parameter"] == name[:40]
    assert repr(name[:40]) in document["detail"]
    assert blank.get("/model").json()["backlog"] == before


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        (method, path, name)
        for method, path, operation in OPERATIONS
        for name, many in declared(operation).items()
        if not many
    ],
)
def test_a_parameter_with_one_value_may_come_once(
    blank: httpx2.Client, method: str, path: str, name: str
) -> None:
    before = blank.get("/model").json()["backlog"]
    response = ask(blank, method, path, [(name, "1"), (name, "2")])
    document = problem(response, 422, "invalid-request")
    assert document["parameter"] == name
    assert "2 times" in document["detail"]
    assert blank.get("/model").json()["backlog"] == before


@pytest.mark.parametrize(
    ("path", "query", "meant"),
    [
        ("/sample", "class=2", "classes"),
        ("/sample", "sead=2", "seed"),
        ("/drift/history", "lasst=2", "last"),
        ("/drift/boundaries", "sinse=2", "since"),
        ("/events", "kind=boundary", "kinds"),
    ],
)
def test_a_misspelt_parameter_is_answered_with_the_one_that_was_meant(
    blank: httpx2.Client, path: str, query: str, meant: str
) -> None:
    document = problem(blank.get(f"{path}?{query}"), 422, "invalid-request")
    assert f"Did you mean `{meant}`?" in document["detail"]


def test_a_misspelt_id_of_a_batch_is_refused_before_the_batch_is_taken(
    blank: httpx2.Client,
) -> None:
    before = blank.get("/model").json()["backlog"]
    response = ask(blank, "post", "/ingest", [("batchid", "a")])
    assert "Did you mean `batch_id`?" in problem(response, 422, "invalid-request")["detail"]
    assert blank.get("/model").json()["backlog"] == before


def test_metrics_and_pages_ignore_what_they_do_not_know(blank: httpx2.Client) -> None:
    for path in ("/metrics", "/", "/docs", "/openapi.json", "/problems"):
        assert blank.get(f"{path}?collect[]=x&from=here").status_code == 200


def test_the_page_asks_for_nothing_that_is_refused(taught: httpx2.Client) -> None:
    page = taught.get("/").text
    scripts = "".join(taught.get(path).text for path in re.findall(r"static/\w+\.js", page))
    asked = set(
        re.findall(r"[\"`]((?:sample\?|drift|model)(?![_-])[^\"`\s]*)[\"`]", page + scripts)
    ) - {
        "model/rollback",
        "model/release",
        "model/mode",
        "model/rename-class",
        "model/merge-classes",
        "drift/ert",
    }
    asked = {address for address in asked if not address.endswith("/notes")}  # sent, not asked
    assert len(asked) >= 10
    for address in asked:
        known = re.sub(r"\$\{(since|wanted)\}", "", address).replace("${noise}", "true")
        known = re.sub(r"drift/boundaries/\$\{.*\}", "drift/boundaries/1-1", known)
        response = taught.get("/" + re.sub(r"\$\{\w+\}", "25", known))
        assert response.status_code == (404 if "boundaries/" in known else 200), address


@pytest.mark.parametrize(
    ("path", "name", "one", "other"),
    [
        ("/outliers", "false_positive_rate", 0.05, 0.0001),
        ("/outliers", "c", 2, 3),
        ("/outliers", "components", True, False),
        ("/classify", "unknown_rate", 0.05, 0.0001),
        ("/classify", "p_values", True, False),
    ],
)
def test_body_and_query_must_agree(
    taught: httpx2.Client, path: str, name: str, one: Any, other: Any
) -> None:
    body = {"features": samples(2).tolist(), name: one}
    found = problem(taught.post(f"{path}?{name}={other}", json=body), 422, "invalid-request")
    assert found["parameter"] == name
    assert f"{one} in the body and {other} in the query" in found["detail"].replace(".0 ", " ")
    answer = taught.post(path, json=body).json()
    assert taught.post(f"{path}?{name}={one}", json=body).json() == answer
    if name not in ("components", "p_values"):
        assert taught.post(f"{path}?{name}={one}", json={**body, name: None}).json() == answer
