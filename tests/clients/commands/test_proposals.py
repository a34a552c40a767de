"""Tests for `gmr proposals` against a real service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from clients.commands.class_label import class_label
from clients.commands.cli import app
from clients.http.client import GMRClient
from tests.clients.scripted import ScriptedServer, answer
from tests.service.api.stack import (
    N_FEATURES,
    make_settings,
    redis_server,
    serving,
    teach,
    training,
    wait_until,
)


def run(url: str, *arguments: str, status: int = 0) -> str:
    result = CliRunner().invoke(app, [*arguments, "--url", url])
    assert result.exit_code == status, result.output
    return result.output


def said(url: str, *arguments: str, status: int = 0) -> str:
    return " ".join(run(url, *arguments, status=status).split())


def document(url: str, *arguments: str) -> Any:
    return json.loads(run(url, *arguments, "--json"))


def stripes(seed: int) -> np.ndarray[Any, Any]:
    """Forty samples like no class known, with shape (40, D)."""
    x = np.random.default_rng(seed).normal(0.5, 0.03, (40, N_FEATURES))
    x += np.where((np.arange(N_FEATURES) + seed) % 2, 0.4, -0.4)
    return x.astype("f4")


def test_proposed_classes_are_listed_named_and_dismissed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with redis_server(tmp_path) as redis:
        settings = make_settings(
            redis.url,
            tmp_path,
            detector="none",
            settle_after_s=3600,
            proposal_samples=20,
            warm_up=10_000,
        )
        with training(settings), serving(settings) as http:
            teach(http, batches=12)
            url = str(http.base_url).rstrip("/")
            assert said(url, "proposals") == "0 open proposals"
            assert "proposed" not in said(url, "status")
            with GMRClient(url) as client:
                client.ingest(stripes(5))
                wait_until(lambda: len(client.proposals()) == 1)

                listed = said(url, "proposals", "list")
                assert listed.startswith("proposal samples from first sample last sample nearest")
                assert " 1 40 unknown 1,200 1,239 " in listed
                assert "3 (" in listed
                assert "cat (" in listed
                assert listed.endswith("1 open proposal")
                assert document(url, "proposals") == http.get("/drift/proposals").json()
                assert "1 new class is proposed (gmr proposals)" in said(url, "status")
                assert document(url, "status")["proposals"] == 1

                named = said(url, "proposals", "name", "1", "cracked lens")
                assert named.startswith("Proposal 1 is named cracked lens, by entry ")
                wait_until(lambda: "cracked lens" in client.model().labels)
                wait_until(lambda: not client.proposals())
                assert "not open" in said(url, "proposals", "dismiss", "1", status=2)


def test_a_proposal_is_dismissed_without_a_name() -> None:
    reply = {"entry_id": "9-0", "batch_id": "b", "labels": 1, "backlog": 1}
    with ScriptedServer(answer(202, reply)) as server:
        away = document(server.url, "proposals", "dismiss", "2")
        assert away == {"proposal": 2, "label": None, "entry_id": "9-0"}
        told = said(server.url, "proposals", "dismiss", "2", "--model", "pump")
        assert told == "Proposal 2 is dismissed, by entry 9-0."
    own, named = server.requests
    assert own.line.startswith("POST /labels ")
    assert named.line.startswith("POST /models/pump/labels ")


@pytest.mark.parametrize("may_be_known", [True, False, None])
def test_a_proposal_that_may_be_of_known_classes_says_so(may_be_known: bool | None) -> None:
    proposal = {
        "proposal": 3,
        "origin": "boundary",
        "samples": 400,
        "first_sample": 2000,
        "last_sample": 2399,
        "prototype": [1.0],
        "nearest_classes": ["a", "b"],
        "nearest_probabilities": [0.5, 0.5],
        "may_be_known": may_be_known,
    }
    with ScriptedServer(answer(200, {"proposals": [proposal]})) as server:
        told = said(server.url, "proposals")
        assert document(server.url, "proposals")["proposals"] == [proposal]
    assert ("Proposal 3 may be the known classes" in told) is (may_be_known is True)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        (("list", "1"), "Leave the number out"),
        (("name", "1"), "expects a number and a class"),
        (("name",), "expects a number and a class"),
        (("dismiss",), "expects a number alone"),
        (("dismiss", "1", "a"), "expects a number alone"),
    ],
)
def test_what_was_typed_wrong_is_told_before_anything_is_asked(
    typed: tuple[str, ...], expected: str
) -> None:
    assert expected in said("http://127.0.0.1:9", "proposals", *typed, status=2)


class Known:
    """A client whose model knows classes by these names."""

    def __init__(self, *labels: object) -> None:
        self.labels = labels

    def model(self) -> Known:
        return self


def test_a_name_that_is_a_whole_number_is_one_unless_a_class_is_called_so() -> None:
    for text, known, expected in (
        ("7", (), 7),
        ("-7", (7,), -7),
        ("7", ("7",), "7"),
        (" a b ", (), "a b"),
        ("7.5", (), "7.5"),
    ):
        assert class_label(Known(*known), text) == expected  # type: ignore[arg-type]
