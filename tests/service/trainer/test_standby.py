"""Tests for service.trainer.standby: of two trainers with one data dir, one waits and takes over.

The lease is shortened to two seconds, for both.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from service.settings import Settings
from service.wire import RawBatch
from tests.service.conftest import MakeSettings
from tests.service.forked import TRAINER, Forked, forked
from tests.service.running import (
    ask,
    learned_directly,
    send,
    snapshot_bytes,
    sub_tasks,
    wait_for_backlog,
    wait_until,
)
from tests.service.trainer.test_writer import events, history, published, status


def trainer(settings: Settings, log: Path) -> AbstractContextManager[Forked]:
    return forked(TRAINER, variables=settings.environment(), output=log)


def pid(settings: Settings) -> int:
    return int((status(settings) or {"pid": 0})["pid"])


def freeze_and_thaw(
    settings: Settings, stream: Sequence[RawBatch], at_work: Forked, waiting: Forked
) -> None:
    """Freeze a trainer until the one that waits has taken over; both end in order.

    Arguments:
        stream: Batches, of which the first eight come while it is frozen.
    """
    at_work.send_signal(signal.SIGSTOP)
    send(settings, *stream[:8])
    wait_until(lambda: pid(settings) == waiting.pid, 90)
    wait_for_backlog(settings, 90)
    at_work.send_signal(signal.SIGCONT)
    assert at_work.wait(60) == 1  # it was replaced, and changes nothing more
    send(settings, *stream[8:])
    wait_for_backlog(settings, 90)
    waiting.send_signal(signal.SIGTERM)
    assert waiting.wait(60) == 0


def test_a_trainer_that_waits_takes_over_from_one_that_is_frozen(
    settings: MakeSettings,
    tmp_path: Path,
) -> None:
    own = settings(standby=True, lease_s=2.0, checkpoint_interval_s=0.2)
    stream = sub_tasks(0, 1)
    with (
        trainer(own, tmp_path / "first.log") as first,
        trainer(own, tmp_path / "second.log") as second,
    ):
        send(own, *stream[:12])
        wait_for_backlog(own, 90)
        working = wait_until(lambda: pid(own))
        at_work, waiting = (first, second) if working == first.pid else (second, first)
        assert at_work.pid == working
        freeze_and_thaw(own, stream[12:], at_work, waiting)
    assert published(own).to_bytes({}) == snapshot_bytes(own, learned_directly(own, stream))
    assert [row["batch_index"] for row in history(own)] == list(range(30))
    ids = [event["entry_id"] for event in events(own) if event["kind"] == "batch_learned"]
    assert len(set(ids)) == len(ids)


def test_one_that_waits_ends_when_it_is_told_to(settings: MakeSettings, tmp_path: Path) -> None:
    own = settings(standby=True, lease_s=2.0)
    with trainer(own, tmp_path / "first.log") as first:
        wait_until(lambda: pid(own) == first.pid, 90)
        with trainer(own, tmp_path / "second.log") as second:
            log = tmp_path / "second.log"
            wait_until(lambda: "standing by" in log.read_text("utf-8"), 90)
            second.send_signal(signal.SIGTERM)
            assert second.wait(60) == 0
            assert pid(own) == first.pid
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 0
    assert not ask(own, lambda stream: stream.accepted())
