"""Tests for /v2, the Open Inference Protocol, by a client written after its specification.

Where `tritonclient[http]` is installed, that client asks too.
"""

from __future__ import annotations

import contextlib
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from core.errors import GMRError, ShapeMismatch
from service.settings import Settings
from service.wire import Limits
from service.wire.inference import MAX_JSON_BYTES, parse_inference
from tests.service.api.stack import (
    N_FEATURES,
    SIDE,
    labels,
    samples,
    serving,
    teach,
    training,
    wait_until,
)

OCTETS = "application/octet-stream"
LENGTH = "Inference-Header-Content-Length"


@pytest.fixture(scope="module")
def name(taught: httpx2.Client) -> str:
    """The name of the taught model, which has no new version any more."""
    seen = [taught.get("/model").json()["model_version"]]

    def settled() -> bool:
        time.sleep(0.1)
        seen.append(taught.get("/model").json()["model_version"])
        return len(seen) > 6 and len(set(seen[-6:])) == 1

    wait_until(settled)
    return str(taught.get("/model").json()["name"])


def tensor(features: np.ndarray, datatype: str = "FP32", **more: Any) -> dict[str, Any]:
    return {"name": "features", "shape": list(features.shape), "datatype": datatype, **more}


def ask(client: httpx2.Client, name: str, document: object, **options: Any) -> httpx2.Response:
    return client.post(f"/v2/models/{name}/infer", json=document, **options)


def binary(features: np.ndarray, datatype: str, **document: Any) -> tuple[bytes, dict[str, str]]:
    """A request with its tensor behind the JSON, as the binary extension has it."""
    raw = features.tobytes()
    described = tensor(features, datatype, parameters={"binary_data_size": len(raw)})
    head = json.dumps({"inputs": [described], **document}).encode()
    return head + raw, {LENGTH: str(len(head)), "Content-Type": OCTETS}


def outputs(response: httpx2.Response) -> dict[str, np.ndarray]:
    """The tensors of an answer, JSON or binary, read as the specification says."""
    assert response.status_code == 200, response.text
    head, rest = response.content, b""
    if LENGTH in response.headers:
        assert response.headers["content-type"] == OCTETS
        n = int(response.headers[LENGTH])
        head, rest = head[:n], head[n:]
    found = {}
    for one in json.loads(head)["outputs"]:
        if "parameters" not in one:
            values = one["data"]
        else:
            n = one["parameters"]["binary_data_size"]
            raw, rest = rest[:n], rest[n:]
            if one["datatype"] == "BYTES":
                values = []
                while raw:
                    end = 4 + int.from_bytes(raw[:4], "little")
                    values.append(raw[4:end].decode())
                    raw = raw[end:]
            else:
                dtype = {"FP32": "<f4", "FP64": "<f8", "BOOL": "?"}[one["datatype"]]
                values = np.frombuffer(raw, dtype)
        found[one["name"]] = np.array(values).reshape(one["shape"])
    assert rest == b""
    return found


def test_the_answer_is_that_of_classify(taught: httpx2.Client, name: str) -> None:
    features = samples(8, seed=5)
    rows = {"features": features.tolist(), "p_values": True}
    plain = taught.post("/classify", json=rows).json()
    request = {
        "id": "mine",
        "parameters": {"p_values": True},
        "inputs": [tensor(features, data=features.ravel().tolist())],
    }
    response = ask(taught, name, request)
    answer = response.json()
    assert answer["model_name"] == name
    assert answer["id"] == "mine"
    assert answer["model_version"] == response.headers["X-Model-Version"]
    assert answer["model_version"] == str(plain["model_version"])
    assert answer["parameters"]["calibration"] == plain["calibration"]
    found = outputs(response)
    assert list(found) == [
        "label", "probabilities", "classes", "log_likelihood", "inlier", "p_value"
    ]  # fmt: skip
    assert found["label"].tolist() == [str(label) for label in labels(8)]
    assert found["classes"].tolist() == [str(label) for label in plain["classes"]]
    assert np.allclose(found["probabilities"], plain["probabilities"])
    assert np.allclose(found["log_likelihood"], plain["log_likelihoods"])
    assert found["inlier"].tolist() == plain["inliers"]
    assert np.allclose(found["p_value"], plain["p_values"])


