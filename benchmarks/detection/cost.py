"""What a detector costs by itself, beyond the forward pass that it reads.

Rule: the clock runs while the detector judges and at no other time; what it judges is made
up, independent and without change, so that it is armed and silent nearly all the while.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks._arithmetic import as_in_the_trainer
from core.config import EngineConfig
from core.density.density import Parts, Scored
from core.drift.detector import Level, Observation
from core.drift.registry import make_detector
from core.drift.sentinel import Sentinel
from core.drift.sequential import SequentialDetector
from core.model import Model
from core.readout import PosteriorReadout
from core.standardiser import Standardiser

COMPONENTS = 500

CLASSES = 10
REPEATS = 5


class Scripted:
    """A density that says what it is told: samples are log-likelihood and component.

    The others are as far below as those of images are, hundreds of nats.
    """

    kind = "scripted"
    n_components = COMPONENTS
    n_features = 784
    others = torch.randn(10_000, COMPONENTS, generator=torch.Generator().manual_seed(0)) * 60 - 400

    def score(self, x: Tensor, parts: Parts | None = None) -> Scored:
        joint = self.others[: len(x)].clone()
        joint[torch.arange(len(x)), x[:, 1].long()] = 0
        return Scored(joint, x[:, 0])


def _sentinel(samples: int) -> Sentinel:
    classes = torch.nn.functional.one_hot(torch.arange(COMPONENTS) % CLASSES, CLASSES).float()
    zeros, ones = torch.zeros(2), torch.ones(2)
    units = Standardiser(True, 0, 0, zeros.double(), zeros.double(), zeros, ones)
    density: Any = Scripted()
    return Sentinel(Model(density, PosteriorReadout(classes, 1.0)), units, samples)


@as_in_the_trainer()
def microseconds(config: EngineConfig, batch: int, samples: int) -> float:
    """Processor time per sample, the median of five stretches of a stream.

    Arguments:
        config: Names the detector.
        batch: Samples per batch.
        samples: Of each stretch; a sixth, the first, warms up.
    """
    detector = make_detector(config)
    generator = torch.Generator().manual_seed(config.seed)
    state = detector.start()
    taken = []
    for _ in range(REPEATS + 1):
        seconds, seen = 0.0, 0
        while seen < samples:
            scores = 100 + 10 * torch.randn(batch, generator=generator)
            winners = torch.randint(COMPONENTS, (batch,), generator=generator)
            x = torch.stack([scores, winners.float()], 1)
            observation = Observation(scores, x, _sentinel)
            begun = time.thread_time()
            state, verdict = detector.observe(state, observation, True)
            seconds += time.thread_time() - begun
            if isinstance(detector, SequentialDetector) and verdict.armed:
                sentinel = _sentinel(0)
                begun = time.thread_time()
                sentinel.model.density.score(sentinel.standardiser.apply(x))
                seconds -= time.thread_time() - begun
            seen += batch
            if verdict.level is Level.BOUNDARY:
                state = detector.start()
        taken.append(1e6 * seconds / seen)
    return median(taken[1:])
