"""Tests for the service.trainer.joining module: small batches are learned as one, none is lost."""

from __future__ import annotations

import random
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.batch import Batch
from core.engine.engine import Engine
from core.engine.state import EngineState
from service.broker.connection import connect
from service.broker.entries import Entry, Position
from service.broker.feed import Feed
from service.broker.keys import Keys
from service.settings import Settings
from service.trainer import applier
from service.trainer.attempts import MOST_DEATHS, Attempts
from service.trainer.effects import effect
from service.trainer.host import Trainer
from service.trainer.joining import FEW, MANY, EntryGroup, Joining
from service.trainer.pace import Pace
from service.upkeep.rebuild import rebuild
from service.wire import REQUEUED_FROM, Control, Limits, RawBatch, RawLabels, read_entry
from tests.service.conftest import MakeSettings
from tests.service.running import (
    ask,
    batch,
    published_position,
    send,
    snapshot_bytes,
    training,
    wait_for_backlog,
    wait_until,
)
from tests.service.trainer.test_budget import writing
from tests.service.trainer.test_faults import rejected, run_until_it_dies
from tests.service.trainer.test_instants import INSTANTS, dies, told
from tests.service.trainer.test_named_models import register
from tests.service.trainer.test_writer import events, history, published

MOST = 20
PATIENT: dict[str, Any] = {"checkpoint_interval_s": 3600, "join_samples": MOST}
"""Then the whole stream stays in Redis, for the oracle to read."""

LIMITS = Limits(10_000, 10_000)
MARK = 77.0
"""A feature of the sample by which an engine fails."""


def singles(label: int, n: int, seed: int = 0, labelled: bool = True) -> list[RawBatch]:
    """Samples of one class, each in a batch of its own."""
    whole = batch(label, seed, n)
    return [
        RawBatch.of(row[None], [label] if labelled else None, f"{label}-{seed}-{i}")
        for i, row in enumerate(whole.features)
    ]


def stream() -> list[RawBatch]:
    """Two sub-tasks, sample by sample."""
    return [*singles(0, 300), *singles(1, 300)]


def entries_of(settings: Settings) -> list[Entry]:
    """The whole stream, as it is in Redis."""
    with connect(settings.redis_address() or "") as client:
        rows: Any = client.xrange(Keys(settings.model).input)
    return [Entry(id.decode(), fields) for id, fields in rows]


def plainly_grouped(entries: list[Entry], most: int) -> list[list[Entry]]:
    """What belongs together, of batches that are all alike: said once more, in the plainest way."""
    groups: list[list[Entry]] = [[]]
    size = 0
    for entry in entries:
        asked = read_entry(entry.fields)
        n = len(asked) if isinstance(asked, RawBatch) else most
        if n >= most or size + n > most:
            groups.append([])
            size = 0
        groups[-1].append(entry)
        size += n
        if size >= most:
            groups.append([])
            size = 0
    return [group for group in groups if group]


def made_from(settings: Settings, entries: list[Entry]) -> EngineState:
    """What a trainer must come to by a stream."""
    engine = Engine(settings.engine_config())
    state = engine.start()
    for group in plainly_grouped(entries, settings.join_samples):
        asked = [read_entry(entry.fields) for entry in group]
        batches = [one for one in asked if isinstance(one, RawBatch)]
        if not batches:
            assert not isinstance(asked[0], RawBatch)
            state, _ = effect(engine, state, asked[0])
            continue
        features = np.concatenate([one.features for one in batches])
        labels = [label for one in batches for label in one.labels or [None] * len(one)]
        state, _ = effect(engine, state, RawBatch.of(features, labels))
    return state


# What belongs together ----------------------------------------------------------------------


def entry_of(number: int, asked: RawBatch | Control, **more: bytes) -> Entry:
    fields = {name.encode(): bytes(value) for name, value in asked.to_entry().items()}
    return Entry(f"{number}-0", {**fields, **{name.encode(): text for name, text in more.items()}})


KINDS = st.sampled_from(["one", "one", "one", "three", "large", "other key", "images", "join"])


