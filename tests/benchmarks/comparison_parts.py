"""Parts that tests of the comparison share: systems that are quick to learn, and listeners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.comparison.cell import Cell, Outcome


class NearestMean:
    """A system: names the class whose running mean is nearest; told its boundaries."""

    name = "nearest-mean"
    told = True
    epochs = "1 pass"
    boundaries: int | None = None

    def __init__(self, n_features: int, n_classes: int) -> None:
        self.sums = torch.zeros(n_classes, n_features)
        self.counts = torch.zeros(n_classes)
        self.taught: list[Tensor] = []

    def learn(self, x: Tensor, y: Tensor, announce: Callable[[int], None]) -> None:
        self.taught.append(y)
        self.sums.index_add_(0, y, x)
        self.counts += torch.bincount(y, minlength=len(self.counts))
        announce(len(x))

    def predict(self, x: Tensor) -> Tensor:
        distances = torch.cdist(x, self.sums / self.counts[:, None])
        # Classes never seen have no mean.
        return distances.nan_to_num(torch.inf).argmin(-1)

    @property
    def parameters(self) -> int:
        return self.sums.numel() + self.counts.numel()

    @property
    def bytes(self) -> int:
        return 4 * self.parameters


class Finder(NearestMean):
    """The same, finding its boundaries: as many in each sub-task as it is given."""

    told = False

    def __init__(self, n_features: int, n_classes: int, finds: list[int]) -> None:
        super().__init__(n_features, n_classes)
        self.finds, self.boundaries = list(finds), 0

    def learn(self, x: Tensor, y: Tensor, announce: Callable[[int], None]) -> None:
        super().learn(x, y, announce)
        assert self.boundaries is not None
        self.boundaries += self.finds.pop(0)


def make_nearest_mean(
    name: str, image: tuple[int, int], n_classes: int, seed: int, quick: bool
) -> NearestMean:
    return NearestMean(image[0] * image[1], n_classes)


class Diary:
    """A listener that remembers what it was told."""

    def __init__(self) -> None:
        self.began_with: list[int] = []
        self.samples = 0
        self.sub_tasks: list[tuple[int, int]] = []
        self.measured: list[Cell] = []
        self.kept: list[Cell] = []
        self.errors: list[str] = []

    def began(self, cell: Cell, samples: int) -> None:
        self.began_with.append(samples)

    def sub_task(self, index: int, of: int) -> None:
        self.sub_tasks.append((index, of))

    def learned(self, samples: int) -> None:
        self.samples += samples

    def ended(self, cell: Cell, outcome: Outcome, *, kept: bool) -> None:
        (self.kept if kept else self.measured).append(cell)

    def failed(self, cell: Cell, error: Exception) -> None:
        self.errors.append(str(error))


def an_outcome(accuracy: float, n_sub_tasks: int = 1, **changed: Any) -> Outcome:
    """An outcome with plausible values everywhere."""
    values: dict[str, Any] = {
        "configuration": {"repeats": 1},
        "epochs": "1 pass",
        "told": True,
        "accuracy": accuracy,
        "matrix": tuple((accuracy,) * n_sub_tasks for _ in range(n_sub_tasks)),
        "joint": (accuracy,) * n_sub_tasks,
        "samples": 1000,
        "seconds": 2.0,
        "wall_seconds": 3.0,
        "sub_task_seconds": (2.0 / n_sub_tasks,) * n_sub_tasks,
        "parameters": 200,
        "bytes": 800,
        "boundaries": None,
        "created": "2026-01-01T00:00:00+00:00",
        "hardware": {"processor": "some", "cores": 2},
    }
    return Outcome(**{**values, **changed})
