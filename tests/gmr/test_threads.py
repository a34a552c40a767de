"""Tests for gmr.threads: small operations are not parted among all cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from core.engine.engine import Engine
from core.snapshot import Snapshot
from gmr import GMRClassifier
from gmr.threads import MOST_FEATURES, few_threads


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_samples_of_few_features_have_one_thread_and_others_as_many_as_before() -> None:
    with few_threads(MOST_FEATURES):
        assert torch.get_num_threads() == 1
        with few_threads(2):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with few_threads(MOST_FEATURES + 1):
        assert torch.get_num_threads() == 3
    with pytest.raises(ZeroDivisionError), few_threads(2):
        1 / 0  # noqa: B018
    assert torch.get_num_threads() == 3


def test_calls_at_one_time_leave_every_thread_as_many_as_before() -> None:
    begun, ended = threading.Event(), threading.Event()
    seen: list[int] = []

    def call() -> None:
        with few_threads(2):
            seen.append(torch.get_num_threads())
            begun.set()
            ended.wait(60)
        seen.append(torch.get_num_threads())

    other = threading.Thread(target=call)
    with few_threads(2):
        other.start()
        assert begun.wait(60)
    assert torch.get_num_threads() == 3
    ended.set()
    other.join()
    assert seen == [1, 3]
    assert torch.get_num_threads() == 3
    new = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    new.start()
    new.join()
    assert seen[-1] == 3


def test_estimators_learn_and_answer_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def watched(kind: type, name: str) -> None:
        own = getattr(kind, name)

        def call(*given: object, **named: object) -> object:
            seen.append(torch.get_num_threads())
            return own(*given, **named)

        monkeypatch.setattr(kind, name, call)

    watched(Engine, "step")
    for name in ("classify", "outliers", "sample"):
        watched(Snapshot, name)
    x = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    model = GMRClassifier(preset="flat", n_components=4).fit(x, x[:, 0] > 0)
    model.predict_proba(x)
    model.score_samples(x)
    model.sample(3)
    assert set(seen) == {1}
    assert len(seen) >= 6
    assert torch.get_num_threads() == 3
