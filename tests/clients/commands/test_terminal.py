"""Tests for the commands that look at a service, ask it and act on it, against a real one."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import httpx2
import numpy as np
import pytest
from PIL import Image
from rich.console import Console
from typer.testing import CliRunner, Result

from benchmarks._ports import free_port
from clients.commands import status
from clients.commands.cli import app
from clients.commands.reading import Reading
from clients.commands.top import Watch, picture
from clients.http.answers import ServiceEvent
from clients.http.client import GMRClient
from service.wire import RawBatch
from tests.service.api.stack import (
    labels,
    learned,
    make_settings,
    of_model,
    problem,
    redis_server,
    samples,
    send,
    serving,
    teach,
    training,
    wait_until,
)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A service that has learned two classes, and crosses a boundary only where one is declared."""
    folder = tmp_path_factory.mktemp("service")
    with redis_server(folder) as redis:
        settings = make_settings(
            redis.url, folder, detector="none", checkpoint_interval_s=0.05, settle_after_s=3600
        )
        with training(settings), serving(settings) as client:
            teach(client)
            yield client


class Gmr:
    """The command line, for one service."""

    def __init__(self, url: str) -> None:
        self.url = url

    def run(
        self, *arguments: object, status: int = 0, given: bytes | None = None, url: bool = True
    ) -> Result:
        typed = [*map(str, arguments), *(["--url", self.url] if url else [])]
        result = CliRunner().invoke(app, typed, input=given)
        assert result.exit_code == status, result.output
        return result

    def __call__(self, *arguments: object, status: int = 0) -> str:
        return " ".join(self.run(*arguments, status=status).output.split())

    def json(self, *arguments: object, status: int = 0) -> Any:
        """What a machine reads: standard output is one document and nothing else."""
        return json.loads(self.run(*arguments, "--json", status=status).stdout)

    def rows(self, *arguments: object) -> list[dict[str, str]]:
        return list(csv.DictReader(io.StringIO(self.run(*arguments).stdout)))


