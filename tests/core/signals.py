"""Seeded streams of scores for the tests of detectors: what a model would have said.

The whole stream is drawn sample by sample first and cut into batches afterwards, so that
one seed is one stream, however it is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from core.drift.detector import Detector, Level, Observation, Verdict

EVEN = (0.25, 0.25, 0.25, 0.25)


@dataclass(frozen=True)
class Stretch:
    """Samples of one distribution.

    Arguments:
        samples: How many.
        mean: Of the log-likelihood, whose deviation is 1.
        shares: How often each component wins; adds up to one.
    """

    samples: int
    mean: float = 0.0
    shares: tuple[float, ...] = EVEN


def observations(
    stretches: Iterable[Stretch], batch: int, seed: int = 0, partition: int = 0
) -> Iterator[Observation]:
    """The stretches one after the other, in batches (the last may be short)."""
    generator = torch.Generator().manual_seed(seed)
    scores, winners = [], []
    for stretch in stretches:
        scores.append(torch.randn(stretch.samples, generator=generator) + stretch.mean)
        shares = torch.tensor(stretch.shares)
        picks = torch.multinomial(shares, stretch.samples, replacement=True, generator=generator)
        winners.append(picks)
        n_components = len(stretch.shares)
    cut = zip(torch.cat(scores).split(batch), torch.cat(winners).split(batch), strict=True)
    for log_likelihoods, components in cut:
        yield Observation(log_likelihoods, components, n_components, partition)


def verdicts(
    detector: Detector[Any], stream: Iterable[Observation], settled: bool = True
) -> list[Verdict]:
    """What the detector says of every batch, starting anew after a boundary as the engine does."""
    state, said = detector.start(), []
    for seen in stream:
        state, verdict = detector.observe(state, seen, settled)
        said.append(verdict)
        if verdict.level is Level.BOUNDARY:
            state = detector.start()
    return said


def boundaries(detector: Detector[Any], stream: Iterable[Observation]) -> list[int]:
    """Indices of the batches at which the detector speaks."""
    said = verdicts(detector, stream)
    return [index for index, verdict in enumerate(said) if verdict.level is Level.BOUNDARY]
