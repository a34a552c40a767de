"""Samples and a panel that has learned some."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import strategies as st
from torch import Tensor

from core.experts.panel import (
    Panel,
)

sizes = st.integers(1, 6)
"""Of batches."""


def samples(n: int, d: int, seed: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Samples (n, d), float64, of Gaussians that lie apart, and their classes (n,)."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(classes, (n,), generator=generator)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    x[:, 0] += 4 * codes
    return x, codes


def cut(n: int, parts: Sequence[int]) -> list[slice]:
    """The first n samples, cut into pieces of these sizes over and over."""
    begin, pieces = 0, []
    while begin < n:
        size = parts[len(pieces) % len(parts)]
        pieces.append(slice(begin, min(n, begin + size)))
        begin += size
    return pieces


def taught(d: int = 4, n: int = 400, seed: int = 0) -> Panel:
    panel = Panel.start(d)
    assert panel is not None
    x, codes = samples(n, d, seed)
    for part in cut(n, [50]):
        panel = panel.learned(x[part], codes[part], 3)
    return panel


def even(n: int, classes: int) -> Tensor:
    return torch.full((n, classes), 1 / classes)
