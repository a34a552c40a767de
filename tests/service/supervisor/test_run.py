"""Tests for service.supervisor.run: the whole service in processes, killed in every part."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from core.snapshot import Snapshot
from service.broker.lease import DirectoryLock
from service.settings import Settings
from service.supervisor.embedded import EmbeddedRedis, find_binary
from service.supervisor.part import Deaths
from service.supervisor.run import Supervisor, free_port
from tests.service.conftest import BINARY
from tests.service.forked_service import forked_service
from tests.service.running import learned_directly, snapshot_bytes, sub_tasks, wait_until
from tests.service.supervisor.services import service

FORK_SERVER = "service.supervisor.preloaded"


def gone(pids: Sequence[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def published(settings: Settings) -> Snapshot:
    files = (settings.data_dir / "snapshots").glob("*.safetensors")
    # By entries applied, and by the edition where the same model was published again.
    newest = max(files, key=lambda path: [int(part) for part in path.stem.split("-")[1:]])
    return Snapshot.from_bytes(newest.read_bytes())[0]


@pytest.mark.slow
def test_every_part_may_be_killed_and_nothing_is_lost_or_learned_twice(tmp_path: Path) -> None:
    stream = sub_tasks(0, 1, 2)
    with service(tmp_path) as running:
        running.wait_until_it_answers()
        children = running.children()
        assert set(children) == {"redis-server", FORK_SERVER, "service.api", "service.trainer"}

        victims = {
            4: FORK_SERVER,  # the next part has another
            8: "service.trainer",
            20: "redis-server",
            32: "service.api",
        }
        for i, batch in enumerate(stream):
            running.ingest(batch)
            if i in victims:
                victim = wait_until(lambda name=victims[i]: running.children().get(name))
                os.kill(victim, signal.SIGKILL)
        model = running.wait_for_backlog(len(stream))
        assert (model["batches_seen"], model["samples_seen"]) == (45, 900)
        ledger = running.get("/ledger")
        assert (ledger["accepted"], ledger["unaccounted"], ledger["since"]) == (900, 0, None)
        assert ledger["waiting"] + ledger["learned"] + ledger["set_aside"] == 900
        fates = [running.get(f"/batches/{batch.batch_id}") for batch in stream]
        assert {(fate["state"], fate["accepted"]) for fate in fates} == {("learned", 1)}
        history = running.get("/drift/history")["history"]
        assert [row["batch_index"] for row in history] == list(range(45))
        expected = learned_directly(running.settings, stream)
        wanted = snapshot_bytes(running.settings, expected)
        assert published(running.settings).to_bytes({}) == wanted

        # One service per data dir.
        with forked_service(tmp_path) as second:
            assert second.process.wait(20) == 2
            second.wait_for_line("in use by another service")

        children = running.children()
        assert running.stop() == 0
        assert gone(list(children.values()))

    # It goes on where it was, though the API is killed before it has ever answered; and when the
    # supervisor is killed, everything ends.
    with forked_service(tmp_path) as running:
        os.kill(wait_until(lambda: running.children().get("service.api")), signal.SIGKILL)
        running.wait_until_it_answers()
        assert running.wait_for_backlog(45)["model_version"] == model["model_version"]
        first = running.children()["redis-server"]
        os.kill(first, signal.SIGKILL)

        def successor() -> int | None:
            found = running.children().get("redis-server")
            return None if found == first else found

        # A Redis that is killed again while it starts does not end the service.
        second = wait_until(successor)
        os.kill(second, signal.SIGSTOP)  # before it answers
        time.sleep(0.2)
        os.kill(second, signal.SIGKILL)
        running.ingest(sub_tasks(2, batches=16)[-1])
        assert running.wait_for_backlog(46)["samples_seen"] == 920
        children = running.children()
        running.process.kill()
        wait_until(lambda: gone(list(children.values())))

    # Nothing of that keeps the next one from starting, and from going at once if told so.
    with forked_service(tmp_path) as running:
        running.wait_until_it_answers()
        children = running.children()
        os.kill(children["service.trainer"], signal.SIGSTOP)  # it will not stop in order
        running.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert running.stop(signal.SIGINT, timeout_s=10) == 130
        assert gone(list(children.values()))


def test_a_redis_that_is_killed_while_it_starts_is_started_again(tmp_path: Path) -> None:
    died = tmp_path / "died"
    script = tmp_path / "redis-server"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] || [ -e {died} ] || {{ touch {died}; kill -9 $$; }}\n'
        f'exec {BINARY.path} "$@"\n'
    )
    script.chmod(0o700)
    with DirectoryLock(tmp_path / "data", "test") as lock:
        server = EmbeddedRedis(tmp_path / "data", find_binary(script), 64, lock)
        try:
            supervisor = Supervisor(Settings(data_dir=tmp_path / "data"), print)
            assert supervisor._begin_redis(server)
            assert died.exists()
            assert server.poll() is None
        finally:
            server.stop()


def test_a_port_that_is_taken_is_told_at_once(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with service(tmp_path, port=port) as running:
            assert running.process.wait(20) == 2
            running.wait_for_line(f"cannot listen on 127.0.0.1, port {port}: Address already")
            assert running.children() == {}


@pytest.mark.slow
@pytest.mark.parametrize("after_s", [0.0, 0.7, 1.4])
def test_asked_to_end_while_its_parts_start_it_ends_in_order(
    tmp_path: Path, after_s: float
) -> None:
    with service(tmp_path) as running:
        running.wait_for_line("^Data: ")
        time.sleep(after_s)  # of some two seconds
        assert running.stop() == 0, "".join(running.lines)


def test_a_misspelled_variable_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GMR_PROT", "1")
    with service(tmp_path) as running:
        assert running.process.wait(20) == 2
        running.wait_for_line("Did you mean GMR_PORT")


@pytest.mark.slow
def test_settings_that_the_trainer_cannot_work_with_end_the_service(tmp_path: Path) -> None:
    with service(tmp_path, device="cuda:7") as running:
        assert running.process.wait(60) == 2
        running.wait_for_line("The device is cuda:7")


@pytest.mark.slow
def test_a_redis_of_ones_own_is_used_and_its_password_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port("127.0.0.1", 0)
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--requirepass", "s3cret"]
    arguments += ["--appendonly", "yes", "--appendfsync", "always"]
    arguments += ["--save", "", "--dir", str(tmp_path), "--logfile", str(tmp_path / "log")]
    with subprocess.Popen([str(BINARY.path), *arguments]) as redis_server:
        try:
            monkeypatch.setenv("GMR_REDIS_URL", f"redis://:s3cret@127.0.0.1:{port}/0")
            with forked_service(tmp_path / "data") as running:
                running.wait_until_it_answers()
                assert set(running.children()) == {FORK_SERVER, "service.api", "service.trainer"}
                for batch in sub_tasks(0):
                    running.ingest(batch)
                assert running.wait_for_backlog(15)["samples_seen"] == 300
                assert running.stop() == 0
                text = "".join(running.lines)
                assert f"redis://:***@127.0.0.1:{port}/0" in text
                assert "s3cret" not in text
            assert not (tmp_path / "data" / "redis").exists()
        finally:
            redis_server.terminate()


def test_pauses_grow_until_it_was_one_too_many() -> None:
    deaths = Deaths(8)
    pauses = [deaths.count() for _ in range(8)]
    assert pauses == sorted(pauses, key=lambda pause: pause or 0)
    assert pauses[0] is not None
    assert pauses[0] < 1
    assert deaths.count() is None


def test_deaths_of_long_ago_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    deaths = Deaths(8)
    first = deaths.count()
    for _ in range(24):
        now[0] += 120.0
        assert deaths.count() == first


def test_a_service_of_its_own_answers_for_itself_whatever_the_environment_says(
    tmp_path: Path,
) -> None:
    supervisor = Supervisor(Settings(data_dir=tmp_path, cluster=True), print)
    assert supervisor._environment("redis://r.example")["GMR_CLUSTER"] == "false"
