"""Tests for the service.journal module."""

from __future__ import annotations

from dataclasses import replace

import orjson

from core.engine import REMEMBERED_STARTS
from core.events import (
    BoundaryDetected,
    EntryRejected,
    Event,
    ModelRestored,
    Replayed,
    SetAsideReleased,
)
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


EXPLAINED = replace(
    BOUNDARY,
    batch_index=3,
    estimated_start_batch=1,
    explanation={"effect": -3.0, "prototypes": [{"samples": 10, "features": [0.5]}]},
)


def test_the_heavy_part_of_an_explanation_is_kept_apart(feed: Feed) -> None:
    feed.open(Position())
    journal = Journal(feed, Totals(), TrainerMetrics())
    journal.write("5-0", [EXPLAINED, BOUNDARY])
    feed.flush()
    for key in (feed.keys.events, feed.keys.boundaries):
        (_, fields), _ = feed.client.xrange(key)
        assert orjson.loads(fields[b"data"])["explanation"] == {"effect": -3.0}
    ((id, fields),) = feed.client.xrange(feed.keys.explanations)
    assert id == b"5-0"
    assert orjson.loads(fields[b"data"]) == {"prototypes": [{"samples": 10, "features": [0.5]}]}


def test_only_the_kinds_that_a_webhook_asks_for_wait_for_it(feed: Feed) -> None:
    feed.open(Position())
    journal = Journal(feed, Totals(), TrainerMetrics(), frozenset({"boundary", "yet_to_come"}))
    journal.write("5-0", [BOUNDARY, LEARNED])
    feed.flush()
    ((id, fields),) = feed.client.xrange(feed.keys.outbox)
    assert id == b"5-0"
    assert orjson.loads(fields[b"data"])["kind"] == "boundary"


def test_the_start_of_a_change_is_named_by_its_entry_even_after_a_restart(feed: Feed) -> None:
    def start(totals: Totals, boundary: BoundaryDetected) -> str | None:
        journal = Journal(feed, totals, TrainerMetrics())
        journal.write("9-0", [boundary])
        ((*_, data),) = [feed._queue[-1]]
        named: str | None = orjson.loads(data)["estimated_start_entry_id"]
        return named

    journal = Journal(feed, Totals(), TrainerMetrics())
    for index in range(3):
        journal.write(f"{index + 1}-0", [replace(LEARNED, batch_index=index)])
    kept = Totals.from_json(journal.totals.to_json())
    assert kept == journal.totals
    assert start(kept, EXPLAINED) == "2-0"
    # The batch that decided it comes with the very entry; what was declared begins later.
    assert start(kept, replace(EXPLAINED, estimated_start_batch=3)) == "9-0"
    by_hand = replace(EXPLAINED, estimated_start_batch=3, detector="declared")
    assert start(kept, by_hand) is None
    # Totals of an earlier release know no entries.
    assert start(Totals(), EXPLAINED) is None


def test_entries_are_remembered_as_far_back_as_starts_are() -> None:
    totals = Totals()
    for index in range(REMEMBERED_STARTS + 10):
        totals.remember(index, f"{index}-0")
    assert len(totals.entries) == REMEMBERED_STARTS
    assert totals.entry_of(10) == "10-0"
    assert totals.entry_of(REMEMBERED_STARTS + 9) == f"{REMEMBERED_STARTS + 9}-0"
    assert totals.entry_of(9) is totals.entry_of(REMEMBERED_STARTS + 10) is None
    totals.remember(5, "gap")
    assert totals.entries == ["gap"]


def test_the_status_is_complete_before_anything_was_learned(feed: Feed) -> None:
    journal = Journal(feed, Totals(), TrainerMetrics())
    status = orjson.loads(encode_status(journal.status({"state": "running"})))
    assert status["inlier_rate"] is None
    assert status["statistics"] == {}
    assert status["boundaries"] == 0
    assert status["state"] == "running"
    assert status["time"] > 0
