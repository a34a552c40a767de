"""What all baselines have in common: boundaries are told."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from benchmarks.systems.counted import Counted
from benchmarks.systems.system import Announce


class Baseline(Counted):
    """A `System` that is told its boundaries."""

    name: str
    epochs: str
    told = True

    @abstractmethod
    def learn(self, x: Tensor, y: Tensor, announce: Announce) -> None:
        """As `System.learn`."""

    @abstractmethod
    def predict(self, x: Tensor) -> Tensor:
        """As `System.predict`."""

    @property
    def boundaries(self) -> None:
        """Boundaries are told."""
        return
