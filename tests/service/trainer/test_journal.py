"""Tests for the service.trainer.journal module."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.batch import UNLABELLED, Batch
from core.engine.state import REMEMBERED_STARTS
from core.events import (
    BoundaryDetected,
    EntryRejected,
    Event,
    ModelRestored,
    Replayed,
    SetAsideReleased,
)
from service.broker import report_queue
from service.broker.entries import Position
from service.broker.feed import Feed
from service.broker.keys import QUARANTINE_LENGTH
from service.trainer.class_accuracies import MOST_CLASSES, told
from service.trainer.journal import Journal, encode_status
from service.trainer.metrics import TrainerMetrics
from service.trainer.totals import Totals
from tests.service.metrics_text import read
from tests.service.trainer.test_metrics import BOUNDARY, BURST, LEARNED, SET_ASIDE


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


def test_after_a_rollback_the_sub_task_of_the_version_goes_on_since_its_boundary() -> None:
    kept = total(BOUNDARY, LEARNED, SET_ASIDE, SET_ASIDE)
    assert (kept.batches_since_boundary, kept.samples_since_boundary) == (5, 500)
    totals = total(LEARNED, LEARNED, ModelRestored(3, 9, "rollback"))
    totals.went_back(Totals.from_json(kept.to_json()))
    # What is set aside is dropped with the rest.
    assert (totals.batches_since_boundary, totals.samples_since_boundary) == (3, 300)
    released = SetAsideReleased(batches=2, samples=200, sub_task=0, model_version=5)
    for decided in (released, BOUNDARY, BURST, LEARNED, ModelRestored(3, 9, "rollback")):
        totals = total(SET_ASIDE, SET_ASIDE, decided)
        assert (totals.batches_set_aside, totals.samples_set_aside) == (0, 0)


def test_outliers_of_a_burst_are_counted_but_not_as_learned() -> None:
    totals = total(SET_ASIDE, SET_ASIDE, BURST, replace(LEARNED, quarantined=10))
    assert (totals.samples_learned, totals.batches_learned) == (170 + 90, 3)
    assert (totals.bursts, totals.quarantined, totals.boundaries) == (1, 30, 0)
    assert total(BOUNDARY, replace(BOUNDARY, recurrence_of=1)).recurrences == 1
    assert Totals.from_json(totals.to_json()) == totals


@given(
    ert=st.floats(2, 1e9),
    probe=st.floats(2, 1e4),
    batches=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 1000)), min_size=1),
)
def test_the_run_time_is_kept_as_the_probe_keeps_its_own(
    ert: float, probe: float, batches: list[tuple[int, int]]
) -> None:
    totals = Totals()
    for alarms, samples in batches:
        seen = {"probe_ert": probe, "probe_samples": samples, "probe_alarms": alarms}
        totals.count(replace(LEARNED, **seen))
        totals.count(replace(LEARNED, probe_ert=0.0, probe_samples=0, probe_alarms=0))
    alarms, samples = (sum(column) for column in zip(*batches, strict=True))
    if not alarms:
        assert totals.achieved(ert) is None
    else:
        assert totals.achieved(ert) == pytest.approx(samples / alarms * (ert / probe))
    # As often as asked is what was asked.
    if alarms * probe == samples:
        assert totals.achieved(ert) == pytest.approx(ert)


def test_before_the_probe_has_spoken_nothing_is_known_of_the_run_time() -> None:
    assert Totals().achieved(1e7) is None
    assert Totals(probe_ert=1000.0, probe_samples=10**6).achieved(1e7) is None
    assert Totals(probe_ert=1000.0, probe_samples=50_000, probe_alarms=100).achieved(1e7) == 5e6


def test_one_alarm_of_the_probe_says_little_of_the_run_time() -> None:
    once = Totals(probe_ert=1000.0, probe_samples=1800, probe_alarms=1)
    assert once.achieved(1e7) == 1.8e7
    low, high = once.achieved_between(1e7)
    # Between 0.0253 and 5.5716 alarms may be expected where one has come (Garwood 1936).
    assert low == pytest.approx(1.8e7 / 5.5716, rel=1e-4)
    assert high == pytest.approx(1.8e7 / 0.025318, rel=1e-4)


def test_before_the_first_alarm_the_run_time_has_a_lower_end_only() -> None:
    assert Totals().achieved_between(1e7) == (None, None)
    low, high = Totals(probe_ert=1000.0, probe_samples=20_000).achieved_between(1e7)
    # No alarm comes in 20,000 samples with a chance of 2.5 % where 3.689 are expected.
    assert low == pytest.approx(2e8 / 3.6889, rel=1e-4)
    assert high is None


def outliers(n: int, first: int = 0) -> Batch:
    codes = torch.tensor([0, UNLABELLED] * n)[:n]
    places = torch.arange(first, first + n, dtype=torch.float32)
    return Batch(places[:, None].expand(n, 2), codes, ("a",))


def quarantined(feed: Feed) -> list[dict[str, object]]:
    feed.reports.flush()
    rows = feed.client.xrange(feed.keys.quarantine)
    return [orjson.loads(fields[b"data"]) for _, fields in rows]


def test_outliers_are_kept_as_they_were_sent(feed: Feed) -> None:
    feed.open(Position())
    journal = Journal(feed, Totals(), TrainerMetrics())
    journal.quarantine("5-0", [outliers(2), replace(outliers(1, 2), codes=None)])
    journal.quarantine("6-0", [outliers(1, 3)])
    # What is told twice, after a restart, is kept once.
    journal.quarantine("6-0", [outliers(1, 3)])
    kept = quarantined(feed)
    assert [row["features"] for row in kept] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert [row["label"] for row in kept] == ["a", None, None, "a"]
    assert [row["entry_id"] for row in kept] == ["5-0", "5-0", "5-0", "6-0"]


def test_only_the_newest_outliers_are_kept(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    feed.open(Position())
    journal = Journal(feed, Totals(), TrainerMetrics())
    for entry in range(1, 4):
        journal.quarantine(f"{entry}-0", [outliers(1000, 1000 * entry)])
    kept = quarantined(feed)
    # Redis lets them go in bundles of a hundred.
    assert QUARANTINE_LENGTH <= len(kept) <= QUARANTINE_LENGTH + 100
    assert kept[-1]["features"] == [3999, 3999]
    # However large they are.
    row = len(orjson.dumps(kept[-1]))
    monkeypatch.setattr(report_queue, "QUARANTINE_BYTES", 300 * row)
    journal.quarantine("4-0", [outliers(1, 4000)])
    kept = quarantined(feed)
    assert 290 <= len(kept) <= 400
    assert kept[-1]["features"] == [4000, 4000]


def test_accuracies_of_classes_are_running_means_since_the_newest_rollback() -> None:
    first = {"label": "1", "samples": 4, "accuracy": 0.5}
    second = [{"label": "1", "samples": 4, "accuracy": 1.0}, {**first, "label": 1}]
    batches = [
        replace(LEARNED, class_accuracies=[first]),
        replace(SET_ASIDE, class_accuracies=second),
    ]
    totals = total(*batches)
    assert told(totals.class_accuracies) == [{**first, "samples": 8, "accuracy": 0.75}, second[1]]
    assert Totals.from_json(totals.to_json()) == totals
    assert total(*batches, ModelRestored(3, 9, "rollback")).class_accuracies == {}
    many = [{**first, "label": label} for label in range(MOST_CLASSES + 5)]
    assert len(total(replace(LEARNED, class_accuracies=many)).class_accuracies) == MOST_CLASSES


def test_totals_come_through_a_checkpoint_unchanged() -> None:
    totals = total(
        LEARNED,
        Replayed(1, "analytic", 70, 5, 4, "batch"),
        EntryRejected("1-0", "shape_mismatch", "..."),
    )
    assert Totals.from_json(totals.to_json()) == totals
    assert totals.rejected == {"shape_mismatch": 1}
    assert totals.replayed == 70


def test_repetitions_are_counted_on_after_a_start(feed: Feed) -> None:
    metrics = TrainerMetrics()
    Journal(feed, Totals(repetitions=3), metrics)
    assert read(metrics.text())["gmr_repetitions_total"] == 3


def test_each_event_goes_where_readers_look_for_it(feed: Feed) -> None:
    feed.open(Position())
    journal = Journal(feed, Totals(), TrainerMetrics())
    journal.write("5-0", [BOUNDARY, LEARNED])
    journal.write("6-0", [SET_ASIDE])
    journal.write("6-0", [ModelRestored(3, 9, "rollback")], first=1)
    feed.reports.flush()

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
    feed.reports.flush()
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
    feed.reports.flush()
    ((id, fields),) = feed.client.xrange(feed.keys.outbox)
    assert id == b"5-0"
    assert orjson.loads(fields[b"data"])["kind"] == "boundary"


def test_the_start_of_a_change_is_named_by_its_entry_even_after_a_restart(feed: Feed) -> None:
    def start(totals: Totals, boundary: BoundaryDetected) -> str | None:
        journal = Journal(feed, totals, TrainerMetrics())
        journal.write("9-0", [boundary])
        ((*_, data),) = [feed.reports._queue[-1]]
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
