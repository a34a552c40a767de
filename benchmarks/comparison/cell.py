"""One cell of the comparison: a system, a data set, an SLT, a seed.

The protocol, the same for every system: sub-tasks come one after the other, none comes
back; the order of the samples depends on the seed alone; after every sub-task all test
samples of the SLT's classes are classified, whether those classes have come yet or not.
The accuracy of a cell is that after the last sub-task, never the best of the run.

Rules: one thread, or the GPU where there is one; the clock runs while the system learns
and at no other time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import cattrs
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks._arithmetic import as_in_the_trainer
from benchmarks.comparison.provenance import checksum, source_digest, versions
from benchmarks.systems.system import System
from clients.data.datasets import Dataset
from clients.data.tasks import SLT, stream
from clients.evaluation import environment, scores
from clients.http.errors import InputError
from service.trainer.device import choose_device

SCHEMA = "gmr-comparison-cell/1"

TEST_ROWS = 2000
"""Samples classified at a time."""

REPEATS = {"digits": 11}
"""How often a small data set is streamed to a system that must find boundaries: its detector
has to see a sub-task for some thousand samples, and these have less than three hundred."""

Maker = Callable[[str, tuple[int, int], int, int, bool], System]
"""Name, image shape, number of classes, seed and whether quick -> a system that knows nothing."""


class Listener(Protocol):
    """Is told how far a cell has come."""

    def sub_task(self, index: int, of: int) -> None:
        """Sub-task `index`, from 0, begins."""
        ...

    def learned(self, samples: int) -> None:
        """So many samples more are done, whatever the number of passes."""
        ...


@dataclass(frozen=True)
class Cell:
    """Names one cell.

    Attributes:
        system: As the registry of systems calls it.
        data: The data set.
        slt: How it is cut.
        seed: Of the system and of the order of the samples.
    """

    system: str
    data: str
    slt: SLT
    seed: int

    @property
    def path(self) -> Path:
        """Of its file, below the folder of cells.

        Example:
            >>> Cell("flat", "mnist", SLT.parse("D9-1a"), 2).path.as_posix()
            'mnist/D9-1a/flat-seed2.json'
        """
        slt = self.slt.name.replace("/", "_").replace(",", "-")
        return Path(self.data) / slt / f"{self.system}-seed{self.seed}.json"

    def __str__(self) -> str:
        return f"{self.data} {self.slt.name} {self.system} seed {self.seed}"


@dataclass(frozen=True)
class Outcome:
    """What was measured of one cell; JSON by the names of these fields.

    Attributes:
        configuration: All that determines the result.
        epochs: How often a sample is seen, in words.
        told: Whether boundaries were told.
        accuracy: On all classes after the last sub-task, 0 to 1.
        matrix: Accuracy on sub-task j after sub-task i, with shape (T, T).
        joint: Accuracy on all classes after each sub-task.
        samples: Of the stream, repeats counted; how often the system looks at them is not.
        seconds: In which the system learned: processor time of its thread, which other load
            on the machine does not lengthen; on a GPU, the same as `wall_seconds`.
        wall_seconds: The same by the clock on the wall.
        sub_task_seconds: `seconds` of each sub-task.
        parameters: Numbers kept after the last sub-task; likewise `bytes`.
        boundaries: Boundaries found by the end of each sub-task; None where they were told.
        created: When, ISO 8601, UTC.
        hardware: What it ran on.
    """

    configuration: dict[str, Any]
    epochs: str
    told: bool
    accuracy: float
    matrix: tuple[tuple[float, ...], ...]
    joint: tuple[float, ...]
    samples: int
    seconds: float
    wall_seconds: float
    sub_task_seconds: tuple[float, ...]
    parameters: int
    bytes: int
    boundaries: tuple[int, ...] | None
    created: str
    hardware: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        values: dict[str, Any] = cattrs.unstructure(self)
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Outcome:
        """The inverse of `to_dict`."""
        return cattrs.structure(values, cls)

    @property
    def samples_per_second(self) -> float:
        """Samples of the stream per second, however many passes they take."""
        return self.samples / self.seconds if self.seconds > 0 else float("inf")

    @property
    def found(self) -> int | None:
        """True boundaries at which, or after which before the next, one was found."""
        counts = self._per_sub_task()
        return None if counts is None else sum(count > 0 for count in counts[1:])

    @property
    def false(self) -> int | None:
        """Boundaries found without a true one, or a second time for the same."""
        counts = self._per_sub_task()
        return None if counts is None else counts[0] + sum(max(0, n - 1) for n in counts[1:])

    def _per_sub_task(self) -> list[int] | None:
        if self.boundaries is None:
            return None
        return np.diff(np.array((0, *self.boundaries))).tolist()  # type: ignore[no-any-return]


def configuration_of(cell: Cell, system: System, dataset: Dataset, quick: bool) -> dict[str, Any]:
    """All that determines the result of a cell, JSON-ready.

    Arguments:
        system: A fresh one: what counts of the code is the module that its class stands in,
            with all that this imports.
    """
    return {
        "schema": SCHEMA,
        "system": cell.system,
        "data": cell.data,
        "checksum": checksum(dataset),
        "sub_tasks": [list(classes) for classes in cell.slt.sub_tasks],
        "seed": cell.seed,
        "quick": quick,
        "epochs": system.epochs,
        "repeats": repeats_of(cell.data, system),
        "threads": 1,
        "device": choose_device("auto").type,
        "versions": versions(),
        "source": source_digest(
            (type(system).__module__,),
            ("benchmarks.systems.registry", "benchmarks.comparison.cell", "clients.data.tasks"),
        ),
    }


def repeats_of(data: str, system: System) -> int:
    """How often the samples of a sub-task are streamed to a system."""
    return 1 if system.told else REPEATS.get(data, 1)


def make_fresh(cell: Cell, dataset: Dataset, make: Maker, quick: bool) -> System:
    """The system of a cell, before it has learned anything.

    Raises:
        InputError: the data set does not hold images, or not with integers as labels.
    """
    if dataset.image_shape is None or dataset.train_y.dtype.kind not in "iu":
        raise InputError(
            f"{dataset.name} does not hold images with integer labels, which every system of "
            f"this comparison needs. Choose another data set, for example mnist."
        )
    return make(cell.system, dataset.image_shape, len(cell.slt.classes), cell.seed, quick)


@as_in_the_trainer()
def measure(
    cell: Cell, system: System, dataset: Dataset, quick: bool, listener: Listener
) -> Outcome:
    """Let a fresh system learn the sub-tasks of a cell, and test it after each."""
    configuration = configuration_of(cell, system, dataset, quick)
    codes = np.sort(np.array(cell.slt.classes))
    tested = cell.slt.rows(dataset.test_y)
    test_x, test_y = dataset.test_x[tested], dataset.test_y[tested]

    clock = time.thread_time if configuration["device"] == "cpu" else time.perf_counter
    seconds: list[float] = []
    wall_seconds: list[float] = []
    matrix: list[tuple[float, ...]] = []
    joint: list[float] = []
    boundaries: list[int] = []
    samples = 0
    sub_tasks = stream(
        cell.slt,
        dataset.train_x,
        dataset.train_y,
        epochs=configuration["repeats"],
        seed=cell.seed,
    )
    for sub_task in sub_tasks:
        listener.sub_task(sub_task.index, len(cell.slt.sub_tasks))
        x, y = pixels(sub_task.features), torch.from_numpy(np.searchsorted(codes, sub_task.labels))
        samples += len(x)
        begun, begun_wall = clock(), time.perf_counter()
        system.learn(x, y, listener.learned)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        seconds.append(clock() - begun)
        wall_seconds.append(time.perf_counter() - begun_wall)
        named = codes[_predictions(system, test_x)]
        matrix.append(
            tuple(scores.accuracy_per_sub_task(test_y, named, cell.slt.sub_tasks).tolist())
        )
        joint.append(scores.accuracy(test_y, named))
        if system.boundaries is not None:
            boundaries.append(system.boundaries)
    return Outcome(
        configuration=configuration,
        epochs=system.epochs,
        told=system.told,
        accuracy=joint[-1],
        matrix=tuple(matrix),
        joint=tuple(joint),
        samples=samples,
        seconds=sum(seconds),
        wall_seconds=sum(wall_seconds),
        sub_task_seconds=tuple(seconds),
        parameters=system.parameters,
        bytes=system.bytes,
        boundaries=tuple(boundaries) if boundaries else None,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        hardware=environment.hardware(),
    )


def pixels(features: NDArray[Any]) -> Tensor:
    """Samples as every system gets them: float32 in [0, 1], with shape (N, D)."""
    rows = torch.from_numpy(features)
    return rows.float() / 255 if rows.dtype == torch.uint8 else rows.float()


def _predictions(system: System, test_x: NDArray[Any]) -> NDArray[np.int64]:
    """Class codes of the test samples, with shape (N,)."""
    parts = [
        system.predict(pixels(test_x[first : first + TEST_ROWS])).numpy()
        for first in range(0, len(test_x), TEST_ROWS)
    ]
    return np.concatenate(parts).astype(np.int64)