@pytest.mark.parametrize(
    ("datatype", "dtype"),
    [("FP32", "<f4"), ("FP64", "<f8"), ("FP16", "<f2"), ("INT64", "<i8")],
)
def test_binary_tensors_say_the_same(
    taught: httpx2.Client, name: str, datatype: str, dtype: str
) -> None:
    features = np.round(samples(6, seed=3), 0 if dtype[-2] in "iu" else 3).astype(dtype)
    plain = taught.post("/classify", json={"features": features.tolist()}).json()
    body, headers = binary(features, datatype, parameters={"binary_data_output": True})
    found = outputs(taught.post(f"/v2/models/{name}/infer", content=body, headers=headers))
    assert found["label"].tolist() == [str(label) for label in plain["labels"]]
    assert np.allclose(found["log_likelihood"], plain["log_likelihoods"], rtol=1e-4)
    assert np.allclose(found["probabilities"], plain["probabilities"], atol=1e-4)


def test_rows_may_be_nested_and_images_may_be_images(taught: httpx2.Client, name: str) -> None:
    features = samples(4, seed=1)
    flat = ask(taught, name, {"inputs": [tensor(features, data=features.ravel().tolist())]})
    nested = ask(taught, name, {"inputs": [tensor(features, data=features.tolist())]})
    images = features.reshape(4, SIDE, SIDE)
    pictures = ask(taught, name, {"inputs": [tensor(images, data=images.tolist())]})
    assert flat.json()["outputs"] == nested.json()["outputs"] == pictures.json()["outputs"]


def test_outputs_come_as_they_were_asked_for(taught: httpx2.Client, name: str) -> None:
    features = samples(4, seed=1)
    request = {
        "inputs": [tensor(features, data=features.tolist())],
        "outputs": [
            {"name": "log_likelihood", "parameters": {"binary_data": True}},
            {"name": "label"},
        ],
    }
    response = ask(taught, name, request)
    found = outputs(response)
    assert list(found) == ["log_likelihood", "label"]
    described = json.loads(response.content[: int(response.headers[LENGTH])])["outputs"]
    assert described[0]["parameters"] == {"binary_data_size": 32}
    assert described[1]["data"] == [str(label) for label in labels(4)]


def test_outliers_can_be_scored_alone(taught: httpx2.Client, name: str) -> None:
    features = np.concatenate([samples(2), np.random.default_rng(0).random((2, N_FEATURES))])
    plain = taught.post("/outliers", json={"features": features.tolist()}).json()
    wanted = [{"name": "inlier"}, {"name": "p_value"}, {"name": "log_likelihood"}]
    request = {"inputs": [tensor(features, data=features.tolist())], "outputs": wanted}
    found = outputs(ask(taught, name, request))
    assert found["inlier"].tolist() == plain["inliers"]
    assert np.allclose(found["p_value"], plain["p_values"])
    assert not found["inlier"][2:].any()


def test_what_is_unknown_has_no_label(taught: httpx2.Client, name: str) -> None:
    strange = np.random.default_rng(0).random((3, N_FEATURES))
    features = np.concatenate([samples(6, seed=8), strange])
    rows = {"features": features.tolist(), "unknown_rate": 0.05}
    plain = taught.post("/classify", json=rows).json()
    request = {
        "inputs": [tensor(features, data=features.tolist())],
        "parameters": {"unknown_rate": 0.05},
    }
    found = outputs(ask(taught, name, request))
    assert found["unknown"].tolist() == plain["unknown"]
    assert found["label"].tolist() == [
        "" if label is None else str(label) for label in plain["labels"]
    ]
    assert found["label"][-3:].tolist() == ["", "", ""]
    assert found["label"][:6].tolist() != [""] * 6


