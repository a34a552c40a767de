"""What a detector costs by itself, beyond the forward pass that it reads.

Rule: the clock runs while the detector judges and at no other time; what it judges is made
up, independent and without change, so that it is armed and silent nearly all the while.
"""

from __future__ import annotations

import time
from statistics import median

import torch

from benchmarks._arithmetic import as_in_the_trainer
from core.config import EngineConfig
from core.drift.detector import Level, Observation
from core.drift.registry import make_detector

COMPONENTS = 500
REPEATS = 5


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
            observation = Observation(
                100 + 10 * torch.randn(batch, generator=generator),
                torch.randint(COMPONENTS, (batch,), generator=generator),
                COMPONENTS,
                0,
            )
            begun = time.thread_time()
            state, verdict = detector.observe(state, observation, True)
            seconds += time.thread_time() - begun
            seen += batch
            if verdict.level is Level.BOUNDARY:
                state = detector.start()
        taken.append(1e6 * seconds / seen)
    return median(taken[1:])
