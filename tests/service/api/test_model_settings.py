"""Tests for /model/settings: settings of a model that are changed while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest

from clients.http.client import GMRClient
from core.engine.asked_settings import ADJUSTABLE
from service.settings import Settings
from service.upkeep.rebuild import rebuild
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

MakeSettings = Callable[..., Settings]


def change(client: httpx2.Client, of: str = "", **wanted: Any) -> dict[str, Any]:
    answer = client.patch(f"{of}/model/settings", json={"settings": wanted, "by": "ada"})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    assert document["applied"] is True
    return document


def told(client: httpx2.Client, of: str = "") -> dict[str, Any]:
    settings: dict[str, Any] = client.get(f"{of}/model/settings").json()["settings"]
    return settings


def kept_before_boundary(client: httpx2.Client) -> int | None:
    """The version that was kept before the first boundary."""
    rows = client.get("/model/versions").json()["versions"]
    return next((one["version"] for one in rows if one.get("before_boundary") == 1), None)


def test_what_is_asked_for_is_in_force_at_once_and_says_so(live: httpx2.Client) -> None:
    usual = told(live)
    assert set(usual) == set(ADJUSTABLE)
    assert usual["outlier_c"] == {"value": 2, "asked": False}
    asked = {"features": samples(200, seed=9).tolist()}
    version = at_rest(live)["model_version"]
    before = live.post("/outliers", json=asked).json()
    assert change(live, outlier_c=0.1)["model_version"] == version + 1
    assert told(live)["outlier_c"] == {"value": 0.1, "asked": True}
    after = live.post("/outliers", json=asked).json()
    assert sum(after["inliers"]) < sum(before["inliers"])
    assert change(live, outlier_c=None)["model_version"] == version + 2
    assert live.post("/outliers", json=asked).json()["inliers"] == before["inliers"]
    assert told(live) == usual


def test_it_is_an_event_an_entry_of_the_audit_and_nothing_the_second_time(
    live: httpx2.Client,
) -> None:
    change(live, proposal_samples=20, max_classes=7)
    change(live, proposal_samples=20)
    with GMRClient(str(live.base_url)) as other:
        [event] = other.kept_events(kinds=["settings_changed"])
    assert event.data["settings"] == {"proposal_samples": 20, "max_classes": 7}
    assert event.data["settings_before"] == {"proposal_samples": 50, "max_classes": 1000}
    assert event.data["by"] == "ada"
    [_, first] = live.get("/audit").json()["actions"][-2:]
    assert (first["method"], first["path"]) == ("PATCH", "/model/settings")


def test_a_class_too_many_is_let_in_once_more_are_asked_for(settings: MakeSettings) -> None:
    made = settings(max_classes=2)
    third = RawBatch.of(samples(20, seed=3, level=0.9), ["third"] * 20)
    with training(made), serving(made) as live:
        teach(live, batches=2)
        refusal = problem(send(live, third), 422, "invalid-labels")
        assert "gmr settings max_classes=N" in refusal["detail"]
        change(live, max_classes=3)
        assert told(live)["max_classes"]["value"] == 3
        send(live, third).raise_for_status()
        assert len(learned(live)["classes"]) == 3
        change(live, max_classes=1)  # those that are there stay
        assert told(live)["max_classes"]["value"] == 1
        send(live, third).raise_for_status()
        learned(live)
        problem(send(live, RawBatch.of(samples(5, seed=4), [9] * 5)), 422, "invalid-labels")


def test_it_outlives_restart_and_rollback_and_no_setting_overrules_it(
    own: Settings, settings: MakeSettings
) -> None:
    with training(own), serving(own) as live:
        teach(live, batches=3)
        live.post("/drift/boundary").raise_for_status()
        early = wait_until(lambda: kept_before_boundary(live))
        change(live, awaiting_limit=70)
        teach(live, batches=2)
        rolled = live.post("/model/rollback", json={"version": early})
        rolled.raise_for_status()
        assert rolled.json()["model_version"] == early
        assert told(live)["awaiting_limit"] == {"value": 70, "asked": True}
    other = own.model_copy(update={"awaiting_limit": 90, "set_aside_limit": 80})
    with training(other), serving(other) as live:
        wait_until(lambda: told(live)["set_aside_limit"] == {"value": 80, "asked": False})
        assert told(live)["awaiting_limit"] == {"value": 70, "asked": True}
        change(live, awaiting_limit=None)
        assert told(live)["awaiting_limit"] == {"value": 90, "asked": False}


def test_a_named_model_has_its_own(settings: MakeSettings) -> None:
    made = settings()
    with training(made), serving(made) as live:
        live.put("/models/pump-7", json={"settings": {"proposal_samples": 33}}).raise_for_status()
        assert told(live, "/models/pump-7")["proposal_samples"] == {"value": 33, "asked": False}
        change(live, "/models/pump-7", proposal_samples=44)
        assert told(live, "/models/pump-7")["proposal_samples"] == {"value": 44, "asked": True}
        assert told(live)["proposal_samples"] == {"value": 50, "asked": False}


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"preset": 1}, "'preset' cannot be changed while the model runs"),
        ({"max_clases": 7}, "Did you mean max_classes?"),
        ({"max_classes": 0}, "max_classes"),
        ({"max_classes": 2.5}, "whole number"),
        ({"max_classes": "7"}, "settings.max_classes"),
        ({"outlier_false_positive_rate": 1.5}, "outlier_false_positive_rate"),
        ({"proposal_samples": 3}, "proposal_samples"),
        ({"awaiting_limit": 10**12}, "awaiting_limit"),
        ({}, "settings"),
    ],
)
def test_what_cannot_be_changed_is_refused_before_it_is_in_the_stream(
    blank: httpx2.Client, wanted: dict[str, Any], said: str
) -> None:
    refusal = problem(
        blank.patch("/model/settings", json={"settings": wanted}), 422, "invalid-request"
    )
    assert said in refusal["detail"]


def test_without_a_trainer_nothing_is_said_to_be_in_force(blank: httpx2.Client) -> None:
    told = problem(blank.get("/model/settings"), 503, "unavailable")
    assert "gmr trainer" in told["detail"]


def test_an_entry_carries_what_is_asked_for_and_a_wrong_one_is_refused() -> None:
    control = Control(
        "settings", settings={"max_classes": 7, "outlier_c": None}, by="ada", note="why"
    )
    assert read_entry(control.to_entry()) == control
    for text in (b"", b"[]", b"7", b'{"max_classes": "7"}', b'{"max_classes": true}', b"{"):
        entry = {**control.to_entry(), "settings": text}
        with pytest.raises(Exception, match="expected a JSON object"):
            read_entry(entry)


def test_a_model_is_made_again_with_what_was_asked_for(settings: MakeSettings) -> None:
    made = settings(archive_mib=64, checkpoint_interval_s=0.05)
    with training(made), serving(made) as live:
        teach(live, batches=3)
        change(live, max_classes=2, outlier_false_positive_rate=0.3)
        send(live, RawBatch.of(samples(20, seed=3), labels(20))).raise_for_status()
        learned(live)
    again = rebuild(made)
    assert again.equal, again.described()
    assert again.state is not None
    assert again.state.asked.values == {"max_classes": 2, "outlier_false_positive_rate": 0.3}
    others = rebuild(made, {"max_classes": 50})
    assert others.state is not None
    assert others.state.asked.values == {"outlier_false_positive_rate": 0.3}
