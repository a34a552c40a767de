"""Tests for where computations run, and how many at a time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from service.api import work
from service.api.work import INLINE_PRODUCTS, LONG_PRODUCTS, WORKERS, Workers

PASS = 2 * INLINE_PRODUCTS


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = Workers(1, processors=2)
    yield made
    made.close()


class Crowd:
    """Passes that all run until as many as expected have met, or a moment is over."""

    def __init__(self, expected: int) -> None:
        self._lock = threading.Lock()
        self._met = threading.Event()
        self._expected = expected
        self.running = self.most = 0

    def one(self) -> None:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
            if self.running == self._expected:
                self._met.set()
        self._met.wait(0.3)
        with self._lock:
            self.running -= 1


def most_at_once(workers: Workers, n: int, products: float = PASS) -> int:
    crowd = Crowd(n)

    async def ask() -> None:
        await asyncio.gather(*(workers.run(crowd.one, products) for _ in range(n)))

    asyncio.run(ask())
    return crowd.most


def test_as_many_run_at_once_as_there_are_threads(workers: Workers) -> None:
    assert most_at_once(workers, WORKERS) == WORKERS


def test_a_trainer_that_learns_is_left_a_processor(workers: Workers) -> None:
    workers.learns()
    assert most_at_once(workers, 3) == 1


def test_a_long_pass_makes_none_wait(workers: Workers) -> None:
    workers.learns()
    assert most_at_once(workers, 3, 2 * LONG_PRODUCTS) == 3


def test_with_processors_to_spare_nothing_waits() -> None:
    workers = Workers(1, processors=16)
    workers.learns()
    assert most_at_once(workers, WORKERS) == WORKERS
    workers.close()


def test_a_system_that_does_not_tell_which_processors_may_be_used_is_asked_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("os.sched_getaffinity", raising=False)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    workers = Workers(1)
    workers.learns()
    assert most_at_once(workers, WORKERS) == 2
    workers.close()


def test_a_trainer_that_has_not_learned_for_a_while_is_left_none(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers.learns()
    monkeypatch.setattr(work, "LEARNING_S", 0.0)
    assert most_at_once(workers, WORKERS) == WORKERS


def test_who_gives_up_waiting_keeps_nobody_waiting(workers: Workers) -> None:
    workers.learns()
    done = threading.Event()

    async def ask() -> str:
        first = asyncio.create_task(workers.run(lambda: done.wait(10), PASS))
        second = asyncio.create_task(workers.run(lambda: "second", PASS))
        third = asyncio.create_task(workers.run(lambda: "third", PASS))
        await asyncio.sleep(0.05)
        second.cancel()
        done.set()
        await first
        return await asyncio.wait_for(third, 10)

    assert asyncio.run(ask()) == "third"


def test_an_error_gives_its_turn_back(workers: Workers) -> None:
    workers.learns()

    def fail() -> None:
        raise ValueError("no")

    async def ask() -> str:
        with pytest.raises(ValueError, match="no"):
            await workers.run(fail, PASS)
        return await asyncio.wait_for(workers.run(lambda: "next", PASS), 10)

    assert asyncio.run(ask()) == "next"
