"""Tests for clients.http.client and the parts that it is made of.

Against a scripted server where the service has to misbehave; the service itself is
met in tests/integration/test_client.py.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator
from typing import Any

import httpx2
import numpy as np
import pandas as pd
import pytest

from clients.http import calls, errors
from clients.http.answers import ClassHeld, ServiceEvent, SubTaskHeld
from clients.http.async_client import AsyncGMRClient
from clients.http.client import GMRClient
from clients.http.errors import (
    InputError,
    NotAuthorised,
    NotLearnedYet,
    RequestConflict,
    RequestRefused,
    ServiceBusy,
    ServiceError,
    ServiceFailed,
    ServiceUnavailable,
    ServiceUnreachable,
    UnexpectedAnswer,
    WaitTimeout,
)
from clients.http.retry import RetryPolicy
from core.errors import GMRError, InvalidBatch, InvalidLabels, InvalidRequest, NonFiniteFeature
from service.wire import Limits, pack, parse_labels, parse_safetensors, unpack
from tests.clients.scripted import ScriptedServer, answer, events, problem

X = np.arange(6, dtype=np.float32).reshape(3, 2)
INGESTED = {"entry_id": "1-1", "batch_id": "b", "samples": 3, "backlog": 1, "duplicate": False}
BINARY = "application/vnd.safetensors"
DRIFT = {
    "sub_task": 0,
    "boundaries": 0,
    "armed": False,
    "detector": "sequential",
    "inlier_rate": None,
    "inlier_rate_mean": None,
    "statistic": 0.0,
    "threshold": 15.6,
    "samples_since_boundary": 0,
    "batches_since_boundary": 0,
}

# Quick, so that tests are; what is tested is whether it tries again.
EAGER = RetryPolicy(total_s=5, first_s=0.001, longest_s=0.002)


def mocked(handler: Any) -> GMRClient:
    """A client whose requests go to a function."""
    return GMRClient(transport=httpx2.MockTransport(handler), retry=EAGER)


def replying(status: int, **options: Any) -> GMRClient:
    """A client of a service that always gives one answer."""
    return mocked(lambda request: httpx2.Response(status, **options))


# Requests


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (pd.Series(["a", None, "b"]), ["a", None, "b"]),
        (pd.Series(["a", np.nan, "b"], dtype="string"), ["a", None, "b"]),
        (pd.Series(["a", np.nan, "b"]).astype("category"), ["a", None, "b"]),
        (pd.Series([3, None, 4]), [3, None, 4]),  # which pandas makes floats
        (pd.Series([3, None, 4], dtype="Int64"), [3, None, 4]),
        (np.array([3, np.nan, 4], dtype=np.float32), [3, None, 4]),
        (pd.Index(["a", "b", "c"]), ["a", "b", "c"]),
        (pd.Series([3, 5, 4], index=[7, 8, 9]), [3, 5, 4]),
        (pd.RangeIndex(3), [0, 1, 2]),
        (["a", float("nan"), pd.NA], ["a", None, None]),
        (("a", pd.NaT, np.float64("nan")), ["a", None, None]),
    ],
)
def test_labels_and_ids_may_be_columns_with_gaps(given: Any, sent: list[int | str | None]) -> None:
    batch = parse_safetensors(calls.ingest(X, given, "b", given).body, Limits(10, 10))
    assert batch.labels == sent
    assert list(batch.sample_ids or ()) == sent
    if None not in sent:
        assert calls.label(given, given, "b").body == calls.label(sent, sent, "b").body
    else:
        with pytest.raises(InvalidLabels, match="Position 1 has no"):
            calls.label(["a", "b", "c"], given, "b")


@pytest.mark.parametrize("labels", [pd.Series([0.5, 1, 2]), [1.0, 2.0, 3.0], [np.inf, 1, 2]])
def test_fractions_are_no_labels(labels: Any) -> None:
    with pytest.raises(InvalidLabels, match="expected an integer, a string or null"):
        calls.ingest(X, labels, "b")


def test_uint8_stays_uint8_on_the_wire_and_float64_becomes_float32() -> None:
    for given, sent in [("uint8", "uint8"), ("float16", "float16"), ("float64", "float32")]:
        call = calls.ingest(X.astype(given), None, None)
        assert call.body is not None
        tensors, _ = unpack(call.body)
        assert tensors["features"].dtype == sent
        assert tensors["features"].tolist() == X.tolist()


def test_labels_of_any_kind_reach_the_service_as_they_are() -> None:
    for labels in ([1, 2, 1], ["cat", None, 7], np.array([3, 3, 4], dtype=np.uint8)):
        call = calls.ingest(X, labels, None)
        assert call.body is not None
        batch = parse_safetensors(call.body, Limits(10, 10))
        assert batch.codes is not None
        received = [batch.vocabulary[code] if code >= 0 else None for code in batch.codes.tolist()]
        assert received == list(labels)


def test_ids_of_samples_reach_the_service_as_they_are() -> None:
    for ids in ([1, 2, 3], ["a", None, 7], np.array([3, 4, 5])):
        call = calls.ingest(X, None, None, ids)
        assert call.body is not None
        assert parse_safetensors(call.body, Limits(10, 10)).sample_ids == tuple(ids)


def test_labels_that_come_later_carry_an_id_and_may_be_sent_again() -> None:
    for call in (
        calls.label(np.array([1, 2]), np.array([3, 4]), None),
        calls.name_proposal(7, None, None),
    ):
        assert call.body is not None
        request = parse_labels(call.body, Limits(10, 10))
        assert request.batch_id
        assert call.repeatable
    with pytest.raises(InvalidLabels, match="Position 1 has no label"):
        calls.label([1, 2], ["a", None], None)
    with pytest.raises(InvalidBatch, match="names a second"):
        calls.label([1, 1], ["a", "b"], None)
    with pytest.raises(InvalidRequest, match="expected the number of an open proposal"):
        calls.name_proposal(-1, "a", None)


def test_every_batch_has_an_id_before_it_is_sent() -> None:
    ids = set()
    for _ in range(3):
        body = calls.ingest(X, None, None).body
        assert body is not None
        ids.add(unpack(body)[1]["batch_id"])
    assert len(ids) == 3
    named = calls.ingest(X, None, "mine").body
    assert named is not None
    assert unpack(named)[1]["batch_id"] == "mine"


def test_what_the_service_would_refuse_is_refused_before_it_is_sent() -> None:
    with replying(500) as client:
        with pytest.raises(NonFiniteFeature, match="row 1, column 0"):
            client.ingest([[1.0], [np.nan]])
        with pytest.raises(InvalidLabels, match="3 samples came with 2 labels"):
            client.ingest(X, [1, 2])


def test_classes_are_named_one_by_one_so_that_a_comma_stays_part_of_a_name() -> None:
    seen = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.url.params.multi_items())
        return httpx2.Response(200, content=b"png")

    with mocked(handler) as client:
        client.sample_image(2, ["a,b", 3], seed=7, shape=(2, 3))
    assert seen[0] == [
        ("n", "2"),
        ("seed", "7"),
        ("classes", "a,b"),
        ("classes", "3"),
        ("shape", "2,3"),
    ]


@pytest.mark.parametrize("classes", ["Lob", np.str_("Lob"), b"Lob", 3, np.int64(3), np.array(3)])
def test_one_class_alone_is_no_list_of_classes(classes: Any) -> None:
    with replying(500) as client:
        for ask in (client.sample, client.sample_image):
            with pytest.raises(InvalidRequest, match=r"must be a list of labels.*for classes=\["):
                ask(2, classes)


@pytest.mark.parametrize(
    "classes", [["Lob"], ("Lob",), {"Lob"}, np.array(["Lob"]), pd.Index(["Lob"])]
)
def test_classes_may_come_in_any_list(classes: Any) -> None:
    assert calls.sample(2, classes, None, None, True).query == (("n", "2"), ("classes", "Lob"))


def test_headers_of_ones_own_are_sent_along() -> None:
    seen = []

    def handler(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.headers)
        return httpx2.Response(200, text="")

    transport = httpx2.MockTransport(handler)
    with GMRClient(transport=transport, headers={"authorization": "Bearer x"}) as client:
        client.metrics()
    assert seen[0]["authorization"] == "Bearer x"
    assert seen[0]["user-agent"].startswith("gmr-stream")


# Answers


def classification(
    binary: bool, classes: list[Any], unknown: bool = False, asked: bool = True
) -> dict[str, Any]:
    arrays = {
        "labels": np.array([1, 0, 1]),
        "probabilities": np.array([[0.25, 0.75]] * 3, dtype=np.float32),
        "log_likelihoods": np.array([-1.0, -2.0, -3.0], dtype=np.float32),
        "inliers": np.array([True, False, True]),
        "p_values": np.array([0.5, 0.001, 1.0]),
        "unknown": np.array([False, unknown, False]),
    }
    if unknown:
        arrays["labels"][1] = -1
    if not asked:
        del arrays["p_values"], arrays["unknown"]
    if binary:
        import orjson

        text = {"vocabulary": orjson.dumps(classes).decode(), "model_version": "4"}
        return {"content": pack(arrays, text), "headers": {"content-type": BINARY}}
    document = {name: array.tolist() for name, array in arrays.items()}
    document["labels"] = [classes[1], None if unknown else classes[0], classes[1]]
    absent = {} if asked else {"p_values": None, "unknown": None}
    return {"json": {"model_version": 4, "classes": classes, **document, **absent}}


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("classes", [[7, 3], ["cat", "dog"], ["7", 7]])
def test_a_classification_reads_the_same_from_json_and_from_bytes(
    binary: bool, classes: list[Any]
) -> None:
    with replying(200, **classification(binary, classes)) as client:
        found = client.classify(X)
    assert found.model_version == 4
    assert found.classes == tuple(classes)
    assert found.labels.tolist() == [classes[1], classes[0], classes[1]]
    assert found.codes.tolist() == [1, 0, 1]
    assert found.probabilities.dtype == np.float32
    assert found.probabilities.shape == (3, 2)
    assert found.log_likelihoods.tolist() == [-1, -2, -3]
    assert found.inliers.tolist() == [True, False, True]
    assert found.p_values is not None
    assert found.p_values.tolist() == [0.5, 0.001, 1.0]
    assert found.unknown is not None
    assert found.unknown.tolist() == [False] * 3


@pytest.mark.parametrize("binary", [True, False])
def test_a_classification_without_p_values_has_none(binary: bool) -> None:
    reply = classification(binary, [7, 3], asked=False)
    with replying(200, **reply) as client:
        found = client.classify(X)
    assert (found.p_values, found.unknown) == (None, None)
    assert found.labels.tolist() == [3, 7, 3]


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("classes", [[7, 3], ["cat", "dog"], ["7", 7]])
def test_an_unknown_sample_has_no_label(binary: bool, classes: list[Any]) -> None:
    with replying(200, **classification(binary, classes, unknown=True)) as client:
        found = client.classify(X, unknown_rate=0.01)
    assert found.labels.tolist() == [classes[1], None, classes[1]]
    assert found.codes.tolist() == [1, -1, 1]
    assert found.unknown is not None
    assert found.unknown.tolist() == [False, True, False]


@pytest.mark.parametrize("binary", [True, False])
def test_samples_read_the_same_from_json_and_from_bytes(binary: bool) -> None:
    features, scores = X, np.array([-1.0, -2.0, -3.0], dtype=np.float32)
    sure, short = np.array([0.9, 0.75, 1.0], dtype=np.float32), [False, True, False]
    if binary:
        arrays = {
            "features": features,
            "log_likelihoods": scores,
            "labels": np.array([0, 1, -1]),
            "probabilities": sure,
            "short": np.array(short),
        }
        text = {"vocabulary": '["cat",5]', "model_version": "2"}
        options: dict[str, Any] = {
            "content": pack(arrays, text),
            "headers": {"content-type": BINARY},
        }
    else:
        document = {
            "features": features.tolist(),
            "log_likelihoods": scores.tolist(),
            "probabilities": sure.tolist(),
            "short": short,
        }
        options = {"json": {**document, "labels": ["cat", 5, None], "model_version": 2}}
    with replying(200, **options) as client:
        drawn = client.sample(3)
    assert drawn.model_version == 2
    assert drawn.features.tolist() == X.tolist()
    assert drawn.features.dtype == np.float32
    assert drawn.labels.tolist() == ["cat", 5, None]
    assert drawn.log_likelihoods.tolist() == [-1, -2, -3]
    assert drawn.probabilities.tolist() == sure.tolist()
    assert drawn.short.tolist() == short


def test_how_samples_are_to_be_drawn_is_only_said_where_it_is_not_the_usual_way() -> None:
    usual = calls.sample(2, None, 0, None, True).query
    assert usual == (("n", "2"), ("seed", "0"))
    picky = calls.sample(2, None, 0, 0.75, False).query
    assert picky == (*usual, ("min_probability", "0.75"), ("noise", "false"))
    picture = calls.sample_image(2, None, 0, None, 0.75, False).query
    assert picture == picky
    assert calls.sample(2, None, None, None, True).query == (("n", "2"),)
    assert calls.sample(None, None, None, None, True).query == ()


def test_a_history_without_a_length_leaves_it_to_the_service() -> None:
    """Where less is kept, 1,000 are refused."""
    with replying(200, json={"history": []}) as client:
        assert client.history() == ()
    assert calls.history(None).query == ()
    assert calls.history(5).query == (("last", "5"),)


def test_a_field_that_a_newer_service_adds_is_kept_aside() -> None:
    with replying(200, json={"versions": [{"version": 3, "mood": "fine"}]}) as client:
        (version,) = client.versions()
    assert version.version == 3
    assert version.raw["mood"] == "fine"


@pytest.mark.parametrize(
    "reason",
    [
        "warm_up",
        "annealing",
        "dependence",
        "awaiting_labels",
        "no_detector",
        None,
        "of a newer service",
    ],
)
def test_why_the_detector_is_not_armed_is_read(reason: str | None) -> None:
    state = {**DRIFT, "armed": reason is None, "unarmed_reason": reason}
    with replying(200, json=state) as client:
        assert client.drift().unarmed_reason == reason
    with replying(200, json=DRIFT) as client:  # a service of an earlier release
        assert client.drift().unarmed_reason is None


@pytest.mark.parametrize(
    "options",
    [
        {"json": {"samples": 3}},
        {"json": [1, 2]},
        {"text": "<html>hello</html>"},
    ],
)
def test_an_answer_that_is_no_answer_of_the_service_is_an_error(options: Any) -> None:
    with replying(202, **options) as client, pytest.raises(UnexpectedAnswer):
        client.ingest(X)


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": [99, 7, 7]},  # not among the classes
        {"probabilities": "high"},
        {"classes": None},
    ],
)
def test_an_answer_that_contradicts_itself_is_an_error(changes: dict[str, Any]) -> None:
    document = {**classification(False, [7, 3])["json"], **changes}
    with replying(200, json=document) as client, pytest.raises(UnexpectedAnswer):
        client.classify(X)


def test_a_damaged_binary_answer_is_an_error() -> None:
    good = classification(True, [1, 2])
    good["content"] = good["content"][:-5]
    with replying(200, **good) as client, pytest.raises(UnexpectedAnswer, match="cannot be read"):
        client.classify(X)


CERTAIN = {
    "accuracy_then": 1.0,
    "accuracy_now": 0.75,
    "probability_then": 0.9,
    "probability_now": 0.5,
    "log_likelihood_then": -2.0,
    "log_likelihood_now": -3.0,
}


def test_how_well_the_past_is_held_is_read_whole() -> None:
    one = {"label": "cat", "samples": 40, **CERTAIN}
    row = {"sub_task": 0, "samples": 40, "classes": [one], **CERTAIN, "model_version": 7}
    nothing = dict.fromkeys(CERTAIN) | {"log_likelihood_then": -1.0, "log_likelihood_now": -1.0}
    unlabelled = {**row, "sub_task": 1, "classes": [], **nothing}
    with replying(200, json=model(held=[row, unlabelled])) as client:
        first, second = client.model().held
    assert first == SubTaskHeld(
        0, 40, (ClassHeld("cat", 40, *CERTAIN.values()),), *CERTAIN.values(), 7
    )
    assert (second.classes, second.accuracy_now, second.probability_now) == ((), None, None)


@pytest.mark.parametrize("held", [[{}], [7], None, [{"sub_task": 0, "classes": 3}]])
def test_a_past_that_cannot_be_read_is_an_error(held: object) -> None:
    with replying(200, json=model(held=held)) as client, pytest.raises(UnexpectedAnswer):
        client.model()


# Errors


@pytest.mark.parametrize(
    ("status", "kind", "expected"),
    [
        (400, "x", RequestRefused),
        (401, "x", NotAuthorised),
        (403, "x", NotAuthorised),
        (404, "unknown-class", RequestRefused),
        (409, "batch-conflict", RequestConflict),
        (409, "model-not-ready", NotLearnedYet),
        (413, "x", RequestRefused),
        (422, "x", RequestRefused),
        (429, "x", ServiceBusy),
        (500, "x", ServiceFailed),
        (502, "x", ServiceUnavailable),
        (503, "x", ServiceUnavailable),
        (504, "x", ServiceUnavailable),
    ],
)
def test_a_problem_document_becomes_the_error_of_its_kind(
    status: int, kind: str, expected: type[ServiceError]
) -> None:
    with ScriptedServer(problem(status, kind, known=[1, 2])) as server:
        impatient = RetryPolicy(total_s=0)
        with GMRClient(server.url, retry=impatient) as client, pytest.raises(ServiceError) as error:
            client.model()
    assert type(error.value) is expected
    assert error.value.status == status
    assert error.value.title == "A kind of problem"
    assert error.value.detail == "What happened."
    assert error.value.type == f"/problems/{kind}"
    assert error.value.instance == "/here"
    assert error.value.context == {"known": [1, 2]}
    assert f"What happened. (HTTP {status})" in str(error.value)


@pytest.mark.parametrize(("status", "kind"), [(404, "not-found"), (405, "method-not-allowed")])
def test_a_service_of_an_earlier_release_is_told_by_what_it_does_not_have(
    status: int, kind: str
) -> None:
    with (
        ScriptedServer(problem(status, kind)) as server,
        GMRClient(server.url) as client,
        pytest.raises(RequestRefused, match="the service is of an earlier release"),
    ):
        client.ingest_state()


def test_an_error_of_something_in_between_is_told_as_such() -> None:
    impatient = RetryPolicy(total_s=0)
    transport = httpx2.MockTransport(lambda request: httpx2.Response(502, text="<h1>Bad gateway"))
    with (
        GMRClient(transport=transport, retry=impatient) as client,
        pytest.raises(ServiceUnavailable, match="no problem document but '<h1>Bad gateway'"),
    ):
        client.model()


def test_a_redirect_is_not_an_answer() -> None:
    with (
        replying(307, headers={"location": "http://elsewhere/"}) as client,
        pytest.raises(UnexpectedAnswer, match="http://elsewhere/"),
    ):
        client.model()


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "8000"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="is no http"):
        GMRClient(url)


def test_every_error_is_in_the_tree_of_its_docstring() -> None:
    described = errors.__doc__ or ""
    for name, member in vars(errors).items():
        if inspect.isclass(member) and issubclass(member, GMRError):
            assert name in described


# Trying again


@pytest.mark.parametrize(
    "first",
    [
        problem(429, retry_after_s=0.01),
        problem(503),
        problem(503, perhaps_done=True),
        problem(502),
        problem(504),
        b"",
        b"HTTP/1.1 202 X\r\ncontent-length: 100\r\n\r\nhalf an ans",
    ],
    ids=["429", "503", "perhaps done", "502", "504", "closed at once", "broken off"],
)
def test_a_batch_is_sent_again_with_the_same_id(first: bytes) -> None:
    with ScriptedServer(first, answer(202, INGESTED)) as server:
        with GMRClient(server.url, retry=EAGER) as client:
            assert client.ingest(X).entry_id == "1-1"
        bodies = [request.body for request in server.requests]
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]
    assert unpack(bodies[0])[1]["batch_id"]


@pytest.mark.parametrize("status", [400, 404, 409, 413, 415, 422, 500])
def test_what_would_fail_again_is_not_sent_again(status: int) -> None:
    with ScriptedServer(problem(status)) as server:
        with GMRClient(server.url, retry=EAGER) as client, pytest.raises(ServiceError):
            client.ingest(X)
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    "first", [b"", problem(502), problem(504), problem(503, perhaps_done=True)]
)
def test_what_must_not_happen_twice_is_not_sent_again_when_nobody_knows(first: bytes) -> None:
    with ScriptedServer(first, answer(202, {"entry_id": "1-1"})) as server:
        with (
            GMRClient(server.url, retry=EAGER) as client,
            pytest.raises((ServiceUnreachable, ServiceUnavailable)),
        ):
            client.declare_boundary()
        assert len(server.requests) == 1


def test_what_must_not_happen_twice_is_sent_again_when_it_surely_did_not() -> None:
    with ScriptedServer(problem(503), answer(202, {"entry_id": "1-1"})) as server:
        with GMRClient(server.url, retry=EAGER) as client:
            assert client.declare_boundary() == "1-1"
        assert len(server.requests) == 2


def test_retry_after_is_the_least_that_is_waited() -> None:
    waits: list[float] = []
    policy = RetryPolicy(total_s=5, first_s=0.001, notify=lambda error, wait: waits.append(wait))
    with (
        ScriptedServer(problem(429, retry_after_s=0.2), answer(202, INGESTED)) as server,
        GMRClient(server.url, retry=policy) as client,
    ):
        client.ingest(X)
    assert 0.2 <= waits[0] <= 0.2 + 0.001


def test_retry_after_is_also_read_from_the_header() -> None:
    refusal = answer(503, {"title": "away"}, retry_after="7")
    with ScriptedServer(refusal) as server:
        policy = RetryPolicy(total_s=1)  # less than is asked for: not worth waiting
        with GMRClient(server.url, retry=policy) as client, pytest.raises(ServiceError) as error:
            client.ingest(X)
        assert len(server.requests) == 1
    assert error.value.retry_after == 7


def test_pauses_grow_up_to_their_limit_and_differ() -> None:
    policy = RetryPolicy(first_s=0.1, longest_s=1.0)
    for attempt, reach in [(1, 0.1), (2, 0.2), (4, 0.8), (5, 1.0), (10_000, 1.0)]:
        pauses = [policy.pause(attempt, None) for _ in range(200)]
        assert 0 <= min(pauses) < 0.2 * reach
        assert 0.8 * reach < max(pauses) <= reach


def test_patience_ends() -> None:
    with (
        GMRClient("http://127.0.0.1:9", retry=RetryPolicy(total_s=0.2, longest_s=0.05)) as client,
        pytest.raises(ServiceUnreachable, match=r"No service answers at http://127\.0\.0\.1:9 "),
    ):
        client.model()


def test_readiness_is_asked_once_and_never_an_error() -> None:
    with ScriptedServer(problem(503)) as server:
        with GMRClient(server.url, retry=EAGER) as client:
            readiness = client.ready()
        assert len(server.requests) == 1
    assert not readiness.ready
    assert readiness.reason == "What happened."


def test_a_proxy_without_a_process_to_ask_is_told_as_such() -> None:
    page = httpx2.Response(503, text="<h1>No server is available")
    with GMRClient(
        transport=httpx2.MockTransport(lambda request: page), retry=RetryPolicy(total_s=0)
    ) as client:
        readiness = client.ready()
        with pytest.raises(ServiceUnavailable, match="A proxy in between says so"):
            client.model()
    assert not readiness.ready
    assert "<h1>No server is available" in readiness.reason
    assert "A proxy in between says so" in readiness.reason


# Waiting


def model(**changes: object) -> dict[str, object]:
    document = {
        "model_version": 1,
        "samples_seen": 5,
        "batches_seen": 1,
        "backlog": 0,
        "last_entry_id": "1-1",
        "features": 2,
        "components": 3,
        "classes": [{"label": "cat", "count": 5}],
        "set_aside": 0,
    }
    return {**document, **changes}


def test_waiting_ends_when_nothing_is_left_to_learn_or_to_decide() -> None:
    answers = iter([model(backlog=2), model(set_aside=100), model()])
    with mocked(lambda request: httpx2.Response(200, json=next(answers))) as client:
        info = client.wait_until_learned(10)
    assert next(answers, None) is None
    assert info.labels == ("cat",)


def test_waiting_too_long_says_what_is_left() -> None:
    with (
        replying(200, json=model(backlog=7)) as client,
        pytest.raises(WaitTimeout, match="7 entries were still waiting"),
    ):
        client.wait_until_learned(0.05)


def test_a_service_that_does_not_listen_yet_is_waited_for() -> None:
    tries = itertools.count()

    def handler(request: httpx2.Request) -> httpx2.Response:
        if next(tries) == 0:
            raise httpx2.ConnectError("refused")
        return httpx2.Response(200, json={"status": "ready"})

    with mocked(handler) as client:
        client.wait_until_ready(10)
    assert next(tries) == 2


def test_a_service_that_never_comes_is_not_waited_for_for_ever() -> None:
    with (
        GMRClient("http://127.0.0.1:9") as client,
        pytest.raises(WaitTimeout, match="No service answers"),
    ):
        client.wait_until_ready(0.05)


# Events


def record(number: int, kind: str = "batch_learned") -> str:
    return f'id: 1-{number}\nevent: {kind}\ndata: {{"kind": "{kind}", "n": {number}}}\n\n'


def take(feed: Iterator[ServiceEvent], n: int) -> list[ServiceEvent]:
    return list(itertools.islice(feed, n))


def test_events_come_in_order_with_their_ids() -> None:
    with (
        ScriptedServer(
            events("retry: 2000\n\n", ": still here\n\n", record(1), record(2))
        ) as server,
        GMRClient(server.url, retry=EAGER) as client,
    ):
        found = take(client.events(), 2)
    assert [(event.id, event.kind, event.data["n"]) for event in found] == [
        ("1-1", "batch_learned", 1),
        ("1-2", "batch_learned", 2),
    ]
    assert "last-event-id" not in server.requests[0].headers


def test_a_broken_feed_is_resumed_after_the_last_whole_event() -> None:
    half = record(3)[:-10]
    script = [events(record(1), record(2), half), b"", problem(503), events(record(3))]
    with ScriptedServer(*script) as server:
        with GMRClient(server.url, retry=EAGER) as client:
            found = take(client.events(), 3)
        resumed = [request.headers.get("last-event-id") for request in server.requests[:4]]
    assert [event.data["n"] for event in found] == [1, 2, 3]
    assert resumed == [None, "1-2", "1-2", "1-2"]


def test_a_feed_begins_where_it_is_told_to_and_asks_for_some_kinds_only() -> None:
    with ScriptedServer(events(record(9, "boundary"))) as server:
        with GMRClient(server.url, retry=EAGER) as client:
            take(client.events("1-8", kinds=("boundary", "replay")), 1)
        assert server.requests[0].headers["last-event-id"] == "1-8"
        assert server.requests[0].line == "GET /events?kinds=boundary%2Creplay HTTP/1.1"


def test_an_id_without_an_event_is_remembered() -> None:
    script = [events("id: 1-5\n\n"), events(record(6))]
    with ScriptedServer(*script) as server:
        with GMRClient(server.url, retry=EAGER) as client:
            (event,) = take(client.events(), 1)
        assert server.requests[1].headers["last-event-id"] == "1-5"
    assert event.id == "1-6"


def test_a_feed_that_is_refused_says_so_at_once() -> None:
    with ScriptedServer(problem(422)) as server:
        with GMRClient(server.url, retry=EAGER) as client, pytest.raises(RequestRefused):
            take(client.events("nonsense"), 1)
        assert len(server.requests) == 1


def test_a_feed_gives_up_on_a_service_that_stays_away() -> None:
    impatient = RetryPolicy(total_s=0.2, longest_s=0.05)
    with (
        GMRClient("http://127.0.0.1:9", retry=impatient) as client,
        pytest.raises(ServiceUnreachable),
    ):
        take(client.events(), 1)


def test_a_page_is_no_feed() -> None:
    with (
        ScriptedServer(answer(200, b"<html>", "text/html")) as server,
        GMRClient(server.url) as client,
        pytest.raises(UnexpectedAnswer, match="text/event-stream"),
    ):
        take(client.events(), 1)


def test_kept_events_end_with_the_newest_whatever_its_kind() -> None:
    script = [events("id: 1-3\n\n"), events(record(1, "boundary"), record(2)), events(record(3))]
    with ScriptedServer(*script) as server, GMRClient(server.url, retry=EAGER) as client:
        found = list(client.kept_events(kinds=("boundary",)))
        assert [(event.id, event.kind) for event in found] == [("1-1", "boundary")]
        # The first asks for the kinds, so that the service can refuse them, the rest for all.
        assert ["kinds=" in request.line for request in server.requests] == [True, False, False]
        assert server.requests[1].headers["last-event-id"] == "0"
    with ScriptedServer(events("id: 1-3\n\n")) as server, GMRClient(server.url) as client:
        assert list(client.kept_events("1-3")) == []
        assert len(server.requests) == 1


# The asynchronous twin


def test_both_clients_have_the_same_methods() -> None:
    def face(cls: type) -> dict[str, list[str]]:
        return {
            name: [str(parameter) for parameter in inspect.signature(member).parameters.values()]
            for name, member in vars(cls).items()
            if inspect.isfunction(member) and not name.startswith("_")
        }

    assert face(GMRClient) == face(AsyncGMRClient)
    assert len(face(GMRClient)) > 15


@pytest.mark.anyio
async def test_the_asynchronous_client_sends_again_too() -> None:
    with ScriptedServer(b"", problem(429, retry_after_s=0.01), answer(202, INGESTED)) as server:
        async with AsyncGMRClient(server.url, retry=EAGER) as client:
            assert (await client.ingest(X, ["a", "b", None])).samples == 3
        bodies = {request.body for request in server.requests}
    assert len(server.requests) == 3
    assert len(bodies) == 1


@pytest.mark.anyio
async def test_the_asynchronous_client_reads_kept_events() -> None:
    script = [events("id: 1-2\n\n"), events(record(1)), events(record(2, "boundary"), record(3))]
    with ScriptedServer(*script) as server:
        async with AsyncGMRClient(server.url, retry=EAGER) as client:
            found = [event.id async for event in client.kept_events()]
            assert found == ["1-1", "1-2"]
            assert [event.id async for event in client.kept_events("1-9")] == []


@pytest.mark.anyio
async def test_the_asynchronous_client_resumes_events() -> None:
    with ScriptedServer(events(record(1)), events(record(2))) as server:
        async with AsyncGMRClient(server.url, retry=EAGER) as client:
            found = []
            async for event in client.events():
                found.append(event.data["n"])
                if len(found) == 2:
                    break
        assert server.requests[1].headers["last-event-id"] == "1-1"
    assert found == [1, 2]


@pytest.mark.anyio
async def test_the_asynchronous_client_waits() -> None:
    answers = iter([model(backlog=2), model()])
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, json=next(answers)))
    async with AsyncGMRClient(transport=transport) as client:
        assert (await client.wait_until_learned(10)).backlog == 0


@pytest.mark.anyio
async def test_an_application_can_be_called_without_a_port() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"status": "ready"}'})

    async with AsyncGMRClient(transport=httpx2.ASGITransport(app)) as client:
        assert (await client.ready()).ready
