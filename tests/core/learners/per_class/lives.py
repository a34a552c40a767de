"""A learner of components that belong to classes, fed by hand, and looked into."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from core.config import EngineConfig
from core.density.owned import Owned
from core.engine.learners import make_learner
from core.learners.per_class.state import Group, PerClassState
from tests.core.lives import FedByHand
from tests.core.streams import N_FEATURES, blob, centre


class Life(FedByHand[Any]):
    """A learner and its state.

    Arguments:
        preset: "mfa", which gets three factors unless told otherwise, or "flat".
    """

    state: PerClassState

    def __init__(
        self, preset: str, n_features: int = N_FEATURES, seed: int = 0, **settings: object
    ) -> None:
        config = EngineConfig(preset, **{"n_factors": 3, **settings})  # type: ignore[arg-type]
        super().__init__(make_learner(config), n_features, seed)

    @property
    def components(self) -> Any:
        return self.state.components

    @property
    def mass(self) -> float:
        return float(self.components.mass.sum())

    @property
    def held(self) -> int:
        return self.learner.raw_samples(self.state)

    def group_of(self, owner: int) -> Any:
        group: Group = self.state.groups[self.state.index_of(owner)]
        return group

    def owned_by(self, owner: int) -> int:
        """Components of one owner."""
        return int((self.components.owner == owner).sum())

    def guesses(self, x: Tensor) -> Tensor:
        scores = self.learner.score(self.state, x)
        assert scores is not None
        return self.learner.readout(self.state).class_probabilities(scores.joint).argmax(-1)

    def accuracy(self, labels: list[int]) -> float:
        """Share of fresh samples of these classes that get their own code."""
        hits = [int((self.guesses(blob(one, 100, seed=4242)) == one).sum()) for one in labels]
        return sum(hits) / (100 * len(labels))

    def log_likelihood(self, x: Tensor) -> float:
        """Mean log density in nats."""
        scores = self.learner.score(self.state, x)
        assert scores is not None
        return float(scores.log_likelihood.mean())

    def settle(self) -> int:
        """Let the stream be quiet; how many samples were taken in."""
        n_waiting = self.learner.waiting(self.state)
        if n_waiting:
            self.state = self.learner.settle(self.state, torch.Generator().manual_seed(5))
        return n_waiting


def sheet(label: int, n: int, seed: int) -> Tensor:
    """n samples of a class that stretches in two directions of its own, with shape (n, D)."""
    plane = torch.randn(2, N_FEATURES, generator=torch.Generator().manual_seed(label)) * 0.15
    generator = torch.Generator().manual_seed(seed * 1000 + label)
    latent = torch.randn(n, 2, generator=generator)
    return centre(label) + latent @ plane + 0.03 * torch.randn(n, N_FEATURES, generator=generator)


def nearest(components: Owned, x: Tensor) -> float:
    """Smallest largest difference in any feature between a component's mean and a sample."""
    return min(float((components.means - sample).abs().amax(-1).min()) for sample in x.split(1))
