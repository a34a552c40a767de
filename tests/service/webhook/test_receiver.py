"""Tests for the service.webhook.receiver module."""

from __future__ import annotations

import time

import pytest

from benchmarks._ports import free_port
from service.signature import key_of
from service.webhook.receiver import Outcome, Receiver, meaning
from tests.service.webhook.listening import SECRET, is_signed, listening


def test_a_message_arrives_signed_and_named() -> None:
    with listening() as there:
        receiver = Receiver(there.url, key_of(SECRET))
        assert receiver.tell("17-1", b'{"a": 1}').outcome is Outcome.DELIVERED
        receiver.close()
    ((headers, body),) = there.received
    assert body == b'{"a": 1}'
    assert headers["content-type"] == "application/cloudevents+json"
    assert is_signed(SECRET, headers, body)
    assert abs(int(headers["webhook-timestamp"]) - time.time()) < 60


def test_a_redirect_is_not_followed() -> None:
    with listening() as there, listening() as elsewhere:
        there.answering(307, location=elsewhere.url)
        receiver = Receiver(there.url, key_of(SECRET))
        answer = receiver.tell("17-1", b"{}")
        receiver.close()
    assert answer.outcome is Outcome.FAILED
    assert "redirects are not followed" in answer.reason
    assert not elsewhere.received


def test_a_receiver_that_is_away_is_a_failure_with_a_reason() -> None:
    receiver = Receiver(f"http://127.0.0.1:{free_port()}/", key_of(SECRET))
    answer = receiver.tell("17-1", b"{}")
    receiver.close()
    assert answer.outcome is Outcome.FAILED
    assert "ConnectError" in answer.reason


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "delivered"),
        (204, "delivered"),
        (302, "failed"),
        (400, "refused"),
        (401, "failed"),
        (404, "failed"),
        (410, "failed"),
        (413, "refused"),
        (429, "failed"),
        (500, "failed"),
        (503, "failed"),
    ],
)
def test_what_a_status_means(status: int, outcome: str) -> None:
    assert meaning(status).outcome.value == outcome


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, 0), ("", 0), ("12", 12), ("Wed, 21 Oct 2026 07:28:00 GMT", 0), ("-1", 0), ("²", 0)],
)
def test_how_long_a_receiver_asks_to_wait(header: str | None, seconds: float) -> None:
    assert meaning(503, header).retry_after_s == seconds
