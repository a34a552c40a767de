"""Tests for POST /labels and GET /drift/proposals: from a request to what has been learned."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import numpy as np
import pytest

from clients.http.async_client import AsyncGMRClient
from clients.http.client import GMRClient
from clients.http.errors import RequestRefused
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

IDS = [f"s-{row}" for row in range(10)]


def told(client: httpx2.Client) -> list[dict[str, Any]]:
    """The classes and how often each was learned."""
    rows: list[dict[str, Any]] = client.get("/model").json()["classes"]
    return rows


def test_labels_are_accepted_once_per_batch_id(api: httpx2.Client) -> None:
    body = {"sample_ids": ["a", 2], "labels": ["x", 3], "batch_id": "l"}
    response = api.post("/labels", json=body)
    assert response.status_code == 202
    answer = response.json()
    assert (answer["batch_id"], answer["labels"], answer["backlog"]) == ("l", 2, 1)
    again = api.post("/labels", json=body)
    assert again.status_code == 200
    assert again.json()["duplicate"]
    assert again.json()["entry_id"] == answer["entry_id"]
    problem(api.post("/labels", json={**body, "labels": ["x", 4]}), 409, "batch-conflict")
    named = api.post("/labels", json={"proposal": 1, "label": None}, params={"batch_id": "n"})
    assert (named.status_code, named.json()["labels"]) == (202, 1)
    assert named.json()["batch_id"] == "n"
    conflict = {"proposal": 1, "label": "x", "batch_id": "n"}
    problem(api.post("/labels", json=conflict), 409, "batch-conflict")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ([], "invalid-batch"),
        ({}, "invalid-batch"),
        ({"sample_ids": ["a"]}, "invalid-batch"),
        ({"sample_ids": [], "labels": []}, "invalid-batch"),
        ({"sample_ids": [None], "labels": ["x"]}, "invalid-batch"),
        ({"sample_ids": ["a", None], "labels": ["x", "y"]}, "invalid-labels"),
        ({"sample_ids": ["a", "b"], "labels": ["x"]}, "invalid-batch"),
        ({"sample_ids": ["a", "a"], "labels": ["x", "y"]}, "invalid-batch"),
        ({"sample_ids": [True], "labels": ["x"]}, "invalid-batch"),
        ({"sample_ids": [""], "labels": ["x"]}, "invalid-batch"),
        ({"sample_ids": ["a" * 129], "labels": ["x"]}, "invalid-batch"),
        ({"sample_ids": [2**63], "labels": ["x"]}, "invalid-batch"),
        ({"sample_ids": ["a"], "labels": [None]}, "invalid-labels"),
        ({"sample_ids": ["a"], "labels": [1.5]}, "invalid-labels"),
        ({"sample_ids": ["a"], "labels": [""]}, "invalid-labels"),
        ({"sample_ids": ["a"], "labels": ["x"], "label": "x"}, "invalid-batch"),
        ({"proposal": 1, "label": ""}, "invalid-labels"),
        ({"proposal": 1}, "invalid-request"),
        ({"proposal": "1", "label": "x"}, "invalid-request"),
        ({"proposal": -1, "label": "x"}, "invalid-request"),
        ({"proposal": 1, "label": [1]}, "invalid-labels"),
        ({"proposal": 1, "label": "x", "labels": []}, "invalid-batch"),
    ],
)
def test_what_makes_no_sense_is_refused(blank: httpx2.Client, body: object, kind: str) -> None:
    problem(blank.post("/labels", json=body), 422, kind)


def test_limits_and_types_hold_for_labels_as_for_batches(
    settings: Callable[..., Settings],
) -> None:
    with serving(settings(max_samples=3, max_backlog=1)) as client:
        few = {"sample_ids": [1, 2, 3], "labels": [1, 2, 3]}
        many = {"sample_ids": [1, 2, 3, 4], "labels": [1, 2, 3, 4]}
        assert (
            "at most 3"
            in problem(client.post("/labels", json=many), 422, "invalid-batch")["detail"]
        )
        headers = {"Content-Type": "text/plain"}
        problem(
            client.post("/labels", content=b"{}", headers=headers), 415, "unsupported-media-type"
        )
        assert client.post("/labels", json=few).status_code == 202
        problem(client.post("/labels", json=few), 429, "backlog-full")
        refused = client.get("/metrics").text
        assert 'gmr_batches_rejected_total{reason="backlog_full"} 1.0' in refused


@pytest.mark.parametrize("ids", [[1, 2], [1, "1", True], ["a", "a", "b"], "abc", [[1], [2], [3]]])
def test_ids_that_cannot_be_used_are_refused_with_the_batch(
    blank: httpx2.Client, ids: object
) -> None:
    batch = {"features": samples(3).tolist(), "sample_ids": ids}
    problem(blank.post("/ingest", json=batch), 422, "invalid-batch")


def test_samples_that_wait_are_told_before_anything_was_learned(
    settings: Callable[..., Settings],
) -> None:
    made = settings()
    with training(made), serving(made) as client:
        batch = {"features": samples(10, seed=77).tolist(), "sample_ids": IDS}
        assert client.post("/ingest", json=batch).status_code == 202
        wait_until(lambda: client.get("/model").json()["awaiting"] == 10)
        assert client.get("/model").json()["samples_seen"] == 0


def test_samples_wait_for_their_labels(settings: Callable[..., Settings]) -> None:
    quiet = settings(detector="none", settle_after_s=3600)
    with training(quiet), serving(quiet) as client:
        teach(client)
        batch = {"features": samples(10, seed=77).tolist(), "sample_ids": IDS}
        assert client.post("/ingest", json=batch).status_code == 202
        model = learned(client)
        assert (model["samples_seen"], model["awaiting"]) == (600, 10)
        client.post("/labels", json={"sample_ids": IDS[::-1], "labels": labels(10)[::-1]})
        model = learned(client)
        assert (model["samples_seen"], model["awaiting"]) == (610, 0)
        assert told(client) == [{"label": 3, "count": 305}, {"label": "cat", "count": 305}]
        metrics = client.get("/metrics").text
        assert "gmr_labels_matched_total 10.0" in metrics
        # Integers travel as a tensor of their own.
        send(client, RawBatch.of(samples(4, seed=78), sample_ids=[5, 6, 7, 8])).raise_for_status()
        client.post("/labels", json={"sample_ids": [6, 5, 99], "labels": ["cat", 3, 3]})
        model = learned(client)
        assert (model["samples_seen"], model["awaiting"]) == (612, 2)


def test_a_class_is_proposed_listed_and_named(settings: Callable[..., Settings]) -> None:
    quiet = settings(
        detector="none", settle_after_s=3600, proposal_samples=20, n_components=12, warm_up=10_000
    )
    with training(quiet), serving(quiet) as client:
        assert client.get("/drift/proposals").json() == {"proposals": []}
        teach(client, batches=12)
        strange = np.random.default_rng(5).normal(0, 0.05, (40, N_FEATURES))
        strange += np.where(np.arange(N_FEATURES) % 2, 0.95, 0.05)
        x = np.concatenate([samples(60, seed=99), np.clip(strange, 0, 1)]).astype("f4")
        send(client, RawBatch.of(x)).raise_for_status()
        assert learned(client)["unknown"] >= 40
        [proposal] = wait_until(lambda: client.get("/drift/proposals").json()["proposals"])
        assert proposal["proposal"] == 1
        assert 40 <= proposal["samples"] <= 42
        assert 1200 <= proposal["first_sample"] <= 1260
        assert proposal["last_sample"] == 1299
        np.testing.assert_allclose(proposal["prototype"], np.clip(strange, 0, 1).mean(0), atol=0.03)

        client.post("/labels", json={"proposal": 1, "label": "stripes"})
        model = learned(client)
        assert {"label": "stripes", "count": proposal["samples"]} in model["classes"]
        wait_until(lambda: not client.get("/drift/proposals").json()["proposals"])
        answer = client.post("/classify", json={"features": np.clip(strange[:3], 0, 1).tolist()})
        assert answer.json()["labels"] == ["stripes"] * 3
        assert "gmr_class_proposals_total 1.0" in client.get("/metrics").text
        # Nobody can name it twice.
        again = client.post("/labels", json={"proposal": 1, "label": "again"})
        assert problem(again, 404, "unknown-proposal")["known"] == []


async def later_labels(url: str) -> None:
    async with AsyncGMRClient(url) as client:
        await client.ingest(samples(2, seed=5), sample_ids=["x", "y"])
        assert (await client.label(["y"], ["cat"])).labels == 1
        assert (await client.wait_until_learned()).awaiting == 1
        assert await client.proposals() == ()
        with pytest.raises(RequestRefused, match="not open"):
            await client.name_proposal(4, None)


def test_the_client_has_methods_for_it(settings: Callable[..., Settings]) -> None:
    quiet = settings(detector="none", settle_after_s=3600, proposal_samples=20, warm_up=10_000)
    with training(quiet), serving(quiet) as http:
        teach(http, batches=12)
        url = str(http.base_url).rstrip("/")
        with GMRClient(url) as client:
            client.ingest(samples(10, seed=77), sample_ids=IDS)
            assert client.wait_until_learned().awaiting == 10
            answer = client.label(IDS, labels(10), batch_id="named")
            assert (answer.labels, answer.batch_id, answer.duplicate) == (10, "named", False)
            assert client.label(IDS, labels(10), batch_id="named").duplicate
            assert client.wait_until_learned().awaiting == 0
            x = np.random.default_rng(5).normal(0.5, 0.03, (40, N_FEATURES))
            x += np.where(np.arange(N_FEATURES) % 2, 0.4, -0.4)
            client.ingest(x.astype("f4"))
            assert client.wait_until_learned().unknown == 40
            [proposal] = wait_until(client.proposals)
            assert (proposal.proposal, proposal.samples, proposal.origin) == (1, 40, "unknown")
            assert proposal.prototype.shape == (N_FEATURES,)
            assert set(proposal.nearest_classes) == {3, "cat"}
            client.name_proposal(1, "stripes")
            assert "stripes" in client.wait_until_learned().labels
        asyncio.run(later_labels(url))
