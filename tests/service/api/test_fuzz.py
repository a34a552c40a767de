"""Whatever is sent, the service answers, and never with a fault of its own."""

from __future__ import annotations

import json
import struct

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.wire import pack
from tests.service.api.stack import SAFETENSORS, samples

QUICK = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(width=32) | st.text(max_size=8)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4), max_leaves=12)
FIELDS = st.sampled_from(
    ["features", "labels", "batch_id", "c", "vocabulary", "x", "sample_ids", "proposal", "label"]
)
ROUTES = st.sampled_from(["/classify", "/outliers", "/ingest", "/labels", "/model/rollback"])


def assert_polite(response: httpx2.Response) -> None:
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["detail"]


@QUICK
@given(route=ROUTES, document=st.dictionaries(FIELDS, VALUES, max_size=4) | VALUES)
def test_any_json(blank: httpx2.Client, route: str, document: object) -> None:
    content = json.dumps(document).encode()  # which writes integers of any length
    headers = {"Content-Type": "application/json"}
    assert_polite(blank.post(route, content=content, headers=headers))


SIZES = st.integers(0, 3) | st.integers(0, 2**70) | st.sampled_from([2**31, 2**62, 2**63, 2**64])


@QUICK
@given(
    route=ROUTES,
    shape=st.lists(SIZES, max_size=9),
    offsets=st.lists(SIZES, min_size=2, max_size=2) | st.just([0, 0]),
    type_=st.sampled_from(["F32", "U8", "F16", "I64"]),
)
def test_any_shape_that_a_binary_body_claims(
    blank: httpx2.Client, route: str, shape: list[int], offsets: list[int], type_: str
) -> None:
    tensor = {"dtype": type_, "shape": shape, "data_offsets": offsets}
    header = json.dumps({"features": tensor}).encode()
    content = struct.pack("<Q", len(header)) + header
    assert_polite(blank.post(route, content=content, headers={"Content-Type": SAFETENSORS}))


@pytest.mark.parametrize(
    "path",
    [
        "/drift/boundaries/%D9%A1-%D9%A1",
        "/drift/boundaries?since=%D9%A1-%D9%A1",
        "/sample?n=1&shape=99999999999999999999,1",
        "/sample?n=1&shape=" + "9" * 3000 + "," + "9" * 3000,
        "/sample?n=1&shape=%D9%A1,%D9%A1",
        "/drift/history?last=" + "9" * 30,
    ],
)
def test_numbers_that_only_look_like_some(taught: httpx2.Client, path: str) -> None:
    assert_polite(taught.get(path, headers={"Accept": "application/json"}))
    assert_polite(taught.get(path, headers={"Accept": "image/png"}))


@pytest.mark.parametrize("version", [2**63 - 1, 2**63, 2**64, 10**400, -(2**64)])
def test_versions_of_any_length(taught: httpx2.Client, version: int) -> None:
    assert_polite(taught.post("/model/rollback", json={"version": version}))


VALID = pack({"features": samples(3)}, {"batch_id": "x"})


@QUICK
@given(route=ROUTES, position=st.integers(0, len(VALID) - 1), byte=st.integers(0, 255))
def test_any_damage_to_a_binary_body(
    taught: httpx2.Client, route: str, position: int, byte: int
) -> None:
    if route == "/ingest":  # would be learned
        route = "/classify"
    content = VALID[:position] + bytes([byte]) + VALID[position + 1 :]
    headers = {"Content-Type": SAFETENSORS}
    assert_polite(taught.post(route, content=content, headers=headers))
    assert_polite(taught.post(route, content=content[:position], headers=headers))


GETS = st.sampled_from(["/sample", "/drift/boundaries", "/drift/history", "/problems/x", "/model"])
NAMES = st.sampled_from(["n", "classes", "seed", "shape", "since", "last"])
NUMBERS = st.integers(-3, 50).map(str) | st.sampled_from(["1e9", "nan", "-inf", "1,2", "9" * 30])


@QUICK
@given(
    path=GETS,
    query=st.dictionaries(NAMES, NUMBERS | st.text(max_size=8), max_size=4),
    accept=st.sampled_from(["*/*", "image/png", SAFETENSORS, ",;q=", "text/html"]),
)
def test_any_question(taught: httpx2.Client, path: str, query: dict[str, str], accept: str) -> None:
    assert_polite(taught.get(path, params=query, headers={"Accept": accept}))
