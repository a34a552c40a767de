"""Checks that every detector must pass, yours included."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import torch

from core.batch import Batch
from core.config import EngineConfig
from core.drift.detector import Detector, Level, Observation, Verdict
from core.engine.engine import Engine

WARM_UP = 300
"""Samples, of the settings by which a detector is made here."""


def check_detector(make: Callable[[EngineConfig], Detector[Any]]) -> None:
    """Try a detector on a stream whose classes change places, and then lie elsewhere.

    Whether it finds that is its own affair; that it keeps to the protocol is checked: values that
    are numbers, no boundary before it is armed, the same verdict on the same state, states that
    stay as they are, batches of one sample and of many, with labels and without.

    Arguments:
        make: Makes it from the settings of an engine.

    Raises:
        AssertionError: It does not keep to the protocol; the message says how.
    """
    detector = make(EngineConfig(warm_up=WARM_UP))
    assert detector.name, "a detector has a name"
    state = detector.start()
    assert isinstance(state, detector.state_type), "start() makes a state of state_type"
    assert is_dataclass(state), "a state is a dataclass, so that a checkpoint can hold it"
    armed = False
    for seen in _observations():
        told = detector.armed_in(state, seen.since_boundary, True)
        assert told is None or told >= 0, f"armed_in() is {told}; expected None, or 0 and more"
        before = repr(state)
        after, verdict = detector.observe(state, seen, True)
        again, same = detector.observe(state, seen, True)
        assert repr(state) == before, "observe() has changed the state that was given in"
        assert repr((again, same)) == repr((after, verdict)), "the same state, another verdict"
        assert isinstance(after, detector.state_type), "observe() gives a state of state_type"
        _check_verdict(verdict, len(seen.log_likelihoods))
        typical = detector.typical(after, seen.features)
        assert typical.shape == (len(seen.features),), "typical() says one thing of each sample"
        assert typical.dtype == torch.bool, "typical() answers bool"
        for name in ("accept", "dismiss"):
            changed = getattr(detector, name)(after)
            assert isinstance(changed, detector.state_type), f"{name}() gives a state of state_type"
        armed |= verdict.armed
        state = detector.start() if verdict.level is Level.BOUNDARY else after
    _, quiet = detector.observe(detector.start(), next(_observations()), False)
    assert quiet.level is not Level.BOUNDARY, "a boundary at once, before anything is known"


def _check_verdict(verdict: Verdict, n: int) -> None:
    assert isinstance(verdict.level, Level), f"the level is {verdict.level!r}"
    assert len(verdict.names) == len(verdict.values) >= 1, "a value for each name, and one at least"
    for name, value in zip(verdict.names, verdict.values, strict=True):
        assert not math.isnan(value), f"the statistic {name} is no number"
    assert verdict.change_samples >= 1, "a change has begun a sample ago at least"
    assert verdict.armed or verdict.level is not Level.BOUNDARY, "a boundary, and it is not armed"
    for rate in (verdict.inlier_rate, verdict.inlier_rate_mean):
        assert rate is None or 0 <= rate <= 1, f"an inlier rate of {rate}"


def _observations() -> Iterator[Observation]:
    """Of a stream, as an engine makes them."""
    engine = Engine(EngineConfig(preset="flat", n_components=8, detector="none", experts=False))
    random = torch.Generator().manual_seed(0)
    state = engine.start()
    sizes = [50] * 12 + [1, 1, 3, 400, 50] + [50] * 12
    for index, size in enumerate(sizes):
        codes = torch.randint(2, (size,), generator=random)
        x = torch.randn(size, 3, generator=random) + 4.0 * codes[:, None]
        labels: list[int | str | None] | None = codes.tolist() if index % 4 else None
        if index >= 20 and labels is not None:
            labels = (1 - codes).tolist()
        if index >= 25:
            x = x + 20
        batch = Batch.of(x, labels)
        if state.standardiser is not None:
            scores = engine.learner.score(state.learner, state.standardiser.apply(x))
            if scores is not None:
                yield engine.judge.observation(state, batch, scores)
        state, _ = engine.step(state, batch)
