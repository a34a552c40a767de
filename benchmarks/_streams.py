"""Samples for benchmarks of speed: made up, so that nothing needs to be downloaded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

D, CLASSES = 784, 10


def made_up(n: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Samples of ten classes with shape (n, 784) and their labels with shape (n,).

    Each class has a few coarse prototypes; a sample is one of them, with noise. Like
    digits, and unlike white noise, such data keep a mixture busy on all components.
    """
    rng = np.random.default_rng(seed)
    coarse = rng.uniform(0, 255, size=(CLASSES * 12, 7, 7))
    prototypes = np.kron(coarse, np.ones((4, 4))).reshape(-1, D).astype(np.float32)
    which = rng.integers(0, len(prototypes), size=n)
    noise = rng.normal(0, 25, size=(n, D)).astype(np.float32)
    x = np.clip(prototypes[which] + noise, 0, 255).astype(np.uint8)
    return x, (which % CLASSES).astype(np.int64)
