"""Tests for the service.trainer.starts module, over a real Redis."""

from __future__ import annotations

import orjson
import pytest

from service.broker.connection import connect
from service.broker.entries import Position
from service.broker.feed import Feed
from service.broker.keys import Keys
from service.trainer.host import Trainer
from service.trainer.publish_schedule import PublishSchedule
from service.trainer.standing import Standing
from service.trainer.starts import Starts
from tests.service.conftest import MakeSettings
from tests.service.running import ask, send, sub_tasks, training, wait_until


@pytest.fixture
def opened(feed: Feed) -> Feed:
    feed.open(Position())
    return feed


def started(feed: Feed) -> Starts:
    starts = Starts(feed)
    starts.begin()
    return starts


def test_starts_count_until_one_gets_further_than_all_before(opened: Feed) -> None:
    opened.set(opened.keys.status, orjson.dumps({"entries_applied": 5}))
    first = started(opened)
    first.applied(5)  # read again
    assert first.count == 1
    opened.set(opened.keys.status, orjson.dumps({"entries_applied": 3}))
    second = started(opened)
    second.applied(4)
    assert second.count == 2
    second.applied(6)
    assert second.count == 0
    assert started(opened).count == 1


def test_an_orderly_end_and_a_quiet_stream_are_no_death(opened: Feed) -> None:
    started(opened).clear()
    assert started(opened).count == 1


def test_a_trainer_that_dies_at_every_start_says_how_often(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings()
    send(made, *sub_tasks(0, batches=2))

    def dies(schedule: PublishSchedule, now: Standing, **how: object) -> None:
        raise RuntimeError("a disk that is gone")

    monkeypatch.setattr(PublishSchedule, "publish", dies)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="disk"):
            Trainer(made).run()
        with connect(made.redis_address() or "") as client:
            client.delete(Keys(made.model).lease)  # which would run out
    status = ask(made, lambda stream: stream.reports.status())
    assert status["starts"] == 3
    monkeypatch.undo()
    with training(made):
        wait_until(lambda: ask(made, lambda stream: stream.reports.status())["starts"] == 0)
