"""Tests for the service.trainer.budget module: chores of many models take their share, no more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import given
from hypothesis import strategies as st

from service.broker.connection import connect
from service.settings import Settings
from service.store.in_folder import FolderCheckpoints
from service.trainer.budget import Budget
from service.trainer.heartbeat import Heartbeat
from service.trainer.pace import Pace
from service.trainer.writer import ModelWriter
from tests.service.conftest import MakeSettings
from tests.service.running import published_position, send, sub_tasks, wait_until

SECONDS = st.floats(0, 10)


@given(st.lists(SECONDS, min_size=1, max_size=20), st.floats(0.01, 1))
def test_rounds_that_far_apart_take_the_share_of_the_time(took: list[float], share: float) -> None:
    budget = Budget(share)
    for number, seconds in enumerate(took):
        budget.took(str(number), seconds)
    assert sum(took) <= share * budget.interval_s + 1e-9
    assert share * budget.interval_s <= sum(took) + 1e-9


def test_a_model_counts_by_its_newest_round_until_it_is_let_go() -> None:
    budget = Budget(0.5)
    budget.took("one", 4.0)
    budget.took("one", 1.0)
    budget.took("two", 2.0)
    assert budget.interval_s == 6.0
    budget.left("one")
    budget.left("one")
    assert budget.interval_s == 4.0


@contextmanager
def writing(own: Settings, pace: Pace) -> Iterator[ModelWriter]:
    """The writer of a model, driven by hand."""
    with connect(own.redis_address() or "") as client, Heartbeat(client) as heartbeat:
        writer = ModelWriter(own, client, heartbeat, pace)
        try:
            writer.begin()
            yield writer
        finally:
            writer.close()


def learn(writer: ModelWriter, *, crowded: bool) -> None:
    for entry in writer.feed.read(0):
        writer.expect([entry])
        writer.learn(entry, more=False, crowded=crowded)


def test_while_others_wait_a_model_is_learned_and_served_later(settings: MakeSettings) -> None:
    own = settings(publish_interval_s=0.0, checkpoint_interval_s=0.0)
    budget, checkpoints = Budget(), Budget()
    pace = Pace(0.0, 10.0, asks=False, house=budget, checkpoints=checkpoints)
    stream = sub_tasks(0, 1)
    with writing(own, pace) as writer:
        send(own, stream[0])
        learn(writer, crowded=False)
        wait_until(lambda: (writer.idle(), published_position(own)[1])[1] == 1)
        assert budget.interval_s > 0
        wait_until(lambda: (writer.idle(), checkpoints.interval_s)[1])

        budget.took("another", 3600.0)
        send(own, *stream[1:4])
        learn(writer, crowded=True)
        writer.idle(crowded=True)
        assert writer.position.entries_applied == 4
        assert published_position(own)[1] == 1
        rung = writer.ring, lambda: writer.idle(crowded=True)  # a reader waits for something
        wait_until(lambda: [act() for act in rung] and published_position(own)[1] == 4)

        send(own, *stream[4:6])
        learn(writer, crowded=True)
        writer.idle(crowded=True)
        assert published_position(own)[1] == 4
        # Nobody waits any more.
        wait_until(lambda: (writer.idle(), published_position(own)[1])[1] == 6)
    budget.left("another")
    assert budget.interval_s == checkpoints.interval_s == 0  # it was let go


def test_while_others_wait_a_model_is_written_down_later(settings: MakeSettings) -> None:
    own = settings(checkpoint_interval_s=0.0)
    checkpoints = Budget()
    pace = Pace(0.0, 10.0, asks=False, house=Budget(1.0), checkpoints=checkpoints)
    stream = sub_tasks(0, 1)

    def held() -> int:
        kept = FolderCheckpoints(own.data_dir / "checkpoints").kept()
        return max((one.entries_applied for one in kept), default=0)

    with writing(own, pace) as writer:
        send(own, stream[0])
        learn(writer, crowded=False)
        wait_until(lambda: (writer.idle(), held())[1] == 1)
        wait_until(lambda: (writer.idle(), writer._saver.busy)[1] is False)
        checkpoints.took("another", 3600.0)
        send(own, stream[1])
        learn(writer, crowded=True)
        for _ in range(20):
            writer.idle(crowded=True)
        writer._saver.wait()
        assert held() == 1
        wait_until(lambda: (writer.idle(), held())[1] == 2)
