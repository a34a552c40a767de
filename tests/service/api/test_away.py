"""Tests for answers while Redis hangs: soon, and true."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from clients.http.client import GMRClient
from clients.http.errors import ServiceUnavailable
from clients.http.retry import RetryPolicy
from service.broker.caller import READ_S, READ_TRIES, RETRY_S
from service.broker.connection import SOCKET_TIMEOUT_S
from service.broker.register import Register
from service.broker.registry import NamedModel
from service.supervisor.embedded import EmbeddedRedis
from service.wire import RawBatch
from tests.service.api.stack import (
    labels,
    make_settings,
    of_model,
    problem,
    redis_server,
    samples,
    send,
    serving,
    teach,
    training,
)
from tests.service.running import ask

READS = (
    "/model",
    "/deadletters",
    "/deadletters/1-1",
    "/drift",
    "/drift/boundaries",
    "/drift/boundaries/1-1",
    "/drift/history",
    "/drift/curve",
    "/drift/quarantine",
    "/drift/proposals",
    "/model/versions",
    "/events",
)


@contextlib.contextmanager
def hanging(redis: EmbeddedRedis) -> Iterator[None]:
    """Redis takes connections and answers nothing."""
    assert redis.pid is not None
    os.kill(redis.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(redis.pid, signal.SIGCONT)


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with redis_server(tmp_path_factory.mktemp("hangs")) as server:
        yield server


@pytest.fixture(scope="module")
def client(
    redis: EmbeddedRedis, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx2.Client]:
    """A service whose Redis may be made to hang; its writes are given up soon."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("service.broker.connection.SOCKET_TIMEOUT_S", 0.5)
        patch.setattr("service.broker.caller.RETRY_S", 0.2)
        patch.setattr("service.broker.caller.READ_S", 0.1)
        settings = make_settings(redis.url, tmp_path_factory.mktemp("data"))
        with serving(settings) as made:
            yield made


def test_a_question_is_given_up_and_says_nothing_of_what_was_accepted(
    redis: EmbeddedRedis, client: httpx2.Client
) -> None:
    with hanging(redis):
        for path in READS:
            document = problem(client.get(path), 503, "stream-unavailable")
            assert "this cannot be told now" in document["detail"], path
            assert "accepted" not in document["detail"], path


def test_questions_are_given_up_long_before_a_connection_is() -> None:
    assert READ_TRIES * READ_S <= RETRY_S < SOCKET_TIMEOUT_S


@pytest.mark.parametrize("given", [None, "mine"])
def test_a_batch_whose_fate_is_unknown_can_be_sent_again_by_its_id(
    redis: EmbeddedRedis, client: httpx2.Client, given: str | None
) -> None:
    before = client.get("/model").json()["backlog"]
    batch = RawBatch.of(samples(3, seed=7), labels(3), given)
    with hanging(redis):
        document = problem(send(client, batch), 503, "stream-unavailable")
    id = document["batch_id"]
    assert "perhaps_done" not in document
    assert given in (None, id)
    assert repr(id) in document["detail"]
    assert "not known" in document["detail"]
    assert "nothing was accepted" not in document["detail"]
    again = send(client, batch, params={"batch_id": id} if given is None else {})
    assert again.status_code in (200, 202)
    assert again.json()["batch_id"] == id
    # Whether the first try arrived or not: it is there once.
    assert client.get("/model").json()["backlog"] == before + 1


async def written(*_: object) -> str:
    """The audit trail has the action, and Redis hangs only then."""
    return "1-1"


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.broker.audit_trail.AuditTrail.begin", written)


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/model/checkpoint"), ("POST", "/drift/boundary"), ("DELETE", "/deadletters/1-1")],
)
def test_what_cannot_be_written_into_the_audit_trail_is_not_done_and_it_is_said(
    redis: EmbeddedRedis, client: httpx2.Client, method: str, path: str
) -> None:
    with hanging(redis):
        document = problem(client.request(method, path), 503, "stream-unavailable")
    assert "cannot be written into the audit trail; nothing was done" in document["detail"]


