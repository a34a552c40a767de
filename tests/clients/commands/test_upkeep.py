"""Tests for clients.commands.upkeep and service.upkeep, on data dirs that a service has written."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.http.client import GMRClient
from core.engine.checkpoint import FORMAT, load
from core.tensors import pack, unpack
from service.archive.parts import parts_in
from service.broker.connection import connect
from service.broker.keys import Keys
from service.broker.lease import DirectoryLock
from service.broker.registry import NamedModel
from service.settings import Settings
from service.store.in_folder import kept_in
from service.supervisor.embedded import EmbeddedRedis
from service.trainer.provenance import DIGEST, WRITTEN_BY
from service.upkeep import backup as backups
from service.upkeep import doctor
from service.upkeep.report import ModelFacts, Report
from service.wire import RawBatch
from tests.service.conftest import BINARY
from tests.service.forked_service import forked_service
from tests.service.running import (
    batch,
    learned_directly,
    send,
    snapshot_bytes,
    sub_tasks,
    training,
    wait_for_backlog,
    wait_until,
)
from tests.service.supervisor.test_run import published
from tests.service.trainer.test_named_models import register

BATCHES = sub_tasks(0, 1, batches=6)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data dir of a service that was stopped; one batch is in its stream alone."""
    data_dir = tmp_path_factory.mktemp("upkeep") / "data"
    with on_redis(data_dir) as settings:
        with training(settings):
            send(settings, *BATCHES)
            wait_for_backlog(settings)
        send(settings, batch(1, 100))
    return data_dir


@contextlib.contextmanager
def on_redis(data_dir: Path, **given: Any) -> Iterator[Settings]:
    """Settings of a small, quick model in a data dir whose Redis runs for as long as a block."""
    with DirectoryLock(data_dir, "test") as lock:
        server = EmbeddedRedis(data_dir, BINARY, 64, lock)
        server.start()
        yield Settings(
            redis_url=SecretStr(server.url),
            data_dir=data_dir,
            device="cpu",
            n_components=4,
            warm_up=given.pop("warm_up", 100),
            settle_after_s=3600,
            publish_interval_s=0.02,
            checkpoint_interval_s=0.05,
            experts=False,
            **given,
        )
        server.stop()


