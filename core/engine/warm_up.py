"""A small life of an engine, so that whatever is compiled at its first use has been.

Loops (`core.compiled.loops`) are compiled when they first run, those of experts with the first
labels and the detector's about a thousand samples into a stream, which takes some seconds where
they are not kept from an earlier start.
"""

from __future__ import annotations

import torch

from core.batch import Batch
from core.config import EngineConfig
from core.density.factor_mixture import FactorMixture
from core.density.factors.density import FactorDensity
from core.density.factors.outline import directions_of
from core.density.factors.part import FactorPart
from core.engine.engine import Engine

N_BATCHES = 14
"""With which the detector is armed, and watches for a while."""
N_CHANGED = 2
"""The last of them, by which it finds a boundary."""

CLASSES = 3
FEATURES = 4


def warm_up() -> None:
    """Let an engine learn made-up samples; nothing of it is kept but compiled loops."""
    generator = torch.Generator().manual_seed(0)
    engine = Engine(EngineConfig(preset="flat", n_components=CLASSES, warm_up=200))
    state = engine.start()
    _score_in_two_stages(generator)
    for i in range(N_BATCHES):
        labels = torch.randint(CLASSES, (100,), generator=generator)
        x = torch.randn(100, FEATURES, generator=generator) + 5 * labels[:, None]
        if i >= N_BATCHES - N_CHANGED:
            x, labels = x - 30, labels + CLASSES
        state, _ = engine.step(state, Batch.of(x, labels.tolist()))


def _score_in_two_stages(generator: torch.Generator) -> None:
    """As wide mixtures of many factor analysers are scored, which a small life does not have."""
    shape = (CLASSES, FEATURES)
    means, loadings = (torch.randn(*shape, *more, generator=generator) for more in ((), (1,)))
    mixture = FactorMixture(torch.zeros(CLASSES), means, loadings, torch.ones(shape))
    density = FactorDensity((FactorPart(mixture, 1.0),), directions_of(means))
    density.conformity(means, density.score(means))
