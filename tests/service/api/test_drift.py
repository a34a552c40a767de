"""Tests for GET /drift, its history and boundaries, and POST /drift/boundary."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import httpx2
import numpy as np
import pytest
from PIL import Image

from service.api.boundaries import Boundaries, Boundary
from service.api.drift_state import DriftState
from service.api.routes.drift import History, Quarantine
from service.broker.reports import Reports
from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import (
    N_FEATURES,
    labels,
    learned,
    make_settings,
    problem,
    samples,
    send,
    serving,
    teach,
    training,
    wait_until,
)

ARMED_IN = 20
"""Samples of a new sub-task before the detector is armed: twice a tenth of the warm-up."""

CHANGE = 12  # batches before the stream changes


@pytest.fixture(scope="module")
def drifted(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A service that has seen one change, found by the detector, and one declared by hand."""
    drifting = tmp_path_factory.mktemp("drifted")
    settings = make_settings(redis_url, drifting, shadow_detectors="paper")
    with training(settings), serving(settings) as client:
        teach(client, batches=CHANGE)
        for i in range(CHANGE):
            send(client, RawBatch.of(1 - samples(100, seed=i) / 4, ["new"] * 100))
        learned(client)
        response = client.post("/drift/boundary")
        assert response.status_code == 202
        declared.append(response.json()["entry_id"])
        learned(client)
        yield client


declared: list[str] = []


def test_the_state_of_the_detector_is_reported(drifted: httpx2.Client) -> None:
    state = drifted.get("/drift").json()
    DriftState.model_validate(state)
    assert state["sub_task"] == state["boundaries"] == 2
    assert state["stream_batches"] == 2 * CHANGE
    assert state["stream_samples"] == 2 * CHANGE * 100
    assert state["batches_since_boundary"] == 0
    assert 0 <= state["inlier_rate_mean"] <= 1
    assert set(state["statistics"]) == set(state["thresholds"]) != set()
    assert (state["phase"], state["armed"], state["armed_in"]) == ("learning", False, ARMED_IN)
    assert state["unarmed_reason"] == "warm_up"
    assert (state["recurrence_of"], state["bursts"]) == (None, 0)
    assert state["shadows"] == ["paper"]
    deciding, shadow = state["detectors"]  # the declared boundary does not count
    assert (deciding["detector"], deciding["decides"], deciding["matched"]) == (
        "sequential",
        True,
        1,
    )
    assert (shadow["detector"], shadow["decides"]) == ("paper", False)
    for row in state["detectors"]:
        assert row["boundaries"] == 1 == row["matched"] + row["missed"]
        assert row["alarms"] == row["matched"] + row["extra"]
        assert (row["delay_samples_median"] is None) == (row["matched"] == 0)
    assert {row["label"] for row in state["class_accuracies"]} == {3, "cat", "new"}
    assert sum(row["samples"] for row in state["class_accuracies"]) <= state["stream_samples"]
    assert state["ert"] == 1e7
    assert state["probe_samples"] > 0
    assert (state["ert_achieved"] is None) == (state["probe_alarms"] == 0)
    assert (state["ert_achieved_high"] is None) == (state["probe_alarms"] == 0)
    assert 0 < state["ert_achieved_low"] < (state["ert_achieved"] or math.inf)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, (None, "dependence")),
        ({"preset": "paper"}, (None, "annealing")),
        ({"detector": "none"}, (None, "no_detector")),
    ],
)
def test_why_the_detector_is_not_armed_is_told(
    settings: Callable[..., Settings], options: dict[str, Any], told: tuple[int | None, str]
) -> None:
    """On a counter, whose samples all depend on those before them."""
    own = settings(warm_up=200, **options)
    counter = np.arange(400, dtype=np.float32)[:, None]
    with training(own), serving(own) as client:
        for part in np.split(counter, 8):
            send(client, RawBatch.of(part)).raise_for_status()

        def reported() -> dict[str, Any] | None:
            state: dict[str, Any] = client.get("/drift").json()
            return state if state.get("stream_samples") == 400 else None

        state = wait_until(reported)
        DriftState.model_validate(state)
        assert (state["armed_in"], state["unarmed_reason"]) == told
        assert not state["armed"]


