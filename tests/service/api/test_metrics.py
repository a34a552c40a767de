"""Tests for GET /metrics and for what the middleware counts."""

from __future__ import annotations

from typing import Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from tests.service.api.stack import wait_until

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
