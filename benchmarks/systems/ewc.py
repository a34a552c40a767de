"""Elastic weight consolidation (Kirkpatrick et al. 2017), as the paper trains it.

After every sub-task the weights are anchored, each as firmly as the Fisher information of
that sub-task asks: the loss of the next is its cross-entropy plus
lambda / 2 * sum over past sub-tasks t of F_t (theta - theta_t)^2, with lambda = 1 / epsilon.

Rules of this module:

1. The Fisher information is the textbook's (`fisher.py`). A library's would not have served:
   Avalanche's squares the gradient of a whole minibatch.
2. A sum of parabolas is a parabola: F = sum F_t around the F-weighted mean of the anchors,
   plus a constant that has no gradient. So one F and one anchor per weight are kept, however
   many sub-tasks there were, and the penalty is still the sum over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.systems.baseline import Baseline
from benchmarks.systems.fisher import diagonal_fisher
from benchmarks.systems.perceptron import Perceptron
from benchmarks.systems.system import Announce
from benchmarks.systems.training import Progress, train

HIDDEN = (800, 800, 800)
BATCH = 100

EPSILON = 1e-5
"""Our choice, one for everything, made on held-out training digits of MNIST with one seed. It
gives 95.2 % on D10, 82.7 on D9-1a, 56.3 on D5-5a and 26.4 on D2-2-2-2-2a; 1e-4 gives 48.8 on
D9-1a and 52.0 on D5-5a, 1e-3 gives 47.0 there, and 1e-6 gives 21.5 on D2-2-2-2-2a."""


class EWC(Baseline):
    """A perceptron whose important weights are held.

    Arguments:
        n_features: D.
        n_classes: C.
        epochs: Per sub-task.
        epsilon: Adam's step size, and 1 / lambda.
        strength: lambda, where it is not to be 1 / epsilon; 0 protects nothing.
        hidden: Units of each hidden layer.
        seed: Of every random choice.
    """

    name = "ewc"

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        epochs: int = 10,
        epsilon: float = EPSILON,
        strength: float | None = None,
        hidden: tuple[int, ...] = HIDDEN,
        seed: int = 0,
        device: torch.device | str = "cpu",
    ) -> None:
        self.epochs = f"{epochs} epochs"
        self._passes = epochs
        self._epsilon = epsilon
        self._strength = 1 / epsilon if strength is None else strength
        self._device = torch.device(device)
        self._generator = torch.Generator().manual_seed(seed)
        self.perceptron = Perceptron(n_features, hidden, n_classes, self._generator, self._device)
        self.importances: list[Tensor] = []
        self.anchors: list[Tensor] = []

    def learn(self, x: Tensor, y: Tensor, announce: Announce) -> None:
        """As `System.learn`."""
        train(
            self.perceptron.descent(self._epsilon, self.penalty if self.anchors else None),
            x,
            y,
            epochs=self._passes,
            batch=BATCH,
            device=self._device,
            generator=self._generator,
            progress=Progress(len(x), self._passes * len(x), announce),
        )
        self._anchor(diagonal_fisher(self.perceptron, x))

    def predict(self, x: Tensor) -> Tensor:
        """As `System.predict`."""
        return self.perceptron.predict(x)

    def penalty(self) -> Tensor:
        """lambda / 2 * sum of F_t (theta - theta_t)^2 over weights and past sub-tasks, less what
        does not depend on the weights; a scalar."""
        held = zip(self.perceptron.weights, self.importances, self.anchors, strict=True)
        terms = [(f * (weight - anchor).square()).sum() for weight, f, anchor in held]
        return self._strength / 2 * torch.stack(terms).sum()

    def kept(self) -> Iterator[Tensor]:
        """The network, and a Fisher information and an anchor for each of its weights."""
        yield from self.perceptron.numbers()
        yield from self.importances
        yield from self.anchors

    def _anchor(self, fisher: list[Tensor]) -> None:
        """One more parabola, around the weights as they are."""
        weights = [weight.detach().clone() for weight in self.perceptron.weights]
        if not self.anchors:
            self.importances, self.anchors = fisher, weights
            return
        for weight, new, f, anchor in zip(
            weights, fisher, self.importances, self.anchors, strict=True
        ):
            f += new
            # Where nothing holds a weight its anchor is of no account.
            anchor += torch.where(f > 0, new / f, 1.0) * (weight - anchor)
