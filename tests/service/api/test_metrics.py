"""Tests for GET /metrics and for what the middleware counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from core.events import EntryRejected
from service.api.metrics import ApiMetrics
from service.broker.connection import connect
from service.broker.keys import Keys
from service.settings import Settings
from service.trainer.metrics import TrainerMetrics
from service.wire import RawBatch
from tests.service.api.stack import samples, send, serving, wait_until
from tests.service.metrics_text import read

# The names that the outside relies on.
PROMISED = {
    "gmr_samples_ingested_total",
    "gmr_samples_learned_total",
    "gmr_batches_rejected_total",
    "gmr_backlog_entries",
    "gmr_inlier_rate",
    "gmr_inlier_rate_mean",
    "gmr_log_likelihood_mean",
    "gmr_drift_statistic",
    "gmr_drift_threshold",
    "gmr_boundaries_total",
    "gmr_sub_task",
    "gmr_replay_samples_total",
    "gmr_model_version",
    "gmr_classes",
    "gmr_components",
    "gmr_prequential_accuracy",
    "gmr_train_step_duration_seconds",
    "gmr_publish_duration_seconds",
    "gmr_checkpoint_age_seconds",
    "gmr_redis_errors_total",
    "gmr_http_requests_total",
    "gmr_http_request_duration_seconds",
}


def families(client: httpx2.Client) -> dict[str, float]:
    """Every sample without labels, and the names of all families."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        found[family.name + ("_total" if family.type == "counter" else "")] = 0.0
        for sample in family.samples:
            found[sample.name] = sample.value
    return found


def test_every_promised_metric_is_there(taught: httpx2.Client) -> None:
    def all_there() -> bool:
        return families(taught).keys() >= PROMISED

    # The first checkpoint, and so its age, comes after a few seconds.
    wait_until(all_there)


def test_the_trainers_metrics_follow_its_model(taught: httpx2.Client) -> None:
    def settled() -> dict[str, Any] | None:
        # By an entry of its own once the stream is quiet, which is backlog until it is read.
        told: dict[str, Any] = taught.get("/model").json()
        return told if told["backlog"] == told["waiting"] == 0 else None

    model = wait_until(settled)
    # The trainer tells them once a second.
    wait_until(lambda: families(taught)["gmr_model_version"] == model["model_version"])
    metrics = families(taught)
    assert metrics["gmr_samples_learned_total"] == 600
    assert metrics["gmr_backlog_entries"] == 0
    assert metrics["gmr_classes"] == 2
    assert metrics["gmr_components"] == model["components"]
    assert metrics["gmr_batches_learned_total"] == 6
    # And entries by which the stream was settled whenever it was quiet.
    assert metrics["gmr_train_step_duration_seconds_count"] >= 6


def test_counts_of_the_stream_outlive_the_processes_and_are_the_same_in_all_of_them(
    settings: Callable[..., Settings],
) -> None:
    made = settings()
    with serving(made) as one:
        send(one, RawBatch.of(samples(7), batch_id="a"))
        one.post("/ingest", json={"features": [[1], [2, 3]]})
        with serving(made) as other:
            send(other, RawBatch.of(samples(3), batch_id="b"))
            send(other, RawBatch.of(samples(3), batch_id="b"))
            one.get("/metrics")
            for client in (one, other):
                found = families(client)
                assert found["gmr_samples_ingested_total"] == 10
                assert found["gmr_batches_ingested_total"] == 2
                assert found["gmr_batches_rejected_total"] == 1
            other.post("/ingest", json={"features": [[1], [2, 3]]})
    with serving(made) as again:
        found = families(again)
        assert found["gmr_samples_ingested_total"] == 10
        assert found["gmr_batches_ingested_total"] == 2
        assert found["gmr_batches_rejected_total"] == 2


