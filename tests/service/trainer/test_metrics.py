"""Tests for the service.trainer.metrics module."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace

from prometheus_client.parser import text_string_to_metric_families

from core.drift.detector import Arming, UnarmedReason
from core.events import (
    BatchLearned,
    BatchSetAside,
    BoundaryDetected,
    ChangeContinued,
    ClassDiscovered,
    ClassProposed,
    EntryRejected,
    Event,
    LabelsMatched,
    LabelsMissed,
    ModelPublished,
    ModelRestored,
    OutlierBurst,
    OutlierBurstContinued,
    ProposalClosed,
    Replayed,
    SamplesRepeated,
    SetAsideReleased,
    UnknownsLearned,
)
from core.memory.retention import SubTaskRetention, summary
from service.api.metrics import ApiMetrics
from service.trainer.metrics import TrainerMetrics
from service.trainer.run_time import Interval
from service.trainer.totals import Totals
from tests.service.metrics_text import read


def test_how_many_features_drift_is_no_number_while_nobody_knows() -> None:
    metrics = TrainerMetrics()
    for drift, known in ((None, False), ({"drifting": None}, False), ({"drifting": 3}, True)):
        metrics.show_features(drift)
        value = read(metrics.text())["gmr_features_drifting"]
        assert value == 3 if known else math.isnan(value)


def test_series_of_classes_go_when_others_have_more_samples() -> None:
    def row(label: int | str, share: float) -> dict[str, object]:
        return {"label": label, "share": share, "share_change": None, "likelihood_change": 1.5}

    metrics = TrainerMetrics()
    rest = {"share": 0.25}
    metrics.show_classes({"classes": [row(3, 0.5), row("cat", 0.25)], "other": rest})
    metrics.show_classes({"classes": [row("3", 0.75)], "other": rest})
    told = {
        (sample.name, sample.labels["class"]): sample.value
        for family in text_string_to_metric_families(metrics.text().decode())
        for sample in family.samples
        if "class" in sample.labels
    }
    assert math.isnan(told.pop(("gmr_class_share_change", '"3"')))
    assert told == {
        ("gmr_class_share", '"3"'): 0.75,
        ("gmr_class_share", "other"): 0.25,
        ("gmr_class_likelihood_change", '"3"'): 1.5,
    }


CONTRACT = {
    "gmr_samples_ingested": "counter",
    "gmr_samples_learned": "counter",
    "gmr_batches_rejected": "counter",
    "gmr_backlog_entries": "gauge",
    "gmr_inlier_rate": "gauge",
    "gmr_inlier_rate_mean": "gauge",
    "gmr_log_likelihood_mean": "gauge",
    "gmr_drift_statistic": "gauge",
    "gmr_drift_threshold": "gauge",
    "gmr_boundaries": "counter",
    "gmr_sub_task": "gauge",
    "gmr_replay_samples": "counter",
    "gmr_model_version": "gauge",
    "gmr_classes": "gauge",
    "gmr_components": "gauge",
    "gmr_prequential_accuracy": "gauge",
    "gmr_train_step_duration_seconds": "histogram",
    "gmr_publish_duration_seconds": "histogram",
    "gmr_checkpoint_age_seconds": "gauge",
    "gmr_redis_errors": "counter",
    "gmr_http_requests": "counter",
    "gmr_http_request_duration_seconds": "histogram",
}
"""Names of the contract, as the parser gives them: counters without `_total`."""

SCORED = {
    "batch_index": 4,
    "sample_index": 400,
    "samples": 100,
    "labelled": 100,
    "sub_task": 2,
    "inlier_rate": 0.8,
    "inlier_rate_mean": 0.9,
    "log_likelihood_mean": -12.5,
    "statistic": 1.5,
    "threshold": 20.0,
    "statistics": {"inliers": 1.5, "occupancy": 0.5},
    "thresholds": {"inliers": 20.0, "occupancy": 21.0},
    "armed": True,
    "prequential_accuracy": 0.7,
    "prequential_accuracy_mean": 0.75,
    "model_version": 9,
    "probe_ert": 1000.0,
    "probe_samples": 100,
    "probe_alarms": 0,
}
LEARNED = BatchLearned(**SCORED, replayed=0, components=50, classes=6)
SET_ASIDE = BatchSetAside(**SCORED, set_aside_batches=2, set_aside_samples=200)
BOUNDARY = BoundaryDetected(
    boundary=3,
    sub_task=3,
    batch_index=5,
    sample_index=500,
    estimated_start_batch=4,
    estimated_start_sample=400,
    detector="sequential",
    signal="inliers",
    evidence={},
    set_aside_batches=2,
    set_aside_samples=200,
    version_before=9,
    version_after=12,
    recurrence_of=None,
    mixed_samples=0,
)
BURST = OutlierBurst(
    sub_task=2,
    batch_index=6,
    sample_index=600,
    estimated_start_batch=4,
    estimated_start_sample=450,
    samples=30,
    released=170,
    set_aside_batches=2,
    detector="sequential",
    signal="inliers",
    evidence={},
    model_version=10,
)


CONTINUED_FIELDS = (
    "sub_task",
    "batch_index",
    "sample_index",
    "estimated_start_batch",
    "estimated_start_sample",
    "detector",
    "signal",
    "evidence",
    "model_version",
)


def observed(*events: Event) -> dict[str, float]:
    metrics = TrainerMetrics()
    for event in events:
        metrics.observe(event)
    return read(metrics.text())


def test_every_metric_of_the_contract_is_exposed() -> None:
    trainer, api = TrainerMetrics(), ApiMetrics()
    trainer.observe(LEARNED)
    trainer.checkpoint_timestamp.set(time.time())
    api.redis_answered(backlog=3, heartbeat_age=1.0)
    api.counted(0, 0, {})
    text = api.text(trainer.text()).decode()
    types = {family.name: family.type for family in text_string_to_metric_families(text)}
    assert {name: types.get(name) for name in CONTRACT} == CONTRACT


def test_a_learned_batch_is_counted_and_its_scores_shown() -> None:
    values = observed(LEARNED)
    expected = {
        "gmr_samples_learned_total": 100,
        "gmr_batches_learned_total": 1,
        "gmr_inlier_rate": 0.8,
        "gmr_inlier_rate_mean": 0.9,
        "gmr_log_likelihood_mean": -12.5,
        "gmr_drift_statistic{detector=inliers}": 1.5,
        "gmr_drift_threshold{detector=occupancy}": 21.0,
        "gmr_drift_armed": 1,
        "gmr_prequential_accuracy": 0.75,
        "gmr_sub_task": 2,
        "gmr_model_version": 9,
        "gmr_classes": 6,
        "gmr_components": 50,
    }
    assert {name: values[name] for name in expected} == expected


def test_a_batch_set_aside_counts_as_learned_only_later() -> None:
    values = observed(SET_ASIDE)
    assert values["gmr_samples_learned_total"] == 0
    assert values["gmr_set_aside_batches"] == 2
    for later in (SetAsideReleased(2, 200, 2, 11), BOUNDARY):
        values = observed(SET_ASIDE, later)
        assert values["gmr_samples_learned_total"] == 200
        assert values["gmr_batches_learned_total"] == 2
        assert values["gmr_set_aside_batches"] == 0


def test_other_events_change_their_metrics() -> None:
    values = observed(
        ClassDiscovered(7, 0, 0),
        BOUNDARY,
        Replayed(3, "analytic", 5000, 90, 80, "boundary"),
        ModelPublished(13, 3, 600, 81, 7, 0.004),
        ModelRestored(5, 13, "rollback"),
        EntryRejected("1-0", "shape_mismatch", "..."),
        EntryRejected("2-0", "shape_mismatch", "..."),
    )
    expected = {
        "gmr_boundaries_total": 1,
        "gmr_sub_task": 3,
        "gmr_replay_samples_total": 5000,
        "gmr_components": 81,
        "gmr_classes": 7,
        "gmr_published_model_version": 13,
        "gmr_publish_duration_seconds_count": 1,
        "gmr_publish_duration_seconds_sum": 0.004,
        "gmr_model_version": 5,
        "gmr_batches_rejected_total{reason=shape_mismatch}": 2,
    }
    assert {name: values[name] for name in expected} == expected


def test_outliers_of_a_burst_are_counted_and_not_as_learned() -> None:
    values = observed(SET_ASIDE, BURST, replace(LEARNED, quarantined=10))
    expected = {
        "gmr_outlier_bursts_total": 1,
        "gmr_outliers_quarantined_total": 30,
        "gmr_samples_learned_total": 170 + 90,
        "gmr_batches_learned_total": 3,
        "gmr_set_aside_batches": 0,
        "gmr_boundaries_total": 0,
    }
    assert {name: values[name] for name in expected} == expected


def test_a_change_that_goes_on_is_no_boundary() -> None:
    fields = {name: getattr(BURST, name) for name in CONTINUED_FIELDS}
    event = ChangeContinued(**fields, boundary_sample=100)
    values = observed(BOUNDARY, event)
    assert (values["gmr_boundaries_total"], values["gmr_changes_continued_total"]) == (1, 1)
    totals = Totals()
    totals.count(event)
    assert (totals.boundaries, totals.continued) == (0, 1)


def test_samples_that_come_again_are_no_boundary() -> None:
    event = SamplesRepeated(**{name: getattr(BURST, name) for name in CONTINUED_FIELDS})
    values = observed(BOUNDARY, event)
    assert (values["gmr_boundaries_total"], values["gmr_repetitions_total"]) == (1, 1)
    totals = Totals()
    totals.count(event)
    assert (totals.boundaries, totals.repetitions) == (0, 1)


def test_a_burst_that_goes_on_counts_once_and_each_of_its_samples_once() -> None:
    more = OutlierBurstContinued(**{**asdict(BURST), "samples": 5, "burst_samples": 35})
    values = observed(SET_ASIDE, BURST, more)
    assert values["gmr_outlier_bursts_total"] == 1
    assert values["gmr_outliers_quarantined_total"] == 35
    totals = Totals()
    for event in (BURST, more):
        totals.count(event)
    assert (totals.bursts, totals.quarantined) == (1, 35)


def test_a_sub_task_that_returns_is_counted_as_such() -> None:
    values = observed(BOUNDARY, replace(BOUNDARY, recurrence_of=0))
    assert (values["gmr_boundaries_total"], values["gmr_recurrences_total"]) == (2, 1)


def test_the_run_time_that_is_kept_is_shown_beside_the_one_asked_for() -> None:
    metrics = TrainerMetrics()
    for achieved, low, high in ((8e6, 2e6, 3e7), (None, 2e6, None), (None, None, None)):
        metrics.show_ert(1e7, achieved, Interval(low, high), 4)
        values = read(metrics.text())
        assert values["gmr_drift_ert_samples"] == 1e7
        assert values["gmr_drift_probe_alarms"] == 4
        for name, wanted in (("", achieved), ("_low", low), ("_high", high)):
            shown = values[f"gmr_drift_ert_achieved{name}_samples"]
            assert math.isnan(shown) if wanted is None else shown == wanted


def test_a_detector_that_waits_behind_its_warm_up_is_shown() -> None:
    metrics = TrainerMetrics()
    for arming, shown in (
        (Arming.after(100), 0),
        (Arming(100, UnarmedReason.DEPENDENCE), 0),  # in the warm-up
        (Arming.unknown(UnarmedReason.DEPENDENCE), 1),
        (Arming.unknown(UnarmedReason.NO_DETECTOR), 0),
        (Arming.after(0), 0),
    ):
        metrics.show_arming(arming)
        assert read(metrics.text())["gmr_drift_dependence"] == shown


def test_samples_that_are_held_back_count_as_learned_when_they_are() -> None:
    waiting = replace(LEARNED, awaiting=30, unknown=10, awaiting_samples=30)
    values = observed(waiting)
    assert values["gmr_samples_learned_total"] == 60
    assert values["gmr_awaiting_samples"] == 30
    unmatched = {"duplicate": 2, "late": 0, "unknown": 1}
    values = observed(
        waiting,
        LabelsMatched(20, unmatched, 4, 20, 0.5, 0.625, 310.0, 400, 10, 2, 12),
        LabelsMissed(10, "time", 10, 0, 2, 13),
        ClassProposed(1, "unknown", 60, 3, 99, [0.5], [7], [1.0], 2, 13),
        ProposalClosed(1, "x", "named", 60, 8, 2, 14),
        UnknownsLearned(2, 2, "limit", 2, 15),
    )
    expected = {
        "gmr_samples_learned_total": 100,
        "gmr_awaiting_samples": 0,
        "gmr_labels_matched_total": 20,
        "gmr_labels_unmatched_total{reason=duplicate}": 2,
        "gmr_labels_unmatched_total{reason=unknown}": 1,
        "gmr_prequential_accuracy": 0.625,
        "gmr_class_proposals_total": 1,
        "gmr_model_version": 15,
    }
    assert {name: values[name] for name in expected} == expected


def test_how_well_the_past_is_held_is_shown_until_there_is_none_any_more() -> None:
    metrics = TrainerMetrics()
    certain = (0.75, 0.5, 0.875, 0.625)  # accuracy and probability, each then and now
    row = SubTaskRetention(0, 50, (), *certain, -3.0, -4.5, 9)
    metrics.show_held(summary([row]))
    values = read(metrics.text())
    expected = {
        "gmr_held_sub_tasks": 1,
        "gmr_held_accuracy_mean": 0.5,
        "gmr_held_accuracy_min": 0.5,
        "gmr_held_probability_mean": 0.625,
        "gmr_held_probability_loss_max": 0.25,
        "gmr_held_log_likelihood_change_mean": -1.5,
    }
    assert {name: values[name] for name in expected} == expected
    metrics.show_held(summary([]))
    values = read(metrics.text())
    assert values.pop("gmr_held_sub_tasks") == 0
    assert all(math.isnan(values[name]) for name in expected.keys() & values.keys())


def test_every_number_of_the_summary_has_a_metric() -> None:
    row = SubTaskRetention(0, 50, (), 1.0, 1.0, 1.0, 1.0, -3.0, -4.5, 9)
    assert TrainerMetrics().held.keys() == summary([row]).keys()


def test_what_is_not_known_yet_is_no_zero() -> None:
    values = observed()
    assert math.isnan(values["gmr_held_accuracy_mean"])
    assert math.isnan(values["gmr_inlier_rate"])
    assert math.isnan(values["gmr_drift_ert_achieved_samples"])
    assert math.isnan(values["gmr_drift_ert_achieved_low_samples"])
    assert math.isnan(values["gmr_drift_ert_achieved_high_samples"])
    assert math.isnan(values["gmr_prequential_accuracy"])


def test_an_inlier_rate_that_is_known_no_more_does_not_stay() -> None:
    # A new sub-task: what was known of the one before says nothing of it, and is no alarm.
    unknown = replace(LEARNED, inlier_rate=None, inlier_rate_mean=None)
    values = observed(LEARNED, unknown)
    assert math.isnan(values["gmr_inlier_rate"])
    assert math.isnan(values["gmr_inlier_rate_mean"])


def test_a_batch_of_which_all_awaits_labels_is_dealt_with_when_it_is_set_aside() -> None:
    waiting = replace(SET_ASIDE, awaiting=SET_ASIDE.samples, set_aside_batches=0)
    values = observed(waiting, replace(BOUNDARY, set_aside_batches=0, set_aside_samples=0))
    assert values["gmr_batches_learned_total"] == 1
    totals = Totals()
    totals.count(waiting)
    assert totals.batches_learned == 1


SHOWN = (
    *("gmr_prequential_accuracy", "gmr_estimated_accuracy", "gmr_estimated_accuracy_low"),
    *("gmr_log_likelihood_mean", "gmr_inlier_rate", "gmr_inlier_rate_mean"),
)


def test_what_the_last_batch_told_is_shown_after_a_restart_and_no_more_after_a_rollback() -> None:
    last = replace(LEARNED, estimated_accuracy=0.9, estimated_accuracy_low=0.8)
    before = observed(last)
    totals = Totals()
    totals.count(last)
    totals = Totals.from_json(totals.to_json())
    metrics = TrainerMetrics()
    metrics.show_latest(totals.latest)
    after = read(metrics.text())
    statistics = [name for name in before if name.startswith("gmr_drift_statistic{")]
    assert statistics
    for name in (*SHOWN, *statistics):
        assert after[name] == before[name]
    metrics.observe(ModelRestored(3, 7, "rollback"))
    dropped = read(metrics.text())
    assert all(math.isnan(dropped[name]) for name in SHOWN)
    assert not [name for name in dropped if name.startswith("gmr_drift_statistic{")]


def test_counters_go_on_after_a_restart() -> None:
    metrics = TrainerMetrics()
    metrics.resume(samples=1000, batches=10, boundaries=2, replayed=70, rejected={"x": 3})
    metrics.resume(
        samples=0,
        batches=0,
        boundaries=0,
        replayed=0,
        rejected={},
        labels_matched=5,
        labels_unmatched={"late": 6},
        proposals=7,
        recurrences=8,
        bursts=9,
        quarantined=100,
    )
    metrics.observe(LEARNED)
    metrics.observe(EntryRejected("1-0", "x", "..."))
    metrics.observe(BURST)
    values = read(metrics.text())
    assert values["gmr_samples_learned_total"] == 1270
    assert values["gmr_batches_learned_total"] == 13
    assert values["gmr_recurrences_total"] == 8
    assert values["gmr_outlier_bursts_total"] == 10
    assert values["gmr_outliers_quarantined_total"] == 130
    assert values["gmr_boundaries_total"] == 2
    assert values["gmr_replay_samples_total"] == 70
    assert values["gmr_batches_rejected_total{reason=x}"] == 4
    assert values["gmr_labels_matched_total"] == 5
    assert values["gmr_labels_unmatched_total{reason=late}"] == 6
    assert values["gmr_labels_unmatched_total{reason=unknown}"] == 0  # there to be added to
    assert values["gmr_class_proposals_total"] == 7
