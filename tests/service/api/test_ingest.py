"""Tests for POST /ingest."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator

import httpx2
import numpy as np
import pytest

from service.settings import Settings
from service.wire import RawBatch, pack
from tests.service.api.stack import (
    N_FEATURES,
    SAFETENSORS,
    labels,
    problem,
    samples,
    send,
    serving,
)

JSON_BATCH = {"features": samples(3).tolist(), "labels": [3, "cat", None]}


def test_a_json_batch_is_accepted(api: httpx2.Client) -> None:
    response = api.post("/ingest", json={**JSON_BATCH, "batch_id": "a"})
    assert response.status_code == 202
    answer = response.json()
    assert answer["batch_id"] == "a"
    assert answer["samples"] == 3
    assert answer["backlog"] == 1
    assert answer["duplicate"] is False
    milliseconds, sequence = answer["entry_id"].split("-")
    assert milliseconds.isdigit()
    assert sequence.isdigit()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint8])
def test_a_binary_batch_is_accepted(api: httpx2.Client, dtype: type) -> None:
    features = (samples(5) * 255 if dtype is np.uint8 else samples(5)).astype(dtype)
    answer = send(api, RawBatch.of(features, labels(5), "b")).json()
    assert (answer["batch_id"], answer["samples"]) == ("b", 5)


def test_unlabelled_batches_need_no_labels(api: httpx2.Client) -> None:
    assert api.post("/ingest", json={"features": samples(2).tolist()}).status_code == 202


def test_a_batch_without_an_id_gets_one_of_its_own(api: httpx2.Client) -> None:
    first, second = (api.post("/ingest", json=JSON_BATCH).json() for _ in range(2))
    assert first["batch_id"] != second["batch_id"]
    assert second["backlog"] == 2


@pytest.mark.parametrize(
    ("params", "headers"), [({"batch_id": "x"}, {}), ({}, {"Idempotency-Key": "x"})]
)
def test_the_batch_id_may_come_as_parameter_or_header(
    api: httpx2.Client, params: dict[str, str], headers: dict[str, str]
) -> None:
    answer = api.post("/ingest", json=JSON_BATCH, params=params, headers=headers).json()
    assert answer["batch_id"] == "x"


def test_two_ids_for_one_batch_are_refused(blank: httpx2.Client) -> None:
    response = blank.post("/ingest", json={**JSON_BATCH, "batch_id": "a"}, params={"batch_id": "b"})
    problem(response, 422, "invalid-batch")


@pytest.mark.parametrize("batch_id", ["", "x" * 201, "tab\tbed"])
def test_an_unusable_id_is_refused_wherever_it_comes_from(
    blank: httpx2.Client, batch_id: str
) -> None:
    problem(blank.post("/ingest", json={**JSON_BATCH, "batch_id": batch_id}), 422, "invalid-batch")
    response = blank.post("/ingest", json=JSON_BATCH, params={"batch_id": batch_id})
    problem(response, 422, "invalid-batch")


def test_the_same_batch_again_is_accepted_once(api: httpx2.Client) -> None:
    batch = RawBatch.of(samples(4), labels(4), "same")
    first, second = send(api, batch), send(api, batch)
    assert (first.status_code, second.status_code) == (202, 200)
    assert second.json() == {**first.json(), "duplicate": True}
    assert api.get("/model").json()["backlog"] == 1


def test_the_same_id_for_another_batch_is_a_conflict(api: httpx2.Client) -> None:
    first = send(api, RawBatch.of(samples(4), batch_id="twice")).json()
    response = send(api, RawBatch.of(samples(4, seed=1), batch_id="twice"))
    document = problem(response, 409, "batch-conflict")
    assert document["entry_id"] == first["entry_id"]


def test_the_first_batch_fixes_the_number_of_features(api: httpx2.Client) -> None:
    assert api.get("/model").json()["features"] is None
    send(api, RawBatch.of(samples(4)))
    assert api.get("/model").json()["features"] == N_FEATURES
    document = problem(send(api, RawBatch.of(samples(4)[:, :9])), 422, "shape-mismatch")
    assert (document["expected"], document["got"]) == (N_FEATURES, 9)


NAN_BATCH = samples(3).copy()
NAN_BATCH[1, 7] = np.nan
BODY = "application/json"


@pytest.mark.parametrize(
    ("content", "media_type", "name", "numbers"),
    [
        (b"{", BODY, "invalid-batch", {}),
        (b"[1, 2]", BODY, "invalid-batch", {}),
        (b'{"labels": [1]}', BODY, "shape-mismatch", {}),
        (b'{"features": []}', BODY, "shape-mismatch", {}),
        (b'{"features": [[1.0, NaN]]}', BODY, "non-finite-feature", {"row": 0, "column": 1}),
        (b'{"features": [[1.0, 1e999]]}', BODY, "non-finite-feature", {"row": 0, "column": 1}),
        (b'{"features": [[1.0, 1e60]]}', BODY, "non-finite-feature", {"row": 0, "column": 1}),
        (b'{"features": [[1.0, 2.0], [3.0]]}', BODY, "shape-mismatch", {"row": 1}),
        (b'{"features": [[1.0, "2"]]}', BODY, "shape-mismatch", {"row": 0, "column": 1}),
        (b'{"features": [[1.0]], "labels": [1, 2]}', BODY, "invalid-labels", {"labels": 2}),
        (b'{"features": [[1.0]], "labels": [1.5]}', BODY, "invalid-labels", {"position": 0}),
        (b'{"features": [[1.0]], "labels": [""]}', BODY, "invalid-labels", {"position": 0}),
        (b'{"features": [[1.0]], "label": [1]}', BODY, "invalid-batch", {}),
        (b"not safetensors", SAFETENSORS, "invalid-batch", {}),
        (
            pack({"features": NAN_BATCH}),
            SAFETENSORS,
            "non-finite-feature",
            {"row": 1, "column": 7},
        ),
        (
            pack({"features": samples(3), "labels": np.zeros(2, np.int64)}),
            SAFETENSORS,
            "invalid-labels",
            {"samples": 3, "labels": 2},
        ),
    ],
)
def test_what_is_wrong_with_a_body_is_said_with_its_position(
    blank: httpx2.Client,
    content: bytes,
    media_type: str,
    name: str,
    numbers: dict[str, int],
) -> None:
    response = blank.post("/ingest", content=content, headers={"Content-Type": media_type})
    document = problem(response, 422, name)
    assert {key: document[key] for key in numbers} == numbers
    assert blank.get("/model").json()["backlog"] == 0


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_other_media_types_are_refused(blank: httpx2.Client, media_type: str) -> None:
    response = blank.post("/ingest", content=b"{}", headers={"Content-Type": media_type})
    document = problem(response, 415, "unsupported-media-type")
    assert document["supported"] == ["application/json", SAFETENSORS]


def test_compressed_bodies_are_refused(blank: httpx2.Client) -> None:
    content = gzip.compress(json.dumps(JSON_BATCH).encode())
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    problem(blank.post("/ingest", content=content, headers=headers), 415, "unsupported-media-type")


@pytest.fixture
def narrow(settings: Callable[..., Settings]) -> Iterator[httpx2.Client]:
    """A service with small limits."""
    limits = {"max_body_bytes": 4096, "max_samples": 5, "max_features": 20, "max_backlog": 3}
    with serving(settings(**limits)) as client:
        yield client


def test_a_body_that_says_it_is_too_large_is_not_read(narrow: httpx2.Client) -> None:
    headers = {"Content-Type": SAFETENSORS}
    document = problem(
        narrow.post("/ingest", content=bytes(5000), headers=headers), 413, "body-too-large"
    )
    assert (document["limit"], document["got"]) == (4096, 5000)


def test_a_body_of_unknown_length_is_cut_off_at_the_limit(narrow: httpx2.Client) -> None:
    chunks = (bytes(1000) for _ in range(100))
    response = narrow.post("/ingest", content=chunks, headers={"Content-Type": SAFETENSORS})
    document = problem(response, 413, "body-too-large")
    assert document["limit"] == 4096
    # The connection is not left with the rest of that body.
    assert narrow.get("/health/live").status_code == 200


def test_too_many_samples_or_features_are_refused(narrow: httpx2.Client) -> None:
    document = problem(send(narrow, RawBatch.of(samples(6))), 422, "invalid-batch")
    assert (document["samples"], document["max_samples"]) == (6, 5)
    wide = RawBatch.of(np.zeros((1, 21), np.float32))
    document = problem(send(narrow, wide), 422, "shape-mismatch")
    assert (document["features"], document["max_features"]) == (21, 20)


def test_a_full_backlog_asks_the_sender_to_wait(narrow: httpx2.Client) -> None:
    batches = [RawBatch.of(samples(2, seed=i), batch_id=str(i)) for i in range(4)]
    answers = [send(narrow, batch) for batch in batches]
    assert [answer.status_code for answer in answers] == [202, 202, 202, 429]
    document = problem(answers[3], 429, "backlog-full")
    assert document["max_backlog"] == 3
    assert int(answers[3].headers["Retry-After"]) >= 1
    # What was accepted before stays accepted.
    assert send(narrow, batches[0]).status_code == 200
    assert narrow.get("/model").json()["backlog"] == 3


def test_accepted_and_refused_batches_are_counted(api: httpx2.Client) -> None:
    send(api, RawBatch.of(samples(7), batch_id="a"))
    send(api, RawBatch.of(samples(7), batch_id="a"))
    api.post("/ingest", json={"features": [[1], [2, 3]]})
    text = api.get("/metrics").text
    assert "gmr_samples_ingested_total 7.0" in text
    assert "gmr_batches_ingested_total 1.0" in text
    assert 'gmr_batches_rejected_total{reason="shape_mismatch"} 1.0' in text
