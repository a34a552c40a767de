"""Tiny images for the tests of systems: a pattern per class, with noise."""

from __future__ import annotations

import torch
from torch import Tensor

SIZE = (8, 8)
D = 64
N_CLASSES = 6


def images(classes: tuple[int, ...], n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """n samples, with shape (n, 64), in [0, 1], and their classes, evenly mixed."""
    generator = torch.Generator().manual_seed(1000 + seed)
    codes = torch.tensor(classes)[torch.arange(n) % len(classes)]
    codes = codes[torch.randperm(n, generator=generator)]
    coarse = torch.rand(N_CLASSES, 4, 4, generator=torch.Generator().manual_seed(3)).round()
    patterns = 0.1 + 0.8 * coarse.kron(torch.ones(1, 2, 2)).reshape(N_CLASSES, D)
    noise = 0.1 * torch.randn(n, D, generator=generator)
    return (patterns[codes] + noise).clamp(0, 1), codes


def quietly(samples: int) -> None:
    """Hears of progress and says nothing."""
