"""Tests for --model-column of `gmr classify` and `gmr outliers` against a real service."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from clients.commands.answer_file import Answers, Asked
from clients.commands.cli import app
from clients.data.files import Rows
from clients.http.client import GMRClient
from tests.service.api.stack import make_settings, redis_server, serving, training

SHIFTS = {"north": 0.0, "south": 50.0}
"""Machines and the level of their readings, which is strange of the other one."""


def readings(n: int, seed: int) -> list[str]:
    """Rows of both machines in turn, after the names of columns; two states each."""
    rng = np.random.default_rng(seed)
    rows = ["machine,load,speed,state"]
    for row in range(n):
        machine, high = [*SHIFTS][row % 2], row // 2 % 2
        load, speed = SHIFTS[machine] + 4 * high + rng.normal(size=2).round(4)
        rows.append(f"{machine},{load:.4f},{speed:.4f},{machine}-{'high' if high else 'low'}")
    return rows


def written(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return path


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A service with two named models that know their machine, and one that knows nothing."""
    folder = tmp_path_factory.mktemp("asked")
    with redis_server(folder) as redis:
        settings = make_settings(redis.url, folder, preset="flat", n_components=8)
        with training(settings), serving(settings) as http, pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_STATE_HOME", str(folder / "state"))
            url = str(http.base_url).rstrip("/")
            path = written(folder / "taught.csv", readings(2400, seed=0))
            options = ["--model-column", "machine", "--label-column", "state", "--make-models"]
            typed = ["ingest", str(path), *options, "--wait", "--url", url]
            result = CliRunner().invoke(app, typed)
            assert result.exit_code == 0, result.output
            with GMRClient(url) as client:
                client.make_model("empty")
            yield url


def asked(url: str, command: str, path: Path, *options: str) -> Result:
    typed = [command, str(path), "--model-column", "machine", *options, "--url", url]
    return CliRunner().invoke(app, typed)


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_each_row_is_named_by_the_model_that_it_names_in_the_order_of_the_table(
    url: str, tmp_path: Path
) -> None:
    rows = readings(60, seed=1)
    path = written(tmp_path / "new.csv", rows)
    result = asked(url, "classify", path, "--label-column", "state", "--batch-size", "7")
    assert result.exit_code == 0, result.output
    answers = table(result.stdout)
    assert [*answers[0]] == ["row", "model", "class", "probability", "label"]
    assert [int(answer["row"]) for answer in answers] == list(range(60))
    assert [answer["model"] for answer in answers] == [row.split(",")[0] for row in rows[1:]]
    # Each model knows its own machine only.
    assert all(one["class"].startswith(one["model"]) for one in answers)
    right = sum(one["class"] == one["label"] for one in answers)
    assert right >= 55
    assert f"accuracy {100 * right / 60:.2f} % ({right} of 60 labelled samples)" in result.stderr


def test_answers_of_all_models_are_one_document_and_have_the_ids_of_the_table(
    url: str, tmp_path: Path
) -> None:
    rows = readings(20, seed=2)
    numbered = ["id," + rows[0], *(f"r{100 - place},{row}" for place, row in enumerate(rows[1:]))]
    path = written(tmp_path / "new.csv", numbered)
    out = tmp_path / "answers.json"
    options = ["--label-column", "state", "--id-column", "id", "--json", "--out", str(out)]
    result = asked(url, "outliers", path, *options)
    assert result.exit_code == 0, result.output
    document = json.loads(out.read_text("utf-8"))
    assert [one["id"] for one in document["samples"]] == [f"r{100 - place}" for place in range(20)]
    assert {*document["model_versions"]} == {"north", "south"}
    assert document["n"] == 20
    assert document["outliers"] == sum(one["outlier"] for one in document["samples"])

    # The same readings under the other machine's name are strange to its model.
    swapped = [
        row.replace("north,", "x,", 1).replace("south,", "north,", 1).replace(",x,", ",south,", 1)
        for row in numbered
    ]
    strange = asked(url, "outliers", written(path, swapped), *options)
    assert strange.exit_code == 0, strange.output
    assert json.loads(out.read_text("utf-8"))["outliers"] == 20
    assert "20 of 20 samples are outliers" in strange.output


