"""Tests for `gmr deadletters`, and for senders whose batches end there, against the real thing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx2
import numpy as np
import pytest
from typer.testing import CliRunner

from clients.commands import deadletters
from clients.commands.cli import app
from clients.http.answers import DeadLetter, DeadLetters
from clients.http.client import GMRClient
from service.wire import NO_LIMITS, parse_safetensors
from tests.service.api.stack import (
    labels,
    learned,
    make_settings,
    redis_server,
    samples,
    serving,
    teach,
    training,
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """An API that allows more classes than its trainer."""
    folder = tmp_path_factory.mktemp("service")
    with redis_server(folder) as redis:
        made = make_settings(redis.url, folder, detector="none", settle_after_s=3600)
        strict = made.model_copy(update={"max_classes": 4})
        with training(strict), serving(made) as client:
            teach(client, batches=2)
            yield client


class Gmr:
    """The command line, for one service."""

    def __init__(self, service: httpx2.Client) -> None:
        self.url = str(service.base_url).rstrip("/")

    def __call__(self, *arguments: object, status: int = 0) -> str:
        typed = [*map(str, arguments), "--url", self.url]
        result = CliRunner().invoke(app, typed)
        assert result.exit_code == status, result.output
        return " ".join(result.output.split())

    def ids(self) -> list[str]:
        letters = httpx2.get(f"{self.url}/deadletters").json()["deadletters"]
        return [letter["id"] for letter in letters]


@pytest.fixture
def gmr(service: httpx2.Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Gmr]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "300")
    yield Gmr(service)
    service.delete("/deadletters").raise_for_status()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Thirty samples; the second ten have ten classes that nobody has seen."""
    names = [str(label) for label in labels(30)]
    names[10:20] = [f"{tmp_path.name} {i}" for i in range(10)]
    names = ["cat" if name == "3" else name for name in names]
    np.savez(tmp_path / "a.npz", features=samples(30), labels=np.array(names))
    return tmp_path / "a.npz"


def test_a_file_whose_batches_cannot_be_used_ends_with_status_1(
    gmr: Gmr, file: Path, service: httpx2.Client
) -> None:
    said = gmr("ingest", file, "--batch-size", 10, "--wait", status=1)
    assert "30 samples in 3 batches" in said
    assert "1 batch (10 samples) could not be used" in said
    assert "1 invalid_labels" in said
    # Run again, it sends nothing and says the same.
    said = gmr("ingest", file, "--batch-size", 10, status=1)
    assert "sent completely before" in said
    assert "1 batch (10 samples)" in said
    # Without its resume file it is told by the answers as well.
    (resume,) = (file.parent / "state").rglob("*.json")
    resume.unlink()
    assert "1 batch " in gmr("ingest", file, "--batch-size", 10, status=1)
    # Once that is settled, all is well.
    gmr("deadletters", "drop", "--all")
    assert "sent completely before" in gmr("ingest", file, "--batch-size", 10)
    learned(service)


@pytest.mark.parametrize("wait", ["--wait", "--no-wait"])
def test_labels_that_cannot_be_used_end_with_status_1(
    gmr: Gmr, tmp_path: Path, service: httpx2.Client, wait: str
) -> None:
    path = tmp_path / "labels.csv"
    rows = "".join(f"{tmp_path.name}-{i},{tmp_path.name} {i}\n" for i in range(5))
    path.write_text(f"id,label\n{rows}")
    if wait == "--no-wait":
        CliRunner().invoke(app, ["labels", str(path), wait, "--url", gmr.url])
        learned(service)
    said = gmr("labels", path, wait, status=1)
    assert "1 batch (5 labels) could not be used" in said


def test_letters_are_listed_shown_saved_sent_again_and_dropped(
    gmr: Gmr, file: Path, tmp_path: Path, service: httpx2.Client
) -> None:
    assert "0 dead letters" in gmr("deadletters")
    gmr("ingest", file, "--batch-size", 10, "--wait", status=1)
    [id] = gmr.ids()
    said = gmr("deadletters", "list")
    assert id in said
    assert "invalid_labels" in said
    assert "1 dead letter" in said
    assert "0 dead letters" in gmr("deadletters", "list", "--reason", "shape_mismatch")
    shown = json.loads(gmr("deadletters", "show", id))
    np.testing.assert_array_equal(np.float32(shown["features"]), samples(30)[10:20])

    gmr("deadletters", "save", id, "--out", tmp_path / "one.safetensors")
    batch = parse_safetensors((tmp_path / "one.safetensors").read_bytes(), NO_LIMITS)
    np.testing.assert_array_equal(batch.features, samples(30)[10:20])
    gmr("deadletters", "save", id, "--out", tmp_path / "one.json")
    assert json.loads((tmp_path / "one.json").read_text()) == shown

    assert "1 sent again" in gmr("deadletters", "requeue", id)
    assert "sent again before" in gmr("deadletters", "requeue", id, status=1)
    learned(service)
    _, second = gmr.ids()  # it failed again
    said = gmr("deadletters", "requeue", "--all", "--reason", "invalid_labels")
    assert second in said
    assert "1 sent again" in said
    learned(service)
    assert "1 dropped" in gmr("deadletters", "drop", id)
    assert "No dead letter" in gmr("deadletters", "show", id, status=2)
    assert "2 dropped" in gmr("deadletters", "drop", "--all")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["requeue"], "either ids or --all"),
        (["drop", "1-0", "--all"], "either ids or --all"),
        (["show"], "expected one"),
        (["save", "1-0"], "No dead letter"),
        (["bury", "1-0"], "bury"),
    ],
)
def test_what_was_typed_wrong_is_one_message(
    gmr: Gmr, arguments: list[str], complaint: str
) -> None:
    assert complaint in gmr("deadletters", *arguments, status=2)


def test_a_letter_is_a_line_where_the_list_goes_to_a_program(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    one = DeadLetter(
        id="1700000000000-20000",
        entry_id="1700000000000-0",
        time=1.7e9,
        reason="invalid_labels",
        detail=" ".join(30 * ["too many classes"]),
        kind="batch",
        batch_id=f"table-{'7f3a' * 10}",
        samples=100,
        size=6400,
        whole=True,
    )

    class Client:
        def dead_letters(self, *_: object, **__: object) -> DeadLetters:
            return DeadLetters(letters=(one,), next=None, total=1, bytes=6400, dropped=0)

    deadletters._list(cast(GMRClient, Client()), None)
    [line] = [line for line in capsys.readouterr().out.splitlines() if "invalid_labels" in line]
    assert line.split()[0] == "1700000000000-20000"
    assert str(one.batch_id) in line
    assert one.detail in line
