"""Tests for shares of keys: two keys over HTTP, a real trainer, a cap."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import orjson
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.http.client import GMRClient
from clients.http.errors import NotAuthorised
from service.settings import Settings
from tests.service.api.stack import problem, serving, training, wait_until

OPERATOR = "operator-key-of-32-characters-0"
BATCH = 500


def send(client: GMRClient, seed: int) -> None:
    features = np.random.default_rng(seed).random((BATCH, 3), dtype=np.float32)
    client.ingest(features, batch_id=f"b-{seed}")


def test_a_key_beyond_its_share_gets_dead_letters_and_the_ledger_adds_up(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(admin_key=SecretStr(OPERATOR), max_key_share=0.5)
    with training(made), serving(made) as served, contextlib.ExitStack() as open_clients:
        url = str(served.base_url)

        def client_of(key: str) -> GMRClient:
            return open_clients.enter_context(GMRClient(url, api_key=key))

        admin = client_of(OPERATOR)

        def learned(entries: int) -> dict[str, int]:
            """Samples by name, once so many entries were applied."""
            # (A trainer whose stream is quiet settles, which is an entry, too.)
            wait_until(lambda: admin.ledger().waiting_entries == 0)
            assert admin.ledger().entries_applied >= entries
            return {str(row.name): row.samples for row in admin.key_shares().keys}

        keys = {name: admin.make_api_key(name, ["ingest"]).key for name in ("cam", "bad")}
        cam, bad = (client_of(key) for key in keys.values())
        send(cam, 0)
        assert learned(1) == {"cam": BATCH}
        for seed in range(1, 7):
            send(bad, seed)
        # The half of 2,000, and 1,000 more: with "bad" the window began anew.
        assert learned(7) == {"bad": 4 * BATCH, "cam": 0}
        send(cam, 7)
        assert learned(8) == {"bad": 4 * BATCH, "cam": BATCH}
        for seed in range(8, 14):
            send(bad, seed)
        # The half of 3,000, and 1,000 more.
        assert learned(14) == {"bad": 5 * BATCH, "cam": BATCH}

        letters = admin.dead_letters().letters
        assert {letter.reason for letter in letters} == {"key_share"}
        rejected = [one for one in admin.kept_events() if one.kind == "entry_rejected"]
        assert len(rejected) == len(letters) == 2 + 5
        counts = admin.ledger()
        assert (counts.unaccounted, counts.rejected) == (0, BATCH * len(letters))

        before = len(letters)
        admin.requeue_dead_letter(letters[0].id)
        after = learned(15)
        assert after["bad"] == 6 * BATCH
        assert len(admin.dead_letters().letters) == before  # its record stays
        counts = admin.ledger()
        assert (counts.unaccounted, counts.rejected) == (0, BATCH * (before - 1))

        headers = {"Authorization": f"Bearer {OPERATOR}"}
        shown = f'gmr_key_samples{{key="bad"}} {after["bad"]:.1f}'
        wait_until(lambda: shown in served.get("/metrics", headers=headers).text)
        assert admin.key_shares().cap == 0.5
        with pytest.raises(NotAuthorised):
            bad.key_shares()
        monkeypatch.setenv("GMR_API_KEY", OPERATOR)
        listed = CliRunner().invoke(app, ["keys", "list", "--url", url])
        assert "share learned" in listed.output
        assert "bad 85.7%" in listed.output
    # From a checkpoint.
    with training(made), serving(made) as served, contextlib.ExitStack() as open_clients:
        admin = open_clients.enter_context(GMRClient(str(served.base_url), api_key=OPERATOR))
        wait_until(lambda: admin.ready().ready)
        assert {str(row.name): row.samples for row in admin.key_shares().keys} == after


def test_a_key_whose_samples_are_mostly_outliers_is_held_back_by_itself(
    settings: Callable[..., Settings],
) -> None:
    made = settings(admin_key=SecretStr(OPERATOR), max_key_outliers=0.3)
    rng = np.random.default_rng(5)
    with training(made), serving(made) as served, contextlib.ExitStack() as open_clients:
        url = str(served.base_url)

        def client_of(key: str) -> GMRClient:
            return open_clients.enter_context(GMRClient(url, api_key=key))

        admin = client_of(OPERATOR)
        keys = {name: admin.make_api_key(name, ["ingest"]).key for name in ("pump", "broken")}
        pump, broken = (client_of(key) for key in keys.values())
        sent = 0

        def send_some(client: GMRClient, n: int, spread: float) -> None:
            nonlocal sent
            client.ingest((spread * rng.normal(size=(n, 3))).astype("f4"), batch_id=f"s-{sent}")
            sent += 1

        for _ in range(20):
            send_some(pump, 100, 1.0)
        for _ in range(12):
            send_some(pump, 90, 1.0)
            send_some(broken, 40, 30.0)
        wait_until(lambda: admin.ledger().waiting_entries == 0)
        letters = admin.dead_letters().letters
        assert {letter.reason for letter in letters} == {"key_outliers"}
        # 300 samples are judged by nobody; of all that comes then nothing is learned.
        assert len(letters) == 12 - 8
        rows = {row.name: row for row in admin.key_shares().keys}
        assert rows["broken"].samples == 8 * 40
        assert rows["broken"].outliers > 0.3 * rows["broken"].samples
        assert rows["pump"].samples == 11 * 90  # with "broken" the window began anew
        assert admin.key_shares().outlier_cap == 0.3
        # Whoever has looked at it may have it learned.
        admin.requeue_dead_letter(letters[0].id)

        def samples(name: str) -> int:
            return {row.name: row for row in admin.key_shares().keys}[name].samples

        wait_until(lambda: samples("broken") == 9 * 40)


def test_without_keys_nobody_is_named_and_nothing_is_refused(
    settings: Callable[..., Settings],
) -> None:
    made = settings(max_key_share=0.1)
    with training(made), serving(made) as served, GMRClient(str(served.base_url)) as client:
        for seed in range(5):
            send(client, seed)
        wait_until(lambda: client.ledger().entries_applied == 5)
        shares = client.key_shares()
        assert [(row.name, row.samples) for row in shares.keys] == [(None, 5 * BATCH)]
        assert "gmr_key_samples{" not in served.get("/metrics").text
        # Shares are of a model, keys are of the service.
        problem(served.get("/models/nobody/keys/shares"), 404, "unknown-model")
        problem(served.get("/models/nobody/keys"), 404, "not-found")


def test_a_body_cannot_say_who_sent_it(settings: Callable[..., Settings]) -> None:
    with serving(settings(admin_key=SecretStr(OPERATOR))) as client:
        body: dict[str, Any] = {"features": [[0.0, 1.0]], "by": "somebody"}
        headers = {"Authorization": f"Bearer {OPERATOR}", "Content-Type": "application/json"}
        answer = client.post("/ingest", content=orjson.dumps(body), headers=headers)
        assert answer.status_code == 422