def test_the_model_describes_itself(taught: httpx2.Client, name: str) -> None:
    about = taught.get("/v2").json()
    assert about["name"] == "gmr-stream"
    assert about["extensions"] == ["binary_tensor_data"]
    assert taught.get("/v2/health/live").json() == {"live": True}
    assert taught.get("/v2/health/ready").json() == {"ready": True}
    described = taught.get(f"/v2/models/{name}").json()
    assert described["inputs"] == [
        {"name": "features", "datatype": "FP32", "shape": [-1, N_FEATURES]}
    ]
    shapes = {one["name"]: (one["datatype"], one["shape"]) for one in described["outputs"]}
    assert shapes["probabilities"] == ("FP32", [-1, 2])
    assert shapes["label"] == ("BYTES", [-1])
    assert taught.get(f"/v2/models/{name}/ready").json() == {"name": name, "ready": True}


def test_the_version_that_is_served_answers_by_its_number(taught: httpx2.Client, name: str) -> None:
    request = {"inputs": [tensor(samples(1), data=samples(1).tolist())]}

    def asked() -> list[httpx2.Response] | None:
        [version] = taught.get(f"/v2/models/{name}").json()["versions"]
        path = f"/v2/models/{name}/versions/{version}"
        answers = [
            taught.get(path),
            taught.get(f"{path}/ready"),
            taught.post(f"{path}/infer", json=request),
        ]
        # (A stream that has just become quiet has one more version.)
        return answers if all(one.json().get("error") is None for one in answers) else None

    described, ready, inferred = wait_until(asked)
    assert described.json()["versions"] == [inferred.json()["model_version"]]
    assert ready.json() == {"name": name, "ready": True}


def refused(response: httpx2.Response, status: int) -> str:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    document = response.json()
    assert list(document) == ["error"]
    return str(document["error"])


def test_another_model_or_version_is_not_there(taught: httpx2.Client, name: str) -> None:
    request = {"inputs": [tensor(samples(1), data=samples(1).tolist())]}
    for path in ("/v2/models/other", "/v2/models/other/ready"):
        assert "'other'" in refused(taught.get(path), 404)
    assert "'other'" in refused(ask(taught, "other", request), 404)
    path = f"/v2/models/{name}/versions/999999"
    for response in (
        taught.get(path),
        taught.get(f"{path}/ready"),
        taught.post(f"{path}/infer", json=request),
    ):
        assert "Version '999999' is not served" in refused(response, 404)
    assert "No route has this path" in refused(taught.get("/v2/repository"), 404)


ROW = [0.5] * N_FEATURES


@pytest.mark.parametrize(
    ("changes", "status", "message"),
    [
        ({"inputs": []}, 422, "`inputs` has 0 tensors"),
        ({"inputs": [{"name": "x"}]}, 422, "datatype"),
        ({"datatype": "BYTES"}, 422, "expected one of FP64"),
        ({"shape": [1]}, 422, "two to four positive integers"),
        ({"shape": [2, N_FEATURES]}, 422, "`shape` says [2, 16]"),
        ({"shape": [1, 0]}, 422, "positive integers"),
        ({"data": None}, 422, "is missing"),
        ({"data": [ROW, [1.0]]}, 422, "different lengths"),
        ({"data": ["a"] * N_FEATURES}, 422, "no number"),
        ({"data": [True, *ROW[1:]]}, 422, "no number"),
        ({"data": [[ROW[0]], 1.0]}, 422, "no number"),
        ({"data": [[1e39, *ROW[1:]]]}, 422, "row 0, column 0 is inf"),
        ({"datatype": "INT8"}, 422, "no int8"),
        ({"datatype": "INT64", "data": [2**63, -1, *[0] * (N_FEATURES - 2)]}, 422, "no int64"),
        ({"datatype": "UINT64", "data": [2.0**64, *[0] * (N_FEATURES - 1)]}, 422, "no uint64"),
        ({"shape": [1, 2], "data": [1.0, 2.0]}, 422, "16"),
        ({"outputs": [{"name": "mood"}]}, 422, "no output 'mood'"),
        ({"outputs": [{"name": "unknown"}]}, 422, "needs the parameter `unknown_rate`"),
        ({"outputs": [{"name": "label"}, {"name": "label"}]}, 422, "came before"),
        ({"outputs": [{"name": "label", "parameters": {"classification": 3}}]}, 422, "extension"),
        ({"parameters": {"p_value": True}}, 422, "parameter 'p_value'"),
        ({"parameters": {"unknown_rate": 2}}, 422, "rate"),
        ({"input": []}, 422, "field 'input'"),
        ({"id": 7}, 422, "`id` is no string"),
    ],
)
def test_what_cannot_be_answered_says_why(
    taught: httpx2.Client, name: str, changes: dict[str, Any], status: int, message: str
) -> None:
    whole = {"id", "inputs", "input", "outputs", "parameters"}
    one = {
        **tensor(np.array([ROW]), data=[ROW]),
        **{key: value for key, value in changes.items() if key not in whole},
    }
    request = {"inputs": [one], **{k: v for k, v in changes.items() if k in whole}}
    assert message in refused(ask(taught, name, request), status)


