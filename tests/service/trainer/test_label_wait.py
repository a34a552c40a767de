"""Tests for service.trainer.label_wait, and for a trainer that ends waits by the clock."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.engine.engine import Engine
from service.trainer.label_wait import MARKS, LabelWait
from service.wire import RawBatch, RawLabels
from tests.service.conftest import MakeSettings
from tests.service.running import (
    ask,
    batch,
    learned_directly,
    published_position,
    send,
    sub_tasks,
    training,
    wait_for_backlog,
    wait_until,
)


@given(st.lists(st.tuples(st.floats(0.01, 3), st.integers(0, 5)), max_size=60))
def test_a_sample_waits_as_long_as_it_may_and_hardly_longer(pace: list[tuple[float, int]]) -> None:
    wait, now, samples = LabelWait(10.0), 0.0, 0
    came: list[float] = []
    over_before = 0
    for pause, more in [*pace, *[(0.1, 0)] * 120]:
        now += pause
        samples += more
        came += [now] * more
        wait.note(now, samples)
        over = wait.over(now) or 0
        assert over >= over_before
        assert all(now - time >= 10.0 for time in came[:over])
        # Noticed when it was looked for the next time, at the latest 3 seconds later.
        late = 10.0 + 10.0 / MARKS + 6.0
        assert sum(now - time > late for time in came) <= over
        over_before = over
    assert over_before == samples


def test_few_places_are_remembered() -> None:
    wait = LabelWait(10.0)
    for step in range(100_000):
        wait.note(step * 0.001, step)
        wait.over(step * 0.001)
    assert len(wait._marks) <= MARKS + 1


def named(label: int, seed: int, n: int = 20) -> RawBatch:
    """Samples with ids and without labels."""
    return RawBatch.of(
        batch(label, seed, n).features,
        sample_ids=[f"{label}-{seed}-{row}" for row in range(n)],
        batch_id=f"named-{label}-{seed}",
    )


def ids(label: int, seed: int, n: int = 20) -> list[str]:
    return [f"{label}-{seed}-{row}" for row in range(n)]


def test_labels_that_come_later_are_learned_with_their_samples(settings: MakeSettings) -> None:
    taught = [*sub_tasks(0), *[batch(1, seed) for seed in range(15)]]
    quiet = settings(detector="none")
    with training(quiet):
        send(quiet, *taught, named(0, 70), RawLabels.of(ids(1, 71), [1] * 20), named(1, 71))
        wait_for_backlog(quiet)
        send(quiet, RawLabels.of(ids(0, 70)[:5], [0] * 5, "told"))
        [again] = send(quiet, RawLabels.of(ids(0, 70)[:5], [0] * 5, "told"))
        assert again.duplicate
        wait_for_backlog(quiet)
        status = ask(quiet, lambda stream: stream.reports.status())
        assert status["samples_seen"] == 625
        assert status["awaiting"] == 15
        events = [
            record.data
            for record in ask(
                quiet, lambda stream: stream.reports.events("0", count=9999, block_ms=1)
            )
        ]
        told = [event for event in events if event["kind"] == "labels_matched"]
        assert [(event["matched"], event["kept"]) for event in told] == [(0, 20), (20, 0), (5, 0)]
        text = ask(quiet, lambda stream: stream.reports.trainer_metrics()).decode()
        assert "gmr_labels_matched_total 25.0" in text
        assert "gmr_awaiting_samples 15.0" in text
        assert "gmr_samples_learned_total 625.0" in text
    # What waits is in the checkpoint, and so is what was counted.
    with training(quiet):
        send(quiet, RawLabels.of(ids(0, 70), [0] * 20))
        wait_for_backlog(quiet)
        status = ask(quiet, lambda stream: stream.reports.status())
        assert (status["samples_seen"], status["awaiting"]) == (640, 0)
        text = ask(quiet, lambda stream: stream.reports.trainer_metrics()).decode()
        assert "gmr_labels_matched_total 40.0" in text
        assert 'gmr_labels_unmatched_total{reason="duplicate"} 5.0' in text
        assert status["labels_matched"] == 40
        assert status["labels_unmatched"] == {"duplicate": 5, "late": 0, "unknown": 0}


def test_the_wait_ends_by_the_clock_through_an_entry_of_the_stream(settings: MakeSettings) -> None:
    hasty = settings(label_wait_s=0.3)
    stream = [batch(0, 0), named(0, 1)]
    with training(hasty):
        send(hasty, *stream)
        # There is no status before the trainer's first report.
        wait_until(
            lambda: (ask(hasty, lambda s: s.reports.status()) or {}).get("samples_seen") == 40
        )
        wait_for_backlog(hasty)
        assert ask(hasty, lambda s: s.accepted()) == 3
        # Once: what was given up is not given up again.
        assert published_position(hasty)[1] == 3
    engine = Engine(hasty.engine_config())
    state = learned_directly(hasty, stream)
    state, _ = engine.expire(state, 40)
    assert state.model.version == published_position(hasty)[0]
