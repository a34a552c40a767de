"""Tests for POST /classify."""

from __future__ import annotations

import json

import httpx2
import numpy as np
import pytest

from service.wire import RawBatch, unpack
from tests.service.api.stack import (
    CLASSES,
    N_FEATURES,
    SAFETENSORS,
    labels,
    learned,
    problem,
    samples,
    send,
    serving,
    training,
)


def test_samples_are_named_by_their_labels(taught: httpx2.Client) -> None:
    version = taught.get("/model").json()["model_version"]
    response = taught.post("/classify", json={"features": samples(10, seed=9).tolist()})
    assert response.status_code == 200
    assert response.headers["X-Model-Version"] == str(version)
    answer = response.json()
    assert answer["model_version"] == version
    assert answer["labels"] == labels(10)
    assert answer["classes"] == list(CLASSES)
    assert np.shape(answer["probabilities"]) == (10, 2)
    assert np.allclose(np.sum(answer["probabilities"], axis=1), 1)
    assert len(answer["log_likelihoods"]) == 10
    assert sum(answer["inliers"]) > 5


def test_strange_samples_are_outliers(taught: httpx2.Client) -> None:
    strange = np.random.default_rng(0).random((4, N_FEATURES))
    answer = taught.post("/classify", json={"features": strange.tolist()}).json()
    assert answer["inliers"] == [False] * 4


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_both_forms_of_body_and_answer_say_the_same(taught: httpx2.Client, dtype: type) -> None:
    batch = RawBatch.of(samples(6, seed=3).astype(dtype))
    plain = taught.post("/classify", json={"features": batch.to_float32().tolist()}).json()

    headers = {"Content-Type": SAFETENSORS, "Accept": SAFETENSORS}
    response = taught.post("/classify", content=batch.to_safetensors(), headers=headers)
    assert response.headers["content-type"] == SAFETENSORS
    arrays, metadata = unpack(response.content)
    assert metadata["model_version"] == str(plain["model_version"])
    vocabulary = json.loads(metadata["vocabulary"])
    assert vocabulary == plain["classes"]
    assert [vocabulary[code] for code in arrays["labels"]] == plain["labels"]
    np.testing.assert_allclose(arrays["probabilities"], plain["probabilities"], rtol=1e-5)
    np.testing.assert_allclose(arrays["log_likelihoods"], plain["log_likelihoods"], rtol=1e-5)
    assert arrays["inliers"].tolist() == plain["inliers"]


def test_a_large_request_is_answered_beside_small_ones(taught: httpx2.Client) -> None:
    # Large enough to leave the event loop (service.api.work).
    batch = RawBatch.of(np.repeat(samples(2), 5000, axis=0))
    headers = {"Content-Type": SAFETENSORS}
    answer = taught.post("/classify", content=batch.to_safetensors(), headers=headers).json()
    assert answer["labels"] == [CLASSES[0]] * 5000 + [CLASSES[1]] * 5000


def test_a_wrong_number_of_features_is_refused(taught: httpx2.Client) -> None:
    response = taught.post("/classify", json={"features": [[1.0, 2.0]]})
    document = problem(response, 422, "shape-mismatch")
    assert (document["expected"], document["got"]) == (N_FEATURES, 2)


def test_an_answer_that_the_client_does_not_accept_is_not_given(taught: httpx2.Client) -> None:
    headers = {"Accept": "image/png"}
    response = taught.post("/classify", json={"features": samples(1).tolist()}, headers=headers)
    problem(response, 406, "not-acceptable")


def test_nothing_learned_is_a_conflict(blank: httpx2.Client) -> None:
    response = blank.post("/classify", json={"features": samples(1).tolist()})
    problem(response, 409, "model-not-ready")


def test_without_labels_there_are_outliers_but_no_classes(settings) -> None:
    made = settings()
    with training(made), serving(made) as client:
        for seed in range(3):
            send(client, RawBatch.of(samples(100, seed=seed))).raise_for_status()
        assert learned(client)["classes"] == []
        body = {"features": samples(2).tolist()}
        problem(client.post("/classify", json=body), 409, "model-not-ready")
        assert client.post("/outliers", json=body).status_code == 200
        assert client.get("/sample?n=3").json()["labels"] == [None] * 3


def test_strange_samples_may_be_called_unknown(taught: httpx2.Client) -> None:
    strange = np.random.default_rng(0).random((4, N_FEATURES)).astype(np.float32)
    x = np.concatenate([samples(4, seed=9), strange])
    plain = taught.post("/classify", json={"features": x.tolist()}).json()
    assert (plain["p_values"], plain["unknown"]) == (None, None)
    assert None not in plain["labels"]

    body = {"features": x.tolist(), "unknown_rate": 0.01}
    answer = taught.post("/classify", json=body).json()
    assert answer["unknown"] == [p <= 0.01 for p in answer["p_values"]]
    assert answer["unknown"][4:] == [True] * 4
    assert answer["inliers"] == [not unknown for unknown in answer["unknown"]]
    assert answer["score"] == plain["score"] == "p_value"
    assert answer["calibration"] == plain["calibration"] >= 100
    expected = [
        None if unknown else label
        for label, unknown in zip(plain["labels"], answer["unknown"], strict=True)
    ]
    assert answer["labels"] == expected
    assert answer["probabilities"] == plain["probabilities"]
    again = taught.post("/classify?unknown_rate=0.01", json={"features": x.tolist()}).json()
    assert again == answer

    content = RawBatch.of(x).to_safetensors({"unknown_rate": "0.01"})
    headers = {"Content-Type": SAFETENSORS, "Accept": SAFETENSORS}
    arrays, metadata = unpack(taught.post("/classify", content=content, headers=headers).content)
    assert metadata["score"] == "p_value"
    assert int(metadata["calibration"]) == answer["calibration"]
    assert arrays["unknown"].tolist() == answer["unknown"]
    assert ((arrays["labels"] == -1) == arrays["unknown"]).all()


def test_p_values_come_when_they_are_asked_for(taught: httpx2.Client) -> None:
    x = samples(4, seed=9)
    body = {"features": x.tolist()}
    scores = taught.post("/outliers", json=body).json()["p_values"]
    for answer in (
        taught.post("/classify", json={**body, "p_values": True}),
        taught.post("/classify?p_values=true", json=body),
    ):
        assert (answer.json()["p_values"], answer.json()["unknown"]) == (scores, None)

    headers = {"Content-Type": SAFETENSORS, "Accept": SAFETENSORS}
    for text, names in ("true", {"p_values"}), ("false", set()):
        content = RawBatch.of(x).to_safetensors({"p_values": text})
        arrays, _ = unpack(taught.post("/classify", content=content, headers=headers).content)
        assert set(arrays) & {"p_values", "unknown"} == names

    refused = taught.post("/classify", json={**body, "p_values": "perhaps"})
    assert "p_values" in problem(refused, 422, "invalid-request")["detail"]
