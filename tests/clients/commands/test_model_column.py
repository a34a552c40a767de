"""Tests for --model-column of `gmr ingest` and `gmr labels` against a real service."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from pydantic import SecretStr
from rich.console import Console
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.commands.file_sender import say_error
from clients.http.client import GMRClient
from clients.http.errors import InputError
from tests.service.api.stack import (
    make_settings,
    redis_server,
    serving,
    training,
)

OPERATOR = "operator-key-of-32-characters-0"
MACHINES = ("pump-7", "pump-8", "fan.1")


def fleet(n: int) -> list[str]:
    """Rows of three machines in turn, after the names of columns."""
    x = np.random.default_rng(0).normal(size=(n, 2)).round(4)
    rows = [f"{MACHINES[i % 3]},{a},{b},{'ok' if i % 2 else 'bad'}" for i, (a, b) in enumerate(x)]
    return ["machine,load,speed,state", *rows]


def written(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return path


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    with redis_server(tmp_path) as redis:
        settings = make_settings(redis.url, tmp_path)
        with training(settings), serving(settings) as http:
            yield str(http.base_url).rstrip("/")


def sent(url: str, path: Path, *options: str, status: int = 0) -> str:
    typed = ["ingest", str(path), "--model-column", "machine", "--label-column", "state", *options]
    result = CliRunner().invoke(app, [*typed, "--url", url])
    assert result.exit_code == status, result.output
    return " ".join(result.output.split())


def samples(url: str) -> dict[str, int]:
    """Samples that each named model has learned."""
    found = {}
    with GMRClient(url) as client:
        names = [model.name for model in client.models()]
    for name in names:
        with GMRClient(url, model=name) as client:
            client.wait_until_learned(60)
            found[name] = client.model().samples_seen
    return found


def test_rows_go_to_the_models_that_they_name_and_each_is_learned_once(
    url: str, tmp_path: Path
) -> None:
    rows = fleet(100)
    path = written(tmp_path / "fleet.csv", rows)
    refused = sent(url, path, status=2)
    assert "names 3 models that the service does not have: pump-7, pump-8, fan.1" in refused
    assert "Nothing was sent" in refused

    first = sent(url, path, "--make-models", "--wait")
    assert "Made 3 models." in first
    assert "pump-7: 34 samples in 1 batch, 0 of them there before" in first
    assert samples(url) == {"pump-7": 34, "pump-8": 33, "fan.1": 33}
    for model in MACHINES:
        with GMRClient(url, model=model) as client:
            assert client.feature_names() == ("load", "speed")
            assert {one.label for one in client.model().classes} == {"ok", "bad"}
    again = sent(url, path)
    assert again.count("was sent completely before") == 3

    written(path, [*rows, "pump-8,1.5,x,ok", "fan.1,1.25,5,ok"])
    wrong = sent(url, path, status=2)
    assert "pump-8 of " in wrong
    assert f"Row 33 of pump-8 is row 100 of {path} (line 102 of the file)." in wrong
    assert "(line 35 of the file)" not in wrong
    assert "The rows of 1 model in " in wrong
    assert samples(url) == {"pump-7": 34, "pump-8": 33, "fan.1": 34}

    written(path, [*rows, "pump-8,1.5,2,ok", "fan.1,1.25,5,ok", "pump-7,1", ",1,2,ok"])
    skipped = sent(url, path, "--skip-bad-rows")
    assert "2 rows of" in skipped
    assert samples(url) == {"pump-7": 34, "pump-8": 34, "fan.1": 34}


def test_an_address_of_one_model_is_no_place_for_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GMR_URL", "http://127.0.0.1:9/models/pump-7/")
    path = written(tmp_path / "fleet.csv", fleet(3))
    result = CliRunner().invoke(app, ["ingest", str(path), "--model-column", "machine"])
    assert result.exit_code == 2
    assert "A model was named" in result.output


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--model-column", "machine", "--model", "pump-7"], "Leave out --model or --model-column"),
        (["--make-models"], "Add --model-column"),
        (["--model-column", "machine", "--live"], "are not parted by --model-column"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, options: list[str], complaint: str
) -> None:
    path = written(tmp_path / "fleet.csv", fleet(3))
    result = CliRunner().invoke(app, ["ingest", str(path), *options])
    assert result.exit_code == 2
    assert complaint in " ".join(result.output.split())


def test_labels_go_to_the_models_that_they_name(url: str, tmp_path: Path) -> None:
    rows = fleet(90)
    ids = ["id", *(f"s-{i // 3}" for i in range(90))]  # of each model its own, alike in all
    numbered = [f"{row},{id}" for row, id in zip(rows, ids, strict=True)]
    table = written(tmp_path / "fleet.csv", numbered)
    sent(url, table, "--id-column", "id", "--no-labels", "--make-models", "--wait")

    def labels(path: Path, *options: str, status: int = 0) -> str:
        typed = ["labels", str(path), "--model-column", "machine", "--label-column", "state"]
        result = CliRunner().invoke(app, [*typed, "--id-column", "id", "--url", url, *options])
        assert result.exit_code == status, result.output
        return " ".join(result.output.split())

    unknown = written(tmp_path / "more.csv", [*numbered, "pump-9,0,0,ok,s-1"])
    said = labels(unknown, status=2)
    assert "names 1 model that the service does not have: pump-9. Nothing was sent" in said
    said = labels(table)
    for model in MACHINES:
        assert f"{model}: 30 labels in 1 request, 0 of them there before" in said
        assert f"{model}: 30 matched, 0 waiting for their sample, 0 unmatched" in said
    assert samples(url) == dict.fromkeys(MACHINES, 30)
    assert "30 of them there before" in labels(table)
    bare = CliRunner().invoke(
        app, ["labels", str(table), "--model-column", "machine", "--url", url]
    )
    assert bare.exit_code == 2
    told = " ".join(bare.output.split())
    assert told.count("Error:") == told.count("no column or array called label") == 1
    assert f"{table} has" in told
    twice = written(tmp_path / "twice.csv", [numbered[0], *numbered[1:4], numbered[1]])
    said = labels(twice, status=2)
    assert "The rows of 1 model in twice.csv could not be sent whole" in said
    assert "pump-8: 1 label in 1 request" in said
    named = labels(table, "--model", "pump-7", status=2)
    assert "Leave out --model or --model-column" in named
    assert "are not parted by --model-column" in labels(Path("-"), "--live", status=2)


def test_an_error_is_told_as_it_is_whatever_a_cell_holds() -> None:
    told = io.StringIO()
    error = "row 0 holds '[/b]', row 1 '[red]'"
    say_error(Console(file=told, width=200), InputError(error))
    assert told.getvalue() == f"Error: {error}\n"


def test_a_key_for_some_models_serves_every_command_that_parts_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "300")
    rows = [f"pump-{i % 2},{i % 7 / 8},{i % 5},{'ok' if i % 3 else 'bad'},{i}" for i in range(80)]
    header = "machine,load,speed,state,id"
    table = written(tmp_path / "pumps.csv", [header, *rows])
    foreign = written(tmp_path / "fans.csv", [header, *rows, "fan-1,1,2,ok,80"])
    parted = ("--model-column", "machine", "--label-column", "state", "--id-column", "id")

    def gmr(*typed: str, status: int = 0) -> str:
        result = CliRunner().invoke(app, [*typed])
        assert result.exit_code == status, result.output
        return " ".join(result.output.split())

    with redis_server(tmp_path) as redis:
        settings = make_settings(redis.url, tmp_path, admin_key=SecretStr(OPERATOR))
        with training(settings), serving(settings) as http:
            monkeypatch.setenv("GMR_URL", str(http.base_url).rstrip("/"))
            monkeypatch.setenv("GMR_API_KEY", OPERATOR)
            with GMRClient() as admin:
                keys = {
                    role: admin.make_api_key(role, roles, ["pump-*"]).key
                    for role, roles in (
                        ("admin", ["admin"]),
                        ("team", ["read", "ingest"]),
                        ("sensor", ["ingest"]),
                    )
                }

            monkeypatch.setenv("GMR_API_KEY", keys["sensor"])
            assert "names 2 models that the service" in gmr("ingest", str(table), *parted, status=2)
            monkeypatch.setenv("GMR_API_KEY", keys["admin"])
            for typed in (("--make-models",), ()):
                refused = gmr("ingest", str(foreign), *parted, *typed, status=1)
                assert "The key counts for the models pump-* alone" in refused
                assert "fan-1" not in refused
            assert "Made 2 models." in gmr("ingest", str(table), *parted, "--make-models")

            monkeypatch.setenv("GMR_API_KEY", keys["team"])
            said = gmr("ingest", str(table), *parted, "--no-labels", "--again", "--wait")
            assert "pump-1: 40 samples in 1 batch" in said
            assert "pump-1: 40 matched" in gmr("labels", str(table), *parted)
            for command in ("classify", "outliers"):
                assert "79,pump-1," in gmr(command, str(table), *parted)
                assert "The key counts for" in gmr(command, str(foreign), *parted, status=1)

            monkeypatch.setenv("GMR_API_KEY", keys["sensor"])
            assert "pump-0: 40 samples" in gmr("ingest", str(table), *parted, "--again")
            said = gmr("labels", str(table), *parted, "--again", "--no-wait")
            assert "pump-0: 40 labels" in said
