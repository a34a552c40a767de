"""Tests for names of features: kept beside the model, told with boundaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.http.client import GMRClient
from clients.http.errors import RequestConflict
from service.settings import Settings
from service.wire import RawBatch, feature_names
from tests.service.api.stack import (
    N_FEATURES,
    labels,
    learned,
    of_model,
    problem,
    samples,
    send,
    serving,
    teach,
    training,
    wait_until,
)

NAMES = [f"sensor {i}" for i in range(N_FEATURES)]
PATH = "/model/feature-names"


def put(client: httpx2.Client, names: Any) -> httpx2.Response:
    return client.put(PATH, json={"feature_names": names})


def changed(row: dict[str, Any]) -> list[tuple[int, str | None]]:
    return [(one["feature"], one["name"]) for one in row["explanation"]["features"]]


def test_boundaries_tell_the_names_of_features_whenever_they_come(
    settings: Callable[..., Settings],
) -> None:
    own = settings(max_models=2)
    with serving(own) as client:
        # How many there are is not known before a first batch.
        refused = problem(put(client, NAMES), 409, "features-unknown")
        assert refused["got"] == N_FEATURES
        assert client.get(PATH).json() == {"feature_names": None, "features": None}
        with training(own):
            teach(client)
            for i in range(3):
                batch = RawBatch.of(1 - samples(100, seed=40 + i) / 4, ["new"] * 100)
                send(client, batch).raise_for_status()
            learned(client)
            [listed] = client.get("/drift/boundaries").json()["boundaries"]
            assert listed["explanation"]["features"]
            assert {name for _, name in changed(listed)} == {None}

        # There is no trainer, and none is needed.
        assert put(client, NAMES).json() == {"feature_names": NAMES, "features": N_FEATURES}
        assert client.get(PATH).json()["feature_names"] == NAMES
        [listed] = client.get("/drift/boundaries").json()["boundaries"]
        whole = client.get(f"/drift/boundaries/{listed['id']}").json()
        for row in (listed, whole):
            assert changed(row)
            assert all(name == NAMES[place] for place, name in changed(row))
        assert len(whole["explanation"]["contributions"]) == N_FEATURES

        with GMRClient(str(client.base_url)) as asking:
            [event] = asking.kept_events(kinds=["boundary"])
        assert changed(dict(event.data)) == changed(listed)

        # Names that do not fit leave those that are there.
        short = problem(put(client, NAMES[1:]), 422, "invalid-request")
        assert (short["expected"], short["got"]) == (N_FEATURES, N_FEATURES - 1)
        for odd in ("", " ", "x" * 201, "two\nlines", "\x1b[31mred"):
            found = problem(put(client, [*NAMES[1:], odd]), 422, "invalid-request")
            assert f"feature {N_FEATURES - 1}" in found["detail"]
        problem(put(client, "sensor"), 422, "invalid-request")
        problem(put(client, []), 422, "invalid-request")
        problem(client.put(PATH, json={"names": NAMES}), 422, "invalid-request")
        assert client.get(PATH).json()["feature_names"] == NAMES

        assert client.delete(PATH).status_code == 204
        [listed] = client.get("/drift/boundaries").json()["boundaries"]
        assert {name for _, name in changed(listed)} == {None}
        assert client.delete(PATH).status_code == 204


def test_who_does_not_look_is_told_what_creeps_by_its_name(
    settings: Callable[..., Settings],
) -> None:
    own = settings(detector="none")
    with training(own), serving(own) as client:
        for i in range(32):
            batch = samples(100, seed=i)
            batch[:, 5] += 0.02 * i
            send(client, RawBatch.of(batch)).raise_for_status()
        learned(client)
        put(client, NAMES).raise_for_status()
        url = str(client.base_url).rstrip("/")
        with GMRClient(url) as asking:
            [event] = asking.kept_events(kinds=["features_drifting"])
        [row] = event.data["features"]
        assert (row["feature"], row["name"], row["drifts"]) == (5, NAMES[5], True)
        told = client.get("/drift").json()["feature_drift"]
        assert told["drifting"] == event.data["drifting"] == event.data["news"] == 1
        assert set(row) == set(told["features"][0]) - {"course"}
        line = CliRunner().invoke(app, ["events", "--kinds", "features_drifting", "--url", url])
        assert "features_drifting        sensor 5 (feature 5): sub_task=0" in line.stdout


def test_names_together_have_a_limit(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feature_names, "MOST_FEATURE_NAMES", 20)
    with serving(settings(n_features=3)) as client:
        assert put(client, ["x" * 6] * 3).status_code == 200  # names need not differ
        assert (
            "21 characters" in problem(put(client, ["x" * 7] * 3), 422, "invalid-request")["detail"]
        )


def test_names_of_another_number_of_features_are_none(settings: Callable[..., Settings]) -> None:
    """A first batch that could not be used may have had others than those that came."""
    own = settings(n_features=3)
    with serving(own) as client:
        put(client, ["a", "b", "c"]).raise_for_status()
    with serving(own.model_copy(update={"n_features": 2})) as client:
        assert client.get(PATH).json() == {"feature_names": None, "features": 2}


def test_each_model_has_names_of_its_own_and_a_copy_has_those_of_its_source(
    settings: Callable[..., Settings],
) -> None:
    own = settings(max_models=3)
    with training(own), serving(own) as client:
        url = str(client.base_url)
        for name in ("pump", "other"):
            client.put(f"/models/{name}").raise_for_status()
        with of_model(client, "pump") as pump, of_model(client, "other") as other:
            teach(pump, batches=2)
            send(other, RawBatch.of(samples(10), labels(10))).raise_for_status()
            with GMRClient(url, model="pump") as at_pump:
                at_pump.name_features(NAMES)
                assert at_pump.feature_names() == tuple(NAMES)
            assert other.get(PATH).json()["feature_names"] is None
        with GMRClient(url) as service:
            with pytest.raises(RequestConflict):
                service.name_features(NAMES)
            service.copy_model("pump", "copied")
        with GMRClient(url, model="copied") as copied:
            assert copied.feature_names() == tuple(NAMES)
            copied.name_features(None)
            assert copied.feature_names() is None
        with of_model(client, "pump") as pump:
            assert pump.get(PATH).json()["feature_names"] == NAMES
        # Of a model that is taken down nothing is left for another of its name.
        client.delete("/models/pump").raise_for_status()
        wait_until(lambda: client.get("/models/pump").status_code == 404)
        client.put("/models/pump").raise_for_status()
        with of_model(client, "pump") as pump:
            assert pump.get(PATH).json() == {"feature_names": None, "features": None}
