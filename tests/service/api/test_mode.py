"""Tests for PUT /model/mode and PUT /drift/ert: a model at rest, from outside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from clients.http.client import GMRClient
from core.events import BatchPassed, ModeChanged
from service.settings import Settings
from service.wire import Control, RawBatch, read_entry
from tests.service.api.stack import (
    at_rest,
    labels,
    learned,
    problem,
    samples,
    send,
    serving,
    teach,
    training,
    wait_until,
)
from tests.service.running import ask

MakeSettings = Callable[..., Settings]


def put(client: httpx2.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = client.put(path, json=body)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    assert document["applied"] is True
    return document


def drift(client: httpx2.Client) -> dict[str, Any]:
    document: dict[str, Any] = client.get("/drift").json()
    return document


def told(client: httpx2.Client, *kinds: str) -> list[dict[str, Any]]:
    """Events of some kinds, oldest first."""
    with GMRClient(str(client.base_url)) as other:
        return [dict(event.data) for event in other.kept_events(kinds=kinds)]


def metric(client: httpx2.Client, name: str, **labels: str) -> float:
    families = text_string_to_metric_families(client.get("/metrics").text)
    [value] = [
        one.value
        for family in families
        for one in family.samples
        if one.name == name and one.labels == labels
    ]
    return float(value)


def test_a_frozen_model_scores_counts_and_tells_and_learns_nothing(live: httpx2.Client) -> None:
    before = at_rest(live)
    done = put(live, "/model/mode", mode="frozen", reason="maintenance", by="ada")
    assert done["model_version"] == before["model_version"]
    assert drift(live)["mode"] == live.get("/model").json()["mode"] == "frozen"
    for seed in (50, 51):
        send(live, RawBatch.of(samples(40, seed=seed), labels(40))).raise_for_status()
    after = learned(live)
    assert after["model_version"] == before["model_version"]
    assert after["samples_seen"] == before["samples_seen"] == 300
    now = wait_until(lambda: (state := drift(live))["passed_samples"] == 80 and state)
    assert (now["passed_batches"], now["stream_samples"]) == (2, 380)
    assert now["prequential_accuracy"] == 1

    changed, *passed = told(live, ModeChanged.kind, BatchPassed.kind)
    assert (changed["mode"], changed["by"], changed["reason"]) == ("frozen", "ada", "maintenance")
    assert [one["batch_index"] for one in passed] == [3, 4]
    rows = live.get("/drift/history").json()["history"]
    assert [row["kind"] for row in rows[-2:]] == ["batch_passed"] * 2
    assert live.get("/drift/curve").json()["points"]["samples"][-1] == 40

    def shown() -> bool:
        return metric(live, "gmr_samples_passed_total") == 80

    wait_until(shown)
    assert metric(live, "gmr_batches_passed_total") == 2
    assert metric(live, "gmr_mode", mode="frozen") == 1
    assert metric(live, "gmr_mode", mode="learn") == 0

    problem(live.post("/drift/boundary"), 409, "model-at-rest")
    put(live, "/model/mode", mode="learn")
    send(live, RawBatch.of(samples(40, seed=52), labels(40))).raise_for_status()
    assert learned(live)["samples_seen"] == 340
    assert told(live, "batch_learned")[-1]["sample_index"] == 380


def test_a_boundary_declared_behind_a_freeze_is_a_dead_letter(own: Settings) -> None:
    with serving(own) as client:
        with training(own):
            teach(client, batches=2)
        # Nobody reads: the request for the mode and the boundary wait one behind the other.
        ask(own, lambda stream: stream.append_control(Control("mode", mode="frozen")))
        assert client.post("/drift/boundary").status_code == 202
        with training(own):
            [letter] = wait_until(lambda: client.get("/deadletters").json()["deadletters"])
    assert letter["reason"] == "model_at_rest"
    assert "PUT /model/mode" in letter["detail"]


def test_a_mode_survives_a_restart(own: Settings) -> None:
    with serving(own) as client:
        with training(own):
            teach(client, batches=3)
            put(client, "/model/mode", mode="detect_only")
            put(client, "/drift/ert", ert=12_345)
        with training(own):
            send(client, RawBatch.of(samples(20), labels(20))).raise_for_status()
            assert learned(client)["samples_seen"] == 300
            now = wait_until(lambda: (state := drift(client))["passed_samples"] == 20 and state)
            # The settings do not overrule what a person asked for.
            assert (now["mode"], now["ert"], now["ert_asked"]) == ("detect_only", 12_345, True)


def test_a_run_time_is_asked_for_and_left_to_the_settings_again(live: httpx2.Client) -> None:
    usual = drift(live)["ert"]
    put(live, "/drift/ert", ert=5000, by="ada")
    wait_until(lambda: drift(live)["ert"] == 5000)
    put(live, "/drift/ert", ert=None)
    wait_until(lambda: drift(live)["ert"] == usual)
    first, second = told(live, "ert_changed")
    assert (first["ert"], first["ert_before"], first["by"]) == (5000, usual, "ada")
    assert (second["ert"], second["by"]) == (usual, "anybody")


def test_a_run_time_of_no_use_is_warned_of(live: httpx2.Client) -> None:
    for ert, warned in ((3, True), (999, True), (1000, False), (None, False)):
        answer = live.put("/drift/ert", json={"ert": ert}).json()
        assert bool(answer["warning"]) is warned
        assert not warned or f"One false alarm in {ert} samples" in answer["warning"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/model/mode", {"mode": "asleep"}),
        ("/model/mode", {}),
        ("/model/mode", {"mode": "frozen", "reason": "x" * 2001}),
        ("/drift/ert", {"ert": 1}),
        ("/drift/ert", {"ert": 2.5}),
        ("/drift/ert", {}),
    ],
)
def test_what_is_no_mode_and_no_run_time_is_refused(
    blank: httpx2.Client, path: str, body: dict[str, Any]
) -> None:
    problem(blank.put(path, json=body), 422, "invalid-request")


def test_an_entry_says_who_asked_and_why() -> None:
    control = Control("mode", mode="frozen", by="ada", note="why")
    assert read_entry(control.to_entry()) == control


def test_what_was_set_aside_before_a_long_freeze_can_be_sent_again_after_a_rollback(
    own: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.totals.REMEMBERED_STARTS", 3)
    strange = RawBatch.of(samples(12, seed=7, level=0.2), labels(12), "strange")
    with training(own), serving(own) as client:
        teach(client, batches=8)
        send(client, strange).raise_for_status()
        put(client, "/model/mode", mode="frozen")
        assert client.get("/drift").json()["set_aside_batches"] == 1
        for seed in range(5):  # more than entries are remembered
            send(client, RawBatch.of(samples(10, seed=seed), labels(10))).raise_for_status()
        kept = learned(client)

        def held() -> bool:
            versions = client.get("/model/versions").json()["versions"]
            newest = max(versions, key=lambda one: one["entries_applied"])
            return bool(
                newest["version"] == kept["model_version"] and newest["entries_applied"] >= 15
            )

        wait_until(held)
        client.post("/model/rollback", json={"version": kept["model_version"]}).raise_for_status()
        assert send(client, strange).status_code == 202