def made(kinds: list[str]) -> list[Entry]:
    found = []
    for number, kind in enumerate(kinds, 1):
        asked: RawBatch | Control = batch(0, number, {"three": 3, "large": 50}.get(kind, 1))
        more = {"by": b"ada"} if kind == "other key" else {}
        if kind == "images":
            asked = RawBatch.of(np.zeros((1, 2, 3), np.uint8))
        elif kind == "join":
            asked = Control("join")
        found.append(entry_of(number, asked, **more))
    return found


def grouped(entries: list[Entry], most: int = MOST) -> list[EntryGroup]:
    joining = Joining(most, LIMITS)
    return [group for entry in entries for group in joining.add(entry)]


@given(st.lists(KINDS, max_size=80), st.integers(2, 30))
def test_groups_hold_every_entry_once_in_order_and_only_what_is_alike(
    kinds: list[str], most: int
) -> None:
    entries = [*made(kinds), entry_of(1000, Control("join"))]
    groups = grouped(entries, most)
    assert [entry for group in groups for entry in group.entries] == entries
    for group in groups:
        if not group.parts:
            assert len(group.entries) == 1
            assert group.batch is None
            continue
        assert len(group.entries) == len(group.parts) > 1
        assert len(group.batch or ()) == sum(group.samples.values()) <= most
        assert len({part.by for part in group.parts}) == 1
        assert len({(part.features.dtype, part.features.shape[1:]) for part in group.parts}) == 1


@given(st.lists(KINDS, max_size=80), st.integers(2, 30), st.randoms(use_true_random=False))
def test_whoever_begins_at_the_end_of_a_group_finds_the_same_groups(
    kinds: list[str], most: int, chance: random.Random
) -> None:
    entries = [*made(kinds), entry_of(1000, Control("join"))]
    groups = grouped(entries, most)
    at = chance.randrange(len(groups) + 1)
    rest = [entry for group in groups[at:] for entry in group.entries]
    again = grouped(rest, most)
    assert [group.entries for group in again] == [group.entries for group in groups[at:]]


def test_batches_of_one_sample_are_together_up_to_the_limit_or_a_join() -> None:
    entries = made(["one"] * 45 + ["join"] + ["one"] * 3)
    assert [len(group.entries) for group in grouped(entries)] == [20, 20, 5, 1]
    assert [len(group.entries) for group in grouped(entries, most=1)] == [1] * 49


def test_a_dead_letter_sent_again_and_a_sample_id_that_comes_twice_end_a_group() -> None:
    again = entry_of(3, batch(0, 0, 1), **{REQUEUED_FROM: b"1-0"})
    entries = [*made(["one"] * 2), again, entry_of(4, Control("join"))]
    assert [len(group.entries) for group in grouped(entries)] == [2, 1, 1]
    named = [RawBatch.of([[float(i)]], sample_ids=[i % 3]) for i in range(5)]
    entries = [entry_of(i, one) for i, one in enumerate(named, 1)]
    groups = grouped([*entries, entry_of(9, Control("join"))])
    assert [len(group.entries) for group in groups] == [3, 2, 1]
    assert groups[1].batch is not None
    assert groups[1].batch.sample_ids == (0, 1)


def test_a_batch_that_cannot_be_read_is_a_group_of_its_own() -> None:
    broken = entry_of(2, batch(0, 0, 1), crc=b"1")
    entries = [*made(["one"]), broken, *made(["join"])]
    assert [len(group.entries) for group in grouped(entries)] == [1, 1, 1]


def test_that_small_batches_would_gain_is_said_once_and_only_where_they_wait() -> None:
    small, large = entry_of(1, batch(0, 0, FEW)), entry_of(2, batch(0, 0, FEW + 1))
    joining = Joining(1, LIMITS)
    for other, more in ((large, True), (small, False), (entry_of(3, Control("settle")), True)):
        assert not any(joining.would_gain(small, more=True) for _ in range(MANY - 1))
        assert not joining.would_gain(other, more=more)
    said = [joining.would_gain(small, more=True) for _ in range(2 * MANY)]
    assert [at for at, it in enumerate(said) if it] == [MANY - 1]
    joins = Joining(2, LIMITS)
    assert not any(joins.would_gain(small, more=True) for _ in range(MANY))
    endless = entry_of(4, batch(0, 0, FEW), shape=b"9" * 5000 + b",2")  # of another program
    assert not Joining(1, LIMITS).would_gain(endless, more=True)


