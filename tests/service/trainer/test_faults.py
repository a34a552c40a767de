"""Tests for service.trainer.faults, and for what a trainer does about the machine's faults.

Faults are injected at the seam between trainer and engine: into `Engine.step`.
"""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from core.batch import Batch
from core.engine.engine import Engine
from core.errors import InvalidBatch
from core.snapshot import Snapshot
from service.broker.connection import connect
from service.broker.dead_letters import DeadLetters
from service.broker.entries import Entry, Position
from service.broker.feed import Feed
from service.broker.keys import Keys
from service.broker.snapshots import SnapshotFiles
from service.settings import Settings
from service.trainer import applier as module
from service.trainer import attempts
from service.trainer.attempts import MOST_DEATHS, Attempt, Attempts
from service.trainer.faults import is_machines, is_out_of_memory, may_pass
from service.trainer.host import Trainer
from tests.service.conftest import MakeSettings
from tests.service.forked import forked
from tests.service.running import (
    ask,
    batch,
    learned_directly,
    published_position,
    send,
    snapshot_bytes,
    training,
    wait_for_backlog,
    wait_until,
)

ROOT = Path(__file__).parents[3]
STEP = Engine.step
BAD = 13
"""Samples of the batch by which it fails."""


class Fails:
    """`Engine.step`, which raises for the batch of `BAD` samples so many times."""

    def __init__(self, error: BaseException, times: int = 10**9) -> None:
        self.error = error
        self.left = times
        self.seen = 0

    def patched(self, monkeypatch: pytest.MonkeyPatch) -> Fails:
        monkeypatch.setattr(Engine, "step", lambda *given: self(*given))
        monkeypatch.setattr(module, "MEMORY_PAUSES_S", (0.0, 0.0, 0.0))
        return self

    def __call__(self, engine: Engine, state: Any, one: Batch) -> Any:
        if len(one) == BAD:
            self.seen += 1
            if self.left:
                self.left -= 1
                raise self.error
        return STEP(engine, state, one)


def rejected(settings: Settings) -> list[dict[str, Any]]:
    letters = ask(settings, lambda stream: DeadLetters(stream).page())
    return [dict(letter.facts) for letter in letters]


def run_until_it_dies(settings: Settings) -> BaseException:
    """What ends a trainer; the next may begin at once, as after the end of a process."""
    trainer = Trainer(settings)
    patience = threading.Timer(30, trainer.stop)
    patience.start()
    with pytest.raises(BaseException) as caught:
        trainer.run()
    patience.cancel()
    with connect(settings.redis_address() or "") as client:
        client.delete(Keys(settings.model).lease)
    return caught.value


def assert_all_was_learned_once(settings: Settings, stream: list[Any]) -> None:
    wait_for_backlog(settings)
    notice = ask(settings, lambda stream: stream.reports.last_notice())
    data = SnapshotFiles(settings.data_dir / "snapshots").read(notice.location)
    expected = snapshot_bytes(settings, learned_directly(settings, stream))
    assert Snapshot.from_bytes(data)[0].to_bytes({}) == expected
    assert not rejected(settings)


MACHINES = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
    torch.AcceleratorError("CUDA error: device-side assert triggered"),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
    RuntimeError("cusolver error: CUSOLVER_STATUS_INTERNAL_ERROR, when calling `cusolverDnSsyevd`"),
    OSError(5, "Input/output error"),
]
CONTENT = [
    InvalidBatch("out of memory"),
    ValueError("CUDA error"),
    torch.linalg.LinAlgError("linalg.eigh: failed to converge"),
    RuntimeError("Expected all tensors to be on the same device, but found cuda:0 and cpu!"),
    ZeroDivisionError(),
]


# Whose fault it is ------------------------------------------------------------------------


@pytest.mark.parametrize("error", MACHINES, ids=lambda error: type(error).__name__)
def test_faults_of_the_machine_are_told(error: Exception) -> None:
    assert is_machines(error)


@pytest.mark.parametrize("error", CONTENT, ids=lambda error: type(error).__name__)
def test_errors_of_the_entry_are_not_the_machines(error: Exception) -> None:
    assert not is_machines(error)
    assert not may_pass(error)


