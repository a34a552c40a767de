"""What a system keeps, counted the same way for all: every tensor, once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from torch import Tensor


class Counted(ABC):
    """The part of a `System` that says how large it is."""

    @abstractmethod
    def kept(self) -> Iterator[Tensor]:
        """Every tensor that the next sub-task starts from."""

    @property
    def parameters(self) -> int:
        """Numbers kept between sub-tasks."""
        return sum(tensor.numel() for tensor in self._distinct())

    @property
    def bytes(self) -> int:
        """Memory of those numbers."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self._distinct())

    def _distinct(self) -> list[Tensor]:
        """Two names for the same memory count once."""
        # Held together first, so that no address is given out twice.
        tensors = list(self.kept())
        return list({(tensor.data_ptr(), tensor.shape): tensor for tensor in tensors}.values())
