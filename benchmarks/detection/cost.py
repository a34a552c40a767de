"""What a detector costs by itself, beyond the forward pass that it reads.

Rule: the clock runs while the detector judges and at no other time, and stands still during the
first forward pass of a batch, the frozen model's, from samples as they come to what its density
says of them (a successor's is a part of the cost). To read the clock takes as long as to judge a
sample or
two: it is read once more after every batch, and as much is taken off for each reading. What is
judged is made up, independent and without change, so that the detector is armed and silent nearly
always.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from benchmarks._arithmetic import as_in_the_trainer
from core.config import EngineConfig
from core.density.density import Parts, Scored
from core.drift.detector import ForwardPass, Level, Observation
from core.drift.sequential.frozen_model import FrozenModel
from core.engine.detectors import make_detector
from core.model.model import Model
from core.model.readout import PosteriorReadout
from core.standardiser import Standardiser

COMPONENTS = 500

CLASSES = 10
REPEATS = 5


@dataclass(frozen=True, eq=False)
class TimedFrozenModel(FrozenModel):
    """A frozen model whose forward passes are timed.

    Arguments:
        seconds: Takes the processor time of every pass.
    """

    seconds: list[float]

    def forward(self, x: Tensor, forward_pass: ForwardPass | None = None) -> tuple[Tensor, Scored]:
        begun = time.thread_time()
        found = super().forward(x, forward_pass)
        self.seconds.append(time.thread_time() - begun)
        return found


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


def _frozen_model(passes: list[float], samples: int) -> FrozenModel:
    classes = torch.nn.functional.one_hot(torch.arange(COMPONENTS) % CLASSES, CLASSES).float()
    zeros, ones = torch.zeros(2), torch.ones(2)
    units = Standardiser(True, 0, 0, zeros.double(), zeros.double(), zeros, ones)
    scripted: Any = Scripted()
    return TimedFrozenModel(Model(scripted, PosteriorReadout(classes, 1.0)), units, samples, passes)


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
    taken, passes = [], list[float]()
    for _ in range(REPEATS + 1):
        seconds, seen = 0.0, 0
        while seen < samples:
            scores = 100 + 10 * torch.randn(batch, generator=generator)
            winners = torch.randint(COMPONENTS, (batch,), generator=generator)
            x = torch.stack([scores, winners.float()], 1)
            observation = Observation(scores, x, partial(_frozen_model, passes))
            passes.clear()
            begun = time.thread_time()
            state, verdict = detector.observe(state, observation, True)
            ended = time.thread_time()
            reading = time.thread_time() - ended
            # One reading lies between the two, and two by every pass, one of them timed as a part.
            seconds += ended - begun - reading * (1 + 2 * len(passes))
            seconds -= sum(passes[:1]) - reading * len(passes[:1])
            seen += batch
            if verdict.level is Level.ALARM:
                state = detector.start()
        taken.append(1e6 * seconds / seen)
    return median(taken[1:])


@as_in_the_trainer()
def bare_adwin(samples: int) -> float:
    """The same of River's ADWIN itself, handed plain numbers one by one."""
    from river.drift import ADWIN

    adwin: Any = ADWIN()  # type: ignore[no-untyped-call]
    generator, taken = torch.Generator().manual_seed(0), []
    for _ in range(REPEATS + 1):
        scores = (100 + 10 * torch.randn(samples, generator=generator)).tolist()
        begun = time.thread_time()
        for score in scores:
            adwin.update(score)
        taken.append(1e6 * (time.thread_time() - begun) / samples)
    return median(taken[1:])
