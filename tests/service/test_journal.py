"""Tests for the service.journal module."""

from __future__ import annotations

import orjson

from core.events import EntryRejected, Event, ModelRestored, Replayed, SetAsideReleased
from service.feed import Feed, Position
from service.journal import Journal, Totals, encode_status
from service.metrics import TrainerMetrics
from tests.service.test_metrics import BOUNDARY, LEARNED, SET_ASIDE


def total(*events: Event) -> Totals:
    totals = Totals()
    for event in events:
        totals.count(event)
    return totals


def test_batches_set_aside_count_once_they_are_learned() -> None:
    assert total(SET_ASIDE, SET_ASIDE).samples_learned == 0
    released = SetAsideReleased(batches=2, samples=200, sub_task=0, model_version=5)
    for later in (released, BOUNDARY):
        totals = total(SET_ASIDE, SET_ASIDE, later, LEARNED)
        assert (totals.samples_learned, totals.batches_learned) == (300, 3)


def test_a_sub_task_begins_with_the_batches_that_were_set_aside_for_it() -> None:
    totals = total(LEARNED, LEARNED, SET_ASIDE, SET_ASIDE, BOUNDARY, LEARNED)
    assert (totals.batches_since_boundary, totals.samples_since_boundary) == (3, 300)
    assert totals.boundaries == 1
    totals = total(LEARNED, ModelRestored(3, 9, "rollback"))
    assert (totals.batches_since_boundary, totals.latest) == (0, {})


def test_totals_come_through_a_checkpoint_unchanged() -> None:
    totals = total(
        LEARNED,
        Replayed(1, "analytic", 70, 5, 4, "batch"),
        EntryRejected("1-0", "shape_mismatch", "..."),
    )
    assert Totals.from_json(totals.to_json()) == totals
    assert totals.rejected == {"shape_mismatch": 1}
    assert totals.replayed == 70


def test_each_event_goes_where_readers_look_for_it(feed: Feed) -> None:
    feed.open(Position())
    journal = Journal(feed, Totals(), TrainerMetrics())
    journal.write("5-0", [BOUNDARY, LEARNED])
    journal.write("6-0", [SET_ASIDE])
    journal.write("6-0", [ModelRestored(3, 9, "rollback")], first=1)
    feed.flush()

    def kinds(key: str) -> list[tuple[str, str, str]]:
        rows = [
            (entry_id.decode(), orjson.loads(fields[b"data"]))
            for entry_id, fields in feed.client.xrange(key)
        ]
        return [(id, data["kind"], data["entry_id"]) for id, data in rows]

    assert kinds(feed.keys.events) == [
        ("5-0", "boundary", "5-0"),
        ("5-1", "batch_learned", "5-0"),
        ("6-0", "batch_set_aside", "6-0"),
        ("6-1", "model_restored", "6-0"),
    ]
    assert kinds(feed.keys.history) == [
        ("5-1", "batch_learned", "5-0"),
        ("6-0", "batch_set_aside", "6-0"),
    ]
    assert kinds(feed.keys.boundaries) == [("5-0", "boundary", "5-0")]


def test_the_status_is_complete_before_anything_was_learned(feed: Feed) -> None:
    journal = Journal(feed, Totals(), TrainerMetrics())
    status = orjson.loads(encode_status(journal.status({"state": "running"})))
    assert status["inlier_rate"] is None
    assert status["statistics"] == {}
    assert status["boundaries"] == 0
    assert status["state"] == "running"
    assert status["time"] > 0
