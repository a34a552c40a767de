"""Fine-tuning: the solver of generative replay, trained on each sub-task and protected by nothing.

The floor of every comparison where there are sub-tasks, and a joint perceptron where there
is only one. It trains like the solver, so that what replay adds is the only difference.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.systems.baseline import Baseline
from benchmarks.systems.perceptron import Perceptron
from benchmarks.systems.replay import BATCH, SOLVER, STEP_SIZE
from benchmarks.systems.system import Announce
from benchmarks.systems.training import Progress, train


class FineTuning(Baseline):
    """Learns the present, forgets the past.

    Arguments:
        n_features: D.
        n_classes: C.
        epochs: Per sub-task.
        seed: Of every random choice.
    """

    name = "fine-tuning"

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        epochs: int = 25,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.epochs = f"{epochs} epochs"
        self._passes = epochs
        self._device = torch.device(device)
        self._generator = torch.Generator().manual_seed(seed)
        self.solver = Perceptron(n_features, SOLVER, n_classes, self._generator, self._device)

    def learn(self, x: Tensor, y: Tensor, announce: Announce) -> None:
        """As `System.learn`."""
        train(
            self.solver.descent(STEP_SIZE),
            x,
            y,
            epochs=self._passes,
            batch=BATCH,
            device=self._device,
            generator=self._generator,
            progress=Progress(len(x), self._passes * len(x), announce),
        )

    def predict(self, x: Tensor) -> Tensor:
        """As `System.predict`."""
        return self.solver.predict(x)

    def kept(self) -> Iterator[Tensor]:
        """The network."""
        return self.solver.numbers()
