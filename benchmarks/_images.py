"""Images of a data set, a batch at a time, as engines take them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from clients.data.datasets import load_dataset
from core.batch import Batch


class Images(NamedTuple):
    """Samples in [0, 1] with labels."""

    x: Tensor  # (N, D)
    y: Tensor  # (N,) int64

    def batches(self, begin: int, end: int, size: int) -> list[Batch]:
        """Those from one place to another, a batch at a time."""
        starts = range(begin, end, size)
        return [Batch.of(self.x[i : i + size], self.y[i : i + size], images=True) for i in starts]

    def of(self, labels: tuple[int, ...]) -> Images:
        """Those of some classes."""
        mine = torch.isin(self.y, torch.tensor(labels))
        return Images(self.x[mine], self.y[mine])


def images(name: str, n: int, seed: int = 0) -> tuple[Images, Images]:
    """At most n images to learn, in random order, and all test images."""
    data = load_dataset(name)

    def made(x: Any, y: Any) -> Images:
        rows = torch.from_numpy(np.asarray(x).reshape(len(x), -1)).float()
        return Images(rows / rows.max(), torch.from_numpy(np.asarray(y).astype(np.int64)))

    order = np.random.default_rng(seed).permutation(len(data.train_y))[:n]
    return made(data.train_x[order], data.train_y[order]), made(data.test_x, data.test_y)