@pytest.fixture
def gmr(service: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> Gmr:
    monkeypatch.setenv("COLUMNS", "300")
    return Gmr(str(service.base_url).rstrip("/"))


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> Gmr:
    """The command line, for an address at which nobody listens."""
    monkeypatch.setenv("COLUMNS", "300")
    return Gmr(f"http://127.0.0.1:{free_port()}")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Thirty samples with their labels, of which two are wrong and one is missing."""
    names = [str(label) for label in labels(30)]
    names[0], names[1], names[2] = "cat", "3", ""
    path = tmp_path / "table.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"f{i}" for i in range(16)), "kind"])
        writer.writerows(
            [*row, name] for row, name in zip(samples(30, seed=50).tolist(), names, strict=True)
        )
    return path


# How it is


def test_status_is_a_table_and_a_document(gmr: Gmr, service: httpx2.Client) -> None:
    said = gmr("status")
    model, drift = service.get("/model").json(), service.get("/drift").json()
    for part in ("ready yes", f"version {model['model_version']}", "2 classes", "backlog 0"):
        assert part in said
    document = gmr.json("status")
    assert document["ready"] is True
    assert document["reason"] is None
    assert document["samples_seen"] == model["samples_seen"]
    assert document["accuracy"] == drift["prequential_accuracy_mean"]
    assert document["phase"] == drift["phase"]
    assert document["unarmed_reason"] == drift["unarmed_reason"]
    assert document["trainer_reported"] >= drift["heartbeat_time"] >= drift["time"]
    assert document["loaded"] is drift["loaded"] is True


def test_status_says_what_labels_are_waited_for_and_what_became_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    with redis_server(tmp_path) as redis:
        settings = make_settings(redis.url, tmp_path, preset="flat", awaiting_limit=40)
        with training(settings), serving(settings) as client:
            gmr = Gmr(str(client.base_url).rstrip("/"))
            told = client.post("/outliers", json={"features": samples(1).tolist()})
            assert "Send some to POST /ingest" in problem(told, 409, "model-not-ready")["detail"]
            first = {"features": samples(30).tolist(), "sample_ids": [*range(30)]}
            client.post("/ingest", json=first).raise_for_status()
            wait_until(lambda: client.get("/drift").json().get("awaiting") == 30)
            said = gmr("status")
            assert "waits for labels (30 samples), nothing learned yet" in said
            assert "matched" not in said
            told = client.post("/outliers", json={"features": samples(1).tolist()})
            detail = problem(told, 409, "model-not-ready")["detail"]
            assert "30 samples with ids came and wait for their labels" in detail
            more = {"features": samples(30, seed=1).tolist(), "sample_ids": [*range(30, 60)]}
            client.post("/ingest", json=more).raise_for_status()
            verdicts = {"sample_ids": [*range(60)], "labels": labels(60)}
            client.post("/labels", json=verdicts).raise_for_status()
            learned(client)
            wait_until(lambda: client.get("/drift").json()["labels_matched"])
            assert "labels 40 matched, 20 dropped (20 late)" in gmr("status")
            document = gmr.json("status")
            assert document["labels_matched"] == 40
            assert document["labels_unmatched"] == {"duplicate": 0, "late": 20, "unknown": 0}


def test_status_of_nobody_is_1_and_says_why(nobody: Gmr) -> None:
    assert "no: No service answers" in nobody("status", status=1)
    document = nobody.json("status", status=1)
    assert document["ready"] is False
    assert "No service answers" in document["reason"]
    assert document["model_version"] is None


def test_top_prints_a_line_per_reading_where_it_is_no_terminal(gmr: Gmr) -> None:
    lines = gmr.run("top", "--count", 2, "--interval", 0.05).stdout.splitlines()
    assert len(lines) == 2
    assert "- samples/s" in lines[0]  # one reading is no speed yet
    assert "0 samples/s" in lines[1]
    assert "backlog 0" in lines[1]


def test_top_speaks_json_and_of_events_once(gmr: Gmr, service: httpx2.Client) -> None:
    command = [sys.executable, "-m", "clients.commands.cli", "top", "--json", "--interval", "0.05"]
    with subprocess.Popen(
        [*command, "--url", gmr.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    ) as top:
        assert top.stdout is not None
        seen: list[dict[str, Any]] = [json.loads(top.stdout.readline()) for _ in range(3)]
        wrong = RawBatch.of(samples(4, seed=99), ["cat", 3, "cat", "dog"])
        send(service, wrong).raise_for_status()
        while not any(document["events"] for document in seen):
            seen.append(json.loads(top.stdout.readline()))
        seen += [json.loads(top.stdout.readline()) for _ in range(3)]
        top.send_signal(signal.SIGINT)
        top.stdout.read()
        assert top.wait(20) == 0
        assert top.stderr is not None
        assert top.stderr.read() == ""
    kinds = [event["kind"] for document in seen for event in document["events"]]
    assert kinds.count("class_discovered") == 1
    assert any(document["samples_per_second"] for document in seen)


def test_top_of_nobody_says_so_and_asks_again(nobody: Gmr) -> None:
    lines = nobody.run("top", "--count", 2, "--interval", 0.05).stdout.splitlines()
    assert [("not ready: No service answers" in line) for line in lines] == [True, True]


def test_the_picture_of_top_shows_numbers_and_the_newest_events(gmr: Gmr) -> None:
    watch = Watch()
    with GMRClient(gmr.url) as client:
        watch.read(Reading.of(client), 10.0)
        watch.read(Reading.of(client), 11.0)
    watch.document |= {"statistic": 5.0, "threshold": 10.0, "phase": "warning", "set_aside": 7}
    for i in range(9):
        watch.events.append(ServiceEvent(f"{i}-0", "boundary", {"sub_task": i}))
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(picture(watch, 14))
    text = console.export_text()
    assert len(text.splitlines()) <= 14
    assert "warning, 7 samples set aside" in text
    assert f"{'━' * 24}  5.0 of 10.0" in text
    assert "0 samples/s" in text
    assert "sub_task=8" in text
    assert "sub_task=0" not in text


# Questions about files


def test_classes_go_out_as_csv_and_the_accuracy_beside(gmr: Gmr, table: Path) -> None:
    arguments = ("classify", table, "--label-column", "kind", "--batch-size", 7)
    result = gmr.run(*arguments)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["row"] for row in rows] == [str(i) for i in range(30)]
    assert [row["class"] for row in rows] == [str(label) for label in labels(30)]
    assert all(0.5 < float(row["probability"]) <= 1 for row in rows)
    assert [row["label"] for row in rows[:3]] == ["cat", "3", ""]
    assert "accuracy 93.10 % (27 of 29 labelled samples)" in result.stderr
    document = gmr.json(*arguments, "--p-values")
    assert document["accuracy"] == 27 / 29
    assert document["samples"][3]["class"] == "cat"
    assert 0 < document["samples"][3]["p_value"] <= 1
    assert document["model_versions"] == [gmr.json("status")["model_version"]]


def test_a_file_takes_the_answers_and_ids_name_the_samples(gmr: Gmr, tmp_path: Path) -> None:
    path, out = tmp_path / "a.npz", tmp_path / "out.csv"
    np.savez(path, features=samples(3), names=np.array(["a", "b", "c"]))
    said = gmr.run("classify", path, "--id-column", "names", "--out", out)
    assert said.output == ""
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [(row["id"], row["class"]) for row in rows] == [("a", "3"), ("b", "cat"), ("c", "3")]
    assert set(rows[0]) == {"id", "class", "probability"}
    bad = gmr("classify", path, "--out", tmp_path / "missing" / "out.csv", status=2)
    assert "cannot be written" in bad


@pytest.mark.parametrize("form", ["csv", "npz", "npy", "json"])
def test_a_file_may_come_by_standard_input(gmr: Gmr, form: str) -> None:
    held = io.BytesIO()
    if form == "npz":
        np.savez(held, features=samples(4))
    elif form == "npy":
        np.save(held, samples(4))
    elif form == "json":
        held.write("".join(f"{row}\n" for row in samples(4).tolist()).encode())
    else:
        np.savetxt(held, samples(4), delimiter=",")
    result = gmr.run("classify", "-", given=held.getvalue())
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["class"] for row in rows] == ["3", "cat", "3", "cat"]


def test_columns_of_a_table_are_chosen_alike_by_all_commands(gmr: Gmr, tmp_path: Path) -> None:
    path = tmp_path / "dated.csv"
    rows = ["day," + ",".join(map(str, row)) + ",3" for row in samples(2).tolist()]
    path.write_text("\n".join(["date," + ",".join(f"f{i}" for i in range(16)) + ",kind", *rows]))
    options = ("--label-column", "kind", "--drop", "date")
    assert [row["class"] for row in gmr.rows("classify", path, *options)] == ["3", "cat"]
    assert len(gmr.rows("outliers", path, *options)) == 2
    only = ",".join(f"f{i}" for i in range(16))
    assert len(gmr.rows("outliers", path, "--columns", only)) == 2
    assert "column 0 ('date')" in gmr("classify", path, "--label-column", "kind", status=2)


def test_a_table_with_decimal_commas_is_read_alike_by_all_commands(
    gmr: Gmr, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    points, commas = tmp_path / "points.csv", tmp_path / "commas.csv"
    rows = [[str(value) for value in row] for row in samples(2).tolist()]
    points.write_text("\n".join(",".join(row) for row in rows))
    commas.write_text("\n".join(";".join(row).replace(".", ",") for row in rows))

    for command in ("classify", "outliers"):
        assert gmr.rows(command, commas, "--decimal", ",") == gmr.rows(command, points)
        assert "Add --decimal ," in gmr(command, commas, status=2)
    assert "2 samples in 1 batch" in gmr("ingest", commas, "--decimal", ",", "--wait")


def test_a_table_with_categories_is_encoded_alike_by_all_commands(
    gmr: Gmr, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    plain, mixed, encoding = (tmp_path / name for name in ("plain.csv", "mixed.csv", "e.json"))
    shops = [n % 3 for n in range(30)]
    rows = [list(map(str, row[:14])) for row in samples(30).tolist()]
    both = list(zip(rows, shops, strict=True))
    plain.write_text("".join(",".join([*row, f"{n == 0:d},{n == 1:d}\n"]) for row, n in both))
    names = [f"f{i}" for i in range(14)]
    known = [",".join([*row, "ab"[n], "2026-11-27"]) for row, n in both if n < 2]
    mixed.write_text("\n".join([",".join([*names, "shop", "day"]), *known]))
    told = gmr.run("encoding", mixed, "--drop", "day", "--out", encoding, url=False)
    assert "20 rows, 16 features" in told.stderr
    assert "shop: 2 categories (a, b)" in told.stderr
    printed = gmr.run("encoding", mixed, "--drop", "-1", url=False).stdout
    assert printed == encoding.read_text()

    mixed.write_text(
        "\n".join([",".join(["shop", *names]), *(",".join(["abc"[n], *row]) for row, n in both)])
    )
    for command in ("classify", "outliers"):
        told = gmr.run(command, mixed, "--encoding", encoding)
        assert told.stdout == gmr.run(command, plain).stdout
        assert "shop: 10 cells with a category that the encoding does not know" in told.stderr
    said = gmr("ingest", mixed, "--encoding", encoding, "--wait")
    assert gmr.json("features")["feature_names"] == [*names, "shop=a", "shop=b"]
    gmr("features", "--forget")
    assert "30 samples in 1 batch" in said
    assert "shop: 10 cells with a category" in said
    assert "gmr encoding" in gmr("ingest", mixed, status=2)
    assert "Leave these out" in gmr(
        "ingest", mixed, "--encoding", encoding, "--drop", "shop", status=2
    )


def test_images_are_read_from_a_folder_and_must_have_the_size_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rng, folder, large = np.random.default_rng(0), tmp_path / "photos", tmp_path / "large"
    for number in range(60):
        kind = number % 2
        pixels = (100 * kind + rng.integers(0, 80, (4, 6))).astype(np.uint8)
        for path, times in ((folder, 1), (large, 8)):
            path /= f"{('dark', 'light')[kind]}/{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            colours = (times, times, 1) if times > 1 else (1, 1)
            shown = pixels[..., None].repeat(3, axis=2) if times > 1 else pixels
            Image.fromarray(np.kron(shown, np.ones(colours, np.uint8))).save(path)
    with redis_server(tmp_path) as redis:
        made = make_settings(redis.url, tmp_path)
        with training(made), serving(made) as service:
            gmr = Gmr(str(service.base_url).rstrip("/"))
            assert "60 samples" in gmr("ingest", folder, "--shuffle", 0, "--wait")
            assert service.get("/model").json()["image_shape"] == [4, 6]
            assert "sent completely before" in gmr("ingest", folder, "--shuffle", 0)
            found = gmr.rows("classify", folder, "--id-column", "path")
            assert [row["id"] for row in found[::30]] == ["dark/0.png", "light/1.png"]
            right = [row["class"] for row in found]
            assert np.mean([row["class"] == row["label"] for row in found]) > 0.9
            for command in ("classify", "outliers", "ingest"):
                refused = gmr(command, large, status=2)
                assert "32 x 48 pixels in colour, 4,608 features each; nothing was sent" in refused
                assert "expects images of 4 x 6 pixels in grey. " in refused
                assert "Bring them to it with --size 4,6 --grey." in refused
            assert "with --grey." in gmr("classify", large, "--size", "4,6", status=2)
            assert "with --size 4,6." in gmr("classify", large, "--grey", status=2)
            form = ("--size", "4,6", "--grey")
            assert [row["class"] for row in gmr.rows("classify", large, *form)] == right
            assert len(gmr.rows("outliers", large / "dark" / "0.png", *form)) == 1
            assert "not a height and a width" in gmr("classify", large, "--size", "4", status=2)
            assert "60 samples" in gmr("ingest", folder, "--wait")  # in another order


def write_table(path: Path, names: list[str], rows: np.ndarray[Any, Any], kinds: list[Any]) -> Path:
    """A table with the columns of `names` and one of kinds."""
    cells = [[*map(str, row), str(kind)] for row, kind in zip(rows.tolist(), kinds, strict=True)]
    path.write_text("\n".join(",".join(row) for row in [[*names, "kind"], *cells]))
    return path


def test_features_are_known_by_the_names_of_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    names, kind = [f"s{i}" for i in range(16)], ("--label-column", "kind")
    before = np.concatenate([samples(100, seed=i) for i in range(6)])
    after = np.concatenate([1 - samples(100, seed=40 + i) / 4 for i in range(3)])
    log = write_table(
        tmp_path / "log.csv", names, np.concatenate([before, after]), [*labels(600), *["new"] * 300]
    )
    turned = write_table(tmp_path / "turned.csv", names[::-1], samples(40)[:, ::-1], labels(40))
    plain = write_table(tmp_path / "plain.csv", names, samples(40), labels(40))
    others = write_table(tmp_path / "others.csv", ["t", *names[1:]], samples(40), labels(40))
    first = write_table(tmp_path / "first.csv", ["t", *names[1:]], samples(40, seed=9), labels(40))
    with redis_server(tmp_path) as redis:
        made = make_settings(redis.url, tmp_path, settle_after_s=3600)
        with training(made), serving(made) as service:
            gmr = Gmr(str(service.base_url).rstrip("/"))
            assert "There is no boundary yet" in gmr("explain", status=2)
            assert gmr.json("features") == {"feature_names": None}
            # Where columns are to be taken by their place, nobody asks what they are called.
            assert "40 samples" in gmr("ingest", first, *kind, "--by-place", "--wait")
            assert gmr.json("features") == {"feature_names": None}
            assert "900 samples" in gmr("ingest", log, *kind, "--wait")
            assert gmr.json("features") == {"feature_names": names}
            assert "15 s15 features: 16 names" in gmr("features")
            assert list(gmr.rows("sample", "--n", 2)[0]) == ["label", *names]
            gmr("sample", "--n", 2, "--out", tmp_path / "drawn.npz")
            assert np.load(tmp_path / "drawn.npz")["feature_names"].tolist() == names
            assert len(gmr.rows("classify", tmp_path / "drawn.npz")) == 2

            drift = gmr.json("status")["feature_drift"]
            assert drift["drifting"] is None  # a sub-task of some hundred samples
            assert {row["name"] for row in drift["features"]} <= set(names)

            told = gmr.json("explain")
            first = told["explanation"]["features"][0]
            assert first["name"] == names[first["feature"]]
            assert told == gmr.json("explain", told["boundary"]) == gmr.json("explain", told["id"])
            gmr("note", told["boundary"], "The lens was cleaned.", "--by", "ada")
            said = gmr("explain", told["boundary"])
            assert f"{first['name']} (feature {first['feature']})" in said
            assert "ada: The lens was cleaned." in said
            assert f"sub-task {told['sub_task']} begins" in said
            assert "signal " + told["signal"] in said
            assert "no boundary 99" in gmr("explain", 99, status=2)

            assert gmr.json("boundary")["entry_id"]
            wait_until(lambda: len(gmr.json("status")["boundaries"]) == 2)
            assert gmr.json("explain")["detector"] == "declared"
            assert "feature 0" not in gmr("explain")  # nothing is known of what changed

            # Columns in another order are those of the service; others are not.
            for command in ("classify", "outliers"):
                right = gmr.run(command, plain, *kind)
                found = gmr.run(command, turned, *kind)
                assert found.stdout == right.stdout
                assert "each was taken by its name" in found.stderr
                assert "each was taken" not in right.stderr
                wrong = gmr.run(command, turned, *kind, "--by-place")
                assert wrong.stdout != right.stdout
                refused = gmr(command, others, *kind, status=2)
                assert "calls feature 0 't', the service 's0'" in refused
                assert gmr.run(command, others, *kind, "--by-place").stdout == right.stdout
            # What a table has besides is left out, and may be anything.
            wide = tmp_path / "wide.csv"
            lines = plain.read_text().splitlines()
            days = ["date", *(f"2026-11-{i % 28 + 1:02}" for i in range(40))]
            wide.write_text(
                "\n".join(f"{day},{line}" for day, line in zip(days, lines, strict=True))
            )
            for command in ("classify", "outliers"):
                found = gmr.run(command, wide, *kind)
                assert found.stdout == gmr.run(command, plain, *kind).stdout
                assert "'date' is none and was left out" in found.stderr
            counts = service.get("/ledger").json()
            assert "'date' is none" in gmr("ingest", wide, *kind, "--wait")
            counts["accepted"] += 40
            assert "nothing was sent" in gmr("ingest", others, *kind, "--again", status=2)
            assert service.get("/ledger").json()["accepted"] == counts["accepted"]
            assert "each was taken by its name" in gmr("ingest", turned, *kind, "--wait")
            assert service.get("/ledger").json()["accepted"] == counts["accepted"] + 40

            listed = tmp_path / "names.txt"
            listed.write_text("\n".join(["t", *names[1:]]) + "\n")
            assert gmr.json("features", "--name", listed)["feature_names"][0] == "t"
            assert "40 samples" in gmr("ingest", others, *kind, "--again", "--wait")
            assert "each was taken" not in gmr("classify", others, *kind)
            listed.write_text("t\n")
            assert "1 name came" in gmr("features", "--name", listed, status=2)
            assert "opposite" in gmr("features", "--name", listed, "--forget", status=2)
            assert "cannot be read" in gmr("features", "--name", tmp_path, status=2)
            assert gmr.json("features", "--forget") == {"feature_names": None}
            assert "no names" in gmr("features")
            assert list(gmr.rows("sample", "--n", 2)[0])[:3] == ["label", "x0", "x1"]


def test_rows_that_cannot_be_used_are_left_out_and_the_others_keep_their_numbers(
    gmr: Gmr, tmp_path: Path
) -> None:
    path = tmp_path / "gaps.csv"
    rows = [",".join(map(str, row)) for row in samples(4).tolist()]
    path.write_text("\n".join([rows[0], "", f",{rows[0]}"[:9], *rows[1:3], "x" + rows[0], rows[3]]))

    for command in ("classify", "outliers"):
        result = gmr.run(command, path, "--skip-bad-rows", "--batch-size", 2)
        told = list(csv.DictReader(io.StringIO(result.stdout)))
        assert [row["row"] for row in told] == ["0", "2", "3", "5"]
        assert "2 rows could not be used, left out" in result.stderr
        assert "row 1" in gmr(command, path, status=2)


def test_a_file_is_sent_by_standard_input_once(
    gmr: Gmr, service: httpx2.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    content = "\n".join(",".join(["x", *map(str, row)]) for row in samples(6, seed=77).tolist())
    before = service.get("/drift").json()["stream_samples"]
    options = ("ingest", "-", "--drop", 0, "--wait")
    assert "6 samples in 1 batch," in gmr.run(*options, given=content.encode()).output
    assert service.get("/drift").json()["stream_samples"] == before + 6
    again = gmr.run(*options, given=content.encode())
    assert "standard input was sent completely before" in again.output
    last = content.splitlines()[-1]
    more = f"{content}\nx,1,2\n{last}\n".encode()
    skipping = " ".join(gmr.run(*options, "--skip-bad-rows", given=more).output.split())
    assert "begins with 6 samples that were sent before" in skipping
    assert "1 sample in 1 batch, 0 of them there before" in skipping
    assert "1 row could not be used, left out" in skipping
    assert service.get("/drift").json()["stream_samples"] == before + 7


def started(gmr: Gmr, *arguments: object) -> subprocess.Popen[bytes]:
    """A command that goes on, with pipes to and from it."""
    return subprocess.Popen(
        [sys.executable, "-m", "clients.commands.cli", *map(str, arguments), "--url", gmr.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "COLUMNS": "300", "PYTHONUNBUFFERED": ""},
    )


def is_taken(pipe: IO[bytes]) -> bool:
    """Whether all that was written into a pipe has been read."""
    left = fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4)
    return int.from_bytes(left, sys.byteorder) == 0


def test_labels_are_sent_as_they_come(gmr: Gmr, service: httpx2.Client, tmp_path: Path) -> None:
    names = [f"late-{row}" for row in range(4)]
    content = "\n".join(
        ",".join([name, *map(str, row)])
        for name, row in zip(names, samples(4, seed=79).tolist(), strict=True)
    )
    path = tmp_path / "unlabelled.csv"
    path.write_text(content)
    gmr("ingest", path, "--id-column", 0, "--wait")

    def unlabelled() -> int:
        return int(service.get("/model").json()["awaiting"])

    before = unlabelled()
    with started(gmr, "labels", "-", "--live", "--every", "0.05") as running:
        assert running.stdin
        running.stdin.write(f"note,label,id\nx,1,{names[2]}\n".encode())
        running.stdin.flush()
        wait_until(lambda: unlabelled() == before - 1)
        running.stdin.write(f"y,,{names[0]}\nz,0,{names[3]}\nhalf,1,".encode())
        running.stdin.flush()
        wait_until(lambda: unlabelled() == before - 2)
        running.send_signal(signal.SIGTERM)
        told, error = running.communicate()
        assert running.returncode == 0, error
    assert b"2 labels in 2 requests" in told
    assert b"2 matched" in told
    assert b"1 row without a label left out" in told
    given = f"id,label\n{names[1]},1\n".encode()
    assert "1 matched" in gmr.run("labels", "-", given=given).stdout
    with started(gmr, "labels", "-", "--live") as running:
        _, error = running.communicate(f"id,label\n{names[0]},1\nx,1\ny,2.5\n".encode())
    assert running.returncode == 2
    assert b"row 2" in error


def test_samples_are_sent_and_answered_as_they_come(
    gmr: Gmr, service: httpx2.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rows = samples(5, seed=78).tolist()
    plain = tmp_path / "plain.csv"
    plain.write_text("\n".join(",".join(map(str, row)) for row in rows))
    expected = gmr.rows("outliers", plain)
    for command in ("outliers", "classify"):
        with started(gmr, command, "-", "--live", "--every", "0.05") as running:
            assert running.stdin
            assert running.stdout
            answers = []
            for row in rows:  # each is answered before the next comes
                running.stdin.write(json.dumps(row).encode() + b"\n")
                running.stdin.flush()
                if not answers:
                    header = running.stdout.readline().decode().strip().split(",")
                line = running.stdout.readline().decode().strip().split(",")
                answers.append(dict(zip(header, line, strict=True)))
            running.send_signal(signal.SIGINT)
            told = running.stderr.read().decode() if running.stderr else ""
            assert running.wait() == 0, told
        assert [answer["row"] for answer in answers] == ["0", "1", "2", "3", "4"]
        if command == "outliers":
            assert [one["p_value"] for one in answers] == [one["p_value"] for one in expected]
            assert "of 5 samples are outliers" in told

    before = service.get("/drift").json()["stream_samples"]
    with started(gmr, "ingest", "-", "--live", "--every", "0.05", "--batch-size", 2) as running:
        assert running.stdin
        for n, row in enumerate(rows, before + 1):
            running.stdin.write(",".join(map(str, row)).encode() + b"\n")
            running.stdin.flush()
            # The first line might name columns, so it waits for the second.
            if n > before + 1:
                wait_until(lambda n=n: service.get("/drift").json()["stream_samples"] == n)
        running.send_signal(signal.SIGINT)
        told = running.stderr.read().decode() if running.stderr else ""
        assert running.wait() == 0
    assert "Stopping after what has come" in told
    assert not [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    with started(gmr, "ingest", "-", "--live", "--wait", "--skip-bad-rows") as running:
        lines = [",".join(map(str, row)) for row in rows]
        out, error = running.communicate("\n".join([*lines, "1,2"]).encode())
        assert running.returncode == 0, error
    assert b"5 samples in 1 batch" in out
    assert b"1 row could not be used" in error
    # What has come when it is asked to stop is sent, however few lines; of half a line nothing.
    before = service.get("/drift").json()["stream_samples"]
    for number in (signal.SIGINT, signal.SIGTERM):
        with started(gmr, "ingest", "-", "--live", "--every", "600", "--wait") as running:
            assert running.stdin
            assert running.stderr
            running.stdin.write("\n".join([*lines, "1,2"]).encode())
            running.stdin.flush()
            # Nothing is taken before it is said what becomes of Ctrl-C and SIGTERM.
            wait_until(lambda running=running: is_taken(running.stdin))
            running.send_signal(number)
            told = running.stderr.read().decode()
            assert running.wait() == 0, told
    assert service.get("/drift").json()["stream_samples"] == before + 10
    assert "passes over what comes once" in gmr("ingest", "-", "--live", "--epochs", 2, status=2)
    assert "--live is for standard input" in gmr("classify", "a.csv", "--live", status=2)


def test_empty_standard_input_is_an_error(gmr: Gmr) -> None:
    result = gmr.run("outliers", "-", given=b"", status=2)
    assert "Standard input brought nothing" in result.output


def test_where_nothing_listens_a_command_fails_at_once_and_writes_nothing(
    nobody: Gmr, table: Path
) -> None:
    for arguments in (["classify", table], ["outliers", table], ["events"]):
        result = nobody.run(*arguments, "--drop=kind" if len(arguments) > 1 else "-f", status=1)
        assert "No service answers" in result.stderr
        assert result.stdout == ""


def test_unknown_samples_have_no_class(gmr: Gmr, tmp_path: Path) -> None:
    path = tmp_path / "far.npz"
    np.savez(path, features=samples(2) * 0 + [[0.25], [0.5]], labels=np.array([3, 3]))
    result = gmr.run("classify", path, "--unknown-rate", 0.01)
    first, second = csv.DictReader(io.StringIO(result.stdout))
    assert first["class"] == "3"
    assert second["class"] == ""
    assert float(second["p_value"]) <= 0.01
    assert "1 of them unknown" in result.stderr


def test_outliers_are_told_by_p_value_or_likelihood(gmr: Gmr, table: Path, tmp_path: Path) -> None:
    path = tmp_path / "far.npy"
    np.save(path, np.concatenate([samples(3), np.full((1, 16), 9.0)]).astype(np.float32))
    result = gmr.run("outliers", path, "--false-positive-rate", 0.01)
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["outlier"] for row in rows] == ["0", "0", "0", "1"]
    assert float(rows[3]["log_likelihood"]) < float(rows[0]["log_likelihood"])
    assert float(rows[3]["p_value"]) <= 0.01
    assert "1 of 4 samples are outliers" in result.stderr
    document = gmr.json("outliers", path, "--c", 2)
    assert document["outliers"] == 1
    assert [row["outlier"] for row in document["samples"]] == [False, False, False, True]
    # The labels of a table are no feature.
    assert gmr.rows("outliers", table, "--label-column", "kind")[0]["label"] == "cat"


# Samples


def test_samples_are_drawn_into_any_form(gmr: Gmr, tmp_path: Path) -> None:
    rows = gmr.rows("sample", "--classes", "3", "--n", 5, "--seed", 1)
    assert [row["label"] for row in rows] == ["3"] * 5
    first = [float(value) for name, value in rows[0].items() if name != "label"]
    assert np.mean(first) == pytest.approx(0.25, abs=0.1)
    document = gmr.json("sample", "--classes", "3", "--n", 5, "--seed", 1)
    np.testing.assert_allclose(document["features"][0], first, rtol=1e-5)
    assert document["seed"] == 1

    gmr("sample", "--n", 6, "--classes", "3,cat", "--out", tmp_path / "drawn.npz")
    arrays = np.load(tmp_path / "drawn.npz")
    assert arrays["features"].shape == (6, 16)
    assert sorted(arrays["labels"].tolist()) == ["3"] * 3 + ["cat"] * 3
    gmr("sample", "--n", 4, "--out", tmp_path / "drawn.png")
    with Image.open(tmp_path / "drawn.png") as image:
        assert image.format == "PNG"
    # What was drawn is a file like any other.
    gmr("sample", "--n", 4, "--out", tmp_path / "drawn.csv", "--classes", "cat")
    answers = gmr.rows("classify", tmp_path / "drawn.csv", "--label-column", "label")
    assert [row["class"] for row in answers] == ["cat"] * 4


def test_a_class_is_drawn_by_the_name_it_has(gmr: Gmr, service: httpx2.Client) -> None:
    names = ["a", "b", "a,b", " Login ", "Login, password"]
    service.put("/models/odd", json={"settings": {}}).raise_for_status()
    with of_model(service, "odd") as odd:
        for seed in range(2):
            features, classes = samples(100, seed=seed), [names[i % 5] for i in range(100)]
            send(odd, RawBatch.of(features, classes)).raise_for_status()
        learned(odd)

    def drawn(*wanted: str) -> set[str]:
        options = [word for name in wanted for word in ("--classes", name)]
        rows = gmr.rows("sample", "--n", 6, "--seed", 1, "--model", "odd", *options)
        return {row["label"] for row in rows}

    for name in names:
        assert drawn(name) == {name}
    assert drawn("a", "b") == {"a", "b"}
    assert drawn("b, a") == {"a", "b"}
    assert drawn("b, Login ") == {"b", " Login "}
    refused = gmr.run("sample", "--model", "odd", "--classes", "Login", status=2).output
    assert "' Login '" in refused
    assert "'Login, password'" in refused
    gmr("models", "drop", "odd", "--yes")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["sample", "--out", "a.gif"], "Expected a name that ends in .npz, .csv, .png"),
        (["sample", "--out", "a.csv", "--json"], "without --json"),
        (["sample", "--out", "a.png", "--shape", "four"], "Expected HEIGHT,WIDTH"),
        (["sample", "--classes", "bird"], "bird"),
        (["events", "--kinds", "boundry"], "Did you mean `boundary`?"),
        (["events", "--since", "yesterday"], "no id of an event"),
        (["rollback", "1"], "Add --yes"),
        (["classify", "missing.csv"], "does not exist"),
    ],
)
def test_what_was_typed_wrong_is_one_message(
    gmr: Gmr, arguments: list[str], complaint: str
) -> None:
    assert complaint in gmr(*arguments, status=2)


# What happened, and what is done about it


def test_events_that_are_kept_are_printed_and_an_end_is_made(
    gmr: Gmr, service: httpx2.Client
) -> None:
    lines = gmr.run("events", "--json").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    kinds = [event["kind"] for event in events]
    assert kinds.count("batch_learned") >= 6
    chosen = gmr.run("events", "--kinds", "class_discovered").stdout.splitlines()
    assert len(chosen) == kinds.count("class_discovered")
    assert "class_discovered" in chosen[0]
    assert "label=3" in chosen[0]
    # After an event come those after it; after the newest none.
    later = gmr.run("events", "--since", events[2]["id"], "--json").stdout.splitlines()
    assert later == lines[3:]
    assert gmr("events", "--since", events[-1]["id"]) == ""
    newest = gmr.run("events", "--last", 2, "--json").stdout.splitlines()
    assert newest == lines[-2:]


def test_followed_events_come_until_ctrl_c(gmr: Gmr, service: httpx2.Client) -> None:
    command = [sys.executable, "-m", "clients.commands.cli", "events", "--follow", "--json"]
    with subprocess.Popen(
        [*command, "--last", "1", "--url", gmr.url],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
    ) as following:
        assert following.stdout is not None
        following.stdout.readline()  # the newest of those that are kept
        answer = send(service, RawBatch.of(samples(4), labels(4))).json()
        told = {"entry_id": ""}
        while told["entry_id"] != answer["entry_id"]:
            told = json.loads(following.stdout.readline())
        following.send_signal(signal.SIGINT)
        following.stdout.read()
        assert following.wait(20) == 0


def test_a_boundary_is_declared_and_taken_back(
    gmr: Gmr, service: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(service, RawBatch.of(samples(4), labels(4))).raise_for_status()
    assert gmr.json("boundary")["entry_id"]
    learned(service)
    wait_until(lambda: gmr.json("status")["boundaries"])
    assert gmr.json("status")["boundaries"][0]["detector"] == "declared"
    assert "declared" in gmr("status")
    assert "sub-task" in gmr("boundary", status=1)  # nothing has come since
    assert "Noted at boundary 1" in gmr("note", 1, "The lens was cleaned.", "--by", "ada")
    assert gmr.json("status")["boundaries"][0]["notes"] == 1
    assert "no boundary 9" in gmr("note", 9, "x", status=2)

    def before() -> list[int]:
        kept = gmr.json("versions")["versions"]
        return [one["version"] for one in kept if one["before_boundary"] == 1]

    [version] = wait_until(before)
    assert f"{version}" in gmr("versions")
    # Somebody is asked, and says no.
    monkeypatch.setattr("clients.commands.versions.on_terminal", lambda: True)
    refused = gmr.run("rollback", version, given=b"n\n", status=1)
    assert "Drop what version" in refused.output
    assert gmr.json("status")["sub_task"] == 1
    assert "served again" in gmr.run("rollback", version, given=b"y\n").stdout
    assert gmr.json("status")["sub_task"] == 0
    done = gmr.json("rollback", version, "--yes")
    assert done["applied"] is True


def test_a_version_that_is_not_kept_is_refused(gmr: Gmr) -> None:
    assert "999" in gmr("rollback", 999, "--yes", status=2)


def test_a_model_is_frozen_watched_thawed_and_aimed(gmr: Gmr) -> None:
    assert "The mode is frozen" in gmr("freeze", "--reason", "a new lens", "--by", "ada")
    wait_until(lambda: gmr.json("status")["mode"] == "frozen")
    assert "frozen, nothing is learned" in gmr("status")
    assert gmr.json("detect-only")["mode"] == "detect_only"
    assert "The mode is learn" in gmr("thaw")
    assert gmr.json("ert", "50,000")["ert"] == 50_000
    assert "what the settings say" in gmr("ert", "settings")
    assert "from 2 on" in gmr("ert", "1", status=2)
    assert "max_classes" in gmr("settings")
    changed = gmr("settings", "max-classes=60", "outlier_c=3.5", "--by", "ada")
    assert "From now on max_classes = 60, outlier_c = 3.5" in changed
    wait_until(lambda: gmr.json("settings")["settings"]["max_classes"]["asked"])
    assert gmr.json("settings", "outlier_c=settings")["settings"] == {"outlier_c": None}
    assert "expected a number, or `settings`" in gmr("settings", "outlier_c=few", status=2)
    assert "expected NAME=VALUE" in gmr("settings", "outlier_c", status=2)
    assert "cannot be changed while the model runs" in gmr("settings", "preset=7", status=2)
    [row, *_] = [row for row in gmr("events").splitlines() if "settings_changed" in row]
    assert "max_classes=60 outlier_c=3.5 by=ada" in row
    [frozen, *_] = [row for row in gmr("events").splitlines() if "mode_changed" in row]
    assert "mode=frozen mode_before=learn by=ada reason=a new lens" in frozen


def test_a_class_is_called_otherwise_and_back(gmr: Gmr, service: httpx2.Client) -> None:
    before = service.get("/model").json()["classes"][0]["label"]
    told = gmr("rename", before, "so far unnamed", "--reason", "looked again", "--by", "ada")
    assert f"Class {before} is called so far unnamed; version" in told
    [row, *_] = [row for row in gmr("events").splitlines() if "class_renamed" in row]
    assert f"label=so far unnamed label_before={before} by=ada reason=looked again" in row
    refused = gmr("rename", before, "x", status=2)
    assert f"never seen the class {before!r}" in refused
    done = gmr.json("rename", "so far unnamed", before)
    assert done.pop("entry_id")
    assert done.pop("model_version") > 0
    assert done == {"applied": True, "label": before, "label_before": "so far unnamed"}


def test_two_classes_become_one(gmr: Gmr, service: httpx2.Client) -> None:
    known = [one["label"] for one in service.get("/model").json()["classes"]]
    gmr("rename", known[0], "wron")  # so that no other test's class is gone for good
    refused = gmr("merge", "wron", "x", status=2)
    assert "never seen the class 'x'" in refused
    told = gmr("merge", "wron", known[1], "--reason", "a typing error", "--by", "ada")
    assert f"Class wron is part of class {known[1]}; version" in told
    [row, *_] = [row for row in gmr("events").splitlines() if "classes_merged" in row]
    assert f"label={known[1]} label_before=wron by=ada reason=a typing error" in row
    assert [one["label"] for one in service.get("/model").json()["classes"]] == known[1:]


# Completion


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("gmr sta", "status"), ("gmr classify --unk", "--unknown-rate"), ("gmr keys re", "revoke")],
)
def test_the_shell_completes_commands_options_and_choices(
    typed: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_GMR_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(typed.count(" ")))
    result = CliRunner().invoke(app, [], prog_name="gmr")
    assert expected in result.output.split()


def test_features_that_drift_are_told_in_the_status(gmr: Gmr) -> None:
    document = gmr.json("status")
    changed = {"feature": 3, "name": "load", "change": -1.5, "drifts": True}
    for drift, told in (
        (None, None),
        ({"drifting": None, "features": []}, None),
        ({"drifting": 0, "features": []}, "none drifts"),
        (
            {"drifting": 5, "features": 4 * [changed]},
            "5 drift: load (feature 3) by -1.5 deviations",
        ),
    ):
        console = Console(width=200, record=True, file=io.StringIO())
        console.print(status._facts({**document, "feature_drift": drift}))
        text = console.export_text()
        assert told in text if told else "deviations" not in text
        assert ("and 2 more" in text) == (told is not None and told.startswith("5"))


def test_boundaries_are_read_whole_in_eighty_columns() -> None:
    row = {"boundary": 12, "dropped": False, "time": 1.8e9, "sample": 1_234_567, "sub_task": 11}
    told = {"signal": "likelihood", "detector": "sequential", "severity": 0.72, "recurrence_of": 3}
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(status._boundaries([row | told]))
    for word in ("likelihood", "1,234,567", "return of", "0.72"):
        assert word in console.export_text(clear=False)


def test_ingest_names_columns_that_float32_is_too_coarse_for_once(
    service: httpx2.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    service.put("/models/late").raise_for_status()
    gmr = Gmr(f"{str(service.base_url).rstrip('/')}/models/late")
    folder = tmp_path / "tables"
    folder.mkdir()
    for name in ("a", "b"):
        # Out of order: a column of times that only rise is refused.
        lines = [f"{0.37 * (i % 7)},{1_800_000_000 + 21 * i % 180},{i % 5}" for i in range(60)]
        (folder / f"{name}.csv").write_text("\n".join(["load,at,kind", *lines]))
    said = gmr.run("ingest", folder, "--label-column", "kind").stderr
    [told] = [line for line in said.splitlines() if "Warning" in line]
    assert told.startswith(f"Warning: Column at of {folder / 'a.csv'} lies so far from zero")
    assert told.endswith("Subtract an offset first, such as the first time stamp.")
    live = b"\n".join(f"0.5,{1_800_000_000 + 21 * i % 180}".encode() for i in range(60))
    with started(gmr, "ingest", "-", "--live", "--batch-size", 20, "--by-place") as running:
        _, error = running.communicate(live)
        assert running.returncode == 0, error
    assert b"Warning: Column 1 of standard input lies so far from zero" in error
    usual = b"\n".join(f"0.5,{3 * i}".encode() for i in range(60))
    assert "Warning" not in gmr.run("ingest", "-", "--by-place", given=usual).stderr


def counting_table(folder: Path, ending: str, n: int = 300) -> Path:
    """A table of a load, hours of operation that now and then stand still, and a switch."""
    load = np.random.default_rng(0).normal(size=n)
    hours, switch = 10_000 + np.arange(n) // 2 / 3, np.arange(n) // 150
    columns: dict[str, Any] = {"load": load, "hours": hours, "on": switch}
    path = folder / f"a.{ending}"
    rows = np.stack([load, hours, switch], axis=1).tolist()
    if ending == "npz":
        np.savez(path, x=np.array(rows))
    elif ending == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table(columns), path)
    elif ending == "jsonl":
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
        path.write_text("\n".join(lines))
    else:
        path.write_text("\n".join(["load,hours,on", *(",".join(map(str, row)) for row in rows)]))
    return path


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "npz"])
def test_ingest_names_columns_that_never_fall_once(
    service: httpx2.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    service.put(f"/models/counter-{ending}").raise_for_status()
    gmr = Gmr(f"{str(service.base_url).rstrip('/')}/models/counter-{ending}")
    path = counting_table(tmp_path, ending)
    said = gmr.run("ingest", path, "--epochs", 2).stderr
    [told] = [line for line in said.splitlines() if "Warning" in line]
    name, how = ("1", "") if ending == "npz" else ("hours", " (--drop hours)")
    assert told == (
        f"Warning: Column {name} of {path} never fell over 300 samples. A counter or a clock is no "
        f"feature: each later sample is new by it, so that changes are missed, or found where "
        f"there is none. Begin anew without it{how}, or with the rise from row to row instead."
    )


def test_ingest_names_columns_that_never_fall_also_of_what_comes_and_of_an_encoding(
    service: httpx2.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    service.put("/models/counted").raise_for_status()
    gmr = Gmr(f"{str(service.base_url).rstrip('/')}/models/counted")
    path, encoding = counting_table(tmp_path, "csv"), tmp_path / "e.json"
    assert "Warning: Column hours of standard input never fell" in (
        gmr.run("ingest", "-", given=path.read_bytes()).stderr
    )
    lines = path.read_bytes() + b"\n"
    with started(gmr, "ingest", "-", "--live", "--every", 0.05, "--by-place") as running:
        assert running.stdin is not None
        assert running.stderr is not None
        running.stdin.write(lines)
        running.stdin.flush()  # and it stays open
        while b"never fell" not in (line := running.stderr.readline()):
            assert line
        assert b"Column hours of standard input never fell over " in line
        running.communicate()
    columns = "load,hours,on"
    gmr.run("encoding", path, "--columns", columns, "--out", encoding, url=False)
    said = gmr.run("ingest", path, "--encoding", encoding, "--again").stderr
    assert "Begin anew without it (gmr encoding --drop hours)" in said
    short = b"\n".join(lines.splitlines()[:200])
    assert "Warning" not in gmr.run("ingest", "-", given=short).stderr  # 199 samples


def test_ingest_names_a_column_that_never_falls_in_the_rows_of_a_model_once(
    service: httpx2.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    gmr = Gmr(str(service.base_url).rstrip("/"))
    x = np.random.default_rng(0).normal(size=600).round(3)
    rows = [f"fleet-{i % 2},{10_000 * (i % 2) + i / 6},{load}" for i, load in enumerate(x)]
    path = tmp_path / "fleet.csv"
    path.write_text("\n".join(["machine,hours,load", *rows]))
    encoded = gmr.run("encoding", path, "--model-column", "machine", url=False).stderr
    assert "600 rows, 1 feature:" in encoded
    assert "hours: left out, it never falls" in encoded
    said = gmr.run("ingest", path, "--model-column", "machine", "--make-models").stderr
    [told] = [line for line in said.splitlines() if "Warning" in line]
    assert f"Column hours of fleet-0 of {path} never fell over 300 samples" in told


def test_a_bad_row_tells_how_much_was_accepted_before_it(
    gmr: Gmr, service: httpx2.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rows = [",".join(map(str, row)) for row in samples(5, seed=80).tolist()]
    rows[3] = "hot" + rows[3][rows[3].index(",") :]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(rows))
    before = service.get("/drift").json()["stream_samples"]
    told = gmr("ingest", path, "--batch-size", 2, status=2)
    assert "row 3" in told
    assert "Accepted before it: 2 samples, in whole batches. Put the file right" in told
    wait_until(lambda: service.get("/drift").json()["stream_samples"] == before + 2)
    with started(gmr, "ingest", "-", "--live", "--batch-size", 2) as running:
        _, error = running.communicate("\n".join(rows).encode())
        assert running.returncode == 2
    assert b"standard input: row 3" in error
    assert b"Accepted before it: 2 samples, in whole batches; what came with it" in error
    path.write_text("\n".join([rows[4], rows[3], *rows[1:3]]))
    assert "Nothing was sent." in gmr("ingest", path, "--batch-size", 2, status=2)
    # Put right, the table goes on behind what was accepted of it.
    path.write_text("\n".join([*rows[:3], rows[4]]))
    told = " ".join(gmr("ingest", path, "--batch-size", 2).split())
    assert "begins with 2 samples that were sent before" in told
    assert "2 samples in 1 batch, 0 of them there before" in told


def test_whoever_waits_until_all_is_learned_hears_what_awaits_its_label(
    gmr: Gmr, service: httpx2.Client, tmp_path: Path
) -> None:
    learned(service)  # what was sent before counts for nothing
    path = tmp_path / "unlabelled.csv"
    rows = enumerate(samples(3, seed=81).tolist())
    path.write_text("\n".join(",".join([f"w{n}", *map(str, row)]) for n, row in rows))
    told = gmr("ingest", path, "--id-column", 0, "--wait")
    # None of the three is learned yet, whatever else awaits its label.
    assert re.search(r"; the model learned 0 samples meanwhile, .* \d+ samples await", told)
    assert "all learned" not in told