@pytest.mark.usefixtures("audited")
def test_what_cannot_be_checked_is_not_accepted_and_it_is_said(
    redis: EmbeddedRedis, client: httpx2.Client
) -> None:
    before = client.get("/model").json()["backlog"]
    with hanging(redis):
        for path, body in (("/drift/boundary", None), ("/labels", {"proposal": 1, "label": "a"})):
            document = problem(client.post(path, json=body), 503, "stream-unavailable")
            assert "nothing was accepted. Send the same again" in document["detail"], path
            assert "perhaps_done" not in document
    assert client.get("/model").json()["backlog"] == before


@pytest.mark.usefixtures("audited")
def test_whether_dead_letters_were_dropped_is_not_known(
    redis: EmbeddedRedis, client: httpx2.Client
) -> None:
    with hanging(redis):
        document = problem(client.delete("/deadletters/1-1"), 503, "stream-unavailable")
    assert "not known whether the dead letters were dropped" in document["detail"]
    assert document["perhaps_done"] is True
    assert "GET /deadletters" in document["detail"]


async def unchecked(_: object) -> None:
    """Redis answered this much, and hangs only then."""


@pytest.mark.usefixtures("audited")
def test_a_request_without_an_id_is_not_to_be_sent_again_blindly(
    redis: EmbeddedRedis, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.routes.drift.check_boundary", unchecked)
    with hanging(redis):
        document = problem(client.post("/drift/boundary"), 503, "stream-unavailable")
    assert "not known whether the request was accepted" in document["detail"]
    assert document["perhaps_done"] is True
    assert "batch_id" not in document


@pytest.mark.usefixtures("audited")
def test_a_client_does_not_repeat_what_may_have_been_done(
    redis: EmbeddedRedis, client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis has the entry, and hangs before it can say so."""
    monkeypatch.setattr("service.api.routes.drift.check_boundary", unchecked)
    told: list[Exception] = []
    policy = RetryPolicy(total_s=5, first_s=0.01, notify=lambda error, _: told.append(error))
    with GMRClient(str(client.base_url), retry=policy) as sender:
        with hanging(redis), pytest.raises(ServiceUnavailable, match="might be carried out twice"):
            sender.declare_boundary()
        assert not told


def test_what_the_model_knows_is_answered_while_redis_hangs(
    redis: EmbeddedRedis, tmp_path: Path
) -> None:
    settings = make_settings(redis.url, tmp_path)
    with training(settings), serving(settings) as client:
        teach(client, batches=1)
        with hanging(redis):
            assert client.get("/sample?n=2&seed=1").status_code == 200
            body = {"features": samples(2).tolist()}
            assert client.post("/classify", json=body).status_code == 200


async def never(_: object) -> None:
    await asyncio.Event().wait()


def test_a_named_model_answers_while_nobody_tells_which_there_are(
    redis: EmbeddedRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make_settings(redis.url, tmp_path)
    body = {"features": samples(2).tolist()}
    with training(settings), serving(settings) as client:
        client.put("/models/known").raise_for_status()
        with of_model(client, "known") as known:
            teach(known, batches=1)
            monkeypatch.setattr("service.api.models.FRESH_S", 0.0)
            with monkeypatch.context() as patched:
                patched.setattr(Register, "all", never)
                assert known.post("/classify", json=body).status_code == 200
            monkeypatch.setattr("service.broker.caller.READ_S", 0.1)
            with hanging(redis):
                assert known.post("/classify", json=body).status_code == 200
                # It may be there, for all that is known.
                problem(client.post("/models/new/classify", json=body), 503, "stream-unavailable")
            # Whoever asks for all of them, or takes one down, has what another process made.
            monkeypatch.setattr("service.api.models.PATIENCE_S", 0.0)
            made = NamedModel.made_now("elsewhere", {}, "")
            assert ask(settings, lambda stream: Register(stream).add(made, 100)) == made
            assert "elsewhere" in client.get("/models").text
            assert client.delete("/models/elsewhere").status_code == 202


def test_a_listener_is_let_go_in_order_so_that_it_comes_back(
    redis: EmbeddedRedis, client: httpx2.Client
) -> None:
    with hanging(redis):
        answer = client.get("/events?after=0")
    assert answer.status_code == 200
    assert answer.text.startswith("retry: ")
