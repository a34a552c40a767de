"""Tests for POST /outliers."""

from __future__ import annotations

import httpx2
import numpy as np
import pytest

from core.density.reach import SHARES
from core.outliers.scales import WHOLE
from service.wire import RawBatch, unpack
from tests.service.api.stack import SAFETENSORS, problem, samples, serving, teach, training

BODY = {"features": samples(50, seed=5).tolist()}


def test_scores_come_with_the_threshold_that_divides_them(taught: httpx2.Client) -> None:
    answer = taught.post("/outliers", json=BODY).json()
    assert answer["model_version"] == taught.get("/model").json()["model_version"]
    assert (answer["score"], answer["threshold"]) == ("p_value", 0.05)
    assert answer["inliers"] == (np.array(answer["p_values"]) > 0.05).tolist()
    assert answer["calibration"] >= 100
    answer = taught.post("/outliers", json={**BODY, "c": 2}).json()
    scores = np.array(answer["log_likelihoods"])
    assert answer["score"] == "log_likelihood"
    assert answer["inliers"] == (scores >= answer["threshold"]).tolist()


def test_each_sample_is_told_the_scale_at_which_it_is_strangest(taught: httpx2.Client) -> None:
    scales = taught.post("/outliers", json=BODY).json()["scales"]
    assert len(scales) == len(BODY["features"])
    assert {type(scale) for scale in scales} == {float}
    assert set(scales) <= {WHOLE, *SHARES}


def test_the_responsible_component_is_named_where_it_is_asked_for(taught: httpx2.Client) -> None:
    plain = taught.post("/outliers", json=BODY).json()
    assert plain["components"] is plain["responsibilities"] is None
    answer = taught.post("/outliers", json={**BODY, "components": True}).json()
    assert answer["log_likelihoods"] == plain["log_likelihoods"]
    components = np.array(answer["components"])
    # Odd rows are the second blob: no component is responsible for samples of both.
    assert not set(components[::2]) & set(components[1::2])
    assert components.max() < taught.get("/model").json()["components"]
    shares = np.array(answer["responsibilities"])
    assert shares.shape == components.shape
    assert ((shares > 0.2) & (shares <= 1)).all()
    headers = {"Content-Type": SAFETENSORS, "Accept": SAFETENSORS}
    content = RawBatch.of(samples(50, seed=5)).to_safetensors()
    response = taught.post("/outliers?components=true", content=content, headers=headers)
    np.testing.assert_array_equal(unpack(response.content)[0]["components"], components)
    problem(taught.post("/outliers?components=perhaps", json=BODY), 422, "invalid-request")


def test_while_nothing_is_calibrated_there_are_no_p_values(settings) -> None:
    with training(made := settings()), serving(made) as client:
        teach(client, batches=2)
        answer = client.post("/outliers", json=BODY).json()
        assert (answer["calibration"], answer["score"]) == (0, "log_likelihood")
        assert [answer[name] for name in ("p_values", "typicality", "scales")] == [None] * 3
        scores = np.array(answer["log_likelihoods"])
        assert answer["inliers"] == (scores >= answer["threshold"]).tolist()
        named = client.post("/classify", json={**BODY, "unknown_rate": 0.1}).json()
        assert (named["calibration"], named["score"]) == (0, "log_likelihood")
        assert (named["p_values"], named["unknown"]) == (None, None)
        assert named["inliers"] == answer["inliers"]
        headers = {"Content-Type": SAFETENSORS, "Accept": SAFETENSORS}
        content = RawBatch.of(samples(2)).to_safetensors()
        response = client.post("/outliers", content=content, headers=headers)
        assert set(unpack(response.content)[0]) == {"log_likelihoods", "inliers"}


def test_whoever_sets_c_and_no_rate_is_answered_by_c(settings) -> None:
    with training(made := settings(outlier_c=2.0)), serving(made) as client:
        teach(client)
        answer = client.post("/outliers", json=BODY).json()
        assert answer["score"] == "log_likelihood"
        assert answer["calibration"] > 0
        assert answer["p_values"] is not None
        again = client.post("/outliers", json={**BODY, "c": 2}).json()
        assert again["threshold"] == answer["threshold"]


