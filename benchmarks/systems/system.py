"""What the comparison asks of every system, whether it is ours or a baseline of the paper."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

Announce = Callable[[int], None]
"""Called with the number of samples done since the last call."""


class System(Protocol):
    """Learns one sub-task after the other, and is asked for classes in between.

    Throughout: N samples, D features, C classes.
    """

    name: str  # as `registry.make_system` knows it
    told: bool  # whether boundaries are told; False: it finds them itself
    epochs: str  # for the table: "1 pass" or "10 epochs"

    def learn(self, x: Tensor, y: Tensor, announce: Announce) -> None:
        """Learn one sub-task.

        Arguments:
            x: Samples, with shape (N, D), float32 in [0, 1].
            y: Class codes, with shape (N,), int64, below C.
            announce: Called as the work goes on; whatever the number of epochs and of
                replayed samples, the numbers add up to N.
        """
        ...

    def predict(self, x: Tensor) -> Tensor:
        """Class codes, with shape (N,), int64, of samples with shape (N, D)."""
        ...

    @property
    def parameters(self) -> int:
        """Numbers kept between sub-tasks: anchors, importances and generators included."""
        ...

    @property
    def bytes(self) -> int:
        """Memory of those numbers."""
        ...

    @property
    def boundaries(self) -> int | None:
        """Boundaries found by itself so far; None where they are told."""
        ...
