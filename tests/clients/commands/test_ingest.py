"""Tests for clients.commands.ingest, clients.sending.job, clients.sending.samples,
clients.sending.resume and clients.http.connection."""

from __future__ import annotations

import functools
import json
import os
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.data.arrivals import arrivals
from clients.data.encoding import Categories, Numbers, TableEncoding
from clients.data.folder import files_of
from clients.data.formats.image import ImageForm
from clients.http import calls
from clients.http.answers import Ingested
from clients.http.calls import Call
from clients.http.client import GMRClient
from clients.http.connection import Connection, open_sender
from clients.http.errors import InputError, RequestRefused, ServiceUnreachable
from clients.http.retry import RetryPolicy
from clients.sending.job import Job
from clients.sending.resume import Progress, ResumeFile, fingerprint, resume_files
from clients.sending.samples import Totals, send, sent_part, starting_point
from service.wire import unpack
from tests.clients.scripted import ScriptedServer, answer, problem

X = np.arange(50, dtype=np.uint8).reshape(25, 2)
Y = np.arange(25) % 3
EAGER = RetryPolicy(total_s=5, first_s=0.001, longest_s=0.002)


class FakeService:
    """Accepts batches as the service does: each id once. Fails at the n-th call, if told to."""

    def __init__(self, fail_at: int | None = None) -> None:
        self.batches: dict[str, tuple[list[Any], list[Any] | None]] = {}
        self.calls = 0
        self._fail_at = fail_at

    def send(self, call: Call[Any]) -> Any:
        self.calls += 1
        if self.calls == self._fail_at:
            raise KeyboardInterrupt
        assert call.body is not None
        tensors, metadata = unpack(call.body)
        labels = tensors.get("labels")
        if labels is not None:
            vocabulary = json.loads(metadata["vocabulary"])
            labels = [vocabulary[code] for code in labels.tolist()]
        duplicate = metadata["batch_id"] in self.batches
        self.batches.setdefault(metadata["batch_id"], (tensors["features"].tolist(), labels))
        return Ingested(f"{self.calls}-0", metadata["batch_id"], len(X), 1, duplicate)

    def close(self) -> None:
        """Nothing."""

    def samples(self) -> list[Any]:
        return [row for features, _ in self.batches.values() for row in features]

    def labels(self) -> list[Any]:
        return [label for _, labels in self.batches.values() for label in labels or []]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    np.savez(tmp_path / "a.npz", features=X, labels=Y)
    return tmp_path / "a.npz"


@pytest.fixture
def resume(tmp_path: Path) -> ResumeFile:
    return ResumeFile(tmp_path / "state" / "job.json", {"file": "a.npz"})


def test_a_file_is_sent_in_order_and_whole(file: Path, resume: ResumeFile) -> None:
    service = FakeService()
    totals = send(service, Job.of(file, batch_size=10), resume, Progress())
    assert service.samples() == X.tolist()
    assert service.labels() == Y.tolist()
    assert (totals.samples, totals.batches, totals.duplicate_samples) == (25, 3, 0)
    assert resume.load().finished


def test_every_pass_over_the_file_has_ids_of_its_own(file: Path, resume: ResumeFile) -> None:
    service = FakeService()
    totals = send(service, Job.of(file, batch_size=10, epochs=2), resume, Progress())
    assert service.samples() == X.tolist() * 2
    assert totals.duplicate_samples == 0


def test_labels_can_be_left_out(file: Path, resume: ResumeFile) -> None:
    service = FakeService()
    send(service, Job.of(file, with_labels=False), resume, Progress())
    assert service.labels() == []
    assert len(service.samples()) == 25


@pytest.mark.parametrize("fail_at", [1, 2, 3, 4])
def test_an_interrupted_run_goes_on_where_it_was(
    file: Path, resume: ResumeFile, fail_at: int
) -> None:
    service = FakeService(fail_at)
    job = Job.of(file, batch_size=7)
    with pytest.raises(KeyboardInterrupt):
        send(service, job, resume, Progress())
    assert resume.load().samples == 7 * (fail_at - 1)
    totals = send(service, job, resume, resume.load())
    assert service.samples() == X.tolist()
    assert totals.samples == 25 - 7 * (fail_at - 1)
    assert totals.duplicate_samples == 0


def test_rows_that_were_left_out_are_counted_and_do_not_come_between_a_run_and_its_resumption(
    tmp_path: Path, resume: ResumeFile
) -> None:
    path = tmp_path / "a.csv"
    rows = [f"{i},{'x' if i % 3 == 0 else i}" for i in range(20)]
    path.write_text("\n".join(["a,b", *rows]))
    job = Job.of(path, batch_size=4, skip_bad_rows=True)
    service = FakeService(fail_at=3)
    with pytest.raises(KeyboardInterrupt):
        send(service, job, resume, Progress())
    totals = send(service, job, resume, resume.load())
    assert service.samples() == [[i, i] for i in range(20) if i % 3]
    assert totals.skipped == sum(i % 3 == 0 for i in range(8, 20))