def test_there_is_no_reason_once_the_detector_may_speak(settings: Callable[..., Settings]) -> None:
    own = settings()
    with training(own), serving(own) as client:
        teach(client)

        def reported() -> dict[str, Any] | None:
            state: dict[str, Any] = client.get("/drift").json()
            return state if state["armed_in"] == 0 else None

        assert wait_until(reported)["unarmed_reason"] is None


def test_features_that_creep_are_told_with_their_names(settings: Callable[..., Settings]) -> None:
    own = settings(detector="none")
    with training(own), serving(own) as client:
        for i in range(16):
            x = samples(100, seed=i)
            x[:, 7] += 0.5 * (i > 5)
            send(client, RawBatch.of(x, labels(100))).raise_for_status()
        names = [f"sensor {i}" for i in range(16)]
        client.put("/model/feature-names", json={"feature_names": names}).raise_for_status()

        def reported() -> dict[str, Any] | None:
            state: dict[str, Any] = client.get("/drift").json()
            return state if state["stream_samples"] == 1600 else None

        state = wait_until(reported)
        DriftState.model_validate(state)
        told = state["feature_drift"]
        assert told["samples"] + told["reference_samples"] == 1600
        assert len(told["features"]) == 10
        first = told["features"][0]
        assert (first["feature"], first["name"], first["drifts"]) == (7, "sensor 7", True)
        assert first["mean"] == pytest.approx(first["reference_mean"] + 0.5, abs=0.1)
        assert told["drifting"] == sum(row["drifts"] for row in told["features"]) == 1
        shown = re.compile(r"^gmr_features_drifting 1\.0$", re.MULTILINE)
        wait_until(lambda: shown.search(client.get("/metrics").text))


def test_every_boundary_is_listed_with_its_evidence(drifted: httpx2.Client) -> None:
    answer = drifted.get("/drift/boundaries").json()
    Boundaries.model_validate(answer)
    found, by_hand = answer["boundaries"]
    assert (found["boundary"], found["sub_task"]) == (1, 1)
    assert CHANGE <= found["batch_index"] <= CHANGE + 3
    assert found["sample_index"] == 100 * found["batch_index"]
    assert found["estimated_start_batch"] <= found["batch_index"]
    assert found["version_after"] > found["version_before"]
    assert found["evidence"]
    assert found["signal"] in {"inliers", "likelihood", "occupancy"}
    assert (found["recurrence_of"], found["mixed_samples"]) == (None, 0)
    assert by_hand["detector"] == "declared"
    assert by_hand["entry_id"] == declared[-1]  # a worker may set the service up anew


def test_the_list_explains_each_boundary_in_short(drifted: httpx2.Client) -> None:
    found, by_hand = drifted.get("/drift/boundaries").json()["boundaries"]
    told = found["explanation"]
    assert told["samples"] == found["set_aside_samples"] + 100
    assert told["effect"] < 0
    assert told["features"]
    assert told["components"]
    assert {row["label"] for row in told["classes"]} == {3, "cat"}
    assert not {"prototypes", "contributions"} & set(told)
    assert by_hand["explanation"] == {}


def test_the_start_of_a_change_is_named_as_an_entry_of_the_stream(drifted: httpx2.Client) -> None:
    found, by_hand = drifted.get("/drift/boundaries").json()["boundaries"]
    history = drifted.get("/drift/history").json()["history"]
    entries = {row["batch_index"]: row["entry_id"] for row in history}
    assert found["estimated_start_entry_id"] == entries[found["estimated_start_batch"]]
    # What was declared begins with an entry that is yet to come.
    assert by_hand["estimated_start_entry_id"] is None


