"""Tests for the service.trainer.gap module: what is lost is given up by its number only."""

from __future__ import annotations

import shutil
import time

import pytest

from core.errors import InvalidSettings
from service.broker.entries import Position, id_before
from service.broker.feed import Feed
from service.broker.ledger import LedgerBook
from service.settings import Settings
from service.trainer.gap import find_gap
from service.trainer.host import Trainer, main
from tests.service.conftest import MakeSettings
from tests.service.running import ask, learned_directly, send, snapshot_bytes, sub_tasks, training
from tests.service.trainer.test_writer import events, kinds, published, status

STREAM = sub_tasks(0, batches=10)


def without_checkpoints(settings: Settings) -> None:
    """A service that has learned 6 of 10 batches, and whose checkpoints are gone."""
    send(settings, *STREAM[:6])
    with training(settings):
        pass
    shutil.rmtree(settings.data_dir / "checkpoints")
    time.sleep(0.002)  # ids of another millisecond
    send(settings, *STREAM[6:])


def refusal(settings: Settings) -> str:
    with pytest.raises(InvalidSettings) as refused:
        Trainer(settings).run()
    return str(refused.value)


@pytest.mark.usefixtures("main_in_this_process")
def test_a_trainer_refuses_to_go_on_without_what_was_learned(settings: MakeSettings) -> None:
    without_checkpoints(settings())
    measured = ask(settings(), lambda stream: stream.reports.trainer_metrics())
    assert "6 entries were learned and removed" in refusal(settings())
    assert "--accept-loss 6" in refusal(settings())
    assert "GMR_ACCEPT_LOSS names 5" in refusal(settings(accept_loss=5))
    assert "6 entries" in refusal(settings(accept_loss=7))
    assert main(settings()) == 2
    # Nothing has changed, but that whoever asks is told.
    assert published(settings()).info.samples_seen == 120
    assert status(settings())["state"] == "refused"
    assert "--accept-loss 6" in status(settings())["error"]
    assert b"gmr_samples_learned_total 120.0" in measured
    assert ask(settings(), lambda stream: stream.reports.trainer_metrics()) == measured
    assert ask(settings(), lambda stream: stream.accepted()) == 10
    assert "entries_lost" not in kinds(settings())


def test_what_is_given_up_by_its_number_is_told_and_may_be_sent_again(
    settings: MakeSettings,
) -> None:
    without_checkpoints(settings())
    with training(settings(accept_loss=6)):
        pass
    [lost] = [event for event in events(settings()) if event["kind"] == "entries_lost"]
    assert lost["entries"] == 6
    assert status(settings())["entries_lost"] == 6
    text = ask(settings(), lambda stream: stream.reports.trainer_metrics()).decode()
    assert "gmr_entries_lost_total 6.0" in text
    assert published(settings()).info.samples_seen == 80
    counts = ask(settings(), lambda stream: LedgerBook(stream).counts())
    assert (counts["accepted"], counts["learned"], counts["lost"]) == (200, 80, 120)
    assert counts["unaccounted"] == 0
    fate = ask(settings(), lambda stream: LedgerBook(stream).fate("0-0"))
    assert fate.state == "lost"

    again = send(settings(), *STREAM)
    assert [one.duplicate for one in again] == [False] * 6 + [True] * 4
    with training(settings()):  # nothing is to be accepted any more
        pass
    expected = learned_directly(settings(), [*STREAM[6:], *STREAM[:6]])
    assert published(settings()).to_bytes({}) == snapshot_bytes(settings(), expected)
    assert [event["kind"] for event in events(settings())].count("entries_lost") == 1


def test_where_nothing_was_let_go_an_empty_data_dir_reads_from_the_start(
    settings: MakeSettings,
) -> None:
    send(settings(), *STREAM)
    with training(settings()):
        pass
    assert published(settings()).info.samples_seen == 200
    assert "entries_lost" not in kinds(settings())


def test_the_gap_is_what_lies_between_checkpoint_and_stream(feed: Feed) -> None:
    feed.open(Position())
    ids = [feed.client.xadd(feed.keys.input, {"x": b""}).decode() for _ in range(5)]
    feed.release(Position(ids[2], 3), ids[:3])
    held = Position(ids[0], 1)
    gap = find_gap(feed, held, feed.open(held))
    assert gap is not None
    assert (gap.entries, gap.last_entry_id) == (2, id_before(ids[3]))
    assert find_gap(feed, Position(ids[2], 3), feed.open(Position(ids[2], 3))) is None
    feed.release(Position(ids[4], 5), ids[3:])
    gap = find_gap(feed, Position(), feed.open(Position()))
    assert gap is not None
    assert (gap.entries, gap.first_entry_id, gap.last_entry_id) == (5, "0-1", ids[4])
