"""Our presets, as a system of the comparison: the engine itself, without the service around it.

Rules of this module:

1. One pass, in the order given, in minibatches of 100; nothing of a sub-task but its samples
   and their labels reaches the engine, which looks for boundaries itself.
2. The one exception is `paper-epochs`, the preset `paper` at the paper's own pace: several
   epochs per sub-task, with boundaries declared, as in `benchmarks/paper_preset.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.systems.counted import Counted
from benchmarks.systems.system import Announce
from benchmarks.systems.training import Progress
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.events import BoundaryDetected
from core.snapshot import Snapshot

BATCH = 100

ROWS = 2000
"""Samples classified at once."""


class Mixture(Counted):
    """An engine and its state.

    Arguments:
        name: Of the system.
        config: Of the engine. Where its detector is "none", boundaries are declared.
        n_classes: C.
        epochs: Passes over the first sub-task, the second, ...; the last holds for all that
            follow. With more than one, each is shuffled.
    """

    def __init__(
        self,
        name: str,
        config: EngineConfig,
        n_classes: int,
        *,
        epochs: Sequence[int] = (1,),
        device: torch.device | str = "cpu",
    ) -> None:
        self.name = name
        self.told = config.detector == "none"
        self.epochs = "1 pass" if list(epochs) == [1] else f"{'/'.join(map(str, epochs))} epochs"
        self._passes = epochs
        self._engine = Engine(config, device)
        self._vocabulary = tuple(range(n_classes))
        self._generator = torch.Generator().manual_seed(config.seed)
        self._sub_tasks = self._found = 0
        self._state = self._engine.start()
        self._served: Snapshot | None = None

    def learn(self, x: Tensor, y: Tensor, announce: Announce) -> None:
        """As `System.learn`."""
        self._served = None
        if self.told:
            self._state, _ = self._engine.declare_boundary(self._state)
        epochs = self._passes[min(self._sub_tasks, len(self._passes) - 1)]
        self._sub_tasks += 1
        progress = Progress(len(x), epochs * len(x), announce)
        for _ in range(epochs):
            order = torch.arange(len(x))
            if epochs > 1:
                order = torch.randperm(len(x), generator=self._generator)
            for rows in torch.split(order, BATCH):
                batch = Batch(x[rows], y[rows], self._vocabulary, images=True)
                self._state, events = self._engine.step(self._state, batch)
                self._found += sum(isinstance(event, BoundaryDetected) for event in events)
                progress(len(rows))

    def predict(self, x: Tensor) -> Tensor:
        """As `System.predict`.

        By the model of a quiet stream, as a service asked between two sub-tasks has it: what
        is set aside has been learned. The stream itself goes on from where it was.
        """
        if self._served is None:
            settled, _ = self._engine.settle(self._state)
            self._served = self._engine.snapshot(settled)
        snapshot = self._served
        codes = [snapshot.classify(rows).codes.cpu() for rows in torch.split(x, ROWS)]
        return torch.tensor(snapshot.classes)[torch.cat(codes)]

    @property
    def boundaries(self) -> int | None:
        """Boundaries found so far; None where they are declared."""
        return None if self.told else self._found

    def kept(self) -> Iterator[Tensor]:
        """What a boundary now would leave in the learner's state, raw samples let go."""
        settled, _ = self._engine.settle(self._state)
        crossed, _ = self._engine.declare_boundary(settled)
        return tensors_of(self._engine.without_raw(crossed).model.learner)


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Every tensor in a state: dataclasses, named tuples and dicts are looked into.

    Example:
        >>> [tensor.tolist() for tensor in tensors_of((torch.zeros(1), {"a": torch.ones(2)}))]
        [[0.0], [1.0, 1.0]]
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors_of(tuple(value.values()))
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_of(part)
    elif is_dataclass(value):
        yield from tensors_of(tuple(getattr(value, field.name) for field in fields(value)))