def test_a_second_pass_is_resumed_in_the_second_pass(file: Path, resume: ResumeFile) -> None:
    service = FakeService(fail_at=5)
    job = Job.of(file, batch_size=10, epochs=2)
    with pytest.raises(KeyboardInterrupt):
        send(service, job, resume, Progress())
    assert (resume.load().epoch, resume.load().row) == (1, 10)
    send(service, job, resume, resume.load())
    assert service.samples() == X.tolist() * 2


def test_without_its_resume_file_a_run_sends_the_same_ids_again(
    file: Path, resume: ResumeFile
) -> None:
    service = FakeService(fail_at=3)
    with pytest.raises(KeyboardInterrupt):
        send(service, Job.of(file, batch_size=10), resume, Progress())
    totals = send(service, Job.of(file, batch_size=10), resume, Progress())
    assert service.samples() == X.tolist()
    assert totals.duplicate_samples == 20


def test_an_interrupted_run_is_not_taken_for_a_finished_one(file: Path, resume: ResumeFile) -> None:
    job = Job.of(file, batch_size=10, epochs=2)
    with pytest.raises(KeyboardInterrupt):
        send(FakeService(fail_at=2), job, resume, Progress(row=25, samples=25, finished=True))
    assert not resume.load().finished


def test_the_rate_is_kept(file: Path, resume: ResumeFile) -> None:
    began = time.monotonic()
    send(FakeService(), Job.of(file, batch_size=5), resume, Progress(), rate=100)
    # The last of the five batches begins after 20 samples.
    assert 0.2 <= time.monotonic() - began < 5


def test_a_mistake_in_the_file_is_met_after_what_comes_before_it_was_sent(
    tmp_path: Path, resume: ResumeFile
) -> None:
    (tmp_path / "a.csv").write_text("1,2\n" * 20 + "1,x\n")
    service = FakeService()
    with pytest.raises(InputError, match="row 20, column 1"):
        send(service, Job.of(tmp_path / "a.csv", batch_size=10), resume, Progress())
    assert len(service.samples()) == 20
    assert resume.load().row == 20


def test_no_reader_is_left_behind_when_sending_fails(file: Path, resume: ResumeFile) -> None:
    with pytest.raises(KeyboardInterrupt):
        send(FakeService(fail_at=1), Job.of(file, batch_size=1), resume, Progress())
    assert "read-ahead" not in {thread.name for thread in threading.enumerate()}


# Names of jobs


def test_a_job_is_named_after_what_is_sent_and_not_after_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "moved.csv").write_text("a,b\n1,2\n")
    (tmp_path / "edited.csv").write_text("a,b\n1,3\n")
    job = Job.of(tmp_path / "a.csv")
    moved = Job.of(tmp_path / "moved.csv")
    assert (moved.content, moved.name) == (job.content, job.name)
    others = [
        Job.of(tmp_path / "edited.csv"),
        Job.of(tmp_path / "a.csv", batch_size=7),
        Job.of(tmp_path / "a.csv", label_column="b"),
        Job.of(tmp_path / "a.csv", columns=["b"]),
        Job.of(tmp_path / "a.csv", drop=["b"]),
    ]
    assert len({one.name for one in (job, *others)}) == 6
    assert len({one.content for one in (job, *others)}) == 6
    labelled = Job.of(tmp_path / "a.csv", label_column="b")
    unlabelled = Job.of(tmp_path / "a.csv", label_column="b", with_labels=False)
    assert labelled.name != unlabelled.name


