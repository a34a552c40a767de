"""Tests for clients.http.feature_order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pandas as pd
import pytest

from clients.http import calls
from clients.http.client import GMRClient
from clients.http.errors import RequestRefused, ServiceError
from clients.http.feature_order import ASKED_AGAIN_S, FeatureOrder, columns_of
from clients.http.retry import RetryPolicy
from core.errors import InvalidBatch
from service.wire import unpack

X = np.arange(6, dtype=np.float32).reshape(3, 2)
INGESTED = {"entry_id": "1-1", "batch_id": "b", "samples": 3, "backlog": 1, "duplicate": False}


class Service:
    """Keeps names of features, and notes what it is asked.

    Arguments:
        names: Those that it keeps; None where there are none.
        status: Of its answers to samples.
    """

    def __init__(self, *names: str, status: int = 200) -> None:
        self.names: tuple[str, ...] | None = names or None
        self.status = status
        self.asked = 0
        self.rows: list[Any] = []

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/model/feature-names":
            self.asked += request.method == "GET"
            kept = None if self.names is None else list(self.names)
            return httpx2.Response(200, json={"feature_names": kept, "features": 2})
        tensors, _ = unpack(request.content)
        self.rows.append(tensors["features"].tolist())
        answer = INGESTED if self.status == 200 else {"title": "no", "status": self.status}
        return httpx2.Response(self.status, json=answer)

    def client(self) -> GMRClient:
        return GMRClient(transport=httpx2.MockTransport(self), retry=RetryPolicy(total_s=0))


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame(X[:, ::-1], columns=["b", "a"]),
        pd.DataFrame({"b": X[:, 1].astype("float64"), "a": X[:, 0]}),
    ],
)
def test_columns_are_taken_by_the_names_that_the_model_keeps(frame: pd.DataFrame) -> None:
    service = Service("a", "b")
    with service.client() as client:
        for _ in range(3):
            client.ingest(frame)
    assert service.rows == [X.tolist()] * 3
    assert service.asked == 1


@pytest.mark.parametrize(
    "samples", [X, X.tolist(), pd.DataFrame(X), pd.DataFrame(X, columns=[5, "a"])]
)
def test_what_has_no_names_is_taken_by_its_places_and_costs_no_question(samples: Any) -> None:
    service = Service("a", "b")
    with service.client() as client:
        client.ingest(samples)
    assert service.rows == [X.tolist()]
    assert service.asked == 0


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["a", "c"], "'b' is missing, and 'c' is unknown"),
        (["a", "a"], "'b' is missing, and 'a' is unknown"),
        (["c", "d"], "'a', 'b' are missing, and 'c', 'd' are unknown"),
    ],
)
def test_other_columns_are_refused_before_they_are_sent(columns: list[str], message: str) -> None:
    service = Service("a", "b")
    with service.client() as client, pytest.raises(InvalidBatch, match=message):
        client.ingest(pd.DataFrame(X, columns=columns))
    assert service.rows == []


def test_names_are_asked_for_again_where_they_may_have_changed() -> None:
    service = Service("a", "b")
    frame = pd.DataFrame(X, columns=["a", "b"])
    with service.client() as client:
        client.ingest(frame)
        service.names = ("c", "d")  # another program names them
        client.ingest(frame.set_axis(["d", "c"], axis=1))
        assert (service.asked, service.rows[-1]) == (2, X[:, ::-1].tolist())
        service.names = ("d", "c")
        client.name_features(["d", "c"])
        client.ingest(frame.set_axis(["d", "c"], axis=1))
        assert (service.asked, service.rows[-1]) == (3, X.tolist())
        service.status = 422
        for asked in (3, 4):
            with pytest.raises(RequestRefused):
                client.ingest(frame.set_axis(["d", "c"], axis=1))
            assert service.asked == asked


def test_a_model_without_names_is_asked_now_and_then() -> None:
    clock = [0.0]
    order = FeatureOrder(lambda: clock[0])

    def asked(kept: tuple[str, ...] | None) -> list[str]:
        steps, paths = order.sent(lambda rows: calls.ingest(rows, None, "b"), X, ("b", "a")), []
        step: Any = next(steps)
        while True:
            paths.append(step.path)
            try:
                step = steps.send(kept if step.path == "/model/feature-names" else None)
            except StopIteration:
                return paths

    assert asked(None) == ["/model/feature-names", "/ingest"]
    clock[0] += ASKED_AGAIN_S / 2
    assert asked(None) == ["/ingest"]
    clock[0] += ASKED_AGAIN_S
    assert asked(("a", "b")) == ["/model/feature-names", "/ingest"]
    clock[0] += ASKED_AGAIN_S
    assert asked(None) == ["/ingest"]


def test_a_service_that_does_not_tell_its_names_is_not_sent_a_frame() -> None:
    answer: Callable[[httpx2.Request], httpx2.Response] = lambda request: httpx2.Response(503)  # noqa: E731
    with (
        GMRClient(transport=httpx2.MockTransport(answer), retry=RetryPolicy(total_s=0)) as client,
        pytest.raises(ServiceError),
    ):
        client.ingest(pd.DataFrame(X, columns=["a", "b"]))


def test_names_of_other_kinds_of_frames_are_known() -> None:
    class Arrow:
        column_names = ("a", "b")
        columns = (X[:, 0], X[:, 1])

    class Polars:
        columns = ("a", "b")

    class Odd:
        columns = 2

    assert columns_of(Arrow()) == columns_of(Polars()) == ("a", "b")
    assert columns_of(Odd()) is None