def test_refusals_are_counted_together_without_being_asked_for(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.parts.COUNT_S", 0.01)
    made = settings()
    with serving(made) as client, connect(made.redis_address() or "") as redis:
        client.post("/ingest", json={"features": [[1], [2, 3]]})
        key = Keys(made.model).counts
        wait_until(lambda: redis.hget(key, "rejected:shape_mismatch") == b"1")


def test_metrics_are_text_that_prometheus_reads(taught: httpx2.Client) -> None:
    response = taught.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    names = [family.name for family in text_string_to_metric_families(response.text)]
    assert len(names) == len(set(names))


def test_requests_are_counted_by_route_not_by_path(api: httpx2.Client) -> None:
    api.get("/model")
    api.get("/nowhere/at/all")
    api.get("/problems/shape-mismatch")
    api.delete("/model")
    api.request("PROPFIND", "/model")
    text = api.get("/metrics").text
    count = "gmr_http_requests_total"
    assert f'{count}{{method="GET",route="/model",status="200"}} 1.0' in text
    assert f'{count}{{method="GET",route="/problems/{{name}}",status="200"}} 1.0' in text
    assert f'{count}{{method="GET",route="unmatched",status="404"}} 1.0' in text
    assert f'{count}{{method="DELETE",route="/model",status="405"}} 1.0' in text
    assert f'{count}{{method="OTHER",route="/model",status="405"}} 1.0' in text
    assert "nowhere" not in text
    assert 'gmr_http_request_duration_seconds_count{route="/model"} 3.0' in text


def test_what_both_processes_count_is_added_up() -> None:
    trainer, api = TrainerMetrics(), ApiMetrics(redis_errors=lambda: 5)
    trainer.redis_errors.inc(2)
    trainer.observe(EntryRejected("1-0", "shape_mismatch", "..."))
    trainer.observe(EntryRejected("1-0", "internal_error", "..."))
    api.counted(0, 0, {})
    api.rejected("shape_mismatch")
    api.rejected("invalid_labels")
    values = read(api.text(trainer.text()))
    assert values["gmr_redis_errors_total"] == 7
    assert values["gmr_batches_rejected_total{reason=shape_mismatch}"] == 2
    assert values["gmr_batches_rejected_total{reason=internal_error}"] == 1
    assert values["gmr_batches_rejected_total{reason=invalid_labels}"] == 1


def test_the_age_of_a_checkpoint_is_that_at_the_moment_of_asking(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trainer, api = TrainerMetrics(), ApiMetrics()
    trainer.checkpoint_timestamp.set(1000.0)
    text = trainer.text()
    for now in (1005.0, 1007.5):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        assert read(api.text(text))["gmr_checkpoint_age_seconds"] == now - 1000.0


def test_without_a_checkpoint_there_is_no_age() -> None:
    assert "gmr_checkpoint_age_seconds" not in read(ApiMetrics().text(TrainerMetrics().text()))


def test_without_redis_the_process_still_speaks_for_itself() -> None:
    api = ApiMetrics()
    api.redis_answered(backlog=3, heartbeat_age=0.5)
    assert read(api.text())["gmr_backlog_entries"] == 3
    api.redis_away()
    api.answered("/model", "GET", 503, 0.002)
    values = read(api.text())
    assert values["gmr_redis_up"] == 0
    assert "gmr_backlog_entries" not in values
    assert values["gmr_http_requests_total{method=GET,route=/model,status=503}"] == 1


def test_requests_are_counted_and_timed_unless_they_are_endless() -> None:
    api = ApiMetrics()
    api.answered("/classify", "POST", 200, 0.003)
    api.answered("/events", "GET", 200, None)
    with api.listening():
        assert read(api.text())["gmr_event_listeners"] == 1
    values = read(api.text())
    assert values["gmr_event_listeners"] == 0
    assert values["gmr_http_request_duration_seconds_count{route=/classify}"] == 1
    assert values["gmr_http_request_duration_seconds_bucket{le=0.005,route=/classify}"] == 1
    assert "gmr_http_request_duration_seconds_count{route=/events}" not in values
    assert values["gmr_http_requests_total{method=GET,route=/events,status=200}"] == 1


def test_what_all_processes_count_is_told_once_it_is_known() -> None:
    api = ApiMetrics()
    api.rejected("x")
    # A number that begins at 1 and goes on at 1001 would look like a thousand refusals.
    assert not [name for name in read(api.text()) if "ingested" in name or "rejected" in name]
    api.counted(150, 2, {"x": 1000})
    values = read(api.text())
    assert values["gmr_samples_ingested_total"] == 150
    assert values["gmr_batches_ingested_total"] == 2
    assert values["gmr_batches_rejected_total{reason=x}"] == 1001
    api.redis_away()
    assert read(api.text())["gmr_samples_ingested_total"] == 150


@given(st.lists(st.sampled_from(["rejected", "send", "arrives", "fails"]), max_size=40))
def test_no_refusal_is_lost_or_counted_twice_and_the_number_never_falls(steps: list[str]) -> None:
    api, refused, everywhere, told = ApiMetrics(), 0, 0, 0
    api.counted(0, 0, {})
    sent: int | None = None
    for step in steps:
        match step:
            case "rejected":
                api.rejected("x")
                refused += 1
            case "send" if sent is None:
                sent = api.send_rejected().get("x", 0)
            case "arrives" if sent is not None:
                everywhere, sent = everywhere + sent, None
                api.counted(0, 0, {"x": everywhere})
            case "fails" if sent is not None:
                api.not_counted()
                sent = None
        now = read(api.text()).get("gmr_batches_rejected_total{reason=x}", 0)
        assert now == refused >= told
        assert api.has_news == (refused > everywhere + (sent or 0))
        told = now
