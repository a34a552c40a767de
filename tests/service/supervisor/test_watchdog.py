"""Tests for service.supervisor.watchdog: parts that breathe, or do not, and do not go on."""

from __future__ import annotations

import os
import signal
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import orjson
import pytest

from service.broker.connection import connect
from service.broker.keys import Keys
from service.store.in_folder import FolderCheckpoints
from service.supervisor import watchdog
from service.supervisor.watchdog import ApiWatch, TrainerWatch
from tests.service.conftest import MakeSettings
from tests.service.forked_service import forked_service
from tests.service.running import ask, send, sub_tasks, training, wait_until
from tests.service.supervisor.services import Service


def reasons(running: Service) -> list[str]:
    """Why the service is not ready; none where it is."""
    try:
        with urllib.request.urlopen(running.url + "/health/ready", timeout=10):
            return []
    except urllib.error.HTTPError as error:
        found: list[str] = orjson.loads(error.read()).get("reasons", [])
        return found
    except OSError as error:
        return [str(error)]


@pytest.mark.slow
def test_what_hangs_is_told_killed_and_started_again_and_nothing_is_lost(tmp_path: Path) -> None:
    stream = sub_tasks(0, batches=6)
    with forked_service(tmp_path, stall_s=3) as running:
        running.wait_until_it_answers()
        running.ingest(stream[0])
        running.wait_for_backlog(1)

        # A trainer that is stopped.
        trainer = running.children()["service.trainer"]
        os.kill(trainer, signal.SIGSTOP)
        running.ingest(stream[1])
        running.wait_for_line(r"the trainer hangs; killing it: It has not reported for")
        running.wait_for_line("the trainer died .killed by SIGKILL.; starting it again")
        running.wait_for_backlog(2)
        assert running.children()["service.trainer"] != trainer

        # A disk that hangs: where the next snapshot is to be written is a pipe that nobody reads.
        version = running.get("/model")["model_version"]
        folder = tmp_path / "snapshots"
        for edition in ("", "-1", "-2"):
            for later in (1, 2):
                os.mkfifo(folder / f"{version + later}-3{edition}.safetensors.tmp")
        running.ingest(stream[2])
        told = wait_until(lambda: [one for one in reasons(running) if "has hung" in one])
        assert "after entry" in told[0]
        running.wait_for_line(r"the trainer hangs; killing it: The trainer has hung for")
        running.wait_for_backlog(3)  # the next one has swept them away
        assert not list(folder.glob("*.tmp"))
        wait_until(lambda: not reasons(running))

        # An API that is stopped.
        api = running.children()["service.api"]
        os.kill(api, signal.SIGSTOP)
        running.wait_for_line(r"the API hangs; killing it: It has not answered for")
        running.ingest(stream[3])
        model = running.wait_for_backlog(4)
        assert model["samples_seen"] == 80
        assert running.stop() == 0


def test_a_trainer_is_judged_by_its_own_status_and_only_where_redis_answers(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings()
    address = made.redis_address() or ""
    key = Keys(made.model).status
    with connect(address) as client:
        watch = TrainerWatch(address, made.model, limit_s=0.2)

        def tell(**status: Any) -> None:
            told = {"pid": 7, "time": time.time(), "stalled_s": 0.0, "step_s": 0.0} | status
            client.set(key, orjson.dumps({"last_entry_id": "5-0", **told}))

        assert watch.fault(7) is None  # it is starting
        tell()
        assert watch.fault(7) is None
        tell(stalled_s=0.1, step_s=1.9)
        assert watch.fault(7) is None  # it computes
        tell(stalled_s=0.3, step_s=0.3)
        assert "hung" in (watch.fault(7) or "")
        tell(step_s=2.1)
        assert "without an end" in (watch.fault(7) or "")
        tell(stalled_s=0.3, pid=6)
        assert watch.fault(7) is None  # of the one before
        monkeypatch.setattr(watchdog, "START_S", 0.0)
        assert "has not reported" in (watch.fault(7) or "")
        waits = TrainerWatch(address, made.model, limit_s=0.2, stands_by=True)
        assert waits.fault(7) is None
        monkeypatch.undo()
        tell(time=time.time() - 60)
        assert watch.fault(7) is None  # the clock was set forward since it reported
        time.sleep(0.25)
        assert "has not reported for 0" in (watch.fault(7) or "")
        tell(time=time.time() - 3600)
        assert watch.fault(7) is None  # and back
        assert watch.fault(8) is None  # another process
    away = TrainerWatch("redis://127.0.0.1:1/0", made.model, limit_s=0.0)
    assert away.fault(7) is None
    assert TrainerWatch("redis+cluster://127.0.0.1:1/0", made.model, 0.0).fault(7) is None


def test_an_api_may_take_long_to_start_and_then_must_answer() -> None:
    answers = [False, False, True, False, False]
    watch = ApiWatch(lambda: answers.pop(0), limit_s=0.05)
    assert watch.fault(3) is None
    time.sleep(0.06)
    assert watch.fault(3) is None
    assert watch.fault(3) is None
    assert watch.fault(3) is None
    time.sleep(0.06)
    assert "has not answered" in (watch.fault(3) or "")


def test_the_status_says_that_a_trainer_goes_on(settings: MakeSettings) -> None:
    made = settings()
    with training(made):
        send(made, *sub_tasks(0, batches=2))

        def status() -> dict[str, Any]:
            found: dict[str, Any] = ask(made, lambda stream: stream.reports.status()) or {}
            return found

        wait_until(lambda: status().get("entries_applied") == 2)
        idle_since = time.time()

        def goes_on() -> dict[str, Any] | None:
            told = status()
            idle_s = told["time"] - idle_since
            return told if told["step_s"] < idle_s / 2 and not told["saving_s"] else None

        time.sleep(2.0)  # with nothing to do
        told = wait_until(goes_on)
        assert told["starts"] == 0


def test_the_status_says_how_long_a_checkpoint_is_being_written(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, whole = threading.Event(), FolderCheckpoints.write

    def hangs(*given: Any, **named: Any) -> None:
        assert goes_on.wait(30)
        whole(*given, **named)

    monkeypatch.setattr(FolderCheckpoints, "write", hangs)
    made = settings(checkpoint_interval_s=0.1)
    with training(made):
        send(made, *sub_tasks(0, batches=2))

        def saving_s() -> float:
            status: dict[str, Any] = ask(made, lambda stream: stream.reports.status()) or {}
            return float(status.get("saving_s", 0.0))

        wait_until(lambda: saving_s() > 1.0)
        goes_on.set()
        wait_until(lambda: saving_s() == 0.0)
