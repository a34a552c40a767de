"""A multi-layer perceptron that learns to classify: EWC's network, and the solver of replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from benchmarks.systems.training import Step, glorot, numbers_of, seeded

ROWS = 5000
"""Samples classified at once."""


class Perceptron:
    """Dense layers with ReLU between them, and one logit per class, known or yet to come.

    Arguments:
        n_features: D.
        hidden: Units of each hidden layer.
        n_classes: C, of all sub-tasks together: the single head of class-incremental learning.
        generator: Of the start, on the CPU.
    """

    def __init__(
        self,
        n_features: int,
        hidden: tuple[int, ...],
        n_classes: int,
        generator: torch.Generator,
        device: torch.device,
    ) -> None:
        self.device = device
        layers: list[nn.Module] = []
        with seeded(generator, device):
            for before, after in zip((n_features, *hidden), hidden, strict=False):
                layers += [nn.Linear(before, after), nn.ReLU()]
            self.network = nn.Sequential(*layers, nn.Linear((n_features, *hidden)[-1], n_classes))
            glorot(self.network)
        self.network.to(device)

    @property
    def dense(self) -> list[nn.Linear]:
        """The layers that have parameters, in order."""
        return [layer for layer in self.network if isinstance(layer, nn.Linear)]

    @property
    def weights(self) -> list[nn.Parameter]:
        """Weight and bias of every layer, in order."""
        return list(self.network.parameters())

    def numbers(self) -> Iterator[Tensor]:
        """The tensors that it consists of."""
        return numbers_of(self.network)

    def descent(self, rate: float, penalty: Callable[[], Tensor] | None = None) -> Step:
        """Steps of Adam down the mean cross-entropy.

        Adam starts afresh: what it knows of an earlier sub-task's gradients is let go.

        Arguments:
            rate: Adam's step size.
            penalty: Added to the loss of every minibatch; a scalar.
        """
        optimiser = torch.optim.Adam(self.network.parameters(), lr=rate, fused=True)

        def step(x: Tensor, y: Tensor) -> None:
            loss = nn.functional.cross_entropy(self.network(x), y)
            if penalty is not None:
                loss = loss + penalty()
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()

        return step

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """The most probable class of each sample, with shape (N,), int64, on the CPU."""
        parts = [
            self.network(rows.to(self.device)).argmax(-1).cpu() for rows in torch.split(x, ROWS)
        ]
        return torch.cat(parts)