@pytest.fixture
def data_dir(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return copied(stopped, tmp_path / "data")


@pytest.fixture
def gmr(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("GMR_"):
            monkeypatch.delenv(name)
    return lambda *arguments: CliRunner().invoke(app, [str(one) for one in arguments])


def copied(data_dir: Path, to: Path) -> Path:
    shutil.copytree(data_dir, to, ignore=shutil.ignore_patterns("redis.sock"))
    return to


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


# gmr doctor -------------------------------------------------------------------------------


def test_of_a_service_in_order_the_doctor_says_what_there_is_and_changes_nothing(
    gmr: Callable[..., Any], data_dir: Path
) -> None:
    before = contents(data_dir)
    result = gmr("doctor", "--data-dir", data_dir, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert report["well"]
    [model] = report["models"]
    assert model["accepted"] == len(BATCHES) + 1
    assert model["entries_applied"] == len(BATCHES)
    assert (model["beyond"], model["missing"], model["unreadable"]) == (1, 0, [])
    assert model["checkpoints"] == len(kept_in(data_dir / "checkpoints")) >= 2
    assert contents(data_dir) == before


def test_what_wrote_the_newest_checkpoint_is_told_and_wants_no_attention(
    gmr: Callable[..., Any], data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = gmr("doctor", "--data-dir", data_dir)
    assert "holds 12 entries and was written by this code\n" in told.output
    assert f"code {DIGEST}" in told.output
    [model] = json.loads(gmr("doctor", "--data-dir", data_dir, "--json").output)["models"]
    assert (DIGEST in model["written_by"], model["by_this_code"]) == (True, True)
    with monkeypatch.context() as installed:
        installed.setattr("service.trainer.provenance.DIGEST", "0123456789ab")
        told = gmr("doctor", "--data-dir", data_dir)
        assert told.exit_code == 0, told.output
        assert f"was written by another state of the code (0.1.0 {DIGEST}, torch" in told.output
    for kept in kept_in(data_dir / "checkpoints"):  # as an earlier release wrote them
        tensors, text = unpack(FORMAT, kept.read())
        del text[WRITTEN_BY]
        kept.path.write_bytes(pack(FORMAT, tensors, text))
    told = gmr("doctor", "--data-dir", data_dir)
    assert told.exit_code == 0, told.output
    assert "was written by an earlier release, which did not say what it was" in told.output


def test_a_damaged_checkpoint_wants_attention_and_the_one_before_counts(
    gmr: Callable[..., Any], data_dir: Path
) -> None:
    newest, *others = kept_in(data_dir / "checkpoints")
    flip_a_bit(newest.path)
    assert any(one.entries_applied == newest.entries_applied for one in others)  # its twin
    result = gmr("doctor", "--data-dir", data_dir, "--json")
    assert result.exit_code == 1
    [model] = json.loads(result.output)["models"]
    assert model["unreadable"] == [newest.path.name]
    assert (model["entries_applied"], model["missing"]) == (len(BATCHES), 0)
    newest.path.rename(newest.path.with_suffix(".damaged"))
    told = gmr("doctor", "--data-dir", data_dir)
    assert told.exit_code == 1
    assert f"LOOK  checkpoints: {newest.path.stem}.damaged" in told.output


def test_a_checkpoint_of_a_later_release_is_no_damaged_one_and_no_backup_is_made_without_it(
    gmr: Callable[..., Any], data_dir: Path, tmp_path: Path
) -> None:
    newest = kept_in(data_dir / "checkpoints")[0]
    newest.path.write_bytes(pack("gmr-checkpoint-999", *unpack(FORMAT, newest.read())))
    told = gmr("doctor", "--data-dir", data_dir)
    assert told.exit_code == 1
    assert "start the release that wrote it, or a later one" in told.output
    tensors, text = unpack("gmr-checkpoint-999", newest.read())
    newest.path.write_bytes(pack(FORMAT, tensors, text | {"state": '{"invented": 1}'}))
    told = gmr("doctor", "--data-dir", data_dir)
    assert f"It was written by 0.1.0 {DIGEST}, torch " in told.output
    newest.path.write_bytes(pack("gmr-checkpoint-999", tensors, text))
    made = gmr("backup", tmp_path / "service.tar", "--data-dir", data_dir)
    assert made.exit_code == 2
    assert "'gmr-checkpoint-999'" in made.output
    assert not (tmp_path / "service.tar").exists()


def test_an_archive_that_lacks_entries_at_its_end_wants_attention(
    gmr: Callable[..., Any], tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"

    def learn(batches: Sequence[RawBatch], archive_mib: int | None) -> None:
        with on_redis(data_dir, archive_mib=archive_mib) as settings, training(settings):
            send(settings, *batches)
            wait_for_backlog(settings)

    learn(BATCHES[:4], 1)
    told = gmr("doctor", "--data-dir", data_dir)
    assert told.exit_code == 0, told.output
    assert "`gmr rebuild` reads it" in told.output
    learn(BATCHES[4:7], None)
    told = gmr("doctor", "--data-dir", data_dir, "--json")
    assert told.exit_code == 1
    report = json.loads(told.output)
    assert not report["well"]
    [found] = [one for one in report["findings"] if one["subject"] == "archive"]
    assert (
        "it ends with entry 4, and lacks 3 entries of the newest checkpoint (7)" in found["found"]
    )
    assert "archive_error" in found["advice"]
    learn(BATCHES[7:8], 1)  # a gap in the middle, which is told by `gmr rebuild`
    assert gmr("doctor", "--data-dir", data_dir).exit_code == 0


def test_an_archive_that_was_never_written_wants_attention(
    gmr: Callable[..., Any], tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "archive").write_text("a file where a folder should be", "utf-8")
    with on_redis(data_dir, archive_mib=1) as settings, training(settings):
        send(settings, *BATCHES[:2])
        wait_for_backlog(settings)
    told = gmr("doctor", "--data-dir", data_dir)
    assert told.exit_code == 1, told.output
    assert "LOOK  archive: the trainer reported last: archive not written" in told.output


def test_classes_that_differ_by_blanks_or_capitals_want_attention(
    gmr: Callable[..., Any], tmp_path: Path
) -> None:
    data_dir = tmp_path / "data"
    x = np.random.default_rng(0).normal(size=(12, 3))

    def learn(name: str, labels: list[str | int | None]) -> None:
        with on_redis(data_dir, model=name) as settings, training(settings):
            send(settings, RawBatch.of(x, labels, f"of-{name}-{labels[0]}"))
            wait_for_backlog(settings)

    learn("default", ["worn", 1, "1", "refund"] * 3)
    told = gmr("doctor", "--data-dir", data_dir)
    assert told.exit_code == 0, told.output
    learn("default", ["Lob", "Lob ", "l ob", "Lob", "App", "app"] * 2)
    told = gmr("doctor", "--data-dir", data_dir)
    assert told.exit_code == 1
    assert (
        "LOOK  classes: labels differ only by blanks or capital letters: 'Lob' (4 samples) and "
        "'Lob ' (2 samples) and 'l ob' (2 samples); 'App' (2 samples) and 'app' (2 samples)\n"
    ) in told.output
    assert "`gmr merge 'Lob ' Lob`" in told.output
    [model] = json.loads(gmr("doctor", "--data-dir", data_dir, "--json").output)["models"]
    assert model["alike"][1] == [["App", 2], ["app", 2]]


def test_what_is_said_of_classes_that_are_alike_is_short_and_can_be_run() -> None:
    report = Report()
    groups = [[(f"-{letter} x", 2), (f"-{letter}x", 1)] for letter in "abcdefg"]
    doctor._look_at_labels(ModelFacts("pump-7", alike=groups), report)
    [finding] = report.findings
    assert finding.subject == "model pump-7: classes"
    assert finding.found.endswith("; and 2 groups more")
    assert "`gmr merge --model pump-7 -- -ax '-a x'`" in str(finding.advice)


def test_entries_that_nothing_holds_are_named_with_their_number(
    gmr: Callable[..., Any], data_dir: Path
) -> None:
    shutil.rmtree(data_dir / "checkpoints")
    result = gmr("doctor", "--data-dir", data_dir)
    assert result.exit_code == 1
    assert "that no checkpoint holds" in result.output
    facts = json.loads(gmr("doctor", "--data-dir", data_dir, "--json").output)["models"][0]
    assert 0 < facts["missing"] == facts["removed"] <= len(BATCHES)
    assert f"--accept-loss {facts['missing']}" in result.output


def append_only_file(data_dir: Path) -> Path:
    """Where the embedded Redis writes to: from Redis 7 on it keeps several files in a folder."""
    [found] = (data_dir / "redis").rglob("*.aof")
    return found


def test_a_redis_that_is_another_one_or_unreadable_wants_attention(
    gmr: Callable[..., Any], data_dir: Path, tmp_path: Path
) -> None:
    with DirectoryLock(tmp_path / "own", "test") as lock:
        server = EmbeddedRedis(tmp_path / "own", BINARY, 64, lock)
        server.start()
        other = gmr("doctor", "--data-dir", data_dir, "--redis-url", server.url)
        server.stop()
    assert other.exit_code == 1
    assert "This Redis is another one, or has lost its data" in other.output
    log = append_only_file(data_dir)
    log.write_bytes(b"no commands\n")
    broken = gmr("doctor", "--data-dir", data_dir)
    assert broken.exit_code == 1
    assert "LOOK  redis: The embedded Redis" in broken.output
    for one in (data_dir / "redis").rglob("appendonly.aof*"):
        one.unlink()
    none = gmr("doctor", "--data-dir", data_dir)
    assert none.exit_code == 1
    assert "holds no stream" in none.output


def test_an_append_only_file_that_was_cut_off_is_told(
    gmr: Callable[..., Any], data_dir: Path
) -> None:
    log = append_only_file(data_dir)
    whole = log.read_bytes()
    log.write_bytes(whole[:-3])
    result = gmr("doctor", "--data-dir", data_dir)
    assert result.exit_code == 1
    assert "LOOK  append-only file" in result.output
    assert "which ends in the middle of a command" in result.output
    assert log.read_bytes() == whole[:-3]


def test_of_a_running_service_the_lease_and_the_heartbeat_are_told(
    gmr: Callable[..., Any], data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with DirectoryLock(data_dir, "test") as lock:
        server = EmbeddedRedis(data_dir, BINARY, 64, lock)
        server.start()
        settings = Settings(
            redis_url=SecretStr(server.url),
            data_dir=data_dir,
            device="cpu",
            n_components=4,
            experts=False,
        )
        alone = gmr("doctor", "--data-dir", data_dir)
        assert alone.exit_code == 1
        assert "LOOK  trainer: nobody holds the lease; the backlog is 1 entry" in alone.output
        with training(settings):
            wait_for_backlog(settings)
            at_work = gmr("doctor", "--data-dir", data_dir)
            assert at_work.exit_code == 0, at_work.output
            assert f"well  trainer: process {os.getpid()} on " in at_work.output
            with monkeypatch.context() as patch:
                # The trainer saves, and lets entries go, after its checkpoints were looked at.
                look, before = doctor._look_at_checkpoints, iter([ModelFacts()])
                patch.setattr(
                    doctor, "_look_at_checkpoints", lambda *of: next(before, None) or look(*of)
                )
                overtaken = gmr("doctor", "--data-dir", data_dir)
                assert overtaken.exit_code == 0, overtaken.output
            live = gmr("backup", data_dir.parent / "live.tar", "--data-dir", data_dir)
            assert live.exit_code == 0, live.output
            assert not list(data_dir.parent.glob(".gmr-backup-*"))
        with connect(server.url) as client:
            client.xadd(Keys("default").dead_letters, {"x": "y"})
        letters = gmr("doctor", "--data-dir", data_dir)
        assert "LOOK  dead letters: batches that were accepted and could" in letters.output
        server.stop()


@pytest.mark.parametrize(("counts", "n"), [(True, 25), (False, 25), (True, 18)])
def test_a_detector_that_waits_for_long_since_samples_depend_on_each_other_wants_attention(
    gmr: Callable[..., Any], tmp_path: Path, counts: bool, n: int
) -> None:
    x = np.random.default_rng(0).normal(size=(100 * n, 6)).astype(np.float32)
    if counts:
        x[:, 5] = 10_000 + np.arange(100 * n) / 6
    data_dir = tmp_path / "data"
    with on_redis(data_dir, warm_up=1000) as settings, training(settings):
        send(settings, *(RawBatch.of(piece) for piece in np.split(x, n)))
        wait_for_backlog(settings)
    result = gmr("doctor", "--data-dir", data_dir, "--json")
    report = json.loads(result.output)
    [model] = report["models"]
    assert (model["sub_task_samples"], model["warm_up"]) == (100 * n, 1000)
    found = [one for one in report["findings"] if one["subject"] == "detector"]
    if not counts or n == 18:  # which is less than two warm-ups
        assert (result.exit_code, report["well"], found) == (0, True, [])
        return
    assert (result.exit_code, report["well"]) == (1, False)
    [detector] = found
    assert detector["found"] == (
        "it is not armed, so that no change is found, though the sub-task has had 2,500 samples "
        "and the warm-up is 1000: samples depend on each other"
    )
    assert "Look for a counter, a clock or a slow wave" in detector["advice"]
    assert not detector["blocks"]


# gmr backup, gmr restore --------------------------------------------------------------------


@pytest.fixture
def archive(gmr: Callable[..., Any], data_dir: Path, tmp_path: Path) -> Path:
    path = tmp_path / "backup.tar"
    result = gmr("backup", path, "--data-dir", data_dir)
    assert result.exit_code == 0, result.output
    assert "1 entry beyond it" in result.output
    return path


def test_a_restored_data_dir_is_the_one_that_was_backed_up(
    gmr: Callable[..., Any], data_dir: Path, archive: Path, tmp_path: Path
) -> None:
    result = gmr("restore", archive, "--data-dir", tmp_path / "other")
    assert result.exit_code == 0, result.output
    kept = {
        name: data
        for name, data in contents(data_dir).items()
        if not name.endswith(("lock", "redis.log"))
    }
    assert contents(tmp_path / "other") == kept
    assert oct(archive.stat().st_mode & 0o777) == "0o600"
    again = gmr("restore", archive, "--data-dir", tmp_path / "other")
    assert again.exit_code == 2
    assert "is not empty" in again.output
    over = gmr("backup", archive, "--data-dir", data_dir)
    assert over.exit_code == 2
    assert "is there already" in over.output


def test_a_folder_that_is_not_there_does_not_become_a_file(
    gmr: Callable[..., Any], data_dir: Path, tmp_path: Path
) -> None:
    nowhere = tmp_path / "backups"
    refused = gmr("backup", nowhere, "--data-dir", data_dir)
    assert refused.exit_code == 2
    assert "Make the folder, or name a new .tar." in " ".join(refused.output.split())
    assert not nowhere.exists()
    nowhere.mkdir()
    assert gmr("backup", nowhere, "--data-dir", data_dir).exit_code == 0
    (made,) = nowhere.iterdir()
    assert made.suffix == ".tar"


def test_what_could_not_be_started_from_is_not_backed_up(
    gmr: Callable[..., Any], data_dir: Path, tmp_path: Path
) -> None:
    for newest in (data_dir / "checkpoints").glob("*.safetensors"):
        flip_a_bit(newest)
    result = gmr("backup", tmp_path / "b.tar", "--data-dir", data_dir)
    assert result.exit_code == 2
    assert "that no checkpoint holds" in result.output
    url = gmr("backup", tmp_path / "b.tar", "--data-dir", tmp_path / "nothing")
    assert url.exit_code == 2
    assert not list(tmp_path.glob("b.tar*"))


def damaged(
    source: Path, to: Path, change: Callable[[str, bytes], tuple[str, bytes] | None]
) -> Path:
    """A backup whose members were changed; None leaves one out."""
    with tarfile.open(source) as old, tarfile.open(to, "w") as new:
        for member in old:
            content = old.extractfile(member)
            assert content is not None
            changed = change(member.name, content.read())
            if changed is not None:
                made = tarfile.TarInfo(changed[0])
                made.size = len(changed[1])
                new.addfile(made, io.BytesIO(changed[1]))
    return to


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (
            lambda name, data: (name, data[:-1] + b"!") if name.endswith(".aof") else (name, data),
            "is not",
        ),
        (lambda name, data: None if name.endswith(".aof") else (name, data), "1 file missing"),
        (
            lambda name, data: ("../x", data) if name.endswith(".aof") else (name, data),
            "'../x' is not in",
        ),
        (
            lambda name, data: (name, data.replace(b"redis/append", b"../append")),
            "is not in its list of contents",
        ),
        (lambda name, data: ("x", data), "does not begin with"),
    ],
)
def test_a_damaged_backup_is_refused_and_leaves_nothing(
    gmr: Callable[..., Any],
    archive: Path,
    tmp_path: Path,
    change: Callable[[str, bytes], tuple[str, bytes] | None],
    complaint: str,
) -> None:
    bad = damaged(archive, tmp_path / "bad.tar", change)
    result = gmr("restore", bad, "--data-dir", tmp_path / "other")
    assert result.exit_code == 2
    assert complaint in result.output
    assert not (tmp_path / "other").exists()
    assert not (tmp_path / "x").exists()


def answers(client: GMRClient) -> dict[str, Any]:
    """What a model says of itself and of samples."""
    model = client.wait_until_learned()
    return {
        "version": model.model_version,
        "samples_seen": model.samples_seen,
        "labels": list(client.classify(batch(0, 50).features).labels),
        "scores": list(client.outliers(batch(1, 51).features).log_likelihoods),
    }


def labelled(one: RawBatch) -> tuple[Any, list[Any]]:
    """Samples, and their labels."""
    assert one.codes is not None
    return one.features, [one.vocabulary[code] for code in one.codes]


def taught(client: GMRClient, batches: Sequence[RawBatch]) -> dict[str, Any]:
    for one in batches:
        assert not client.ingest(*labelled(one), batch_id=one.batch_id).duplicate
    return answers(client)


def test_a_service_that_is_brought_back_learns_what_was_in_its_stream_alone(
    gmr: Callable[..., Any], archive: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    assert gmr("restore", archive, "--data-dir", other).exit_code == 0
    with DirectoryLock(other, "test") as lock:
        server = EmbeddedRedis(other, BINARY, 64, lock)
        server.start()
        settings = Settings(
            redis_url=SecretStr(server.url),
            data_dir=other,
            device="cpu",
            n_components=4,
            warm_up=100,
            settle_after_s=3600,
            experts=False,
        )
        with training(settings):
            wait_for_backlog(settings)
        server.stop()
    directly = learned_directly(settings, [*BATCHES, batch(1, 100)])
    assert published(settings).to_bytes({}) == snapshot_bytes(settings, directly)


@pytest.mark.slow
def test_of_a_service_that_learns_a_backup_holds_all_that_was_accepted_before(
    gmr: Callable[..., Any], tmp_path: Path
) -> None:
    here, there, archive = tmp_path / "here", tmp_path / "there", tmp_path / "backup.tar"
    stream = [batch(1, seed) for seed in range(400)]
    accepted, enough = [0], threading.Event()

    def feed(url: str) -> None:
        with GMRClient(url) as client:
            for one in stream:
                if enough.is_set():
                    return
                client.ingest(*labelled(one), batch_id=one.batch_id)
                accepted[0] += 1

    with forked_service(here, experts=False) as running:
        running.wait_until_it_answers()
        feeder = threading.Thread(target=feed, args=(running.url,))
        feeder.start()
        wait_until(lambda: accepted[0] > 40)
        before = accepted[0]
        result = gmr("backup", archive, "--data-dir", here)
        enough.set()
        feeder.join()
        assert result.exit_code == 0, result.output
        assert accepted[0] > before  # it went on meanwhile
        assert running.stop() == 0
    assert gmr("restore", archive, "--data-dir", there).exit_code == 0
    with forked_service(there, experts=False) as running:
        running.wait_until_it_answers()
        with GMRClient(running.url) as client:
            model = client.wait_until_learned()
            assert before <= model.batches_seen <= accepted[0]
            held = stream[: model.batches_seen]
            again = client.ingest(*labelled(held[-1]), batch_id=held[-1].batch_id)
            assert again.duplicate
        directly = learned_directly(running.settings, held)
        assert published(running.settings).to_bytes({}) == snapshot_bytes(
            running.settings, directly
        )
        assert running.stop() == 0


@pytest.mark.parametrize("lacking", [backups.TRIES - 1, backups.TRIES])
def test_a_copy_that_lacks_what_has_been_let_go_is_made_again(
    lacking: int,
    gmr: Callable[..., Any],
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy, copies = backups._copy_running, list[Path]()

    def late(source: Path, to: Path) -> None:
        copy(source, to)
        if len(copies) < lacking:
            shutil.rmtree(to / "checkpoints")  # as if all had been replaced meanwhile
        copies.append(to)

    monkeypatch.setattr(backups, "_copy_running", late)
    with DirectoryLock(data_dir, "service"):
        result = gmr("backup", tmp_path / "b.tar", "--data-dir", data_dir)
    assert len(copies) == backups.TRIES
    assert not list(tmp_path.glob(".gmr-backup-*"))
    if lacking < backups.TRIES:
        assert result.exit_code == 0, result.output
    else:
        assert result.exit_code == 2
        assert "that no checkpoint holds" in result.output
    assert (tmp_path / "b.tar").exists() == (result.exit_code == 0)


@pytest.mark.slow
def test_a_service_and_its_models_move_and_go_on(gmr: Callable[..., Any], tmp_path: Path) -> None:
    here, there, archive = tmp_path / "here", tmp_path / "there", tmp_path / "backup.tar"
    with forked_service(here, experts=False) as running:
        running.wait_until_it_answers()
        with GMRClient(running.url) as own, GMRClient(running.url, model="pump-7") as pump:
            own.make_model("pump-7", {"n_components": 3})
            before = taught(own, BATCHES), taught(pump, BATCHES[:4])
        assert gmr("doctor", "--data-dir", here).exit_code == 0
        assert running.stop() == 0
    result = gmr("backup", archive, "--data-dir", here)
    assert result.exit_code == 0, result.output
    assert "model pump-7 (version" in result.output
    shutil.rmtree(here)
    assert gmr("restore", archive, "--data-dir", there).exit_code == 0
    assert gmr("doctor", "--data-dir", there).exit_code == 0
    more = [batch(2, seed) for seed in range(6)]
    with forked_service(there, experts=False) as running:
        running.wait_until_it_answers()
        with GMRClient(running.url) as own, GMRClient(running.url, model="pump-7") as pump:
            own.wait_until_ready()
            assert (answers(own), answers(pump)) == before
            again = own.ingest(*labelled(BATCHES[0]), batch_id=BATCHES[0].batch_id)
            assert again.duplicate
            taught(own, more)
            directly = learned_directly(running.settings, [*BATCHES, *more])
            assert published(running.settings).to_bytes({}) == snapshot_bytes(
                running.settings, directly
            )
            # `gmr reset` of a running service: what it learned before is gone from the model.
            assert gmr("reset", "--model", "pump-7", "--url", running.url).exit_code == 2
            assert answers(pump) == before[1]
            result = gmr("reset", "--model", "pump-7", "--url", running.url, "--yes")
            assert result.exit_code == 0, result.output
            pump.ingest(*labelled(more[0]))
            model = pump.wait_until_learned()
            assert model.samples_seen == len(more[0].features)
            assert [one.label for one in model.classes] == [2]
            pump.rollback(int(before[1]["version"]))
            assert answers(pump) == before[1]
            assert own.model().samples_seen == sum(len(one.features) for one in [*BATCHES, *more])
        assert running.stop() == 0


@pytest.mark.slow
def test_what_came_since_a_backup_is_sent_again_and_learned_once(
    gmr: Callable[..., Any], tmp_path: Path
) -> None:
    here, there, archive = tmp_path / "here", tmp_path / "there", tmp_path / "backup.tar"
    since, held = 8, 6
    with forked_service(here, experts=False) as running:
        running.wait_until_it_answers()
        with GMRClient(running.url) as own, GMRClient(running.url, model="pump-7") as pump:
            own.make_model("pump-7", {"n_components": 3})
            taught(own, BATCHES[:since])
            taught(pump, BATCHES[:2])
            result = gmr("backup", archive, "--data-dir", here)
            assert result.exit_code == 0, result.output
            after = taught(own, BATCHES[since:]), taught(pump, BATCHES[2:4])
            own.make_model("pump-8", {"n_components": 3})
        assert running.stop() == 0
    assert gmr("restore", archive, "--data-dir", there).exit_code == 0
    with forked_service(there, experts=False) as running:
        running.wait_until_it_answers()
        with GMRClient(running.url) as own, GMRClient(running.url, model="pump-7") as pump:
            own.wait_until_ready()
            assert [one.name for one in own.models()] == ["pump-7"]  # pump-8 is made again
            for client, batches, first in ((own, BATCHES, held), (pump, BATCHES[:4], 0)):
                again = [
                    client.ingest(*labelled(one), batch_id=one.batch_id) for one in batches[first:]
                ]
                assert sum(one.duplicate for one in again) == 2  # the backup has them
            assert (answers(own), answers(pump)) == after
            for client, n in ((own, len(BATCHES)), (pump, 4)):
                told = client.ledger()
                assert told.accepted == told.learned == 20 * n
            fates = [own.batch(str(one.batch_id)).state for one in BATCHES]
            assert fates == ["learned"] * len(BATCHES)
            directly = learned_directly(running.settings, BATCHES)
            assert published(running.settings).to_bytes({}) == snapshot_bytes(
                running.settings, directly
            )
        assert running.stop() == 0


# gmr reset -----------------------------------------------------------------------------------


def test_of_a_stopped_service_one_model_is_forgotten_and_all_else_stays(
    gmr: Callable[..., Any], data_dir: Path
) -> None:
    assert gmr("reset", "--data-dir", data_dir).exit_code == 2  # nobody can be asked
    unknown = gmr("reset", "--data-dir", data_dir, "--model", "pump-7", "--yes")
    assert unknown.exit_code == 2
    assert "There is no model 'pump-7'" in unknown.output
    own, pump = Keys("default"), Keys("default").named("pump-7")
    stays = [own.models, own.api_keys, own.audit]
    folder = data_dir / "models" / "pump-7" / "checkpoints"

    def stored(*, before: Callable[[Any], object] = lambda client: None) -> set[str]:
        with DirectoryLock(data_dir, "test") as lock:
            server = EmbeddedRedis(data_dir, BINARY, 64, lock)
            server.start()
            with connect(server.url) as client:
                before(client)
                names = {key.decode() for key in client.scan_iter()}
            server.stop()
        return names

    def register(client: Any) -> None:
        client.hset(own.models, "pump-7", NamedModel("pump-7").to_json())
        client.hset(own.api_keys, "x", "y")
        client.xadd(own.audit, {"x": "y"})
        client.xadd(pump.input, {"x": "y"})
        client.set(pump.batch("b"), "x")

    there = stored(before=register)
    assert own.input in there
    folder.mkdir(parents=True)
    shutil.copy(kept_in(data_dir / "checkpoints")[0].path, folder)

    with DirectoryLock(data_dir, "service"):
        assert gmr("reset", "--data-dir", data_dir, "--yes").exit_code == 2
    assert kept_in(folder)
    result = gmr("reset", "--data-dir", data_dir, "--model", "pump-7", "--yes")
    assert result.exit_code == 0, result.output
    assert not folder.exists()
    assert kept_in(data_dir / "checkpoints")
    left = stored()
    assert {own.input, *stays} <= left
    assert not {name for name in left if name.startswith(pump.prefix)}

    assert gmr("reset", "--data-dir", data_dir, "--yes").exit_code == 0
    assert not (data_dir / "checkpoints").exists()
    assert (
        set(stays)
        <= stored()
        <= {
            *stays,
            own.model_states,
            own.doorbell,
            own.fence,
            own.epoch,
        }
    )
    report = json.loads(gmr("doctor", "--data-dir", data_dir, "--json").output)
    assert [(one["name"], one["accepted"]) for one in report["models"]] == [("", 0), ("pump-7", 0)]


# gmr rebuild --------------------------------------------------------------------------------


@pytest.fixture
def archived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data dir of a service that kept an archive, and so did its model `pump`."""
    for switch in ("torch.set_num_threads", "torch.set_flush_denormal"):
        monkeypatch.setattr(switch, lambda _: None)  # they belong to the whole process
    data_dir = tmp_path / "archived"
    with on_redis(data_dir, archive_mib=64) as settings:
        pump = register(settings, "pump")
        with training(settings):
            send(settings, *BATCHES)
            send(pump, *BATCHES[:4])
            wait_for_backlog(settings)
            wait_for_backlog(pump)
    return data_dir


def test_a_model_is_made_again_and_compared(
    gmr: Callable[..., Any], archived: Path, tmp_path: Path
) -> None:
    before = contents(archived)
    out = tmp_path / "again.safetensors"
    result = gmr("rebuild", "--data-dir", archived, "--out", out)
    assert result.exit_code == 0, result.output
    assert "240 samples, from 12 entries" in result.output
    assert "the same, bit for bit" in result.output
    assert load(out.read_bytes())[0].model.samples_seen == 240
    assert "is there already" in gmr("rebuild", "--data-dir", archived, "--out", out).output

    named = json.loads(gmr("rebuild", "--data-dir", archived, "--model", "pump", "--json").output)
    assert (named["samples_seen"], named["entries_applied"], named["equal"]) == (80, 4, True)
    assert contents(archived) == before

    assert oct(out.stat().st_mode & 0o777) == "0o600"
    findings = json.loads(gmr("doctor", "--data-dir", archived, "--json").output)["findings"]
    looked = [one["found"] for one in findings if "archive" in one["subject"]]
    assert ["begins after 0 entries" in one for one in looked] == [True, True]

    # An archive is none of a backup's business.
    assert gmr("backup", tmp_path / "b.tar", "--data-dir", archived).exit_code == 0
    assert gmr("restore", tmp_path / "b.tar", "--data-dir", tmp_path / "c").exit_code == 0
    assert not list((tmp_path / "c").rglob("*.entries"))
    assert kept_in(tmp_path / "c" / "models" / "pump" / "checkpoints")

    assert gmr("reset", "--data-dir", archived, "--yes").exit_code == 0
    nothing = gmr("rebuild", "--data-dir", archived)
    assert nothing.exit_code == 2
    assert "GMR_ARCHIVE_MIB" in nothing.output


def test_a_model_is_made_again_with_other_settings(
    gmr: Callable[..., Any], archived: Path, tmp_path: Path
) -> None:
    out, before = tmp_path / "flat.safetensors", contents(archived)
    given = ("rebuild", "--data-dir", archived, "--set", "preset=flat", "--set", "n-components=7")
    result = gmr(*given, "--out", out)
    assert result.exit_code == 0, result.output
    assert "another model, with preset = flat, n_components = 7" in result.output
    assert "of a service or a named model with these settings" in result.output
    state, config, _ = load(out.read_bytes())
    assert (config.preset, config.n_components, state.model.samples_seen) == ("flat", 7, 240)
    assert contents(archived) == before
    nowhere = gmr(*given)
    assert nowhere.exit_code == 2
    assert "by --out" in nowhere.output
    wrong = gmr("rebuild", "--data-dir", archived, "--set", "preset", "--out", tmp_path / "x")
    assert wrong.exit_code == 2
    assert "expected NAME=VALUE" in wrong.output


def test_another_model_than_was_kept_is_told_and_whether_that_is_a_fault(
    gmr: Callable[..., Any], archived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [part] = parts_in(archived / "archive")
    records = list(part.records())
    batches = [*records[0].fields.items()], [*records[1].fields.items()]
    records[0] = replace(records[0], fields=dict(batches[1]))
    part.path.write_bytes(b"".join(one.to_bytes() for one in records))
    result = gmr("rebuild", "--data-dir", archived)
    assert result.exit_code == 1, result.output
    assert "ANOTHER ONE" in result.output
    assert "LOOK  this code has learned that on this kind of processor" in result.output
    facts = json.loads(gmr("rebuild", "--data-dir", archived, "--json").output)
    assert (facts["equal"], facts["explained"]) == (False, False)

    # The same archive of another state of the code is no fault.
    with monkeypatch.context() as installed:
        installed.setattr("service.trainer.provenance.DIGEST", "0123456789ab")
        result = gmr("rebuild", "--data-dir", archived)
        assert result.exit_code == 0, result.output
        assert "ANOTHER ONE" not in result.output
        assert "another one, as other code or another processor has learned" in result.output
        assert f"the other: 0.1.0 {DIGEST}," in result.output
        assert "this one: 0.1.0 0123456789ab," in result.output
        facts = json.loads(gmr("rebuild", "--data-dir", archived, "--json").output)
        assert (facts["equal"], facts["explained"]) == (False, True)
