"""Tests for GET /ledger and GET /batches/{batch_id}, and for the clients and commands over them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.http.async_client import AsyncGMRClient
from clients.http.client import GMRClient
from clients.http.errors import RequestRefused
from service.broker.connection import connect
from service.broker.keys import Keys
from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import (
    labels,
    learned,
    problem,
    samples,
    send,
    serving,
    training,
    wait_until,
)

MakeSettings = Callable[..., Settings]
FATES = (
    "waiting",
    "learned",
    "set_aside",
    "awaiting",
    "unknown",
    "quarantined",
    "passed",
    "rejected",
)


def batch(name: str, n: int = 20, seed: int = 1) -> RawBatch:
    return RawBatch.of(samples(n, seed=seed), labels(n), name)


def later(name: str, n: int = 10, labelled: int = 0) -> RawBatch:
    """Samples that await their labels, but for the first few."""
    known = [*labels(n)[:labelled], *[None] * (n - labelled)]
    return RawBatch.of(samples(n, seed=3), known, name, [f"{name}/{i}" for i in range(n)])


def ledger(client: httpx2.Client) -> dict[str, Any]:
    """The ledger, which adds up."""
    counts: dict[str, Any] = client.get("/ledger").raise_for_status().json()
    if counts["accepted"] is not None:
        assert counts["accepted"] == sum(counts[name] for name in (*FATES, "dropped", "lost"))
        assert counts["unaccounted"] == 0
    return counts


def shown(counts: dict[str, Any]) -> dict[str, int]:
    """What is not 0 of it."""
    names = ("accepted", *FATES, "dropped", "lost")
    return {name: counts[name] for name in names if counts[name]}


def fate(client: httpx2.Client, batch_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/batches/{quote(batch_id, safe='')}").json()
    return found


@pytest.fixture
def quiet(settings: MakeSettings) -> Settings:
    return settings(detector="none", checkpoint_interval_s=0.05, settle_after_s=3600)


def test_what_waits_is_learned_rejected_sent_again_rolled_back_and_never_missing(
    quiet: Settings,
) -> None:
    strict = quiet.model_copy(update={"max_classes": 4})
    with serving(quiet) as client:
        assert shown(ledger(client)) == {}
        send(client, batch("a/1"))
        send(client, later("b", labelled=4))
        assert shown(ledger(client)) == {"accepted": 30, "waiting": 30}
        assert fate(client, "a/1")["state"] == "waiting"
        with training(strict):
            learned(client)
            assert shown(ledger(client)) == {"accepted": 30, "learned": 24, "awaiting": 6}
            assert fate(client, "a/1")["counts"]["learned"] == 20
            told = fate(client, "b")
            assert (told["state"], told["samples"]) == ("split", 10)
            assert {name: n for name, n in told["counts"].items() if n} == {
                "learned": 4,
                "awaiting": 6,
            }
            many = RawBatch.of(samples(10, seed=9), [f"c{i}" for i in range(10)], "many")
            send(client, many)
            learned(client)
            rejected = fate(client, "many")
            assert (rejected["state"], rejected["reason"]) == ("rejected", "invalid_labels")
            assert "at most 4" in rejected["detail"]
            assert shown(ledger(client))["rejected"] == 10
        letter = rejected["deadletter"]
        assert client.post(f"/deadletters/{letter}").status_code == 202
        # It is no dead letter any more, and is not accepted a second time.
        waiting = {"accepted": 40, "learned": 24, "awaiting": 6, "waiting": 10}
        assert shown(ledger(client)) == waiting
        assert fate(client, "many")["state"] == "waiting"
        with training(quiet):  # which has read it all from its checkpoint
            learned(client)
            assert shown(ledger(client)) == {"accepted": 40, "learned": 34, "awaiting": 6}
            assert (fate(client, "many")["state"], fate(client, "many")["accepted"]) == (
                "learned",
                2,
            )
            client.post("/drift/boundary").raise_for_status()
            learned(client)
            kept = wait_until(
                lambda: client.get("/model/versions").json()["versions"][0]["version"]
            )
            send(client, batch("dropped", seed=7))
            learned(client)
            client.post("/model/rollback", json={"version": kept}).raise_for_status()
            learned(client)
            assert fate(client, "dropped")["state"] == "dropped"
            counts = ledger(client)
            assert (counts["accepted"], counts["dropped"] >= 20) == (60, True)
            assert fate(client, "a/1")["state"] in ("learned", "dropped")
            text = client.get("/metrics").text
            assert f'gmr_ledger_samples{{fate="learned"}} {float(counts["learned"])}' in text
            assert "gmr_ledger_unaccounted_samples 0.0" in text
            before = counts
        with training(quiet):
            wait_until(lambda: client.get("/health/ready").status_code == 200)
            assert ledger(client) == before  # a restart changes nothing


def test_labels_have_a_fate_and_move_what_awaited_them(quiet: Settings) -> None:
    with serving(quiet) as client, training(quiet):
        send(client, batch("a"))
        send(client, later("b"))
        learned(client)
        assert fate(client, "b")["state"] == "awaiting"
        body = {"sample_ids": ["b/0", "b/1"], "labels": [3, "cat"], "batch_id": "l"}
        client.post("/labels", json=body).raise_for_status()
        learned(client)
        told = fate(client, "l")
        assert (told["kind"], told["state"], told["counts"]) == ("labels", "applied", None)
        assert fate(client, "b")["counts"]["awaiting"] == 8
        assert shown(ledger(client)) == {"accepted": 30, "learned": 22, "awaiting": 8}


def test_what_came_past_the_api_is_not_known_while_it_waits_and_counted_once_applied(
    quiet: Settings,
) -> None:
    with serving(quiet) as client:
        send(client, batch("a"))
        with connect(quiet.redis_address() or "") as redis:
            redis.xadd(Keys(quiet.model).input, dict(batch("plain", seed=2).to_entry()))  # type: ignore[arg-type]
        counts = ledger(client)
        assert counts["accepted"] is counts["waiting"] is None
        assert counts["waiting_entries"] == 2
        with training(quiet):
            learned(client)
            # Until two checkpoints hold it, and it goes from the stream.
            counts = wait_until(
                lambda: found if (found := ledger(client))["accepted"] is not None else None
            )
            assert shown(counts) == {"accepted": 40, "learned": 40}


def test_what_came_past_the_api_and_cannot_be_learned_is_counted_where_its_shape_is_its_own(
    quiet: Settings,
) -> None:
    good = dict(batch("plain", seed=2).to_entry())
    with serving(quiet) as client, connect(quiet.redis_address() or "") as redis:
        for wrong in ({"labels": b"no list"}, {"crc": b"1"}, {"notes": b"?"}, {"shape": b"9,1"}):
            redis.xadd(Keys(quiet.model).input, {**good, **wrong})  # type: ignore[arg-type]
        redis.xadd(Keys(quiet.model).input, {**good, "dtype": b"f8"})  # type: ignore[arg-type]
        redis.xadd(Keys(quiet.model).input, good)  # type: ignore[arg-type]
        with training(quiet):
            counts = wait_until(
                lambda: found if (found := ledger(client))["accepted"] is not None else None
            )
            assert shown(counts) == {"accepted": 80, "learned": 20, "rejected": 60}
            letters = client.get("/deadletters").json()["deadletters"]
            assert [one["samples"] for one in letters] == [20, 20, 20, None, None]


def test_an_id_that_nobody_knows_is_told(quiet: Settings) -> None:
    with serving(quiet) as client:
        told = problem(client.get("/batches/nobody"), 404, "unknown-batch")
        assert told["batch_id"] == "nobody"


@pytest.mark.anyio
async def test_clients_and_commands_tell_what_became_of_a_batch(quiet: Settings) -> None:
    strict = quiet.model_copy(update={"max_classes": 4})
    with serving(quiet) as client, training(strict):
        url = str(client.base_url)
        send(client, batch("a"))
        send(client, later("b", labelled=4))
        send(client, RawBatch.of(samples(10), [f"c{i}" for i in range(10)], "many"))
        learned(client)
        with GMRClient(url) as one:
            counts, told = one.ledger(), one.batch("b")
            with pytest.raises(RequestRefused, match="never accepted, or its id is forgotten"):
                one.batch("nobody")
        assert (counts.accepted, counts.learned, counts.rejected) == (40, 24, 10)
        assert told.counts is not None
        assert (told.state, told.counts["awaiting"]) == ("split", 6)
        async with AsyncGMRClient(url) as other:
            assert await other.ledger() == counts
            assert await other.batch("b") == told

        run = CliRunner().invoke
        result = run(app, ["batch", "b", "--url", url])
        assert result.exit_code == 0
        assert "is split: 4 learned, 6 awaiting." in result.output
        result = run(app, ["batch", "many", "--url", url])
        assert result.exit_code == 1
        assert "is a dead letter (invalid_labels): " in result.output
        result = run(app, ["batch", "a", "--url", url, "--json"])
        assert json.loads(result.output)["state"] == "learned"
        result = run(app, ["status", "--url", url])
        flat = " ".join(result.output.split())
        assert "40 samples accepted = 24 learned + 6 awaiting + 10 rejected" in flat