def test_one_boundary_has_prototypes_of_what_is_new(drifted: httpx2.Client) -> None:
    listed, by_hand = drifted.get("/drift/boundaries").json()["boundaries"]
    response = drifted.get(f"/drift/boundaries/{listed['id']}")
    assert response.headers["x-model-version"] == str(listed["version_after"])
    answer = response.json()
    Boundary.model_validate(answer)
    told = answer.pop("explanation")
    assert {**told, **listed.pop("explanation")} == told
    assert answer == listed
    assert sum(group["samples"] for group in told["prototypes"]) == told["samples"]
    assert len(told["contributions"]) == 16
    new = np.concatenate([1 - samples(100, seed=i) / 4 for i in range(3)])
    for group in told["prototypes"]:
        assert group["samples"] >= 10
        # Two blobs: means lie next to one of them, and no sample is that smooth.
        nearest = np.abs(new - np.array(group["features"])).mean(1).min()
        assert 0.001 < nearest < 0.2
    assert drifted.get(f"/drift/boundaries/{by_hand['id']}").json()["explanation"] == {}


def test_prototypes_of_images_can_be_looked_at(drifted: httpx2.Client) -> None:
    found, by_hand = drifted.get("/drift/boundaries").json()["boundaries"]
    path, picture = f"/drift/boundaries/{found['id']}", {"Accept": "image/png"}
    response = drifted.get(path, headers=picture)
    assert response.headers["content-type"] == "image/png"
    image = Image.open(io.BytesIO(response.content))
    assert image.height > 2 * 56  # prototypes, and where they differ
    wide = drifted.get(path, headers=picture, params={"shape": "2,8"})
    assert Image.open(io.BytesIO(wide.content)).height < image.height
    problem(drifted.get(path, headers=picture, params={"shape": "3,3"}), 422, "invalid-shape")
    refused = drifted.get(f"/drift/boundaries/{by_hand['id']}", headers=picture)
    assert "no prototypes" in problem(refused, 406, "not-acceptable")["detail"]
    problem(drifted.get(path, headers={"Accept": "text/csv"}), 406, "not-acceptable")


def test_prototypes_are_drawn_in_the_shape_in_which_images_came(
    settings: Callable[..., Settings],
) -> None:
    """As wide images, where 16 features could be a square."""
    made = settings()
    with training(made), serving(made) as client:
        for i in range(2 * CHANGE):
            x = samples(100, seed=i) if i < CHANGE else 1 - samples(100, seed=i) / 4
            send(client, RawBatch.of(x.reshape(100, 2, 8), [f"{i // CHANGE}"] * 100))
        learned(client)
        (found,) = client.get("/drift/boundaries").json()["boundaries"]
        path, png = f"/drift/boundaries/{found['id']}", {"Accept": "image/png"}
        drawn, wide, square = (
            client.get(path + query, headers=png).content
            for query in ("", "?shape=2,8", "?shape=4,4")
        )
    assert drawn == wide != square


@pytest.mark.parametrize("id", ["1-1", "latest", "1-2-3", "(1-0", "-"])
def test_a_boundary_that_is_not_there_is_answered_with_those_that_are(
    drifted: httpx2.Client, id: str
) -> None:
    document = problem(drifted.get(f"/drift/boundaries/{id}"), 404, "unknown-boundary")
    listed = drifted.get("/drift/boundaries").json()["boundaries"]
    assert document["known"] == [row["id"] for row in reversed(listed)]


def test_boundaries_can_be_asked_for_from_a_point_on(drifted: httpx2.Client) -> None:
    def ask(since: object) -> list[int]:
        answer = drifted.get("/drift/boundaries", params={"since": since}).json()
        return [row["boundary"] for row in answer["boundaries"]]

    first, second = drifted.get("/drift/boundaries").json()["boundaries"]
    assert ask(first["id"]) == [2]
    assert ask(second["id"]) == []
    assert ask(0) == [1, 2]
    assert ask(second["time"] + 60) == []


