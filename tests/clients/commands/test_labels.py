"""Tests for clients.commands.labels and what it is made of, and for the ids of
clients.commands.ingest."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.data.files import open_source
from clients.data.formats.ids import as_ids, check_unique
from clients.data.label_file import LabelFile
from clients.http.answers import Ingested, Labelled, ServiceEvent
from clients.http.calls import Call
from clients.http.client import GMRClient
from clients.http.errors import InputError, RequestRefused
from clients.http.retry import RetryPolicy
from clients.sending.job import Job
from clients.sending.label_outcome import Outcome, follow
from clients.sending.labels import LabelJob, send_labels
from clients.sending.resume import Progress, ResumeFile
from clients.sending.samples import send
from service.wire import unpack
from tests.clients.scripted import ScriptedServer, answer, events, problem
from tests.service.api.stack import (
    N_FEATURES,
    labels,
    learned,
    make_settings,
    redis_server,
    samples,
    serving,
    training,
)

X = np.arange(20, dtype=np.float32).reshape(10, 2) / 8
IDS: list[int | str] = ["a", 7, "007", "x 1", -3, "ä", 0, "7.0", "b", 12]
Y: list[int | str] = ["cat", 3, "dog", 3, 3, "cat", "dog", 1, 1, "cat"]


def write_csv(path: Path) -> Path:
    rows = zip(X.tolist(), IDS, Y, strict=True)
    text = "".join(f"{a},{id},{b},{label}\n" for (a, b), id, label in rows)
    (path / "a.csv").write_text("first,id,second,label\n" + text)
    return path / "a.csv"


def write_bare_tsv_gz(path: Path) -> Path:
    rows = zip(X.tolist(), IDS, Y, strict=True)
    with gzip.open(path / "a.tsv.gz", "wt") as file:
        file.write("".join(f"{id}\t{a}\t{b}\t{label}\n" for (a, b), id, label in rows))
    return path / "a.tsv.gz"


def write_parquet(path: Path) -> Path:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {"id": [str(id) for id in IDS], "a": X[:, 0], "b": X[:, 1]}
    table = pa.table({**columns, "label": [str(label) for label in Y]})
    pq.write_table(table, path / "a.parquet", row_group_size=4)
    return path / "a.parquet"


def write_npz(path: Path) -> Path:
    texts = np.array([str(id) for id in IDS])
    np.savez(path / "a.npz", features=X, id=texts, label=np.array([str(label) for label in Y]))
    return path / "a.npz"


Writer = Callable[[Path], Path]
WRITERS: list[tuple[Writer, str, str]] = [
    (write_csv, "id", "label"),
    (write_csv, "1", "-1"),
    (write_bare_tsv_gz, "0", "3"),
    (write_parquet, "id", "label"),
    (write_npz, "id", "label"),
]


# Ids beside samples


@pytest.mark.parametrize("start", [0, 3, 9])
@pytest.mark.parametrize(("write", "id_column", "label_column"), WRITERS)
def test_every_format_gives_the_same_ids_which_are_no_features(
    write: Writer, id_column: str, label_column: str, start: int, tmp_path: Path
) -> None:
    source = open_source(write(tmp_path), id_column=id_column, label_column=label_column)
    rows = list(source.read(4, start))
    assert [id for part in rows for id in part.ids or []] == IDS[start:]
    assert np.concatenate([part.features for part in rows]).tolist() == X[start:].tolist()
    assert [str(label) for part in rows for label in part.labels or []] == [
        str(label) for label in Y[start:]
    ]
    assert source.n_features == 2
    assert [id for part in source.read_ids() for id in part] == IDS


def test_without_a_column_of_ids_there_are_none(tmp_path: Path) -> None:
    for write, _, label_column in WRITERS[3:]:
        if write is write_parquet:
            continue  # its ids are text, which is no feature
        source = open_source(write(tmp_path), label_column=label_column)
        assert [rows.ids for rows in source.read(100)] == [None]
        assert list(source.read_ids()) == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("id,a\nx,1\ny,2\nx,3\n", "the id 'x' at row 2 was that of row 0"),
        ("id,a\n7,1\n 7 ,2\n", "the id 7 at row 1 was that of row 0"),
        ("id,a\nx,1\n ,2\n", "the id at row 1 is empty"),
        (f"id,a\n{'x' * 129},1\n", "the id at row 0 has 129 characters; expected 128 at most"),
        ("a,b\n1,2\n", "has no column 'id'"),
        ("id\nx\n", "no column beside the ids"),
    ],
)
def test_ids_that_cannot_be_used_are_refused_before_anything_is_sent(
    text: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=complaint):
        Job.of(tmp_path / "a.csv", id_column="id")


def test_a_mistake_beside_the_ids_keeps_its_number(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,a,y,b\ns,1,2,3\nt,1,2,x\n")
    source = open_source(tmp_path / "a.csv", id_column="id", label_column="y")
    with pytest.raises(InputError, match=r"row 1, column 3 \('b'\) holds 'x'"):
        list(source.read(10))


def test_other_ids_that_cannot_be_used_are_refused_too(tmp_path: Path) -> None:
    path = write_npz(tmp_path)
    with pytest.raises(InputError, match="no array called 'ids'; it holds"):
        Job.of(path, id_column="ids")
    with pytest.raises(InputError, match="ids of shape"):
        Job.of(path, id_column="features")
    with pytest.raises(InputError, match="named both for labels and for ids"):
        Job.of(path, id_column="label", label_column="label")
    with pytest.raises(InputError, match="would send every id 2 times"):
        Job.of(path, id_column="id", epochs=2)
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(InputError, match="no room for ids"):
        Job.of(tmp_path / "a.npy", id_column="0")
    with pytest.raises(InputError, match=r"is 1.5 of type float"):
        as_ids([1.5], path=path)
    with pytest.raises(InputError, match="of type bool"):
        as_ids([True], path=path)
    assert as_ids([2.0, 2**63, "9" * 19], path=path) == [2, str(2**63), "9" * 19]


@given(st.lists(st.integers(-3, 40) | st.text("01ab", min_size=1, max_size=2), max_size=30))
def test_what_is_named_twice_is_found_and_nothing_else(values: list[Any]) -> None:
    ids = as_ids(values, path=Path("a.csv"))
    pieces = [ids[start : start + 7] for start in range(0, len(ids), 7)]
    if len(set(ids)) == len(ids):
        check_unique(lambda: iter(pieces), path=Path("a.csv"))
        return
    row = next(row for row, id in enumerate(ids) if id in ids[:row])
    with pytest.raises(InputError, match=f"at row {row} was that of row {ids.index(ids[row])};"):
        check_unique(lambda: iter(pieces), path=Path("a.csv"))


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_number_is_the_same_id_as_its_text(number: int) -> None:
    assert as_ids([str(number)], path=Path("a.csv")) == as_ids([number], path=Path("a.csv"))


class FakeService:
    """Takes batches and labels, each id once, and no more labels at a time than `most`."""

    def __init__(self, most: int = 10_000, most_bytes: int = 10**9) -> None:
        self.most, self.most_bytes = most, most_bytes
        self.ids: list[Any] = []
        self.documents: dict[str, dict[str, Any]] = {}

    def send(self, call: Call[Any]) -> Any:
        assert call.body is not None
        if call.path == "/ingest":
            tensors, metadata = unpack(call.body)
            sent = tensors.get("sample_ids")
            self.ids += json.loads(metadata["sample_ids"]) if sent is None else sent.tolist()
            return Ingested("1-0", metadata["batch_id"], 1, 1, False)
        document = json.loads(call.body)
        n = len(document["labels"])
        if n > self.most:
            raise refused(422, max_samples=self.most)
        if len(call.body) > self.most_bytes:
            raise refused(413, limit=self.most_bytes)
        duplicate = document["batch_id"] in self.documents
        self.documents.setdefault(document["batch_id"], document)
        place = list(self.documents).index(document["batch_id"])
        return Labelled(f"{place + 10}-0", document["batch_id"], n, 1, duplicate)

    def close(self) -> None:
        """Nothing."""

    def pairs(self) -> list[tuple[Any, Any]]:
        rows = (zip(d["sample_ids"], d["labels"], strict=True) for d in self.documents.values())
        return [pair for part in rows for pair in part]


def refused(status: int, **context: object) -> RequestRefused:
    return RequestRefused(status=status, title="Too much", context=context)


@pytest.mark.parametrize("as_text", [False, True])
def test_ids_are_sent_with_the_samples(as_text: bool, tmp_path: Path) -> None:
    job = Job.of(
        write_csv(tmp_path), batch_size=4, id_column="id", label_column="label", text_ids=as_text
    )
    service = FakeService()
    send(service, job, ResumeFile(tmp_path / "job.json", {}), Progress())
    assert service.ids == ([str(id) for id in IDS] if as_text else IDS)


def test_ids_are_part_of_what_a_job_is_named_after(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,other,a\n1,4,2\n")
    path = tmp_path / "a.csv"
    names = {
        Job.of(path).name,
        Job.of(path, id_column="id").name,
        Job.of(path, id_column="other").name,
        Job.of(path, id_column="id", text_ids=True).name,
    }
    (tmp_path / "b.csv").write_text("id,other,a\n2,4,2\n")
    assert len(names | {Job.of(tmp_path / "b.csv", id_column="id").name}) == 5
    assert Job.of(path, id_column="id").name in names


# Files of labels


@pytest.mark.parametrize(("write", "id_column", "label_column"), WRITERS)
def test_every_format_gives_the_same_labels(
    write: Writer, id_column: str, label_column: str, tmp_path: Path
) -> None:
    file = LabelFile(write(tmp_path), id_column, label_column)
    rows = list(file.read(4))
    assert [part.start for part in rows] == [0, 4, 8]
    assert [id for part in rows for id in part.ids] == IDS
    found = [label for part in rows for label in part.labels]
    assert list(map(str, found)) == list(map(str, Y))
    assert file.n_rows in (None, 10)


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("id,label\ns,cat\n", [("s", "cat")]),
        ("when,sample_id,note,labels\nnow,s,odd,3.0\n", [("s", 3)]),
        ("label;id\n4;5\n", [(5, 4)]),
        ("id,label\ns,\nt,cat\nu,nan\n", [("t", "cat")]),
    ],
)
def test_columns_of_the_usual_names_need_no_naming(
    text: str, pairs: list[tuple[Any, Any]], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text)
    (rows,) = LabelFile(tmp_path / "a.csv").read(10)
    assert list(zip(rows.ids, rows.labels, strict=True)) == pairs
    assert rows.rows == text.count("\n") - 1


def test_a_header_is_no_label_where_columns_are_given_by_index(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,label\ns,cat\n")
    (rows,) = LabelFile(tmp_path / "a.csv", "0", "1").read(10)
    assert (rows.ids, rows.labels) == (["s"], ["cat"])


# Sending them


def label_csv(path: Path, n: int) -> Path:
    file = path / "labels.csv"
    file.write_text("id,label\n" + "".join(f"s-{row},{row % 3}\n" for row in range(n)))
    return file


EXPECTED = [(f"s-{row}", row % 3) for row in range(25)]


@pytest.mark.parametrize(
    ("most", "most_bytes", "n_requests"), [(100, 10**9, 3), (4, 10**9, 7), (1, 10**9, 25)]
)
def test_requests_stay_within_what_the_service_takes(
    most: int, most_bytes: int, n_requests: int, tmp_path: Path
) -> None:
    service = FakeService(most, most_bytes)
    totals = send_labels(service, LabelJob.of(label_csv(tmp_path, 25), batch_size=10), Outcome())
    assert service.pairs() == EXPECTED
    assert (totals.samples, totals.batches, totals.left_out) == (25, len(service.documents), 0)
    # Parts of four labels: three of the first ten, and of the second, two of the last five.
    assert len(service.documents) == {4: 8}.get(most, n_requests)


def test_requests_of_too_many_bytes_are_halved(tmp_path: Path) -> None:
    service = FakeService(most_bytes=150)
    send_labels(service, LabelJob.of(label_csv(tmp_path, 25), batch_size=25), Outcome())
    assert service.pairs() == EXPECTED
    job = LabelJob.of(label_csv(tmp_path, 25), batch_size=25)
    with pytest.raises(RequestRefused):
        send_labels(FakeService(most_bytes=10), job, Outcome())


def test_a_file_that_is_sent_again_has_the_same_request_ids(tmp_path: Path) -> None:
    service = FakeService()
    path = label_csv(tmp_path, 25)
    for expected in (0, 25):
        totals = send_labels(service, LabelJob.of(path, batch_size=10), Outcome())
        assert totals.duplicate_samples == expected
    again = LabelJob.of(path, batch_size=10, run="1")
    assert send_labels(service, again, Outcome()).duplicate_samples == 0
    path.write_text(path.read_text().replace("s-3,", "t-3,"))
    edited = LabelJob.of(path, batch_size=10)
    assert send_labels(service, edited, Outcome()).duplicate_samples == 0


def test_what_became_of_them_is_asked_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clients.sending.labels._FOLLOW_AFTER", 2)
    waiting: list[int] = []

    def follower(outcome: Outcome) -> None:
        waiting.append(outcome.n_pending)
        outcome.close()

    outcome = Outcome()
    job = LabelJob.of(label_csv(tmp_path, 25), batch_size=10)
    send_labels(FakeService(), job, outcome, follower=follower)
    assert waiting == [2, 1]
    assert outcome.untold == 25


# What became of them


def matched(entry: str, n: int, **more: object) -> ServiceEvent:
    data: dict[str, Any] = {"entry_id": entry, "matched": n, "kept": 0, "unmatched": {}}
    data |= {"prequential_accuracy_mean": 0.5, "awaiting": 3, **more}
    return ServiceEvent(f"{entry}0000", "labels_matched", data)


def expecting(*entries: str) -> Outcome:
    outcome = Outcome()
    for entry in entries:
        outcome.expect(Labelled(entry, "b", 10, 1))
    return outcome


def test_events_of_others_are_not_counted() -> None:
    outcome = expecting("5-0", "7-0")
    assert outcome.before_all() == "4-0"
    for event in (
        matched("4-0", 99),
        matched("5-0", 6, kept=3, unmatched={"late": 1, "unknown": 0}),
        matched("6-0", 99),
        ServiceEvent("7-0", "entry_rejected", {"entry_id": "7-0", "detail": "Too many classes."}),
    ):
        outcome.told(event)
    assert outcome.n_pending == 0
    assert (outcome.matched, outcome.waiting, outcome.unmatched.total()) == (6, 3, 1)
    assert (outcome.refused, outcome.reason, outcome.untold) == (10, "Too many classes.", 0)


def test_what_is_kept_no_more_is_said_to_be_untold() -> None:
    outcome = expecting("5-0", "7-0", "8-0")
    outcome.told(ServiceEvent("", "missed", {"after": "4-0", "oldest": "6-20001"}))
    assert (outcome.untold, outcome.n_pending) == (10, 2)
    outcome.told(matched("8-0", 10))
    assert (outcome.untold, outcome.matched, outcome.n_pending) == (20, 10, 0)


def test_patience_has_an_end() -> None:
    outcome = expecting("5-0")
    with ScriptedServer(events("id: 4-0\n\n")) as server:
        follow(server.url, outcome, RetryPolicy(first_s=0.01, longest_s=0.02), patience_s=0.2)
    assert (outcome.untold, outcome.n_pending) == (10, 0)


# The command


@pytest.fixture
def gmr(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv("GMR_URL", raising=False)
    return CliRunner()


@pytest.mark.parametrize(
    ("command", "text", "complaint"),
    [
        ("labels", "name,label\nx,1\n", "Name the one with the ids with --id-column"),
        ("labels", "id,verdict\nx,1\n", "Name the one with the labels with --label-column"),
        ("labels", "id,label\nx,1\nx,2\n", "the id 'x' at row 1 was that of row 0"),
        ("labels", "id,label\n,1\n", "the id at row 0 is empty"),
        ("labels", "id,label\nx,1.5\n", "the label at row 0 is 1.5"),
        ("labels --label-column id", "id,label\nx,1\n", "named both for labels and for ids"),
        ("labels --id-column 9", "id,label\nx,1\n", "has no column '9'"),
        ("ingest --id-column key", "id,a\nx,1\n", "has no column 'key'"),
        ("ingest --id-column id", "id,a\nx,1\nx,2\n", "the id 'x' at row 1 was that of row 0"),
        ("ingest --id-column id", "id,a\n,1\n", "the id at row 0 is empty"),
        ("ingest --text-ids", "id,a\nx,1\n", "Add --id-column, or leave out --text-ids"),
        ("ingest --id-column id --epochs 2", "id,a\nx,1\n", "Leave out --epochs or --id-column"),
    ],
)
def test_what_is_wrong_with_a_file_is_one_message_and_status_2(
    gmr: CliRunner, command: str, text: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text)
    name, *options = command.split()
    result = gmr.invoke(app, [name, str(tmp_path / "a.csv"), *options])
    assert result.exit_code == 2
    assert complaint in result.output
    assert "Traceback" not in result.output


def test_a_file_that_is_not_there_or_holds_no_label_is_status_2(
    gmr: CliRunner, tmp_path: Path
) -> None:
    missing = gmr.invoke(app, ["labels", str(tmp_path / "missing.csv")])
    assert (missing.exit_code, "does not exist" in missing.output) == (2, True)
    (tmp_path / "a.csv").write_text("id,label\nx,\ny,\n")
    model = {"model_version": 0, "samples_seen": 0, "batches_seen": 0, "features": 2}
    model |= {"backlog": 0, "last_entry_id": "0-0", "components": 3, "classes": []}
    nothing = {"deadletters": [], "next": None, "total": 0, "bytes": 0, "dropped": 0}
    with ScriptedServer(answer(200, model), answer(200, nothing)) as server:
        empty = gmr.invoke(app, ["labels", str(tmp_path / "a.csv"), "--url", server.url])
    assert (empty.exit_code, "all 2 rows are without one" in empty.output) == (2, True)


def test_where_nothing_listens_the_command_fails_at_once(gmr: CliRunner, tmp_path: Path) -> None:
    path = str(label_csv(tmp_path, 3))
    result = gmr.invoke(app, ["labels", path, "--url", "http://127.0.0.1:9"])
    assert result.exit_code == 1
    assert "No service answers at http://127.0.0.1:9" in result.output


def test_a_busy_service_gets_them_again(gmr: CliRunner, tmp_path: Path) -> None:
    model = {"model_version": 0, "samples_seen": 0, "batches_seen": 0, "features": 2}
    model |= {"backlog": 0, "last_entry_id": "0-0", "components": 3, "classes": []}
    labelled = {"entry_id": "9-0", "batch_id": "b", "labels": 3, "backlog": 1}
    nothing = {"deadletters": [], "next": None, "total": 0, "bytes": 0, "dropped": 0}
    script = [answer(200, model), problem(429, retry_after_s=0), b"", answer(202, labelled)]
    with ScriptedServer(*script, answer(200, nothing)) as server:
        path = str(label_csv(tmp_path, 3))
        result = gmr.invoke(app, ["labels", path, "--url", server.url, "--no-wait"])
        bodies = {request.body for request in server.requests[1:4]}
    assert result.exit_code == 0
    assert "3 labels in 1 request, 0 of them there before" in result.output
    assert "matched" not in result.output
    assert len(bodies) == 1


# Against the real application


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    folder = tmp_path_factory.mktemp("service")
    with redis_server(folder) as redis:
        quiet = make_settings(
            redis.url,
            folder,
            detector="none",
            settle_after_s=3600,
            max_samples=8,
            max_classes=3,
        )
        with training(quiet), serving(quiet) as client:
            yield client


def counts(model: dict[str, Any]) -> dict[Any, int]:
    return {row["label"]: row["count"] for row in model["classes"]}


def test_labels_come_later_by_the_command_line(
    gmr: CliRunner, service: httpx2.Client, tmp_path: Path
) -> None:
    url = str(service.base_url).rstrip("/")
    names = ",".join(f"f{column}" for column in range(N_FEATURES))

    def run(*arguments: str, status: int = 0) -> str:
        result = gmr.invoke(app, [*arguments, "--url", url])
        assert result.exit_code == status, result.output
        return result.output

    x, y = samples(640, seed=3), labels(640)
    known = "".join(
        f"{','.join(map(str, row))},{label}\n"
        for row, label in zip(x[:600].tolist(), y, strict=False)
    )
    (tmp_path / "known.csv").write_text(f"{names},label\n{known}")
    run("ingest", str(tmp_path / "known.csv"), "--label-column", "label", "--batch-size", "8")
    before = learned(service)
    assert (before["samples_seen"], before["awaiting"]) == (600, 0)

    # 40 samples with ids; the file knows their labels, which are kept back.
    rows = "".join(
        f"s-{row},{','.join(map(str, x[600 + row].tolist()))},{y[600 + row]}\n" for row in range(40)
    )
    (tmp_path / "later.csv").write_text(f"id,{names},label\n{rows}")
    options = ["--id-column", "id", "--label-column", "label", "--no-labels", "--batch-size", "8"]
    run("ingest", str(tmp_path / "later.csv"), *options)
    held = learned(service)
    assert (held["samples_seen"], held["awaiting"]) == (600, 40)
    assert held["features"] == N_FEATURES

    verdicts = [(f"s-{row}", str(y[600 + row])) for row in range(35)]
    verdicts += [(f"nobody-{row}", "cat") for row in range(3)] + [("s-39", "")]
    random.Random(5).shuffle(verdicts)
    path = tmp_path / "verdicts.csv"
    path.write_text("id,note,verdict\n" + "".join(f"{id},x,{label}\n" for id, label in verdicts))
    said = run("labels", str(path), "--label-column", "verdict", "--batch-size", "30")
    assert "38 labels in " in said
    assert "1 row without a label left out" in said
    assert "35 matched, 3 waiting for their sample, 0 unmatched" in said
    assert "prequential accuracy 100.0 %" in said
    assert "without a label still: 5 samples" in said
    model = learned(service)
    assert (model["samples_seen"], model["awaiting"]) == (635, 5)
    assert counts(model) == {3: 318, "cat": 317}
    metrics = service.get("/metrics").text
    assert "gmr_labels_matched_total 35.0" in metrics
    (accuracy,) = [
        float(line.split()[1])
        for line in metrics.splitlines()
        if line.startswith("gmr_prequential_accuracy ")
    ]
    assert accuracy > 0.9

    # The same command again matches nothing twice, and says what it said.
    said = run("labels", str(path), "--label-column", "verdict", "--batch-size", "30")
    assert "38 of them there before" in said
    assert "35 matched, 3 waiting for their sample, 0 unmatched" in said
    assert "Use --again" in said
    said = run("labels", str(path), "--label-column", "verdict", "--again")
    assert "0 matched, 0 waiting for their sample, 38 unmatched (38 duplicate)" in said
    assert learned(service)["samples_seen"] == 635

    # Labels that meet nothing at all may have the wrong ids.
    missed = tmp_path / "missed.csv"
    missed.write_text("id,label\n7,cat\n8,cat\n")
    hint = "No label met a sample: those that wait have other ids."
    assert hint in run("labels", str(missed))
    assert "No label met" not in said

    # Labels that came first meet their samples when these come.
    with GMRClient(url) as client:
        client.ingest(samples(2, seed=9), sample_ids=["nobody-0", "nobody-1"])
    model = learned(service)
    assert (model["samples_seen"], model["awaiting"]) == (637, 5)

    # What the model cannot use is refused.
    path.write_text("id,label\n" + "".join(f"s-{row},new-{row}\n" for row in range(36, 40)))
    said = run("labels", str(path), status=2)
    assert "the number of classes to 6; at most 3" in " ".join(said.split())