def test_parameters_of_other_servers_are_no_mistake(taught: httpx2.Client, name: str) -> None:
    one = tensor(np.array([ROW]), data=[ROW], parameters={"content_type": "np"})
    request = {"inputs": [one], "parameters": {"content_type": "np", "priority": 1}}
    assert ask(taught, name, request).status_code == 200


def test_bytes_that_do_not_fit_are_refused(taught: httpx2.Client, name: str) -> None:
    path = f"/v2/models/{name}/infer"
    body, headers = binary(samples(2), "FP32")
    for content, length, message in (
        (body[:-1], headers[LENGTH], "bytes follow the JSON"),
        (body, "3", "no JSON"),
        (body, str(len(body) + 1), "the body has"),
        (body, "-1", "is no number"),
    ):
        answer = taught.post(path, content=content, headers={**headers, LENGTH: length})
        assert message in refused(answer, 422)
    plain = json.dumps({"inputs": [tensor(samples(1), data=samples(1).tolist())]}).encode()
    answer = taught.post(path, content=plain + b"x", headers={**headers, LENGTH: str(len(plain))})
    assert "no input has the parameter binary_data_size" in refused(answer, 422)
    huge = b" " * (MAX_JSON_BYTES + 1)
    answer = taught.post(path, content=huge, headers={"Content-Type": "application/json"})
    assert "Send tensors as binary data" in refused(answer, 422)
    assert "text/csv" in refused(
        taught.post(path, content=b"1", headers={"Content-Type": "text/csv"}), 415
    )


def test_text_among_the_numbers_takes_no_room() -> None:
    """numpy would give each text as much as the longest has."""
    one = tensor(np.zeros((1, 401)), data=["x" * 100_000, *[""] * 400])
    body = json.dumps({"inputs": [one]}).encode()
    tracemalloc.start()
    try:
        with pytest.raises(ShapeMismatch, match="no number"):
            parse_inference(body, None, Limits(100, 1000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000  # and not 160 million


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["FP32", "x"])
LISTS = st.lists(SCALARS | st.lists(SCALARS, max_size=3), max_size=4)
TENSORS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "name": SCALARS,
            "shape": LISTS,
            "datatype": st.sampled_from(["FP32", "INT8", "UINT64", "BYTES"]) | SCALARS,
            "data": LISTS | SCALARS,
            "parameters": st.fixed_dictionaries({"binary_data_size": SCALARS}) | LISTS,
        },
    ),
    max_size=2,
)
VALUES = SCALARS | LISTS | TENSORS


@settings_of_hypothesis(max_examples=300, deadline=None)
@given(
    document=st.dictionaries(st.sampled_from(["inputs", "outputs", "id", "parameters"]), VALUES)
    | VALUES,
    tail=st.binary(max_size=9),
    length=st.none() | st.integers(0, 99),
)
def test_whatever_comes_is_read_or_refused(
    document: object, tail: bytes, length: int | None
) -> None:
    body = json.dumps(document).encode()
    with contextlib.suppress(GMRError):
        parse_inference(body + tail, len(body) if length is None else length, Limits(100, 100))


