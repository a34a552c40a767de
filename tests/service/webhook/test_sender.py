"""Tests for the service.webhook.sender module, against a real server and a real Redis."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from core.events import ModelRestored
from service.broker.connection import connect
from service.broker.entries import Position
from service.broker.feed import Feed
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.signature import key_of
from service.supervisor.embedded import EmbeddedRedis
from service.trainer.journal import Journal
from service.trainer.metrics import TrainerMetrics
from service.trainer.totals import Totals
from service.webhook.receiver import Receiver
from service.webhook.sender import MOST_REFUSALS, WebhookSender
from tests.service.running import wait_until
from tests.service.trainer.test_metrics import BOUNDARY
from tests.service.webhook.listening import SECRET, is_signed, listening

WANTED = frozenset({"boundary", "model_restored"})


@contextlib.contextmanager
def sender(feed: Feed, url: str) -> Iterator[Counter]:
    """A sender of this model at work, quick to try again; gives what it counts."""
    counter = Counter("attempts", "", ["outcome"], registry=CollectorRegistry())
    receiver = Receiver(url, key_of(SECRET))
    one = WebhookSender(feed.client, feed.keys, feed._lease, receiver, counter, first_pause_s=0.01)
    with one:
        yield counter


def happen(feed: Feed, *entry_ids: str) -> None:
    """Something that the webhook is to be told of happens at each of these entries."""
    journal = Journal(feed, Totals(), TrainerMetrics(), WANTED)
    for entry_id in entry_ids:
        journal.write(entry_id, [BOUNDARY])
    feed.reports.flush()


def count(counter: Counter, outcome: str) -> float:
    return float(counter.labels(outcome)._value.get())


def waiting(feed: Feed) -> int:
    return int(feed.client.xlen(feed.keys.outbox))


@pytest.fixture
def opened(feed: Feed) -> Feed:
    feed.open(Position())
    return feed


def test_events_arrive_in_order_signed_and_once(opened: Feed) -> None:
    with listening() as there, sender(opened, there.url) as counter:
        happen(opened, "5-0", "6-0")
        Journal(opened, Totals(), TrainerMetrics(), WANTED).write(
            "7-0", [ModelRestored(3, 9, "rollback")]
        )
        opened.reports.flush()
        wait_until(lambda: len(there.received) == 3 and not waiting(opened))
        assert there.ids == ["5-0", "6-0", "7-0"]
        assert [event["id"] for event in there.events] == there.ids
        assert [event["type"] for event in there.events] == ["gmr.boundary"] * 2 + [
            "gmr.model_restored"
        ]
        assert all(is_signed(SECRET, headers, body) for headers, body in there.received)
        assert there.events[0]["data"]["entry_id"] == "5-0"
        assert count(counter, "delivered") == 3


def test_a_receiver_that_fails_gets_the_same_event_again_before_any_other(opened: Feed) -> None:
    with listening() as there, sender(opened, there.url) as counter:
        there.answering(500, 503, 404, 302)
        happen(opened, "5-0", "6-0")
        wait_until(lambda: len(there.received) == 6 and not waiting(opened))
        assert there.ids == ["5-0"] * 5 + ["6-0"]
        # The same event, byte for byte, under a signature of its own.
        assert len({body for _, body in there.received[:5]}) == 1
        assert all(is_signed(SECRET, headers, body) for headers, body in there.received)
        assert (count(counter, "failed"), count(counter, "delivered")) == (4, 2)


def test_an_event_that_is_refused_again_and_again_does_not_hold_up_the_next(
    opened: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    with listening() as there, sender(opened, there.url) as counter:
        there.answering(*[422] * MOST_REFUSALS)
        happen(opened, "5-0", "6-0")
        wait_until(lambda: len(there.received) == MOST_REFUSALS + 1 and not waiting(opened))
        assert there.ids == ["5-0"] * MOST_REFUSALS + ["6-0"]
        assert (count(counter, "refused"), count(counter, "delivered")) == (MOST_REFUSALS, 1)
    assert "event 5-0 is given up, refused with status 422" in caplog.text


def test_what_was_not_delivered_is_delivered_after_a_restart(opened: Feed) -> None:
    with listening() as there:
        there.answering(*[500] * 1000)
        with sender(opened, there.url):
            happen(opened, "5-0", "6-0")
            wait_until(lambda: there.received)
        assert waiting(opened) == 2
        there.script.clear()
        there.received.clear()
        with sender(opened, there.url):
            wait_until(lambda: not waiting(opened))
        assert there.ids == ["5-0", "6-0"]
        # Told again after a crash, an event has an id that is known, and is told no more.
        happen(opened, "5-0", "6-0")
        assert waiting(opened) == 0


def test_a_receiver_may_come_later_than_what_it_is_told(opened: Feed) -> None:
    with listening() as there:
        pass
    port = int(there.url.split(":")[2].split("/")[0])
    with sender(opened, there.url) as counter:
        happen(opened, "5-0")
        wait_until(lambda: count(counter, "failed") >= 2)
        with listening(port) as back:
            wait_until(lambda: not waiting(opened))
            assert back.ids == ["5-0"]


def test_after_another_trainer_has_begun_nothing_is_taken_out(
    opened: Feed, redis_server: EmbeddedRedis, caplog: pytest.LogCaptureFixture
) -> None:
    happen(opened, "5-0")
    with connect(redis_server.url) as client:
        opened._lease.release()
        other = Lease(client, opened.keys)
        other.acquire()
        new = Feed(client, opened.keys.model, other, events_length=10, history_length=10)
        new.open(Position())
        with listening() as there:
            with sender(opened, there.url):
                wait_until(lambda: "another trainer" in caplog.text)
            assert waiting(opened) == 1
            with sender(new, there.url):
                wait_until(lambda: not waiting(new))
            # At least once: the receiver knows the second by its id.
            assert there.ids == ["5-0", "5-0"]


def test_the_sender_waits_for_a_redis_that_is_away(own_redis: EmbeddedRedis) -> None:
    own_redis.start()
    with connect(own_redis.url) as client, listening() as there:
        lease = Lease(client, Keys("m"))
        lease.acquire()
        feed = Feed(client, "m", lease, events_length=10, history_length=10)
        feed.open(Position())
        with sender(feed, there.url):
            happen(feed, "5-0")
            wait_until(lambda: there.ids == ["5-0"] and not waiting(feed))
            own_redis.stop()
            own_redis.start()
            happen(feed, "6-0")
            wait_until(lambda: there.ids[-1] == "6-0" and not waiting(feed))


def test_a_record_that_cannot_be_told_is_left_out(
    opened: Feed, caplog: pytest.LogCaptureFixture
) -> None:
    opened.client.xadd(opened.keys.outbox, {"data": b"{}"}, id="1-0")
    with listening() as there, sender(opened, there.url):
        happen(opened, "5-0")
        wait_until(lambda: there.received and not waiting(opened))
        assert there.ids == ["5-0"]
    assert "event 1-0 cannot be told" in caplog.text