def test_a_model_that_cannot_answer_is_told_and_the_others_do(url: str, tmp_path: Path) -> None:
    rows = [*readings(10, seed=3), "empty,1,2,low"]
    result = asked(url, "classify", written(tmp_path / "new.csv", rows), "--drop", "state")
    assert result.exit_code == 2
    assert [int(answer["row"]) for answer in table(result.stdout)] == list(range(10))
    assert "Error: empty: " in result.stderr
    assert "Rows of 1 model in" in " ".join(result.stderr.split())

    wrong = [*readings(10, seed=3), "south,1,fast,low", "north,7,7,low"]
    result = asked(url, "classify", written(tmp_path / "new.csv", wrong), "--drop", "state")
    assert result.exit_code == 2
    assert [int(one["row"]) for one in table(result.stdout)] == [0, 2, 4, 6, 8, 11]
    told = " ".join(result.stderr.split())
    assert f"Row 5 of south is row 10 of {tmp_path / 'new.csv'} (line 12 of the file)." in told
    # What a model had answered before stays, and so does its version.
    options = ["--drop", "state", "--batch-size", "2", "--json"]
    partly = json.loads(asked(url, "classify", tmp_path / "new.csv", *options).stdout)
    south = [one["row"] for one in partly["samples"] if one["model"] == "south"]
    assert south == [1, 3, 5, 7]
    assert {*partly["model_versions"]} == {"north", "south"}
    skipped = asked(url, "classify", tmp_path / "new.csv", "--drop", "state", "--skip-bad-rows")
    assert skipped.exit_code == 0, skipped.output
    assert [int(one["row"]) for one in table(skipped.stdout)] == [*range(10), 11]
    assert "1 row could not be used, left out." in skipped.stderr


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--model", "north"], "A model was named, and column 'machine' says the models as well."),
        (["--live"], "Lines that come one by one are not parted by --model-column."),
    ],
)
def test_what_does_not_go_with_it_is_refused(
    url: str, tmp_path: Path, options: list[str], told: str
) -> None:
    path = written(tmp_path / "new.csv", readings(4, seed=4))
    result = asked(url, "classify", path if "--live" not in options else Path("-"), *options)
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.split())


def test_models_that_are_not_there_are_told_before_anything_is_asked(
    url: str, tmp_path: Path
) -> None:
    rows = [*readings(4, seed=5), "east,1,2,low", "west,1,2,low"]
    result = asked(url, "outliers", written(tmp_path / "new.csv", rows), "--label-column", "state")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "names 2 models that the service does not have: east, west." in " ".join(
        result.stderr.split()
    )


@pytest.mark.parametrize("command", ["classify", "outliers"])
def test_a_command_that_fails_leaves_the_answers_of_an_earlier_one(
    url: str, tmp_path: Path, command: str
) -> None:
    kept = tmp_path / "kept.csv"
    new = written(tmp_path / "new.csv", ["load,speed", "1,2"])
    unknown = written(tmp_path / "unknown.csv", ["machine,load,speed", "empty,1,2"])
    broken = written(tmp_path / "broken.csv", ["load,speed", *["1,2"] * 600, "1,fast"])
    kept.write_text("before")
    for path, typed, status in (
        (new, ("--model", "empty"), 1),
        (broken, ("--model", "north"), 2),
        (unknown, ("--model-column", "machine"), 2),
    ):
        given = [command, str(path), *typed, "--out", str(kept), "--url", url]
        result = CliRunner().invoke(app, given)
        assert result.exit_code == status, result.output
        assert kept.read_text() == "before"
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv"}
    asked_one = [command, str(new), "--model", "north", "--out", str(kept), "--url", url]
    assert CliRunner().invoke(app, asked_one).exit_code == 0
    assert kept.read_text().startswith("row,")


def test_answers_about_samples_that_come_one_by_one_are_there_as_they_come(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("before")
    rows = Rows(0, np.zeros((1, 2), np.float32), None, None)
    with Answers.to(out, ["row", "class"], as_json=False, live=True) as answers:
        assert out.read_text() == "before"
        for row in range(2):
            answers.add(Asked(rows, 1, [[row, "a"]]))
            assert out.read_text().splitlines()[1:] == [f"{n},a" for n in range(row + 1)]
