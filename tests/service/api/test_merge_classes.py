"""Tests for POST /model/merge-classes: two classes that are one from now on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from clients.http.client import GMRClient
from service.settings import Settings
from service.upkeep.rebuild import rebuild
from service.wire import Control, Label, RawBatch, read_entry
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
from tests.service.api.test_rename_class import (
    accuracies,
    classes,
    held,
    kept_before_boundary,
    letters,
    series,
)

MakeSettings = Callable[..., Settings]
CAT, OTHER = "cat", 3
MISTYPED = "cta"


def ask(client: httpx2.Client, label: Any, into: Any, of: str = "", **more: Any) -> Any:
    return client.post(f"{of}/model/merge-classes", json={"label": label, "into": into, **more})


def merged(client: httpx2.Client, label: Label, into: Label, of: str = "") -> dict[str, Any]:
    answer = ask(client, label, into, of)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    assert document["applied"] is True
    return document


def mistype(client: httpx2.Client, batches: int = 3) -> None:
    """Samples of cats, half of them under a label with a typing error."""
    for index in range(batches):
        named = [MISTYPED if one == CAT and row % 4 < 2 else one for row, one in cats_and_others()]
        send(client, RawBatch.of(samples(100, seed=40 + index), named)).raise_for_status()
    learned(client)


def cats_and_others() -> list[tuple[int, Label]]:
    return list(enumerate(labels(100)))


def test_all_that_was_learned_of_both_is_of_the_one_in_a_new_version(live: httpx2.Client) -> None:
    mistype(live)
    before, counts = at_rest(live), classes(live)
    wait_until(lambda: set(accuracies(live)) == {OTHER, CAT, MISTYPED})
    heard = accuracies(live)
    done = merged(live, MISTYPED, CAT)
    assert done["model_version"] > before["model_version"]
    assert classes(live) == {OTHER: counts[OTHER], CAT: counts[CAT] + counts[MISTYPED]}
    answer = live.post("/classify", json={"features": samples(20, seed=9).tolist()}).json()
    assert set(answer["classes"]) == {OTHER, CAT}
    assert all(sum(row) == pytest.approx(1, abs=1e-5) for row in answer["probabilities"])
    problem(live.get("/sample", params={"classes": MISTYPED}), 404, "unknown-class")
    live.get("/sample", params={"classes": CAT, "n": 4, "seed": 1}).raise_for_status()
    both = {OTHER: heard[OTHER], CAT: heard[CAT] + heard[MISTYPED]}
    wait_until(lambda: accuracies(live) == both)
    wait_until(lambda: series(live) == {str(OTHER), CAT})


def test_samples_that_come_with_the_label_that_is_no_more_are_another_class(
    live: httpx2.Client,
) -> None:
    mistype(live)
    merged(live, MISTYPED, CAT)
    counts = classes(live)
    send(live, RawBatch.of(samples(20, seed=8), [CAT, MISTYPED] * 10)).raise_for_status()
    learned(live)
    assert classes(live) == {**counts, CAT: counts[CAT] + 10, MISTYPED: 10}


def test_it_is_an_event_and_an_entry_of_the_audit(live: httpx2.Client) -> None:
    assert ask(live, CAT, OTHER, by="ada", reason="nobody cares").status_code == 200
    with GMRClient(str(live.base_url)) as other:
        [event] = other.kept_events(kinds=["classes_merged"])
    expected = {"label": OTHER, "label_before": CAT, "by": "ada", "reason": "nobody cares"}
    assert {name: event.data[name] for name in expected} == expected
    action = live.get("/audit").json()["actions"][-1]
    assert (action["path"], action["status"]) == ("/model/merge-classes", 200)
    assert action["asked"]["into"] == OTHER


def test_what_cannot_be_is_refused_before_it_is_in_the_stream(live: httpx2.Client) -> None:
    unknown = problem(ask(live, "dog", CAT), 404, "unknown-class")
    assert (unknown["unknown"], set(unknown["known"])) == (["dog"], {OTHER, CAT})
    assert problem(ask(live, CAT, str(OTHER)), 404, "unknown-class")["unknown"] == [str(OTHER)]
    assert "part of itself" in problem(ask(live, CAT, CAT), 422, "invalid-labels")["detail"]
    problem(ask(live, CAT, ""), 422, "invalid-labels")
    problem(ask(live, CAT, None), 422, "invalid-request")
    problem(ask(live, CAT, OTHER, to=OTHER), 422, "invalid-request")
    live.put("/model/mode", json={"mode": "frozen"}).raise_for_status()
    assert "cannot become one" in problem(ask(live, CAT, OTHER), 409, "model-at-rest")["detail"]
    assert set(classes(live)) == {OTHER, CAT}
    assert letters(live) == []


def test_of_two_that_want_the_same_class_the_second_is_a_dead_letter_and_the_next_is_learned(
    own: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.control.APPLY_TIMEOUT_S", 0.0)
    with serving(own) as client:
        with training(own):
            teach(client, batches=3)
            counts = classes(client)
        # The trainer is away, so that nobody knows of the first when the second is accepted.
        first, second = ask(client, CAT, OTHER), ask(client, CAT, OTHER)
        assert (first.status_code, second.status_code) == (202, 202)
        send(client, RawBatch.of(samples(20, seed=8), [OTHER, CAT] * 10)).raise_for_status()
        with training(own):
            learned(client)
            assert classes(client) == {OTHER: sum(counts.values()) + 10, CAT: 10}
            [letter] = letters(client)
            assert letter["entry_id"] == second.json()["entry_id"]
            assert (letter["kind"], letter["reason"]) == ("merge", "unknown_class")
            path = f"/deadletters/{letter['id']}"
            assert client.get(path).json()["labels"] == [CAT, OTHER]
            assert client.post(path).status_code == 202  # there is such a class by now
            wait_until(lambda: set(classes(client)) == {OTHER})


def test_what_the_trainer_alone_knows_is_answered_as_the_route_would(
    live: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing_known(*_: object) -> None:
        """The model served may be older than what was accepted."""

    monkeypatch.setattr("service.api.routes.merge_classes.check", nothing_known)
    refused = problem(ask(live, CAT, "dog"), 404, "unknown-class")
    assert (refused["unknown"], set(refused["known"])) == (["dog"], {OTHER, CAT})
    assert [one["reason"] for one in letters(live)] == ["unknown_class"]


def test_it_outlives_a_restart_and_a_rollback_behind_it_brings_both_back(own: Settings) -> None:
    with serving(own) as client:
        with training(own):
            teach(client, batches=3)
            mistype(client)
            client.post("/drift/boundary").raise_for_status()
            early = wait_until(lambda: kept_before_boundary(client))
            merged(client, MISTYPED, CAT)
            wait_until(lambda: held(client) == {OTHER, CAT})
        with training(own):
            send(client, RawBatch.of(samples(20, seed=8), [OTHER, CAT] * 10)).raise_for_status()
            learned(client)
            assert set(classes(client)) == held(client) == {OTHER, CAT}
            client.post("/model/rollback", json={"version": early}).raise_for_status()
            assert set(classes(client)) == {OTHER, CAT, MISTYPED}


def test_classes_that_the_experts_know_become_one_and_are_told_apart_from_others(
    settings: MakeSettings,
) -> None:
    made = settings(experts=True, warm_up=10, settle_after_s=3600)
    with training(made), serving(made) as live:
        x = 10 * samples(100, seed=1)
        named = [MISTYPED if row % 4 < 2 and one == CAT else one for row, one in cats_and_others()]
        live.post("/ingest", json={"features": x.tolist(), "labels": named}).raise_for_status()
        learned(live)
        merged(live, MISTYPED, CAT)
        answer = live.post("/classify", json={"features": x.tolist()}).json()
        assert set(answer["classes"]) == {OTHER, CAT}


def test_a_named_model_has_its_own_classes(settings: MakeSettings) -> None:
    made = settings()
    with training(made), serving(made) as live:
        live.put("/models/pump-7").raise_for_status()
        body = {"features": samples(40).tolist(), "labels": labels(40)}
        for path in ("/ingest", "/models/pump-7/ingest"):
            live.post(path, json=body).raise_for_status()
        learned(live)
        wait_until(lambda: set(classes(live, "/models/pump-7")) == {OTHER, CAT})
        merged(live, CAT, OTHER, "/models/pump-7")
        assert set(classes(live, "/models/pump-7")) == {OTHER}
        assert set(classes(live)) == {OTHER, CAT}


def test_it_is_for_administrators(settings: MakeSettings) -> None:
    operator = "operator-key-of-32-characters-0"
    with serving(settings(admin_key=SecretStr(operator))) as client:
        client.headers["Authorization"] = f"Bearer {operator}"
        key = client.post("/keys", json={"name": "x", "roles": ["ingest", "read"]}).json()["key"]
        client.headers["Authorization"] = f"Bearer {key}"
        problem(ask(client, CAT, OTHER), 403, "forbidden")


def test_an_entry_carries_both_labels() -> None:
    for both in ((MISTYPED, CAT), (3, "3")):
        control = Control("merge", labels=both, by="ada", note="why")
        assert read_entry(control.to_entry()) == control
    entry = Control("merge", labels=(MISTYPED, CAT)).to_entry()
    with pytest.raises(Exception, match="that of the other class"):
        read_entry({**entry, "labels": b'["a"]'})


def test_a_model_is_made_again_with_the_classes_that_became_one(settings: MakeSettings) -> None:
    made = settings(archive_mib=64, checkpoint_interval_s=0.05)
    with training(made), serving(made) as live:
        teach(live, batches=3)
        mistype(live)
        merged(live, MISTYPED, CAT)
        send(live, RawBatch.of(samples(20, seed=3), [OTHER, CAT] * 10)).raise_for_status()
        learned(live)
    again = rebuild(made)
    assert again.equal, again.described()
    assert again.state is not None
    assert set(again.state.model.classes) == {OTHER, CAT}