# A trainer ----------------------------------------------------------------------------------


def test_what_waits_is_learned_in_few_steps_and_reading_it_again_gives_the_same_model(
    settings: MakeSettings,
) -> None:
    made = settings(**PATIENT)
    send(made, *stream(), *singles(1, 7, seed=1))
    whole = entries_of(made)
    with training(made):
        wait_for_backlog(made)
        rows = history(made)
        assert [row["samples"] for row in rows] == [20] * 30 + [7]
        [boundary] = [event for event in events(made) if event["kind"] == "boundary"]
        # Of the groups, the one with the first sample of the second class.
        assert boundary["estimated_start_entry_id"] == whole[300].id
        counts = ask(made, lambda stream: stream.reports.status())
    expected = made_from(made, whole)
    assert published(made).to_bytes({}) == snapshot_bytes(made, expected)
    assert counts["samples_seen"] == 607
    assert expected.sub_task.number == 1


def test_samples_that_come_one_after_the_other_are_learned_though_nothing_follows(
    settings: MakeSettings,
) -> None:
    made = settings(**PATIENT)
    with training(made):
        for one in singles(0, 12):
            send(made, one)
            wait_for_backlog(made)
            seen = ask(made, lambda stream: stream.reports.status())["samples_seen"]
        assert seen == 12
        whole = entries_of(made)
    assert published(made).to_bytes({}) == snapshot_bytes(made, made_from(made, whole))


def test_labels_that_come_later_find_samples_that_were_joined(settings: MakeSettings) -> None:
    made = settings(**PATIENT)
    rows = batch(0, 0, 30).features
    named = [RawBatch.of(row[None], sample_ids=[f"s{i}"]) for i, row in enumerate(rows)]
    labels = RawLabels.of([f"s{i}" for i in range(30)], [0] * 30)
    with training(made):
        send(made, *singles(0, 50, seed=1), *named, labels)
        wait_for_backlog(made)
        counts = ask(made, lambda stream: stream.reports.status())
        [matched] = [event for event in events(made) if event["kind"] == "labels_matched"]
    assert matched["matched"] == 30
    assert not any(matched["unmatched"].values())
    assert counts["samples_seen"] == 80


def test_of_joined_samples_that_wait_it_is_told_batch_by_batch(settings: MakeSettings) -> None:
    made = settings(**PATIENT)
    rows = batch(0, 0, 5).features
    named = [RawBatch.of(row[None], sample_ids=[f"s{i}"]) for i, row in enumerate(rows)]
    with training(made):
        sent = send(made, *singles(0, 3, seed=1), *named)
        wait_for_backlog(made)
        wait_until(lambda: ask(made, lambda stream: stream.reports.status())["awaiting"] == 5)
    progress = Trainer(made)
    ledger, state = progress.default.now.ledger, progress.default.now.state
    progress.default.close()
    assert ledger.counts(state)["unaccounted"] == 0
    assert ledger.fates(state) == {one.entry_id: {"awaiting": 1} for one in sent[3:]}


def test_an_end_in_order_learns_what_waits_for_more(settings: MakeSettings) -> None:
    made = settings(**PATIENT)
    send(made, *singles(0, 47))
    trainer = Trainer(made)
    trainer.stop()
    trainer.run()
    assert published_position(made)[1] == ask(made, lambda stream: stream.accepted()) >= 48
    assert ask(made, lambda stream: stream.reports.status())["samples_seen"] == 47


def test_without_time_to_learn_it_what_waits_for_more_stays_in_the_stream(
    settings: MakeSettings,
) -> None:
    hasty = settings(**PATIENT, drain_timeout_s=0)
    send(hasty, *singles(0, 7))
    trainer = Trainer(hasty)
    trainer.stop()
    trainer.run()
    assert ask(hasty, lambda stream: stream.reports.status())["entries_applied"] == 0
    with training(hasty):
        wait_for_backlog(hasty)
        assert ask(hasty, lambda stream: stream.reports.status())["samples_seen"] == 7