def test_the_same_numbers_are_the_same_job_however_they_are_written(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1.5,2\n")
    (tmp_path / "b.csv").write_text("a;b\n1,50;2,0\n")
    one, other = Job.of(tmp_path / "a.csv"), Job.of(tmp_path / "b.csv", decimal=",")
    assert one.name == other.name
    assert one.content != other.content


def test_a_boundary_between_two_files_matters(tmp_path: Path) -> None:
    for name, text in [("a", "12"), ("b", "3"), ("c", "1"), ("d", "23")]:
        (tmp_path / name).write_text(text)
    a, b, c, d = (tmp_path / name for name in "abcd")
    assert fingerprint([a, b]) != fingerprint([c, d])


# Files that have grown, or were put right


def write_table(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(["a,b", *rows]) + "\n", "utf-8")
    return path


def run(service: FakeService, path: Path, folder: Path, **options: Any) -> Totals | None:
    """One run of `gmr ingest`, whose progress is kept in a folder; None where a row ended it."""
    job = Job.of(path, batch_size=4, **options)
    resume, others = resume_files(folder, job.start, job.content, "http://service", {})
    progress = resume.load()
    if not progress.name:
        progress = sent_part(job, [other.load() for other in others]) or progress
    try:
        return send(service, job, resume, progress)
    except InputError:
        return None


# Rows that were appended, of which some are bad until the next run.
@given(grown=st.lists(st.lists(st.booleans(), max_size=9), min_size=1, max_size=6))
def test_of_a_file_that_grows_and_is_put_right_every_row_is_sent_once(
    grown: list[list[bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        service, rows, table = FakeService(), [], Path(folder) / "a.csv"
        state = Path(folder) / "state"
        for bad in grown:
            first = len(rows)
            rows += [f"{i % 7},{i % 3}" for i in range(first, first + len(bad))]
            worse = [f"{i % 7},x" if bad[i - first] else rows[i] for i in range(first, len(rows))]
            if True in bad:
                assert run(service, write_table(table, rows[:first] + worse), state) is None
            totals = run(service, write_table(table, rows), state)
            assert totals is not None
            assert totals.duplicate_samples == 0
        sent = [[i % 7, i % 3] for i in range(len(rows))]
        assert service.samples() == sent
        # A service that has lost nothing knows all of it, wherever the file ended once.
        if rows:
            job = Job.of(table, batch_size=4)
            resume, _ = resume_files(state, job.start, job.content, "http://service", {})
            last = resume.load()
            again = Progress(run=last.run, name=last.name, cuts=last.cuts)
            assert send(service, job, resume, again).duplicate_samples == len(rows)


# Which of the rows that were appended can never be used.
@given(grown=st.lists(st.lists(st.booleans(), max_size=9), min_size=1, max_size=6))
def test_of_a_file_that_grows_every_row_that_can_be_used_is_sent_once(
    grown: list[list[bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        service, rows, sent = FakeService(), ["0,0"], [[0, 0]]
        table, state = Path(folder) / "a.csv", Path(folder) / "state"
        run(service, write_table(table, rows), state, skip_bad_rows=True)
        for bad in grown:
            sent += [[i % 7, i % 3] for i, one in enumerate(bad, len(rows)) if not one]
            rows += [f"{i % 7},{'x' if one else i % 3}" for i, one in enumerate(bad, len(rows))]
            totals = run(service, write_table(table, rows), state, skip_bad_rows=True)
            assert totals is not None
            assert totals.duplicate_samples == 0
        assert service.samples() == sent


def test_a_file_that_was_edited_within_what_was_sent_is_known_up_to_there(
    tmp_path: Path,
) -> None:
    service, rows = FakeService(), [f"{i * i},0" for i in range(20)]
    run(service, write_table(tmp_path / "a.csv", rows), tmp_path)
    rows[9] = "81,1"
    run(service, write_table(tmp_path / "a.csv", rows), tmp_path)
    edited = [[i * i, int(i == 9)] for i in range(8, 20)]
    assert service.samples() == [[i * i, 0] for i in range(20)] + edited
    # Neither is sent again.
    assert run(service, tmp_path / "a.csv", tmp_path) is not None
    rows[9] = "81,0"
    run(service, write_table(tmp_path / "a.csv", rows), tmp_path)
    assert len(service.batches) == 5 + 3


def test_bad_rows_that_are_left_out_later_do_not_send_the_others_twice(tmp_path: Path) -> None:
    service, rows = FakeService(), [f"{i},{'x' if i in (9, 10) else 0}" for i in range(20)]
    write_table(tmp_path / "a.csv", rows)
    assert run(service, tmp_path / "a.csv", tmp_path) is None
    assert len(service.batches) == 2
    totals = run(service, tmp_path / "a.csv", tmp_path, skip_bad_rows=True)
    assert totals is not None
    assert (totals.samples, totals.skipped, totals.duplicate_samples) == (10, 2, 0)
    rows += ["20,0", "21,x", "22,0"]
    totals = run(service, write_table(tmp_path / "a.csv", rows), tmp_path, skip_bad_rows=True)
    assert totals is not None
    assert (totals.samples, totals.skipped, totals.duplicate_samples) == (2, 1, 0)
    good = [i for i in range(23) if i not in (9, 10, 21)]
    assert service.samples() == [[i, 0] for i in good]


def test_of_files_that_begin_alike_the_one_that_was_sent_last_comes_first(tmp_path: Path) -> None:
    for age, content in enumerate(("new", "old", "older")):
        ResumeFile(resume_files(tmp_path, "s", content, "url", {})[0].path, {}).save(
            Progress(samples=age), now=True
        )
        path = resume_files(tmp_path, "s", content, "url", {})[0].path
        os.utime(path, (1000.0 - age, 1000.0 - age))
    _, others = resume_files(tmp_path, "s", "newest", "url", {})
    assert [other.load().samples for other in others] == [0, 1, 2]
    assert resume_files(tmp_path, "another", "newest", "url", {})[1] == []
    assert resume_files(tmp_path, "s", "newest", "another", {})[1] == []


def test_a_file_whose_beginning_can_be_read_no_more_begins_with_nothing(tmp_path: Path) -> None:
    run(FakeService(), write_table(tmp_path / "a.csv", ["1,0"] * 8), tmp_path)
    job = Job.of(write_table(tmp_path / "a.csv", ["1,0"] * 5 + ["1,x"] + ["1,0"] * 4), batch_size=4)
    _, others = resume_files(tmp_path, job.start, job.content, "http://service", {})
    assert [other.load().samples for other in others] == [8]
    assert sent_part(job, [other.load() for other in others]) is None


def test_several_passes_over_a_file_that_has_grown_begin_anew(tmp_path: Path) -> None:
    service = FakeService()
    write_table(tmp_path / "a.csv", ["1,0"] * 6)
    run(service, tmp_path / "a.csv", tmp_path, epochs=2)
    totals = run(service, write_table(tmp_path / "a.csv", ["1,0"] * 8), tmp_path)
    assert totals is not None
    assert totals.samples == 8
    totals = run(service, write_table(tmp_path / "a.csv", ["1,0"] * 9), tmp_path, epochs=2)
    assert totals is not None
    assert totals.samples == 18


# Resume files


@pytest.mark.parametrize("content", ["", "{", "[]", '{"progress": {"pace": 3}}'])
def test_a_resume_file_that_cannot_be_read_means_a_fresh_start(
    resume: ResumeFile, content: str
) -> None:
    resume.path.parent.mkdir()
    resume.path.write_text(content)
    assert resume.load() == Progress()


def test_a_resume_file_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file where a folder should be")
    resume = ResumeFile(tmp_path / "taken" / "job.json", {})
    with pytest.raises(InputError, match="XDG_STATE_HOME"):
        resume.save(Progress(), now=True)


# Where to begin


def model(
    backlog: int, last_entry_id: str, restored: str | None = None, features: int | None = 2
) -> bytes:
    counts = {"samples_seen": 5, "batches_seen": 1}
    document = {"model_version": 1, **counts, "features": features}
    position = {"backlog": backlog, "last_entry_id": last_entry_id, "restored_entry_id": restored}
    return answer(200, {**document, **position, "components": 3, "classes": []})


SENT = Progress(run="abc", row=10, samples=10, last_entry_id="1700-3", finished=True)


@pytest.mark.parametrize(
    ("backlog", "last_entry_id", "remembered"),
    [
        (0, "1700-3", True),
        (0, "1701-0", True),
        (4, "1650-0", True),  # not learned yet
        (0, "1700-2", False),
        (0, "0-0", False),  # its data were removed
    ],
)
def test_a_service_that_does_not_hold_what_was_sent_gets_it_again(
    resume: ResumeFile, backlog: int, last_entry_id: str, remembered: bool
) -> None:
    resume.save(SENT, now=True)
    with (
        ScriptedServer(model(backlog, last_entry_id)) as server,
        GMRClient(server.url) as client,
    ):
        start = starting_point(client, resume.load(), again=False)
    assert start.samples == (10 if remembered else 0)
    assert start.run == "abc"
    assert start.finished is remembered


def test_after_a_rollback_a_file_begins_anew_once_under_the_same_ids(resume: ResumeFile) -> None:
    resume.save(SENT, now=True)
    with ScriptedServer(model(0, "1701-0", "1700-9")) as server, GMRClient(server.url) as client:
        start = starting_point(client, resume.load(), again=False)
        assert (start.run, start.samples, start.finished) == ("abc", 0, False)
        resume.save(replace(SENT, restored=start.restored), now=True)
        assert starting_point(client, resume.load(), again=False).finished


def test_again_means_new_ids(resume: ResumeFile) -> None:
    resume.save(SENT, now=True)
    with ScriptedServer(model(0, "1700-3")) as server, GMRClient(server.url) as client:
        first, second = (starting_point(client, resume.load(), again=True) for _ in range(2))
    assert first.samples == 0
    assert len({"abc", first.run, second.run}) == 3


# The connection


INGESTED = {"entry_id": "1-1", "batch_id": "b", "samples": 3, "backlog": 1}


def test_a_connection_sends_again_what_was_lost_or_refused() -> None:
    script = [
        b"",
        b"HTTP/1.1 202 X\r\ncontent-length: 9\r\n\r\nhalf",
        problem(429, retry_after_s=0),
    ]
    with ScriptedServer(*script, answer(202, INGESTED)) as server:
        with Connection(server.url, retry=EAGER) as connection:
            assert connection.send(calls.ingest(X, None, "b")).entry_id == "1-1"
        bodies = {request.body for request in server.requests}
        assert len(server.requests) == 4
    assert len(bodies) == 1


def test_a_connection_that_was_closed_while_idle_is_replaced_without_a_failure() -> None:
    failures: list[Exception] = []
    policy = RetryPolicy(total_s=5, notify=lambda error, wait: failures.append(error))
    # The server promises to keep the connection and closes it all the same.
    kept = answer(202, INGESTED).replace(b"connection: close", b"connection: keep-alive")
    with ScriptedServer(kept) as server, Connection(server.url, retry=policy) as connection:
        for _ in range(3):
            connection.send(calls.ingest(X, None, "b"))
            time.sleep(0.05)
    assert failures == []
    assert len(server.requests) == 3


def test_errors_of_the_service_come_through_a_connection_as_they_are() -> None:
    with (
        ScriptedServer(problem(422, row=3)) as server,
        Connection(server.url) as connection,
        pytest.raises(RequestRefused) as error,
    ):
        connection.send(calls.ingest(X, None, "b"))
    assert error.value.context == {"row": 3}


def test_a_connection_to_nothing_says_so() -> None:
    with (
        Connection("http://127.0.0.1:9", retry=RetryPolicy(total_s=0)) as connection,
        pytest.raises(ServiceUnreachable, match="Start it with `gmr serve`"),
    ):
        connection.send(calls.model())


def test_an_address_may_have_a_path_and_a_call_a_query() -> None:
    with ScriptedServer(answer(200, {"history": []})) as server:
        with Connection(server.url + "/below/") as connection:
            assert connection.send(calls.history(7)) == ()
        assert server.requests[0].line == "GET /below/drift/history?last=7 HTTP/1.1"


def test_through_a_proxy_goes_the_client_that_knows_proxies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    direct = open_sender("http://127.0.0.1:8000", EAGER)
    proxied = open_sender("http://gmr.example", EAGER)
    assert type(direct) is Connection
    assert type(proxied) is GMRClient
    direct.close()
    proxied.close()


# The command


def letters(*batch_ids: str) -> bytes:
    """A page of dead letters, the last one."""
    rows = [
        {"id": f"{i}-0", "entry_id": f"{i}-0", "time": 1.0, "reason": "invalid_labels"}
        | {"detail": "Too many.", "kind": "batch", "batch_id": batch_id, "samples": 10}
        | {"size": 99, "whole": True, "requeued_as": "9-0" if i == 1 else None}
        for i, batch_id in enumerate(batch_ids, 1)
    ]
    return answer(
        200, {"deadletters": rows, "next": None, "total": len(rows), "bytes": 0, "dropped": 0}
    )


@pytest.fixture
def gmr(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> CliRunner:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GMR_URL", raising=False)
    return CliRunner()


def test_the_command_sends_a_file_and_says_what_it_did(gmr: CliRunner, file: Path) -> None:
    script = [model(0, "0-0")] * 2 + [answer(202, INGESTED)] * 3 + [letters()]
    with ScriptedServer(*script) as server:
        result = gmr.invoke(app, ["ingest", str(file), "--url", server.url, "--batch-size", "10"])
        assert len(server.requests) == 6
    assert result.exit_code == 0
    assert "25 samples in 3 batches, 0 of them there before" in result.output
    assert "backlog 1 entry" in result.output


def test_a_file_that_was_sent_is_not_sent_again_unless_asked_to(gmr: CliRunner, file: Path) -> None:
    script = [model(0, "0-0")] * 2 + [answer(202, INGESTED)] * 3
    script += [letters(), *[model(0, "1-1")] * 2, letters()]
    with ScriptedServer(*script) as server:
        command = ["ingest", str(file), "--url", server.url, "--batch-size", "10"]
        gmr.invoke(app, command)
        result = gmr.invoke(app, command)
        assert len(server.requests) == 9
    assert result.exit_code == 0
    assert "was sent completely before" in " ".join(result.output.split())
    assert "--again" in result.output


def test_a_file_that_was_sent_is_known_in_batches_of_another_size(
    gmr: CliRunner, file: Path
) -> None:
    fails = [*[model(0, "0-0")] * 2, answer(202, INGESTED), problem(400)]
    part, rest = [model(0, "1-1")] * 3, [model(0, "1-1")] * 2 + [answer(202, INGESTED)] * 2
    known = [*[model(0, "1-1")] * 3, letters()]
    lost = [*[model(0, "0-1")] * 3, answer(202, INGESTED), letters()]
    again = [*[model(0, "1-1")] * 2, answer(202, INGESTED), letters()]
    with ScriptedServer(*fails, *part, *rest, letters(), *known, *lost, *again) as server:

        def ingest(size: int, *typed: str) -> tuple[int, str]:
            command = ["ingest", str(file), "--url", server.url, "--batch-size", str(size)]
            result = gmr.invoke(app, [*command, *typed])
            return result.exit_code, " ".join(result.output.split())

        assert ingest(10)[0] == 2
        code, said = ingest(25)
        assert code == 2
        assert "10 samples were sent before, in batches of 10" in said
        assert "Go on with --batch-size 10, or" in said
        assert ingest(10)[0] == 0
        code, said = ingest(25)
        assert code == 0
        assert "25 samples on" in said
        assert ", in batches of 10. Use --again" in said
        # A service that has lost it gets it, however it was cut.
        assert "25 samples in 1 batch" in ingest(25)[1]
        assert "25 samples in 1 batch" in ingest(25, "--again")[1]


def test_of_a_file_that_has_grown_only_what_is_new_is_sent(gmr: CliRunner, tmp_path: Path) -> None:
    table = write_table(tmp_path / "a.csv", [f"{i * i},0" for i in range(3)])
    once = [*told("a", "b"), answer(202, INGESTED), letters()]
    grown = [*told("a", "b"), model(0, "1-1"), answer(202, INGESTED), letters()]
    restored = [*told("a", "b"), model(0, "1-1", "1-0"), *[answer(202, INGESTED)] * 3, letters()]
    with ScriptedServer(*once, *grown, *restored) as server:
        command = ["ingest", str(table), "--url", server.url, "--batch-size", "10"]
        gmr.invoke(app, command)
        write_table(table, [f"{i * i},0" for i in range(5)])
        second = gmr.invoke(app, command)
        write_table(table, [f"{i * i},0" for i in range(7)])
        third = gmr.invoke(app, command)
        bodies = [request.body for request in server.requests if "POST /ingest" in request.line]
    sent = [unpack(body)[0]["features"][:, 0].tolist() for body in bodies]
    # After a rollback from the start, in the same batches.
    assert sent == [[0, 1, 4], [9, 16], [0, 1, 4], [9, 16], [25, 36]]
    ids = [unpack(body)[1]["batch_id"] for body in bodies]
    assert ids[:2] == ids[2:4]
    output = " ".join(second.output.split())
    assert "begins with 3 samples that were sent before, and goes on after them" in output
    assert "2 samples in 1 batch, 0 of them there before" in output
    assert "sent before" not in third.output
    assert (second.exit_code, third.exit_code) == (0, 0)


@pytest.mark.parametrize("sent_before", [False, True])
def test_batches_that_ended_among_the_dead_letters_are_told_with_status_1(
    gmr: CliRunner, file: Path, sent_before: bool
) -> None:
    name = Job.of(file, batch_size=10).name
    of_mine = letters(f"{name}-0-0-0", f"{name}-0-0-10", "of another sender", f"{name}-0-0-20")
    first = of_mine if not sent_before else letters()
    script = [model(0, "0-0")] * 2 + [answer(202, INGESTED)] * 3 + [first]
    script += [model(0, "1-1")] * 2 + [of_mine]
    with ScriptedServer(*script) as server:
        command = ["ingest", str(file), "--url", server.url, "--batch-size", "10"]
        results = [gmr.invoke(app, command) for _ in range(1 + sent_before)]
    output = " ".join(results[-1].output.split())
    assert [result.exit_code for result in results] == [0, 1][1 - sent_before :]
    assert "2 batches (20 samples) could not be used" in output
    assert "2 invalid_labels" in output
    assert "gmr deadletters requeue" in output


def test_where_nothing_listens_the_command_fails_at_once(gmr: CliRunner, file: Path) -> None:
    began = time.monotonic()
    result = gmr.invoke(app, ["ingest", str(file), "--url", "http://127.0.0.1:9"])
    assert result.exit_code == 1
    assert "No service answers at http://127.0.0.1:9" in result.output
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["missing.npz"], "does not exist"),
        (["FILE", "--label-column", "colour"], "no array called 'colour'"),
        (["FILE", "--url", "nowhere"], "is no http:// or https:// address"),
    ],
)
def test_what_was_typed_wrong_is_one_message_and_status_2(
    gmr: CliRunner, file: Path, arguments: list[str], complaint: str
) -> None:
    typed = [str(file) if argument == "FILE" else argument for argument in arguments]
    result = gmr.invoke(app, ["ingest", *typed])
    assert result.exit_code == 2
    assert complaint in result.output
    assert "Traceback" not in result.output


def images(folder: Path, n: int = 10) -> Path:
    """A folder with images of two classes."""
    for number in range(n):
        path = folder / ("cat", "dog")[number % 2] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((4, 6), number, np.uint8)).save(path)
    return folder


def test_a_folder_of_images_is_one_file_of_samples(tmp_path: Path, resume: ResumeFile) -> None:
    service = FakeService(3)
    job = Job.of(images(tmp_path / "a"), batch_size=3, shuffle=1)
    with pytest.raises(KeyboardInterrupt):
        send(service, job, resume, Progress())
    send(service, job, resume, resume.load())
    numbers = [int(pixels[0][0]) for pixels in service.samples()]
    assert sorted(numbers) == [*range(10)] != numbers
    assert service.labels() == [("cat", "dog")[number % 2] for number in numbers]
    assert job.n_samples == 10


def test_a_job_of_images_is_known_by_all_that_shapes_it(tmp_path: Path) -> None:
    here, there = images(tmp_path / "a"), images(tmp_path / "b")
    jobs = [Job.of(here), Job.of(there)]
    assert jobs[0].name == jobs[1].name
    jobs += [Job.of(here, shuffle=1), Job.of(here, shuffle=2)]
    jobs += [Job.of(here, images=ImageForm(size=(2, 2)))]
    jobs += [Job.of(here, images=ImageForm(grey=True))]
    (there / "dog").rename(there / "fox")
    jobs += [Job.of(there)]
    images(there, 11)
    jobs += [Job.of(there)]
    assert len({job.content for job in jobs}) == 7
    assert len({job.name for job in jobs}) == 6  # grey as it is, these are grey already


def in_a_folder(folder: Path, name: str, text: str) -> None:
    """A file that nobody writes any more."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, "utf-8")
    long_ago = time.time() - 60
    os.utime(folder / name, (long_ago, long_ago))


def told(*names: str) -> list[bytes]:
    """What a service says before a table is sent to it."""
    return [answer(200, {"feature_names": names}), model(0, "0-0"), model(0, "0-0")]


def test_a_folder_is_sent_file_by_file_and_one_that_cannot_be_used_is_told(
    gmr: CliRunner, tmp_path: Path
) -> None:
    folder = tmp_path / "inbox"
    in_a_folder(folder, "a.csv", "x,y\n1,2\n3,4\n")
    in_a_folder(folder, "b.csv", "x,y\n1,oops\n")
    in_a_folder(folder, "c.csv", "x,y\n5,6\n")
    one = [*told("x", "y"), answer(202, INGESTED), letters()]
    with ScriptedServer(*one, *one[:3], *one) as server:
        result = gmr.invoke(app, ["ingest", str(folder), "--url", server.url])
        bodies = [request.body for request in server.requests if "POST /ingest" in request.line]
    sent = [unpack(body)[0]["features"].tolist() for body in bodies]
    assert sent == [[[1, 2], [3, 4]], [[5, 6]]]
    output = " ".join(result.output.split())
    assert "oops" in output
    assert "1 file of" in output
    assert result.exit_code == 2


def test_a_file_that_was_sent_in_another_encoding_is_another_job(tmp_path: Path) -> None:
    in_a_folder(tmp_path, "a.csv", "x,y\n1,2\n")
    encodings = [None, TableEncoding([Numbers("x", 0.0)]), TableEncoding([Numbers("x", 1.0)])]
    jobs = [Job.of(tmp_path / "a.csv", encoding=one) for one in [*encodings, *encodings]]
    assert len({job.content for job in jobs}) == 3


def test_of_each_file_of_a_folder_categories_that_are_not_known_are_told(
    gmr: CliRunner, tmp_path: Path
) -> None:
    folder, encoding = tmp_path / "inbox", tmp_path / "e.json"
    encoding.write_bytes(TableEncoding([Categories("shop", ("a", "b"))]).to_json())
    in_a_folder(folder, "a.csv", "shop\na\nc\nc\n")
    in_a_folder(folder, "b.csv", "day,shop\n2026-11-27,c\n")
    names, *at_first = told("shop=a", "shop=b")
    one = [*at_first, names, answer(202, INGESTED), letters()]
    with ScriptedServer(*one, *one) as server:
        typed = ["ingest", str(folder), "--url", server.url, "--encoding", str(encoding)]
        result = gmr.invoke(app, typed)
        bodies = [request.body for request in server.requests if "POST /ingest" in request.line]
    sent = [unpack(body)[0]["features"].tolist() for body in bodies]
    assert sent == [[[1, 0], [0, 0], [0, 0]], [[0, 0]]]
    output = " ".join(result.output.split())
    assert "shop: 2 cells with a category that the encoding does not know, such as 'c'" in output
    assert "shop: 1 cell with a category that the encoding does not know, such as 'c'" in output
    assert result.exit_code == 0


def test_a_watched_folder_is_watched_until_ctrl_c(
    gmr: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "inbox"
    in_a_folder(folder, "a.csv", "x,y\n1,2\n")

    def pause(seconds: float) -> None:
        if (folder / "b.csv").exists():
            raise KeyboardInterrupt
        in_a_folder(folder, "b.csv", "x,y\n3,4\n")

    monkeypatch.setattr(
        "clients.commands.ingest.files_of", functools.partial(files_of, pause=pause)
    )
    one = [*told("x", "y"), answer(202, INGESTED), letters()]
    with ScriptedServer(*one, *one) as server:
        result = gmr.invoke(app, ["ingest", str(folder), "--watch", "--url", server.url])
        assert sum("POST /ingest" in request.line for request in server.requests) == 2
    assert result.exit_code == 0
    assert "Stopped watching" in result.output


def old_images(folder: Path, n: int) -> None:
    images(folder, n)
    for path in folder.rglob("*.png"):
        os.utime(path, (1000.0, 1000.0))


@pytest.mark.parametrize("skip", [False, True])
def test_images_of_a_watched_folder_go_together_until_ctrl_c(
    gmr: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, skip: bool
) -> None:
    folder = tmp_path / "inbox"
    old_images(folder, 4)
    in_a_folder(folder, "bad.png", "no image")
    happens = [lambda: old_images(folder, 6)]

    def pause(seconds: float) -> None:
        if not happens:
            raise KeyboardInterrupt
        happens.pop()()

    monkeypatch.setattr(
        "clients.commands.watched_folder.arrivals", functools.partial(arrivals, pause=pause)
    )
    said = [*[model(0, "0-0", features=None)] * 2, *[answer(202, INGESTED)] * 2]
    options = ["--skip-bad-rows"] if skip else []
    with ScriptedServer(*said, letters()) as server:
        result = gmr.invoke(app, ["ingest", str(folder), "--watch", "--url", server.url, *options])
        bodies = [request.body for request in server.requests if "POST /ingest" in request.line]
    sent = [unpack(body)[0]["features"][:, 0, 0].tolist() for body in bodies]
    assert sent == [[0, 2, 1, 3], [4, 5]]
    output = " ".join(result.output.split())
    assert "Stopped watching. 6 samples in 2 batches" in output
    assert ("bad.png is no image" in output) is not skip
    assert ("1 image could not be used, left out." in output) is skip
    assert ("1 file of" in output) is not skip
    assert result.exit_code == (0 if skip else 2)


def test_a_watched_folder_is_sent_again_where_that_is_asked_for(
    gmr: CliRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "inbox"
    old_images(folder, 2)

    def pause(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "clients.commands.watched_folder.arrivals", functools.partial(arrivals, pause=pause)
    )
    asked = [model(0, "1-1", features=None)] * 2
    waited = [model(0, "1-1", features=None)]
    said, nothing = [*asked, answer(202, INGESTED), letters()], [*asked, letters()]
    learned = [asked[0], letters(), *said[1:-1], *waited, letters()]
    with ScriptedServer(*said, *nothing, *learned) as server:
        for options in ((), (), ("--again", "--wait")):
            command = ["ingest", str(folder), "--watch", "--url", server.url, *options]
            assert gmr.invoke(app, command).exit_code == 0
        assert " /model " in server.requests[-2].line
        bodies = [r.body for r in server.requests if "POST /ingest" in r.line]
    first, second = (unpack(body)[1]["batch_id"] for body in bodies)
    assert first != second


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--epochs", "2"), "sent once, as they come"),
        (("--shuffle", "0"), "sent once, as they come"),
        (("--id-column", "name"), "expected --id-column path"),
    ],
)
def test_options_that_do_not_fit_images_that_come_are_refused(
    gmr: CliRunner, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    result = gmr.invoke(app, ["ingest", str(images(tmp_path / "inbox")), "--watch", *options])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("{file}", "--watch"), "--watch is for a folder"),
        (("{folder}", "--labels", "{file}"), "is a folder, and --labels"),
    ],
)
def test_options_that_do_not_fit_a_folder_are_refused(
    gmr: CliRunner, file: Path, options: tuple[str, ...], message: str
) -> None:
    shown = [one.format(file=file, folder=file.parent) for one in options]
    result = gmr.invoke(app, ["ingest", *shown])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