def test_a_larger_c_finds_fewer_outliers(taught: httpx2.Client) -> None:
    thresholds = [
        taught.post("/outliers", json={**BODY, "c": c}).json()["threshold"] for c in (0, 1, 2.5)
    ]
    assert thresholds == sorted(thresholds, reverse=True)


def test_c_may_come_in_the_body_as_a_parameter_or_as_metadata(taught: httpx2.Client) -> None:
    wanted = taught.post("/outliers", json={**BODY, "c": 1.5}).json()["threshold"]
    assert taught.post("/outliers?c=1.5", json=BODY).json()["threshold"] == wanted

    content = RawBatch.of(samples(2)).to_safetensors({"c": "1.5"})
    headers = {"Content-Type": SAFETENSORS, "Accept": SAFETENSORS}
    response = taught.post("/outliers", content=content, headers=headers)
    arrays, metadata = unpack(response.content)
    assert float(metadata["threshold"]) == wanted
    assert set(arrays) == {"log_likelihoods", "inliers", "p_values", "typicality", "scales"}
    assert metadata["score"] == "log_likelihood"


@pytest.mark.parametrize(
    ("c", "name"),
    [
        (-1, "out-of-range"),
        (101, "out-of-range"),
        ("x", "invalid-request"),
        (True, "invalid-request"),
    ],
)
def test_a_c_that_makes_no_sense_is_refused(taught: httpx2.Client, c: object, name: str) -> None:
    problem(taught.post("/outliers", json={**BODY, "c": c}), 422, name)


def test_a_c_that_is_no_number_is_refused_as_a_parameter(taught: httpx2.Client) -> None:
    document = problem(taught.post("/outliers?c=two", json=BODY), 422, "invalid-request")
    assert document["errors"][0]["where"] == "query.c"
    problem(taught.post("/outliers?c=nan", json=BODY), 422, "out-of-range")


def test_very_strange_samples_have_finite_or_no_scores(taught: httpx2.Client) -> None:
    answer = taught.post("/outliers", json={"features": [[1e30] * 16]}).json()
    assert answer["inliers"] == [False]
    # JSON knows neither NaN nor infinity: where a score is neither, it is null.
    assert answer["log_likelihoods"][0] is None or answer["log_likelihoods"][0] < -1e6


def test_a_false_positive_rate_may_come_in_the_body_as_a_parameter_or_as_metadata(
    taught: httpx2.Client,
) -> None:
    answer = taught.post("/outliers", json={**BODY, "false_positive_rate": 0.1}).json()
    assert (answer["score"], answer["threshold"]) == ("p_value", 0.1)
    p_values = np.array(answer["p_values"])
    assert answer["inliers"] == (p_values > 0.1).tolist()
    assert np.all((p_values > 0) & (p_values <= 1))
    assert len(answer["typicality"]) == len(p_values)
    again = taught.post("/outliers?false_positive_rate=0.1", json=BODY).json()
    assert again == answer

    content = RawBatch.of(samples(2)).to_safetensors({"false_positive_rate": "0.1"})
    headers = {"Content-Type": SAFETENSORS, "Accept": SAFETENSORS}
    arrays, metadata = unpack(taught.post("/outliers", content=content, headers=headers).content)
    assert (metadata["score"], float(metadata["threshold"])) == ("p_value", 0.1)
    assert int(metadata["calibration"]) == answer["calibration"]
    assert set(arrays) == {"log_likelihoods", "inliers", "p_values", "typicality", "scales"}


@pytest.mark.parametrize("rate", [0, 1, 1.5, "x", True])
def test_a_rate_that_makes_no_sense_is_refused(taught: httpx2.Client, rate: object) -> None:
    for path, name in (("/outliers", "false_positive_rate"), ("/classify", "unknown_rate")):
        problem(taught.post(path, json={**BODY, name: rate}), 422, "invalid-request")


def test_a_rate_and_a_c_at_once_are_refused(taught: httpx2.Client) -> None:
    body = {**BODY, "c": 1, "false_positive_rate": 0.1}
    document = problem(taught.post("/outliers", json=body), 422, "invalid-request")
    assert "Leave one of them out" in document["detail"]
