"""Seeded streams of scores for the tests of detectors: what a model would have said.

The whole stream is drawn sample by sample first and cut into batches afterwards, so that
one seed is one stream, however it is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import torch
from torch import Tensor

from core.drift.detector import Detector, Level, Observation, Verdict
from tests.core.scripted_density import frozen_model

EVEN = (0.25, 0.25, 0.25, 0.25)


@dataclass(frozen=True)
class Stretch:
    """Samples of one distribution.

    Arguments:
        samples: How many.
        mean: Of the log-likelihood.
        deviation: Of the log-likelihood.
        shares: How often each component wins; adds up to one.
        margin: Mean of the nats by which it does; None where samples do not say.
    """

    samples: int
    mean: float = 0.0
    deviation: float = 1.0
    shares: tuple[float, ...] = EVEN
    margin: float | None = None


def features(stretches: Iterable[Stretch], seed: int = 0) -> Tensor:
    """The stretches one after the other: [log-likelihood, component, margin], if there is one."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for stretch in stretches:
        noise = torch.randn(stretch.samples, generator=generator)
        shares = torch.tensor(stretch.shares)
        picks = torch.multinomial(shares, stretch.samples, replacement=True, generator=generator)
        columns = [noise * stretch.deviation + stretch.mean, picks.float()]
        if stretch.margin is not None:
            columns.append(torch.empty(stretch.samples).exponential_(generator=generator))
            columns[-1] *= stretch.margin
        parts.append(torch.stack(columns, 1))
    return torch.cat(parts)


def cut(
    x: Tensor, sizes: int | Sequence[int], n_components: int, classes: list[int] | None = None
) -> Iterator[Observation]:
    """Samples in batches of the given sizes, over and over (the last may be short)."""
    begin = 0
    for size in cycle([sizes] if isinstance(sizes, int) else sizes):
        if begin >= len(x):
            return
        rows = x[begin : begin + size]
        begin += size
        yield seen(rows, n_components, classes)


def seen(rows: Tensor, n_components: int = 1, classes: list[int] | None = None) -> Observation:
    """One batch of what `features` gives."""
    factory = partial(frozen_model, n_components, classes=classes, n_features=rows.shape[1])
    return Observation(rows[:, 0], rows, factory)


def observations(
    stretches: Iterable[Stretch],
    batch: int | Sequence[int],
    seed: int = 0,
    classes: list[int] | None = None,
) -> Iterator[Observation]:
    """The stretches one after the other, in batches (the last may be short)."""
    stretches = list(stretches)
    n_components = max(len(stretch.shares) for stretch in stretches)
    return cut(features(stretches, seed), batch, n_components, classes)


def verdicts(
    detector: Detector[Any], stream: Iterable[Observation], settled: bool = True
) -> list[Verdict]:
    """What the detector says of every batch, starting anew after a boundary as the engine does."""
    state, said = detector.start(), []
    for batch in stream:
        state, verdict = detector.observe(state, batch, settled)
        said.append(verdict)
        if verdict.level is Level.ALARM:
            state = detector.start()
    return said


def boundaries(detector: Detector[Any], stream: Iterable[Observation]) -> list[int]:
    """Indices of the batches at which the detector speaks."""
    said = verdicts(detector, stream)
    return [index for index, verdict in enumerate(said) if verdict.level is Level.ALARM]
