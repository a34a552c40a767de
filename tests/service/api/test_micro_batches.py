"""Tests for small questions that share passes over the model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from clients.http.async_client import AsyncGMRClient
from clients.http.errors import RequestRefused
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.errors import NonFiniteFeature
from core.snapshot import Classification, Snapshot
from service.api.micro_batches import SMALL, MicroBatches
from service.api.work import Workers
from tests.service.api.stack import (
    labels,
    make_settings,
    samples,
    serving,
    teach,
    training,
    wait_until,
)


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    """A model of two classes."""
    engine = Engine(EngineConfig(preset="flat", n_components=4, detector="none"))
    state = engine.start()
    for seed in range(8):
        x = torch.from_numpy(samples(100, seed=seed))
        state, _ = engine.step(state, Batch.of(x, labels(100)))
    return engine.snapshot(state)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    made = Workers(1)
    yield made
    made.close()


class Asked:
    """Questions about a snapshot, and the passes that answered them."""

    def __init__(self, snapshot: Snapshot, batches: MicroBatches) -> None:
        self.snapshot, self.batches = snapshot, batches
        self.passes: list[int] = []

    async def classify(self, x: Tensor, rate: float = 0.05) -> Classification:
        def work(x: Tensor) -> Classification:
            self.passes.append(len(x))
            return self.snapshot.classify(x, rate)

        return await self.batches.ask(self.snapshot, x, ("classify", rate), work)

    def together(self, *questions: Any) -> list[Any]:
        """All of them at once; errors in their places."""

        async def ask() -> list[Any]:
            return await asyncio.gather(
                *(self.classify(*one) for one in questions), return_exceptions=True
            )

        return asyncio.run(ask())


def rows(n: int, seed: int = 50) -> Tensor:
    return torch.from_numpy(samples(n, seed=seed))


def same(one: Classification, other: Classification, *, exactly: bool = False) -> None:
    """The same verdicts; the same numbers but for rounding, or to the bit."""
    assert torch.equal(one.codes, other.codes)
    assert torch.equal(one.inliers, other.inliers)
    tolerance = {"rtol": 0.0, "atol": 0.0} if exactly else {"rtol": 1e-5, "atol": 1e-6}
    for name in ("probabilities", "log_likelihoods", "p_values"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), **tolerance)


def test_questions_that_wait_together_share_a_pass(snapshot: Snapshot, workers: Workers) -> None:
    asked = Asked(snapshot, MicroBatches(workers, 256))
    questions = [(rows(1 + n % 3, seed=n),) for n in range(20)]
    answers = asked.together(*questions)
    assert asked.passes == [sum(len(x) for (x,) in questions)]
    for (x,), answer in zip(questions, answers, strict=True):
        same(answer, snapshot.classify(x, 0.05))


def test_one_that_is_alone_or_large_is_answered_by_itself_to_the_bit(
    snapshot: Snapshot, workers: Workers
) -> None:
    asked = Asked(snapshot, MicroBatches(workers, 256))
    [answer] = asked.together((rows(3),))
    same(answer, snapshot.classify(rows(3), 0.05), exactly=True)
    large = rows(SMALL + 1)
    for answer in asked.together((large,), (large,)):
        same(answer, snapshot.classify(large, 0.05), exactly=True)
    assert asked.passes == [3, SMALL + 1, SMALL + 1]


def test_without_micro_batches_company_changes_no_bit(snapshot: Snapshot, workers: Workers) -> None:
    asked = Asked(snapshot, MicroBatches(workers, 0))
    questions = [(rows(1, seed=n),) for n in range(8)]
    for (x,), answer in zip(questions, asked.together(*questions), strict=True):
        same(answer, snapshot.classify(x, 0.05), exactly=True)
    assert asked.passes == [1] * 8


def test_what_is_asked_otherwise_has_a_pass_of_its_own(
    snapshot: Snapshot, workers: Workers
) -> None:
    asked = Asked(snapshot, MicroBatches(workers, 256))
    strict = snapshot.classify(rows(2), 0.5)
    answers = asked.together((rows(2), 0.05), (rows(2), 0.5), (rows(2), 0.05))
    assert sorted(asked.passes) == [2, 4]
    same(answers[1], strict, exactly=True)


def test_a_bad_question_spoils_no_other(snapshot: Snapshot, workers: Workers) -> None:
    asked = Asked(snapshot, MicroBatches(workers, 256))
    bad = torch.full_like(rows(1), math.nan)
    good, wrong, fine = asked.together((rows(2),), (bad,), (rows(1, seed=9),))
    assert isinstance(wrong, NonFiniteFeature)
    same(good, snapshot.classify(rows(2), 0.05), exactly=True)
    same(fine, snapshot.classify(rows(1, seed=9), 0.05), exactly=True)


def test_a_pass_has_so_many_rows_at_most_and_leaves_out_who_has_gone(
    snapshot: Snapshot, workers: Workers
) -> None:
    asked = Asked(snapshot, MicroBatches(workers, 64))

    async def ask() -> list[Any]:
        tasks = [asyncio.create_task(asked.classify(rows(10, seed=n))) for n in range(20)]
        await asyncio.sleep(0)  # all of them wait by now
        for task in tasks[:5]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = asyncio.run(ask())
    assert asked.passes == [60, 60, 30]
    assert all(isinstance(answer, asyncio.CancelledError) for answer in answers[:5])
    for n, answer in enumerate(answers[5:], 5):
        same(answer, snapshot.classify(rows(10, seed=n), 0.05))


def test_many_who_ask_a_service_at_once_get_their_own_answers(
    redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = make_settings(redis_url, tmp_path_factory.mktemp("together"))
    x = samples(40, seed=77)
    with training(settings), serving(settings) as http:
        teach(http)
        wait_until(lambda: http.get("/model").json()["waiting"] == 0)  # no version comes by itself

        async def ask() -> list[Any]:
            async with AsyncGMRClient(str(http.base_url)) as client:
                asked = [client.classify(x[n : n + 1]) for n in range(40)]
                asked += [client.outliers(x[n : n + 2]) for n in range(0, 40, 2)]
                return await asyncio.gather(
                    *asked, client.classify(x[:1, :5]), return_exceptions=True
                )

        *found, refused = asyncio.run(ask())
        assert isinstance(refused, RequestRefused)
        assert [answer.labels[0] for answer in found[:40]] == labels(40)
        every = http.post("/outliers", json={"features": x.tolist()}).json()
        together = np.concatenate([answer.log_likelihoods for answer in found[40:]])
        np.testing.assert_allclose(together, every["log_likelihoods"], rtol=1e-4)
        body = {
            "inputs": [
                {
                    "name": "features",
                    "shape": [1, x.shape[1]],
                    "datatype": "FP32",
                    "data": x[0].tolist(),
                }
            ]
        }
        path = f"/v2/models/{settings.model}/infer"
        assert http.post(path, json=body).status_code == 200
