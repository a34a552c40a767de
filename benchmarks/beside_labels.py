"""Is a class that no label ever names seen beside classes whose labels come?

1,500 labelled images of five classes are streamed once in batches of 100, then thirty batches, of
which most samples have labels. The others are of a sixth class (*new*), half of it and half of the
five (*half*), or of the five (*none*). *Purity* is the share of the sixth class among the training
images nearest to what the open proposals stand for, *found* after how many of its samples the first
one was made. *Error* is that of the accuracy expected after each of the last ten batches
(`estimated_accuracy`) against that of the answers to all their samples, *bias* its mean sign.
Settings were chosen on MNIST.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._arithmetic import as_in_the_trainer
from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import Dataset, load_dataset
from clients.http.errors import InputError
from core.batch import Batch, Label
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.events import BatchScored, ClassProposed

BATCH = 100
TAUGHT, BATCHES, LAST = 15, 30, 10
KNOWN = 5
NEW = (5, 6, 7, 8, 9)
COMES = {"new": 1.0, "half": 0.5, "none": 0.0}
"""Name in the table -> share of the sixth class among unlabelled samples."""

UNLABELLED = (30, 80)
"""Of each batch."""

NEAREST, IMAGES = 15, 6000
"""Training images that are looked at for each mean of a proposal, of so many."""


@dataclass(frozen=True)
class Outcome:
    """What one stream gave.

    Arguments:
        proposals: That were made.
        found: Unlabelled samples of the sixth class before the first; None without any.
        purity: Of the open ones, 0 to 1; None without any.
        accuracy: Of the answers to the last batches, 0 to 1.
        estimate: What was expected of them; None where nothing was.
    """

    proposals: int
    found: int | None
    purity: float | None
    accuracy: float
    estimate: float | None


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Quick: digits of eight by eight, one class."""
    names = ("digits",) if quick else ("mnist", "fashion_mnist")
    presets, sizes = (("mfa",), 1) if quick else (("mfa", "flat"), None)
    classes, shares = NEW[:sizes], UNLABELLED[:sizes]
    rows: list[tuple[str, ...]] = []
    values: list[dict[str, object]] = []
    for name in names:
        try:
            data = load_dataset(name)
        except InputError as error:
            say(f"{name} is left out: {error}")
            continue
        for preset in presets:
            for unlabelled in shares:
                for comes in COMES:
                    runs = [lived(data, one, preset, comes, unlabelled) for one in classes]
                    rows.append((name, preset, f"{unlabelled}", comes, *_cells(runs)))
                    say("  ".join(rows[-1]))
                    values.append(
                        {
                            "data": name,
                            "preset": preset,
                            "unlabelled": unlabelled,
                            "comes": comes,
                            "runs": [vars(run) for run in runs],
                        }
                    )
    columns = (
        "data",
        "preset",
        "unlabelled, %",
        "comes",
        "found",
        "after samples",
        "proposals",
        "purity",
        "accuracy, %",
        "error, points",
        "bias",
    )
    title = "A class without labels beside classes with: each of five in turn"
    return Measurement((Table(title, columns, tuple(rows)),), {"results": values})


