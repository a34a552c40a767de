"""A disk that is really full, under a real service: reads go on, and it recovers by itself."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.supervisor.embedded import LOG_BYTES, EmbeddedRedis
from tests.service.forked_service import forked_service
from tests.service.running import sub_tasks, wait_until
from tests.service.supervisor.services import Service

MIB = 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "tmpfs", str(folder)]
    if shutil.which("mount") is None or os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small file system can be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def asked(running: Service, path: str, document: object) -> tuple[int, str]:
    """Status and text of an answer to a JSON body."""
    request = urllib.request.Request(
        running.url + path, json.dumps(document).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def fill(folder: Path, leave: int) -> Path:
    """A file that leaves so many bytes free."""
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
        while (free := shutil.disk_usage(folder).free) > leave:
            file.write(bytes(min(MIB, free - leave)))
    return filler


@pytest.mark.slow
def test_a_disk_that_is_full_stops_what_it_must_and_nothing_is_lost(small_disk: Path) -> None:
    stream = sub_tasks(0, batches=4)
    sample = {"features": stream[0].features[:1].tolist()}
    more = {"features": stream[1].features.tolist(), "labels": stream[1].labels, "batch_id": "b"}
    with forked_service(small_disk / "data", disk_reserve_mib=4) as running:
        running.wait_until_it_answers()
        running.ingest(stream[0])
        running.wait_for_backlog(1)
        assert asked(running, "/classify", sample)[0] == 200

        # Little room: nothing more is accepted, and Redis has room for what it must write.
        filler = fill(small_disk, leave=2 * MIB)
        status, text = asked(running, "/ingest", more)
        assert (status, "GMR_DISK_RESERVE_MIB; nothing was accepted" in text) == (503, True)

        # None at all: Redis ends, as one must that forces every write to disk.
        fill(small_disk, leave=0)
        running.wait_for_line("the embedded Redis ended .*its disk is full", 60)
        assert asked(running, "/classify", sample)[0] == 200
        assert asked(running, "/ingest", more)[0] == 503
        assert running.process.poll() is None
        assert set(running.children()) >= {"service.api", "service.trainer"}

        filler.unlink()
        running.wait_for_line("there is room on the disk again", 30)
        wait_until(lambda: asked(running, "/ingest", more)[0] in (200, 202), 30)
        running.ingest(stream[2])
        model = running.wait_for_backlog(3)
        assert model["samples_seen"] == 60
        ledger = running.get("/ledger")
        assert (ledger["accepted"], ledger["learned"], ledger["unaccounted"]) == (60, 60, 0)
        fill(small_disk, leave=0)
        running.stop()

    # Started on a full disk, it waits for room; asked to end meanwhile, it ends in order.
    with forked_service(small_disk / "data", disk_reserve_mib=4) as running:
        running.wait_for_line("is full .*starts when there is room", 30)
        assert running.stop() == 0
    with forked_service(small_disk / "data", disk_reserve_mib=4) as running:
        running.wait_for_line("is full .*starts when there is room", 30)
        filler.unlink()
        running.wait_until_it_answers()
        # The published model may be ahead of a trainer that learns what no checkpoint holds again.
        wait_until(lambda: running.get("/ledger")["learned"] == 60, 60)
        ledger = running.get("/ledger")
        assert (ledger["accepted"], ledger["learned"], ledger["unaccounted"]) == (60, 60, 0)
        assert running.stop() == 0
    assert not list((small_disk / "data").rglob("*.tmp"))


def test_the_log_of_the_embedded_redis_stays_bounded(own_redis: EmbeddedRedis) -> None:
    own_redis.directory.mkdir(parents=True)
    log = own_redis.directory / "redis.log"
    log.write_bytes(b"old\n" * (LOG_BYTES // 4 + 1))
    own_redis.start()
    kept = log.with_name("redis.log.1")
    assert kept.stat().st_size == LOG_BYTES // 2
    assert log.stat().st_size < 100_000
    with log.open("ab") as file:
        file.write(b"new\n" * (LOG_BYTES // 4 + 1))
    own_redis.bound_log()  # also while it runs
    assert log.stat().st_size == 0
    assert kept.read_bytes().startswith(b"new\n")
