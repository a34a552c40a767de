"""Tests for POST /model/rename-class: a class that is called otherwise from now on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest
from pydantic import SecretStr

from clients.http.client import GMRClient
from service.settings import Settings
from service.upkeep.rebuild import rebuild
from service.wire import MAX_LABEL_BYTES, Control, Label, RawBatch, read_entry
from tests.service.api.stack import (
    N_FEATURES,
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
OLD, OTHER = "cat", 3
NEW = "lynx"


def ask(client: httpx2.Client, label: Label, to: Label, of: str = "", **more: Any) -> Any:
    return client.post(f"{of}/model/rename-class", json={"label": label, "to": to, **more})


def renamed(client: httpx2.Client, label: Label, to: Label, of: str = "") -> dict[str, Any]:
    answer = ask(client, label, to, of)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    assert document["applied"] is True
    return document


def classes(client: httpx2.Client, of: str = "") -> dict[Label, int]:
    rows = client.get(f"{of}/model").json()["classes"]
    return {row["label"]: row["count"] for row in rows}


def accuracies(client: httpx2.Client) -> dict[Label, int]:
    rows = client.get("/drift").json()["class_accuracies"]
    return {row["label"]: row["samples"] for row in rows}


def letters(client: httpx2.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/deadletters").json()["deadletters"]
    return found


def test_all_that_was_learned_goes_by_the_new_name_in_a_new_version(live: httpx2.Client) -> None:
    for i in range(9):
        send(live, RawBatch.of(samples(100, seed=20 + i), labels(100))).raise_for_status()
    before, counts = at_rest(live), classes(live)
    asked = {"features": samples(20, seed=9).tolist()}
    then = live.post("/classify", json=asked).json()
    drawn = live.get("/sample", params={"classes": OLD, "n": 4, "seed": 1}).json()
    done = renamed(live, OLD, NEW)
    assert done["model_version"] == before["model_version"] + 1
    assert classes(live) == {OTHER: counts[OTHER], NEW: counts[OLD]}
    now = live.post("/classify", json=asked).json()
    assert now["probabilities"] == then["probabilities"]
    assert now["labels"] == [NEW if one == OLD else one for one in then["labels"]]
    same = live.get("/sample", params={"classes": NEW, "n": 4, "seed": 1}).json()
    assert same["features"] == drawn["features"]
    known = problem(live.get("/sample", params={"classes": OLD}), 404, "unknown-class")["known"]
    assert set(known) == {OTHER, NEW}
    wait_until(lambda: set(accuracies(live)) == {OTHER, NEW})
    wait_until(lambda: series(live) == {str(OTHER), NEW})
    drift = live.get("/drift").json()
    assert {one["label"] for one in drift["class_shares"]["classes"]} == {OTHER, NEW}


def series(client: httpx2.Client) -> set[str]:
    """The classes that have series."""
    rows = client.get("/metrics").text.splitlines()
    mine = [row for row in rows if row.startswith("gmr_class_share{")]
    return {row.split('class="')[1].split('"')[0] for row in mine} - {"other"}


def test_samples_that_come_with_the_old_label_are_another_class(live: httpx2.Client) -> None:
    count = classes(live)[OLD]
    renamed(live, OLD, NEW)
    send(live, RawBatch.of(samples(20, seed=8), [NEW, OLD] * 10)).raise_for_status()
    learned(live)
    assert classes(live)[NEW] == count + 10
    assert classes(live)[OLD] == 10
    wait_until(lambda: set(accuracies(live)) == {OTHER, NEW, OLD})


def test_it_is_an_event_and_an_entry_of_the_audit(live: httpx2.Client) -> None:
    assert ask(live, OLD, NEW, by="ada", reason="looked again").status_code == 200
    with GMRClient(str(live.base_url)) as other:
        [event] = other.kept_events(kinds=["class_renamed"])
    expected = {"label": NEW, "label_before": OLD, "by": "ada", "reason": "looked again"}
    assert {name: event.data[name] for name in expected} == expected
    action = live.get("/audit").json()["actions"][-1]
    assert (action["method"], action["path"], action["status"]) == (
        "POST",
        "/model/rename-class",
        200,
    )
    assert action["asked"]["to"] == NEW


def test_what_cannot_be_is_refused_before_it_is_in_the_stream(live: httpx2.Client) -> None:
    unknown = problem(ask(live, "dog", NEW), 404, "unknown-class")
    assert (unknown["unknown"], set(unknown["known"])) == (["dog"], {OTHER, OLD})
    assert problem(ask(live, str(OTHER), NEW), 404, "unknown-class")["unknown"] == [str(OTHER)]
    taken = problem(ask(live, OLD, OTHER), 409, "class-exists")
    assert taken["label"] == OTHER
    assert "ask that the two become one" in taken["detail"]
    problem(ask(live, OLD, OLD), 409, "class-exists")  # as where the first answer was lost
    renamed(live, OLD, str(OTHER))  # text is no number
    assert letters(live) == []


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"label": OLD, "to": ""}, "invalid-labels"),
        ({"label": OLD, "to": "a" * (MAX_LABEL_BYTES + 1)}, "invalid-labels"),
        ({"label": OLD, "to": 2**63}, "invalid-labels"),
        ({"label": "", "to": NEW}, "invalid-labels"),
        ({"label": OLD, "to": None}, "invalid-request"),
        ({"label": OLD, "to": 1.5}, "invalid-request"),
        ({"label": OLD, "to": True}, "invalid-request"),
        ({"label": OLD}, "invalid-request"),
        ({"label": OLD, "to": NEW, "into": NEW}, "invalid-request"),
        ({"label": OLD, "to": NEW, "reason": "x" * 2001}, "invalid-request"),
    ],
)
def test_a_name_is_a_label_as_any(taught: httpx2.Client, body: dict[str, Any], name: str) -> None:
    problem(taught.post("/model/rename-class", json=body), 422, name)


def test_before_anything_is_learned_no_class_is_known(blank: httpx2.Client) -> None:
    assert problem(ask(blank, OLD, NEW), 404, "unknown-class")["known"] == []


def test_of_two_that_want_the_same_name_the_second_is_a_dead_letter_and_the_next_is_learned(
    own: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.control.APPLY_TIMEOUT_S", 0.0)
    with serving(own) as client:
        with training(own):
            teach(client, batches=3)
            counts = classes(client)
        # The trainer is away, so that nobody knows of the first when the second is accepted.
        first, second = ask(client, OLD, NEW), ask(client, OTHER, NEW)
        assert (first.status_code, second.status_code) == (202, 202)
        send(client, RawBatch.of(samples(20, seed=8), [OTHER, NEW] * 10)).raise_for_status()
        with training(own):
            learned(client)
            assert classes(client) == {OTHER: counts[OTHER] + 10, NEW: counts[OLD] + 10}
            [letter] = letters(client)
            assert letter["entry_id"] == second.json()["entry_id"]
            assert (letter["kind"], letter["reason"]) == ("rename", "class_exists")
            assert "There is a class 'lynx' already" in letter["detail"]
            path = f"/deadletters/{letter['id']}"
            assert client.get(path).json()["labels"] == [OTHER, NEW]
            # What is of no use by now either is not taken again; then it is.
            problem(client.post(path), 409, "class-exists")
            renamed_away = ask(client, NEW, "wild cat")
            assert renamed_away.status_code == 202
            wait_until(lambda: "wild cat" in classes(client))
            assert client.post(path).status_code == 202
            wait_until(lambda: set(classes(client)) == {"wild cat", NEW})


def test_what_the_trainer_alone_knows_is_answered_as_the_route_would(
    live: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing_known(*_: object) -> None:
        """The model served may be older than what was accepted."""

    monkeypatch.setattr("service.api.routes.rename_class.check", nothing_known)
    refused = problem(ask(live, "dog", NEW), 404, "unknown-class")
    assert (refused["unknown"], set(refused["known"])) == (["dog"], {OTHER, OLD})
    assert problem(ask(live, OLD, OTHER), 409, "class-exists")["label"] == OTHER
    assert [one["reason"] for one in letters(live)] == ["unknown_class", "class_exists"]


def test_it_outlives_a_restart_and_a_rollback_behind_it_brings_the_old_name_back(
    own: Settings,
) -> None:
    with serving(own) as client:
        with training(own):
            teach(client, batches=3)
            client.post("/drift/boundary").raise_for_status()
            early = wait_until(lambda: kept_before_boundary(client))
            renamed(client, OLD, NEW)
            # How well the past is held is told by the names of now, boundaries by those of then.
            wait_until(lambda: held(client) == {OTHER, NEW})
        with training(own):
            send(client, RawBatch.of(samples(20, seed=8), [OTHER, NEW] * 10)).raise_for_status()
            learned(client)
            assert set(classes(client)) == {OTHER, NEW}
            assert held(client) == {OTHER, NEW}
            client.post("/model/rollback", json={"version": early}).raise_for_status()
            assert set(classes(client)) == {OTHER, OLD}
            renamed(client, OLD, NEW)
            assert set(classes(client)) == {OTHER, NEW}


def kept_before_boundary(client: httpx2.Client) -> int | None:
    """The version that was kept before the first boundary."""
    rows = client.get("/model/versions").json()["versions"]
    return next((one["version"] for one in rows if one.get("before_boundary") == 1), None)


def held(client: httpx2.Client) -> set[Label]:
    """Labels of the past sub-task."""
    return {one["label"] for row in client.get("/model").json()["held"] for one in row["classes"]}


def test_proposals_name_the_classes_that_they_look_like_by_their_new_names(
    settings: MakeSettings,
) -> None:
    quiet = settings(
        detector="none", settle_after_s=3600, proposal_samples=20, n_components=12, warm_up=10_000
    )

    def nearest(client: httpx2.Client) -> list[set[Label]]:
        rows = client.get("/drift/proposals").json()["proposals"]
        return [set(row["nearest_classes"]) for row in rows]

    with training(quiet), serving(quiet) as client:
        teach(client, batches=12)
        stripes = np.random.default_rng(5).normal(0, 0.05, (40, N_FEATURES))
        stripes += np.where(np.arange(N_FEATURES) % 2, 0.95, 0.05)
        send(client, RawBatch.of(np.clip(stripes, 0, 1).astype("f4"))).raise_for_status()
        wait_until(lambda: nearest(client) == [{OTHER, OLD}])
        renamed(client, OLD, NEW)
        wait_until(lambda: nearest(client) == [{OTHER, NEW}])


def test_a_model_at_rest_does_it_too(live: httpx2.Client) -> None:
    live.put("/model/mode", json={"mode": "frozen"}).raise_for_status()
    renamed(live, OLD, NEW)
    live.put("/model/mode", json={"mode": "learn"}).raise_for_status()
    assert set(classes(live)) == {OTHER, NEW}


def test_a_named_model_has_its_own_names(settings: MakeSettings) -> None:
    made = settings()
    with training(made), serving(made) as live:
        live.put("/models/pump-7").raise_for_status()
        body = {"features": samples(40).tolist(), "labels": labels(40)}
        for path in ("/ingest", "/models/pump-7/ingest"):
            live.post(path, json=body).raise_for_status()
        learned(live)
        wait_until(lambda: set(classes(live, "/models/pump-7")) == {OTHER, OLD})
        renamed(live, OLD, NEW, "/models/pump-7")
        assert set(classes(live, "/models/pump-7")) == {OTHER, NEW}
        assert set(classes(live)) == {OTHER, OLD}


def test_a_class_that_the_experts_alone_know_is_called_otherwise(settings: MakeSettings) -> None:
    made = settings(experts=True, warm_up=10, settle_after_s=3600)
    with training(made), serving(made) as live:
        x = {"features": (10 * samples(40, seed=1)).tolist(), "labels": labels(40)}
        live.post("/ingest", json=x).raise_for_status()
        learned(live)
        answers = set(
            live.post("/classify", json={"features": x["features"][:1]}).json()["classes"]
        )
        assert answers == {OTHER, OLD}
        renamed(live, OLD, NEW)
        now = live.post("/classify", json={"features": x["features"][:1]}).json()
        assert set(now["classes"]) == {OTHER, NEW}


def test_it_is_for_administrators(settings: MakeSettings) -> None:
    operator = "operator-key-of-32-characters-0"
    with serving(settings(admin_key=SecretStr(operator))) as client:
        client.headers["Authorization"] = f"Bearer {operator}"
        key = client.post("/keys", json={"name": "x", "roles": ["ingest", "read"]}).json()["key"]
        client.headers["Authorization"] = f"Bearer {key}"
        problem(ask(client, OLD, NEW), 403, "forbidden")


def test_an_entry_carries_both_labels_and_a_wrong_one_is_refused() -> None:
    for both in ((OLD, NEW), (3, "3"), (2**63 - 1, "\N{PILE OF POO}")):
        control = Control("rename", labels=both, by="ada", note="why")
        assert read_entry(control.to_entry()) == control
    entry = Control("rename", labels=(OLD, NEW)).to_entry()
    for text in (b"", b"[]", b"7", b'["a"]', b'["a", null]', b'["a", "b", "c"]', b'{"a": "b"}'):
        with pytest.raises(Exception, match="expected a JSON list of two"):
            read_entry({**entry, "labels": text})
    for text in (b'["a", ""]', b'["a", 1.5]', b'["a", true]'):
        with pytest.raises(Exception, match="The label at position 1"):
            read_entry({**entry, "labels": text})


def test_a_model_is_made_again_with_the_names_it_was_given(settings: MakeSettings) -> None:
    made = settings(archive_mib=64, checkpoint_interval_s=0.05)
    with training(made), serving(made) as live:
        teach(live, batches=3)
        renamed(live, OLD, NEW)
        send(live, RawBatch.of(samples(20, seed=3), [OTHER, OLD] * 10)).raise_for_status()
        learned(live)
        renamed(live, OLD, "again")
    again = rebuild(made)
    assert again.equal, again.described()
    assert again.state is not None
    assert set(again.state.model.classes) == {OTHER, NEW, "again"}
    others = rebuild(made, {"outlier_c": 3.0})
    assert others.state is not None
    assert set(others.state.model.classes) == {OTHER, NEW, "again"}