def test_a_join_that_redis_has_lost_is_appended_again(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, append, lost = settings(**PATIENT), Feed.append, list[Control]()

    def losing(self: Feed, control: Control) -> None:
        if control.kind == "join" and not lost:
            lost.append(control)
        else:
            append(self, control)

    monkeypatch.setattr(Feed, "append", losing)
    monkeypatch.setattr("service.trainer.own_entries.JOIN_AGAIN_S", 0.05)
    with training(made):
        send(made, *singles(0, 3))
        wait_until(lambda: (published_position(made)[1]) >= 4)
        assert ask(made, lambda stream: stream.reports.status())["samples_seen"] == 3
    assert lost


def test_what_waits_for_more_keeps_a_model_loaded_and_is_read_again_after_a_while_away(
    settings: MakeSettings,
) -> None:
    made = settings(**PATIENT)
    send(made, *singles(0, 7))
    with writing(made, Pace(0.0, 10.0)) as writer:
        for times in range(2):
            entries = writer.feed.read(0)
            assert len(entries) == 7
            for entry in entries:
                writer.learn(entry, more=True)
            assert not writer.may_unload
            assert writer.position.entries_applied == 0
            if not times:
                writer.read_again()
                assert writer.may_unload
        writer.idle()
        [join] = writer.feed.read(0)
        writer.learn(join, more=False)
        assert (join.text("kind"), writer.position.entries_applied) == ("join", 8)
        assert writer.now.state.stream.samples == 7


def test_a_named_model_joins_by_a_setting_of_its_own(settings: MakeSettings) -> None:
    service = settings(checkpoint_interval_s=3600)
    own = register(service, "pump", join_samples=MOST)
    assert own.join_samples == MOST
    with training(service):
        send(own, *singles(0, 60))
        wait_for_backlog(own)
        whole = entries_of(own)
        assert len(history(own)) < 60
    assert published(own).to_bytes({}) == snapshot_bytes(own, made_from(own, whole))


@pytest.mark.parametrize("instant", list(INSTANTS))
def test_a_death_at_any_instant_costs_neither_model_nor_events(
    settings: MakeSettings, instant: str, tmp_path: Path
) -> None:
    other = settings(**PATIENT, model=uuid.uuid4().hex, data_dir=tmp_path / "plain")
    one = settings(**PATIENT)
    for made in (one, other):
        send(made, *stream())
    with training(other):
        pass
    owner, method, when, nth = INSTANTS[instant]
    dies(one, owner, method, when, nth)
    with training(one):
        pass
    assert published(one).to_bytes({}) == published(other).to_bytes({})
    assert told(one) == told(other)


def test_an_archive_makes_the_model_again(settings: MakeSettings) -> None:
    made = settings(**PATIENT, archive_mib=64)
    for part in (stream()[:250], stream()[250:407], stream()[407:]):
        with training(made):
            send(made, *part, Control("boundary", by="ada"))
            wait_for_backlog(made)
    done = rebuild(made)
    assert done.notes == []
    assert done.equal is True
    assert done.entries_applied == published_position(made)[1]


# What cannot be learned as one --------------------------------------------------------------


def marked(n: int, at: int) -> list[RawBatch]:
    """Single samples, of which one makes an engine fail."""
    found = singles(0, n)
    row = found[at].features.copy()
    row[0, 0] = MARK
    found[at] = RawBatch.of(row, [0], "marked")
    return found


def fails_by(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> list[int]:
    """Sizes of the batches by which `Engine.step` failed."""
    step, failed = Engine.step, list[int]()

    def failing(self: Engine, state: EngineState, one: Batch) -> Any:
        if bool((one.features == MARK).any()):
            failed.append(len(one))
            raise error
        return step(self, state, one)

    monkeypatch.setattr(Engine, "step", failing)
    monkeypatch.setattr(applier, "MEMORY_PAUSES_S", ())
    return failed


def test_one_sample_that_cannot_be_learned_costs_none_beside_it(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(**PATIENT)
    failed = fails_by(monkeypatch, ZeroDivisionError("by chance"))
    with training(made):
        sent = send(made, *marked(100, 45))
        wait_for_backlog(made)
        counts = ask(made, lambda stream: stream.reports.status())
    [letter] = rejected(made)
    assert (letter["entry_id"], letter["batch_id"]) == (sent[45].entry_id, "marked")
    assert letter["reason"] == "internal_error"
    assert counts["samples_seen"] == 99
    assert failed[0] > 1  # as one of several
    assert failed[1:] == [1]


def test_a_sample_that_keeps_killing_is_found_in_its_group_and_set_aside_alone(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(**PATIENT)
    sent = send(made, *marked(100, 45), Control("join"))
    failed = fails_by(monkeypatch, MemoryError("of this sample"))
    monkeypatch.setattr("service.trainer.attempts.MOST_PASSING", MOST_DEATHS)
    for _ in range(2 * MOST_DEATHS):
        assert isinstance(run_until_it_dies(made), MemoryError)
        assert not rejected(made)
    assert failed == [20] * MOST_DEATHS + [1] * MOST_DEATHS
    with training(made):
        wait_for_backlog(made)
        counts = ask(made, lambda stream: stream.reports.status())
    [letter] = rejected(made)
    assert (letter["entry_id"], letter["reason"]) == (sent[45].entry_id, "trainer_died")
    assert counts["samples_seen"] == 99


def test_a_group_that_a_trainer_was_killed_by_once_is_tried_as_one_again(feed: Feed) -> None:
    entries = [Entry(f"{number}-0", {}) for number in range(1, 9)]
    first, second = entries[:4], entries[4:]

    def begun() -> list[bool]:
        attempts = Attempts(feed)
        attempts.open(feed.open(Position()))
        attempts.expect(entries)
        return [attempts.begin_together(first), attempts.begin_together(second)]

    for _ in range(MOST_DEATHS):
        assert begun() == [True, True]
    # By now the second was noted by itself in every death but the first.
    assert begun() == [True, False]


def test_what_was_found_in_a_group_is_held_against_no_other_entry_of_it(feed: Feed) -> None:
    entries = [Entry(f"{number}-0", {}) for number in range(1, 5)]

    def opened() -> Attempts:
        attempts = Attempts(feed)
        attempts.open(feed.open(Position()))
        attempts.expect(entries)
        return attempts

    for _ in range(MOST_DEATHS):
        assert opened().begin_together(entries)
    for _ in range(MOST_DEATHS):
        attempts = opened()
        assert not attempts.begin_together(entries)
        assert [attempts.begin(one) for one in entries[:3]] == [None] * 3  # it dies by the third
    attempts = opened()
    assert not attempts.begin_together(entries)
    verdicts = [attempts.begin(one) for one in entries]
    assert [verdict is None for verdict in verdicts] == [True, True, False, True]


def test_keys_are_asked_of_each_entry_where_a_group_may_not_be_learned(
    settings: MakeSettings,
) -> None:
    made = settings(**PATIENT, max_key_share=0.5)

    def of(key: str, label: int, n: int) -> list[RawBatch]:
        return [
            RawBatch(one.features, one.codes, one.vocabulary, one.batch_id, by=key)
            for one in singles(label, n, seed=ord(key[0]))
        ]

    whole = [
        RawBatch(one.features, one.codes, one.vocabulary, one.batch_id, by="ada")
        for one in (batch(0, seed, 500) for seed in range(4))
    ]
    with training(made):
        send(made, *of("bob", 0, 10), *of("cleo", 0, 10), *whole, *of("ada", 0, 60))
        wait_for_backlog(made)
        counts = ask(made, lambda stream: stream.reports.status())
    letters = rejected(made)
    assert {letter["reason"] for letter in letters} == {"key_share"}
    # The share that is left lets the first ten of them pass.
    assert len(letters) == 50
    assert counts["samples_seen"] == 2030
