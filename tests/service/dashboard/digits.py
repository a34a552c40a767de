"""Handwritten digits as a stream of sub-tasks: small images that scikit-learn brings."""

from __future__ import annotations

import time

import httpx2
import numpy as np
from sklearn.datasets import load_digits

from service.wire import RawBatch
from tests.service.api.stack import learned, send

BATCH = 50
SIDE = 8


class Digits:
    """Batches of digits, sent one after the other.

    Arguments:
        seed: Of the order.
        pause_s: After each batch, where the time that it comes is to be looked at.
    """

    def __init__(self, seed: int = 0, pause_s: float = 0.0) -> None:
        found = load_digits()
        self.images = (found.images * 15).astype(np.uint8)
        self.labels = found.target
        self._pause_s = pause_s
        self._random = np.random.default_rng(seed)

    def batch(self, classes: tuple[int, ...], n: int = BATCH, *, labelled: bool = True) -> RawBatch:
        """Some digits of these classes."""
        rows = self._random.choice(np.flatnonzero(np.isin(self.labels, classes)), n)
        labels = [int(label) for label in self.labels[rows]]
        return RawBatch.of(self.images[rows], labels if labelled else None)

    def send(
        self,
        client: httpx2.Client,
        classes: tuple[int, ...],
        samples: int,
        *,
        labelled: bool = True,
    ) -> None:
        """Send a stretch of the stream, and wait until it is learned."""
        for _ in range(samples // BATCH):
            send(client, self.batch(classes, labelled=labelled)).raise_for_status()
            time.sleep(self._pause_s)
        learned(client)