def test_before_anything_was_learned_sizes_are_open(blank: httpx2.Client) -> None:
    model = blank.get("/model").json()["name"]
    described = blank.get(f"/v2/models/{model}").json()
    assert described["versions"] == []
    assert described["inputs"][0]["shape"] == [-1, -1]
    assert "Nothing has been learned yet" in refused(blank.get(f"/v2/models/{model}/ready"), 409)
    refused(blank.get("/v2/health/ready"), 503)  # no trainer


def test_named_models_are_asked_by_their_names(settings: Callable[..., Settings]) -> None:
    chosen = settings()
    with training(chosen), serving(chosen) as client:
        client.put("/models/line-7", json={}).raise_for_status()
        rows = {"features": samples(60).tolist(), "labels": labels(60)}
        client.post("/models/line-7/ingest", json=rows).raise_for_status()

        def learned() -> bool:
            return client.get("/v2/models/line-7/ready").status_code == 200

        wait_until(learned)
        request = {"inputs": [tensor(samples(4), data=samples(4).tolist())]}
        found = outputs(ask(client, "line-7", request))
        assert found["label"].tolist() == [str(label) for label in labels(4)]
        within = client.post("/models/line-7/v2/models/line-7/infer", json=request)
        assert outputs(within)["label"].tolist() == found["label"].tolist()
        refused(client.get(f"/v2/models/{chosen.model}/ready"), 409)
        refused(client.get(f"/models/line-7/v2/models/{chosen.model}"), 404)


def test_without_labels_samples_can_be_scored(settings: Callable[..., Settings]) -> None:
    chosen = settings()
    with training(chosen), serving(chosen) as client:
        teach_unlabelled(client)
        request = {"inputs": [tensor(samples(2), data=samples(2).tolist())]}
        found = outputs(ask(client, chosen.model, request))
        assert list(found) == ["log_likelihood", "inlier"]
        request["outputs"] = [{"name": "label"}]
        assert "knows no class" in refused(ask(client, chosen.model, request), 409)
        request["outputs"] = [{"name": "p_value"}]
        if client.get("/model").json()["samples_seen"] < 60:
            assert "needs p-values" in refused(ask(client, chosen.model, request), 409)


def teach_unlabelled(client: httpx2.Client) -> None:
    client.post("/ingest", json={"features": samples(40).tolist()}).raise_for_status()
    teach(client, batches=0)


def test_triton_s_own_client_understands(taught: httpx2.Client, name: str) -> None:
    http = pytest.importorskip("tritonclient.http", reason="tritonclient[http] is not installed")
    features = samples(5, seed=2)
    client = http.InferenceServerClient(taught.base_url.netloc.decode())
    try:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready(name)
        assert client.get_server_metadata()["name"] == "gmr-stream"
        assert client.get_model_metadata(name)["inputs"][0]["name"] == "features"
        sent = http.InferInput("features", features.shape, "FP32")
        for as_binary in (True, False):
            sent.set_data_from_numpy(features, binary_data=as_binary)
            wanted = [
                http.InferRequestedOutput(one, binary_data=as_binary)
                for one in ("label", "probabilities", "inlier")
            ]
            for asked in (None, wanted):
                answer = client.infer(name, [sent], outputs=asked, request_id="7")
                named = [one.decode() if isinstance(one, bytes) else one
                         for one in answer.as_numpy("label").tolist()]  # fmt: skip
                assert named == [str(label) for label in labels(5)]
                assert answer.as_numpy("probabilities").shape == (5, 2)
                assert answer.as_numpy("inlier").dtype == bool
                assert answer.get_response()["id"] == "7"
        with pytest.raises(Exception, match="'other'"):
            client.infer("other", [sent])
    finally:
        client.close()