def test_torch_itself_says_so_where_the_host_has_no_room() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**52)
    assert is_out_of_memory(caught.value)


# What a trainer does about it -------------------------------------------------------------


@pytest.mark.parametrize("error", MACHINES[:3], ids=lambda error: type(error).__name__)
def test_where_there_is_no_room_for_the_moment_it_is_tried_again_and_learned_once(
    error: Exception, settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = Fails(error, times=2).patched(monkeypatch)
    stream = [batch(0, 0), batch(0, 1, n=BAD), batch(0, 2)]
    with training(settings()):
        send(settings(), *stream)
        wait_for_backlog(settings())
        assert fails.seen == 3
        monkeypatch.undo()
        assert_all_was_learned_once(settings(), stream)


@pytest.mark.parametrize("error", MACHINES, ids=lambda error: type(error).__name__)
def test_by_a_fault_of_the_machine_the_trainer_ends_and_the_next_reads_the_entry_again(
    error: Exception, settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    Fails(error).patched(monkeypatch)
    stream = [batch(0, 0), batch(0, 1, n=BAD), batch(0, 2)]
    send(settings(), *stream)
    assert run_until_it_dies(settings()) is error
    with connect(settings().redis_address() or "") as client:
        assert client.xlen(Keys(settings().model).input) == 3  # nothing was let go
    monkeypatch.undo()
    with training(settings()):
        assert_all_was_learned_once(settings(), stream)


def test_what_is_wrong_with_the_entry_itself_sets_it_aside_at_once(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = Fails(torch.linalg.LinAlgError("did not converge")).patched(monkeypatch)
    with training(settings()):
        send(settings(), batch(0, 0), batch(0, 1, n=BAD), batch(0, 2))
        wait_for_backlog(settings())
        [one] = rejected(settings())
        assert one["reason"] == "internal_error"
    assert fails.seen == 1


PROCESS = """
import os, torch
from core.engine.engine import Engine
from service.trainer import applier, host
from service.ending import end_with
from service.settings import Settings

real = Engine.step

def step(engine, state, one):
    if len(one) == 13:
        FAULT
    return real(engine, state, one)

Engine.step = step
applier.MEMORY_PAUSES_S = (0.0,)
end_with(lambda: host.main(Settings.load()))
"""


def process(settings: Settings, fault: str, log: Path) -> int:
    """How a trainer ends, in a process of its own, which meets a fault at the batch of `BAD`."""
    program = PROCESS.replace("FAULT", fault)
    with forked(program, variables=settings.environment(), output=log) as one:
        return one.wait(120)


def test_a_process_that_finds_no_room_ends_with_a_status_other_than_0(
    settings: MakeSettings, tmp_path: Path
) -> None:
    [sent] = send(settings(), batch(0, 0, n=BAD))
    log = tmp_path / "log"
    assert process(settings(), 'raise torch.OutOfMemoryError("CUDA out of memory")', log) == 1
    assert "the trainer ends" in log.read_text("utf-8")
    with connect(settings().redis_address() or "") as client:
        [(entry_id, _)] = client.xrange(Keys(settings().model).input)
    assert entry_id.decode() == sent.entry_id
    assert not rejected(settings())


# Entries that kill ------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for the end of a process that can say nothing more."""


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (Killed(), "killed, or a crash of native code"),
        (torch.AcceleratorError("device-side assert"), "AcceleratorError: device-side assert"),
    ],
    ids=["silently", "by an error"],
)
def test_an_entry_that_keeps_killing_is_set_aside_with_the_reason_and_the_rest_is_learned(
    error: BaseException, why: str, settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = Fails(error).patched(monkeypatch)
    stream = [batch(0, 0), batch(0, 1), batch(0, 2, n=BAD), batch(0, 3)]
    sent = send(settings(), *stream)
    for _ in range(MOST_DEATHS):
        assert run_until_it_dies(settings()) is error
        assert not rejected(settings())
    with training(settings()):
        wait_for_backlog(settings())
        [one] = rejected(settings())
        assert (one["entry_id"], one["reason"]) == (sent[2].entry_id, "trainer_died")
        assert f"died {MOST_DEATHS} times in a row" in one["detail"]
        assert why in one["detail"]
        expected = learned_directly(settings(), [stream[0], stream[1], stream[3]])
        assert published_position(settings()) == (expected.model.version, 4)
    assert fails.seen == MOST_DEATHS


def test_for_want_of_room_an_entry_is_given_up_much_later(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "MOST_PASSING", MOST_DEATHS + 2)
    Fails(MemoryError("full")).patched(monkeypatch)
    send(settings(), batch(0, 0, n=BAD))
    for _ in range(MOST_DEATHS + 2):
        assert isinstance(run_until_it_dies(settings()), MemoryError)
        assert not rejected(settings())
    with training(settings()):
        wait_until(lambda: rejected(settings()))
    [one] = rejected(settings())
    assert "MemoryError: full" in one["detail"]


def test_a_process_killed_in_the_middle_of_an_entry_has_noted_it(
    settings: MakeSettings, tmp_path: Path
) -> None:
    sent = send(settings(), batch(0, 0), batch(0, 1, n=BAD))
    fault = f"os.kill(os.getpid(), {int(signal.SIGKILL)})"
    assert process(settings(), fault, tmp_path / "log") == -signal.SIGKILL
    with connect(settings().redis_address() or "") as client:
        left = Attempt.of(client.get(Keys(settings().model).applying))
    assert (left.first, left.last) == (sent[0].entry_id, sent[1].entry_id)
    with training(settings()):
        wait_for_backlog(settings())
    with connect(settings().redis_address() or "") as client:
        assert not Attempt.of(client.get(Keys(settings().model).applying)).first


# Notes ------------------------------------------------------------------------------------


def entries(*numbers: int) -> list[Entry]:
    return [Entry(f"{number}-0", {}) for number in numbers]


def begun(feed: Feed, numbers: list[int], checkpoint: int = 0) -> tuple[Attempts, list[str | None]]:
    """A trainer that reads these entries at once and begins one after the other."""
    attempts = Attempts(feed)
    attempts.open(feed.open(Position(f"{checkpoint}-0", checkpoint)))
    attempts.expect(entries(*numbers))
    return attempts, [attempts.begin(one) for one in entries(*numbers)]


def noted(feed: Feed) -> Attempt:
    return Attempt.of(feed.get(feed.keys.applying))


def test_entries_read_together_are_noted_at_once_and_one_by_one_after_a_death(feed: Feed) -> None:
    begun(feed, [1, 2, 3])
    assert (noted(feed).first, noted(feed).last, noted(feed).deaths) == ("1-0", "3-0", 0)
    begun(feed, [1, 2])
    assert (noted(feed).first, noted(feed).last, noted(feed).deaths) == ("2-0", "2-0", 1)
    _, verdicts = begun(feed, [1, 2, 3, 4])
    assert verdicts == [None] * 4
    assert (noted(feed).first, noted(feed).last, noted(feed).deaths) == ("3-0", "4-0", 0)


def test_what_is_given_up_stays_so_until_a_checkpoint_holds_it(feed: Feed) -> None:
    for _ in range(MOST_DEATHS):
        _, verdicts = begun(feed, [7])
        assert verdicts == [None]
    for _ in range(2 * MOST_DEATHS):  # it dies by another before there is a checkpoint
        _, verdicts = begun(feed, [7, 8])
        assert verdicts[0] is not None
    begun(feed, [9], checkpoint=8)
    assert noted(feed).given_up == {}


def test_once_all_is_applied_nothing_is_held_against_an_entry(feed: Feed) -> None:
    attempts, _ = begun(feed, [1, 2])
    attempts.done()
    begun(feed, [3])
    assert noted(feed).deaths == 0
    begun(feed, [4], checkpoint=3)  # a checkpoint holds what it died by
    assert noted(feed).deaths == 0


def test_a_note_that_cannot_be_read_is_none(feed: Feed) -> None:
    feed.open(Position())
    for text in (b"", b"[]", b'{"invented": 1}', b"no json"):
        feed.set(feed.keys.applying, text)
        assert noted(feed) == Attempt()
