"""Small seeded streams for the tests of core: Gaussian blobs, one per class."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from core.batch import Batch

N_FEATURES = 16


def centre(label: int, n_features: int = N_FEATURES) -> Tensor:
    """The centre of a class, inside [0, 1], different for every label."""
    return torch.rand(n_features, generator=torch.Generator().manual_seed(label)) * 0.8 + 0.1


def blob(label: int, n: int, seed: int, spread: float = 0.08) -> Tensor:
    """n samples of a class, with shape (n, D), clipped to [0, 1]."""
    noise = torch.randn(n, N_FEATURES, generator=torch.Generator().manual_seed(seed * 1000 + label))
    return (centre(label) + spread * noise).clamp(0, 1)


def batches(
    labels: Sequence[int], n_batches: int, size: int = 100, seed: int = 0, labelled: bool = True
) -> Iterator[Batch]:
    """Batches that mix the classes evenly, in random order."""
    generator = torch.Generator().manual_seed(seed + 7)
    for index in range(n_batches):
        which = torch.randint(len(labels), (size,), generator=generator)
        pools = torch.stack([blob(label, size, seed * 100_000 + index) for label in labels])
        rows, picks = pools[which, torch.arange(size)], torch.tensor(labels)[which]
        yield Batch.of(rows, picks if labelled else None)