def lived(data: Dataset, new: int, preset: str, comes: str, unlabelled: int) -> Outcome:
    """What one stream gave.

    Arguments:
        new: The class that no label names; the five others are 0 to 4.
        preset: Of the engine.
        comes: Of `COMES`.
        unlabelled: Samples without a label in a batch.
    """
    generator = np.random.default_rng(new)
    stream = _Stream(data, new, generator)
    engine = Engine(EngineConfig(preset=preset, seed=0))
    state = engine.start()
    made, found, seen = 0, None, 0
    accuracy: list[float] = []
    estimates: list[float | None] = []
    fresh = round(unlabelled * COMES[comes])
    for index in range(TAUGHT + BATCHES):
        taught = index < TAUGHT
        rows, shown = stream.batch(*((0, 0) if taught else (fresh, unlabelled - fresh)))
        x = stream.features(rows)
        if index >= TAUGHT + BATCHES - LAST:
            snapshot = engine.snapshot(state)
            answers = [snapshot.answers[code] for code in snapshot.classify(x).codes.tolist()]
            accuracy.append(float(np.mean(np.array(answers) == data.train_y[rows])))
        labels: list[Label | None] = [
            int(label) if keep else None
            for label, keep in zip(data.train_y[rows], shown, strict=True)
        ]
        state, events = engine.step(state, Batch.of(x, labels, images=True))
        seen += 0 if taught else fresh
        for event in events:
            if isinstance(event, ClassProposed):
                made += 1
                found = seen if found is None else found
            if isinstance(event, BatchScored) and index >= TAUGHT + BATCHES - LAST:
                estimates.append(event.estimated_accuracy)
    told = [one for one in estimates if one is not None]
    expected = float(np.mean(told)) if len(told) == LAST else None
    return Outcome(made, found, stream.purity(state), float(np.mean(accuracy)), expected)


class _Stream:
    """Images of the five classes, and of the sixth, none of them twice while there are others."""

    def __init__(self, data: Dataset, new: int, generator: np.random.Generator) -> None:
        self.data, self.new, self.generator = data, new, generator
        labels = data.train_y
        self.known = generator.permutation(np.flatnonzero(labels < KNOWN))
        self.mine = generator.permutation(np.flatnonzero(labels == new))
        self.used = [0, 0]

    def batch(self, new: int, others: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Rows of a batch in random order, and which of them have a label.

        Arguments:
            new: Samples of the sixth class.
            others: Samples of the five without a label.
        """
        rows = np.concatenate([self._next(0, BATCH - new), self._next(1, new)])
        shown = np.arange(BATCH) < BATCH - new - others
        order = self.generator.permutation(BATCH)
        return rows[order], shown[order]

    def features(self, rows: NDArray[np.int64]) -> torch.Tensor:
        """Pixels from 0 to 1, with shape (N, D)."""
        x = self.data.train_x[rows].reshape(len(rows), -1)
        return torch.from_numpy(x.astype("f4") / (255 if x.dtype == np.uint8 else 1))

    def purity(self, state: EngineState) -> float | None:
        """Share of the sixth class in what open proposals stand for, 0 to 1."""
        some = np.arange(min(IMAGES, len(self.data.train_y)))
        images, labels = self.features(some), self.data.train_y[some]
        shares: list[float] = []
        weights: list[float] = []
        for one in state.pending.proposals.open:
            means = one.surrogates if len(one.surrogates) else one.unknowns.features
            nearest = torch.cdist(means.float(), images).topk(NEAREST, largest=False).indices
            shares += (labels[nearest.numpy()] == self.new).mean(1).tolist()
            weights += (one.weights if len(one.surrogates) else torch.ones(len(means))).tolist()
        return float(np.average(shares, weights=weights)) if weights else None

    def _next(self, which: int, n: int) -> NDArray[np.int64]:
        pool = (self.known, self.mine)[which]
        places = (self.used[which] + np.arange(n)) % len(pool)
        self.used[which] += n
        rows: NDArray[np.int64] = pool[places]
        return rows


def _cells(runs: list[Outcome]) -> tuple[str, ...]:
    after = [run.found for run in runs if run.found is not None]
    purity = [run.purity for run in runs if run.purity is not None]
    errors = [100 * (run.estimate - run.accuracy) for run in runs if run.estimate is not None]
    return (
        f"{sum(run.proposals > 0 for run in runs)} of {len(runs)}",
        f"{min(after)} to {max(after)}" if after else "",
        str(sum(run.proposals for run in runs)),
        f"{np.mean(purity):.2f}" if purity else "",
        f"{100 * np.mean([run.accuracy for run in runs]):.1f}",
        f"{np.abs(errors).mean():.1f}" if errors else "",
        f"{np.mean(errors):+.1f}" if errors else "",
    )
