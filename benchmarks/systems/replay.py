"""Generative replay (Shin et al. 2017) with the paper's GAN and solver (its appendix).

Before each sub-task but the first, the generator draws as many samples as all earlier ones
had together, the solver names their classes, and both networks then go on learning from
these and the new samples, shuffled.

Rules of this module:

1. What is replayed is drawn and named once, before either network changes.
2. Networks and the number of samples seen are kept between sub-tasks, and no sample is.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.systems.baseline import Baseline
from benchmarks.systems.gan import CHANNELS, GAN
from benchmarks.systems.perceptron import Perceptron
from benchmarks.systems.system import Announce
from benchmarks.systems.training import Progress, train

SOLVER = (400, 400, 400)
STEP_SIZE = 1e-3
"""Of Adam, for solver and generator."""

BATCH = 100
"""Minibatch of the first sub-task; twice as many from then on, as half are replayed."""


class GenerativeReplay(Baseline):
    """A GAN that remembers the samples, and a solver that remembers their classes.

    Arguments:
        image: Height and width, multiples of 4.
        n_classes: C.
        generator_epochs: Per sub-task.
        solver_epochs: Per sub-task.
        channels: Of the GAN's widest layer; the paper's is 256.
        seed: Of every random choice.
    """

    name = "gr"

    def __init__(
        self,
        image: tuple[int, int],
        n_classes: int,
        *,
        generator_epochs: int = 50,
        solver_epochs: int = 25,
        channels: int = CHANNELS,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.epochs = f"{generator_epochs} + {solver_epochs} epochs"
        self._generator_epochs, self._solver_epochs = generator_epochs, solver_epochs
        self._device = torch.device(device)
        self._random = torch.Generator().manual_seed(seed)
        self.gan = GAN(image, self._random, self._device, channels)
        n_features = image[0] * image[1]
        self.solver = Perceptron(n_features, SOLVER, n_classes, self._random, self._device)
        self._seen = 0

    def learn(self, x: Tensor, y: Tensor, announce: Announce) -> None:
        """As `System.learn`."""
        new, batch = len(x), BATCH
        if self._seen:
            drawn, named = self.replay()
            x, y, batch = torch.cat([x, drawn]), torch.cat([y, named]), 2 * BATCH
        work = (self._generator_epochs + self._solver_epochs) * len(x)
        progress = Progress(new, work, announce)
        for step, epochs in (
            (self.gan.contest(STEP_SIZE), self._generator_epochs),
            (self.solver.descent(STEP_SIZE), self._solver_epochs),
        ):
            train(
                step,
                x,
                y,
                epochs=epochs,
                batch=batch,
                device=self._device,
                generator=self._random,
                progress=progress,
            )
        self._seen += new

    def replay(self) -> tuple[Tensor, Tensor]:
        """As many generated samples as were seen, and what the solver takes them for."""
        x = self.gan.sample(self._seen, self._random)
        return x, self.solver.predict(x)

    def predict(self, x: Tensor) -> Tensor:
        """As `System.predict`."""
        return self.solver.predict(x)

    def kept(self) -> Iterator[Tensor]:
        """Generator, discriminator and solver."""
        yield from self.gan.numbers()
        yield from self.solver.numbers()
