"""Samples of a frozen generator, learned beside those of the stream.

Throughout: N samples, D features.
"""

from __future__ import annotations

from typing import Protocol, Self

import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.learners.learner import Replay
from core.model.model import Model
from core.model.replay import whole_amount
from core.model.sampling import draw


class Known(Protocol):
    """The frozen generator of the last boundary."""

    @property
    def model(self) -> Model:
        """Draws, and names the classes of what it draws."""
        ...

    def with_merged_classes(self, merge: ClassMerge) -> Self:
        """The same, for which two classes are one."""
        ...

    @property
    def threshold(self) -> float:
        """In nats; a sample below it is atypical, and drawn again."""
        ...


def beside(
    known: Known,
    x: Tensor,
    codes: Tensor,
    amount: float,
    mode: str,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Replay]:
    """New samples with generated ones behind them, and what to report of these.

    Arguments:
        known: What generates.
        x: New samples, with shape (N, D).
        codes: Their classes, with shape (N,).
        amount: Generated samples wanted, rounded so that it is right on average.
        mode: Names the way that the amount was found.
        generator: On the CPU.
    """
    n = whole_amount(amount, generator)
    drawn = draw(known.model, n, generator, threshold=known.threshold)
    size = known.model.n_components
    replay = Replay(mode, n, size, size, "batch")
    return torch.cat([x, drawn.x]), torch.cat([codes, drawn.codes]), replay