def test_boundaries_are_sent_again_where_something_of_them_has_changed(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = settings(detector="none", preset="flat", checkpoint_interval_s=0.05)
    with training(own), serving(own) as client:
        path, tags = "/drift/boundaries", list[str]()

        def changed() -> list[dict[str, Any]]:
            """The list, which is another than before; and then it is the same."""
            answer = client.get(path, headers={"If-None-Match": ", ".join(tags) or '"none"'})
            assert answer.status_code == 200
            tags.append(answer.headers["etag"])
            with monkeypatch.context() as context:
                context.delattr(Reports, "boundaries")  # which nobody needs
                again = client.get(path, headers={"If-None-Match": f"W/{tags[-1]}"})
            assert (again.status_code, again.content) == (304, b"")
            assert again.headers["etag"] == tags[-1]
            rows: list[dict[str, Any]] = answer.json()["boundaries"]
            return rows

        def declare() -> None:
            teach(client, batches=2)
            client.post("/drift/boundary").raise_for_status()
            learned(client)

        assert changed() == []
        declare()
        [first] = changed()
        declare()
        _, second = changed()
        for text in ("The lens was cleaned.", "It had been dirty."):
            client.post(f"{path}/{first['id']}/notes", json={"text": text}).raise_for_status()
            assert changed()[0]["notes"][-1]["text"] == text
        names = [f"f{place}" for place in range(N_FEATURES)]
        client.put("/model/feature-names", json={"feature_names": names}).raise_for_status()
        changed()
        version = {"version": second["version_before"]}
        client.post("/model/rollback", json=version).raise_for_status()
        wait_until(lambda: client.get(path).json()["boundaries"][1]["dropped"])
        assert [row["dropped"] for row in changed()] == [False, True]
        later = client.get(path, params={"since": 0}, headers={"If-None-Match": tags[-1]})
        assert later.status_code == 200


@pytest.mark.parametrize("since", ["yesterday", "-1", "nan", "1e99", "1-2-3", "("])
def test_a_since_that_is_neither_id_nor_time_is_refused(drifted: httpx2.Client, since: str) -> None:
    problem(drifted.get("/drift/boundaries", params={"since": since}), 422, "invalid-request")


def test_the_history_has_one_row_per_batch(drifted: httpx2.Client) -> None:
    answer = drifted.get("/drift/history").json()
    History.model_validate(answer)
    rows = answer["history"]
    assert [row["batch_index"] for row in rows] == list(range(2 * CHANGE))
    assert {row["samples"] for row in rows} == {100}
    assert rows[0]["inlier_rate"] is None
    # A rate is told by a reference, or not at all.
    assert all((row["inlier_rate"] is not None) == row["armed"] for row in rows)
    assert rows[0]["armed_in"] == 10
    # Who waits for no more samples is armed at the next batch, and nobody else.
    for row, following in pairwise(rows):
        assert following["armed"] == (row["armed_in"] == 0)
    assert rows[CHANGE - 1]["prequential_accuracy"] > 0.9
    # The change: what was typical is so no more.
    assert rows[CHANGE]["inlier_rate"] < rows[CHANGE - 1]["inlier_rate"]
    assert rows[CHANGE]["log_likelihood_mean"] < rows[CHANGE - 1]["log_likelihood_mean"]


def test_the_history_can_be_cut_to_the_newest(drifted: httpx2.Client) -> None:
    rows = drifted.get("/drift/history?last=3").json()["history"]
    assert [row["batch_index"] for row in rows] == [2 * CHANGE - 3, 2 * CHANGE - 2, 2 * CHANGE - 1]


@pytest.mark.parametrize("last", [0, 10_001])
def test_the_history_has_an_end(drifted: httpx2.Client, last: int) -> None:
    document = problem(drifted.get(f"/drift/history?last={last}"), 422, "out-of-range")
    assert document["high"] == 10_000


def test_a_short_history_can_be_asked_for_without_a_number(
    settings: Callable[..., Settings],
) -> None:
    with serving(settings(history_length=5)) as client:
        assert client.get("/drift/history").json() == {"history": []}
        problem(client.get("/drift/history?last=6"), 422, "out-of-range")


OUTLIERS = range(40, 55)  # rows of the one batch that has some


@pytest.fixture(scope="module")
def burst(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A service that has seen a burst of outliers, and then what it knows."""
    settings = make_settings(redis_url, tmp_path_factory.mktemp("burst"))
    with training(settings), serving(settings) as client:
        teach(client, batches=CHANGE)
        rows = samples(100, seed=CHANGE)
        rows[OUTLIERS, ::2] = 1 - rows[OUTLIERS, ::2]  # like neither blob
        send(client, RawBatch.of(rows, labels(100)))
        # An entry that is no batch has no outliers of its own.
        client.post("/labels", json={"sample_ids": ["a"], "labels": ["cat"]}).raise_for_status()
        for seed in range(CHANGE + 1, CHANGE + 4):
            send(client, RawBatch.of(samples(100, seed=seed), labels(100)))
        learned(client)
        yield client


def test_outliers_of_a_burst_are_neither_learned_nor_lost(burst: httpx2.Client) -> None:
    wait_until(lambda: burst.get("/drift").json()["phase"] == "armed")
    state = burst.get("/drift").json()
    assert (state["bursts"], state["boundaries"]) == (1, 0)
    answer = burst.get("/drift/quarantine?last=1000").json()
    Quarantine.model_validate(answer)
    kept = np.array([row["features"] for row in answer["outliers"]], dtype=np.float32)
    wanted = samples(100, seed=CHANGE)[OUTLIERS]
    wanted[:, ::2] = 1 - wanted[:, ::2]
    # All of them as they were sent, and next to nothing of what is usual.
    assert (np.abs(kept[:, None] - wanted[None]).max(2).min(0) == 0).all()
    assert len(kept) <= len(OUTLIERS) + 8
    mixed = [row for row in answer["outliers"] if np.ptp(row["features"]) > 0.4]
    named = [row["label"] for row in mixed]
    assert named == [labels(100)[row] for row in OUTLIERS]
    # Every sample is accounted for.
    model = learned(burst)
    assert model["samples_seen"] + len(kept) == (CHANGE + 4) * 100
    assert model["set_aside"] == 0
    text = burst.get("/metrics").text
    assert "gmr_outlier_bursts_total 1.0" in text
    assert f"gmr_outliers_quarantined_total {len(kept)}.0" in text


def test_the_quarantine_can_be_cut_to_the_newest(burst: httpx2.Client) -> None:
    rows = burst.get("/drift/quarantine?last=1000").json()["outliers"]
    assert burst.get("/drift/quarantine?last=3").json()["outliers"] == rows[-3:]
    for last in (0, 1001):
        document = problem(burst.get(f"/drift/quarantine?last={last}"), 422, "out-of-range")
        assert document["high"] == 1000


def test_without_a_trainer_there_is_no_state(blank: httpx2.Client) -> None:
    response = blank.get("/drift")
    problem(response, 503, "unavailable")
    assert "Retry-After" in response.headers
    assert blank.get("/drift/boundaries").json() == {"boundaries": []}
    assert blank.get("/drift/history").json() == {"history": []}
    assert blank.get("/drift/quarantine").json() == {"outliers": []}


def test_before_the_first_batch_the_state_is_empty(
    settings: Callable[..., Settings],
) -> None:
    made = settings()
    with training(made), serving(made) as client:
        wait_until(lambda: client.get("/drift").status_code == 200)
        state = client.get("/drift").json()
        DriftState.model_validate(state)
        assert (state["model_version"], state["stream_batches"]) == (0, 0)
        assert (state["inlier_rate"], state["armed_in"]) == (None, ARMED_IN)
        send(client, RawBatch.of(samples(10), labels(10)))
        assert learned(client)["samples_seen"] == 10
