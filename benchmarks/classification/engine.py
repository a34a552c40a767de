"""The engine as it is served: alone, in process, labels with every batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.classification.measures import NOBODY
from benchmarks.classification.stream import Features, Labels
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.errors import ModelNotReady
from core.events import BoundaryDetected


class Ours:
    """The engine; boundaries are noted.

    Arguments:
        images: Whether samples are images, in [0, 1], and are told to be.
        settings: Fields of `EngineConfig` that are not at their defaults.
    """

    def __init__(self, *, images: bool = False, **settings: Any) -> None:
        self._images = images
        self._engine = Engine(EngineConfig(**settings))
        self._state = self._engine.start()
        self.boundaries: list[int] = []  # samples before each, as they are found

    def predict(self, x: Features) -> Labels:
        """See `Opponent`: what POST /classify would say."""
        try:
            snapshot = self._engine.snapshot(self._state)
            codes = snapshot.classify(torch.from_numpy(x)).codes
        except ModelNotReady:
            return np.full(len(x), NOBODY, dtype=np.int64)
        classes: Labels = np.array(snapshot.answers, dtype=np.int64)
        named: Labels = classes[codes.numpy()]
        return named

    def learn(self, x: Features, y: Labels) -> None:
        """See `Opponent`."""
        batch = Batch.of(torch.from_numpy(x), y.tolist(), images=self._images)
        self._state, events = self._engine.step(self._state, batch)
        self.boundaries += [
            event.sample_index for event in events if isinstance(event, BoundaryDetected)
        ]
