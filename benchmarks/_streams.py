"""Samples for benchmarks of speed: made up, so that nothing needs to be downloaded."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

D, CLASSES = 784, 10


def made_up(n: int, seed: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Samples of ten classes with shape (n, 784) and their labels with shape (n,).

    Each class has a few coarse prototypes; a sample is one of them, with noise. Like
    digits, and unlike white noise, such data keep a mixture busy on all components.
    """
    rng = np.random.default_rng(seed)
    prototypes = _prototypes(rng)
    which = rng.integers(0, len(prototypes), size=n)
    noise = rng.normal(0, 25, size=(n, D)).astype(np.float32)
    x = np.clip(prototypes[which] + noise, 0, 255).astype(np.uint8)
    return x, (which % CLASSES).astype(np.int64)


def endless(n: int, number: int) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """More samples of the classes of `made_up`, n at a time and cheap to make.

    A sample that was learned is likelier when it comes again, which a detector rightly notices. So
    none comes twice: each joins a prototype and a row of noise anew.

    Arguments:
        n: Samples of a batch.
        number: Seed; each gives other samples.

    Yields:
        Samples with shape (n, 784), uint8, and their labels with shape (n,).
    """
    prototypes = _prototypes(np.random.default_rng(0))
    rng = np.random.default_rng((1, number))
    noise = rng.normal(0, 25, size=(10_000, D)).astype(np.float32)
    while True:
        which = rng.integers(0, len(prototypes), size=n)
        x = prototypes[which] + noise[rng.integers(0, len(noise), size=n)]
        yield np.clip(x, 0, 255).astype(np.uint8), (which % CLASSES).astype(np.int64)


def _prototypes(rng: np.random.Generator) -> NDArray[np.float32]:
    """Twelve coarse images of each class."""
    coarse = rng.uniform(0, 255, size=(CLASSES * 12, 7, 7))
    return np.kron(coarse, np.ones((4, 4))).reshape(-1, D).astype(np.float32)
