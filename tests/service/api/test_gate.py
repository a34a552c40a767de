"""Tests for the gate, from outside: what has forgotten too much is not served."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from clients.commands.reading import Reading, gate_of
from clients.http.client import GMRClient
from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import (
    N_FEATURES,
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
from tests.service.running import LONGEST_S

MakeSettings = Callable[..., Settings]

OTHERS = ("dog", "emu")


FORGETFUL = {
    "preset": "paper",
    "n_components": 4,
    "replay_factor": 0.0,
    "detector": "none",
    "gate_max_forgetting": 0.02,
    "checkpoint_interval_s": 0.05,
}
"""Settings of a model that forgets: gradient descent without replay."""


@pytest.fixture
def forgetful(settings: MakeSettings) -> MakeSettings:
    """Makes settings of such a model."""
    return lambda **more: settings(**{**FORGETFUL, **more})


def other_samples(n: int, *, seed: int = 0) -> np.ndarray:
    """Two other blobs, with shape (n, 16)."""
    noise = np.random.default_rng(seed).normal(0, 0.05, (n, N_FEATURES))
    stripes = np.where(np.arange(N_FEATURES) % 2, 0.9, 0.1)
    centres = np.where(np.arange(n)[:, None] % 2, stripes, 1 - stripes)
    return np.clip(centres + noise, 0, 1).astype(np.float32)


def teach_others(client: httpx2.Client, batches: int = 8, n: int = 100) -> dict[str, Any]:
    """Batches of two other classes."""
    names = [OTHERS[i % 2] for i in range(n)]
    for i in range(batches):
        send(client, RawBatch.of(other_samples(n, seed=100 + i), names)).raise_for_status()
    return learned(client)


def cross(client: httpx2.Client) -> None:
    """A boundary that a person declares, crossed and published."""
    client.post("/drift/boundary").raise_for_status()
    learned(client)


def drift(client: httpx2.Client) -> dict[str, Any]:
    document: dict[str, Any] = client.get("/drift").json()
    return document


def gate(client: httpx2.Client) -> dict[str, Any]:
    """Where the gate stands."""
    document: dict[str, Any] = drift(client)["gate"]
    return document


def told(client: httpx2.Client, *kinds: str) -> list[dict[str, Any]]:
    with GMRClient(str(client.base_url)) as other:
        return [dict(event.data) for event in other.kept_events(kinds=kinds)]


def metric(client: httpx2.Client, name: str) -> float:
    """A metric without labels, once the trainer has told it."""

    def value() -> float | None:
        families = text_string_to_metric_families(client.get("/metrics").text)
        every = (one for family in families for one in family.samples)
        return next((one.value for one in every if one.name == name), None)

    return float(wait_until(value))


def answers(client: httpx2.Client) -> bytes:
    """What the served model says of samples, bit for bit."""
    body = {"features": [*samples(20, seed=9).tolist(), *other_samples(20, seed=9).tolist()]}
    reply = client.post("/classify", json=body)
    reply.raise_for_status()
    return reply.content


def share_right(client: httpx2.Client) -> float:
    """Of the data of the first sub-task, how many the served model names rightly."""
    said = client.post("/classify", json={"features": samples(40, seed=9).tolist()}).json()
    return float(
        np.mean([one == other for one, other in zip(said["labels"], labels(40), strict=True)])
    )


def forgotten(client: httpx2.Client) -> bytes:
    """Let the model forget its first sub-task, and be held back; what answers, answers rightly."""
    teach(client, batches=8)
    cross(client)
    teach_others(client)
    wait_until(
        lambda: (
            gate(client)["held"]
            and learned(client)["model_version"] == gate(client)["served_version"]
        )
    )
    assert share_right(client) > 0.9
    return answers(client)


def test_a_version_that_forgot_is_held_until_it_knows_again(
    forgetful: MakeSettings,
) -> None:
    own = forgetful(snapshot_store="directory")
    with serving(own) as client:
        with training(own):
            answered = forgotten(client)
            now, state = learned(client), drift(client)
            held = state["gate"]
            assert held["forgetting"] > 0.5  # it has truly forgotten, not by a hair
            assert held["forgetting"] == held["accuracy_before"] - held["accuracy_now"]
            assert held["past_sub_task"] == 0
            assert now["gate"]["held"] is True
            assert now["model_version"] == held["served_version"] < held["held_version"]
            assert state["stream_samples"] == 1600
            assert now["samples_seen"] < 1600  # learning goes on
            [event] = told(client, "version_held")
            assert event["entry_id"] == held["held_entry_id"]
            assert (event["model_version"], event["served_version"]) == (
                held["held_version"],
                held["served_version"],
            )
            reason = client.get("/health/ready").json()["held"]
            assert f"Version {held['served_version']} answers." in reason
            assert metric(client, "gmr_version_held") == 1
            assert metric(client, "gmr_gate_forgetting") == held["forgetting"]
        with training(own), serving(own) as another:  # both begin anew
            teach_others(another, batches=1)
            for one in (client, another):
                assert answers(one) == answered
            again = gate(another)
            for name in ("held_version", "held_entry_id", "served_version"):
                assert again[name] == held[name]
            for i in range(20):
                both = np.concatenate([samples(50, seed=i), other_samples(50, seed=i)])
                names = [*labels(50), *[OTHERS[i % 2] for i in range(50)]]
                send(another, RawBatch.of(both, names)).raise_for_status()
            learned(another)
            wait_until(lambda: not gate(another)["held"])
            after = learned(another)
            [event] = told(another, "hold_ended")
            assert (event["reason"], event["by"]) == ("retained", None)
            assert event["forgetting"] <= 0.02
            assert after["model_version"] >= event["model_version"] > held["held_version"]
            assert another.get("/health/ready").json() == {"status": "ready"}
            assert len(told(another, "version_held")) == 1


def test_an_operator_releases_what_is_held_and_losses_count_anew(
    forgetful: MakeSettings,
) -> None:
    own = forgetful()
    with training(own), serving(own) as client:
        problem(client.post("/model/release", json={}), 422, "invalid-request")
        answered = forgotten(client)
        held = gate(client)
        with GMRClient(str(client.base_url)) as other:
            told_of = other.model().gate
            assert told_of is not None
            assert told_of.held
            assert told_of == other.drift().gate
            words = gate_of(Reading.of(other).document())
            assert words is not None
            assert words.endswith(f"version {held['served_version']} answers")
            done = other.release("zeros are gone", by="ada")
        assert done.applied
        # A pause may have been learned, and checked, since.
        assert done.model_version is not None
        assert done.model_version >= held["checked_version"] > held["served_version"]
        assert answers(client) != answered
        assert share_right(client) < 0.6
        [event] = told(client, "hold_ended")
        assert (event["reason"], event["by"], event["note"]) == (
            "released",
            "ada",
            "zeros are gone",
        )
        assert event["model_version"] == done.model_version
        now = wait_until(lambda: not (state := gate(client))["held"] and state)
        assert now["forgetting"] <= 0.02
        # What was lost is accepted: learning the same goes on, and is served.
        assert teach_others(client, batches=3)["model_version"] > held["checked_version"]
        assert len(told(client, "version_held")) == 1
    # Without a gate nothing is held, whatever was.
    with serving(forgetful(gate_max_forgetting=None)) as client:
        detail = problem(client.post("/model/release", json={}), 422, "invalid-request")["detail"]
        assert "GMR_GATE_MAX_FORGETTING" in detail


def test_the_trainer_goes_back_by_itself_where_that_is_asked_for(
    forgetful: MakeSettings,
) -> None:
    own = forgetful(gate_max_forgetting=None)
    with training(own), serving(own) as service:
        made = {"gate_max_forgetting": 0.02, "gate_rollback": True}
        service.put("/models/pump", json={"settings": made}).raise_for_status()
        with httpx2.Client(
            base_url=f"{str(service.base_url).rstrip(chr(47))}/models/pump/", timeout=LONGEST_S
        ) as client:
            teach(client, batches=8)
            cross(client)
            teach_others(client)
            wait_until(lambda: told(client, "hold_ended"))
            [held, restored, ended] = told(client, "version_held", "model_restored", "hold_ended")
            assert held["rollback"] is True
            assert restored["model_version"] == held["served_version"] == ended["model_version"]
            assert (ended["reason"], ended["by"]) == ("rollback", "gate")
            model = learned(client)
            assert model["model_version"] == held["served_version"]
            assert model["restored_entry_id"] == restored["entry_id"]
            assert model["samples_seen"] < 1600 == drift(client)["stream_samples"]
            assert share_right(client) > 0.9
            assert gate(client)["held"] is False
        assert drift(service)["gate"] is None  # a model of its own settings
