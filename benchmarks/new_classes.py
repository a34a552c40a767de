"""Is a class that comes without labels proposed, how soon, how purely, and is anything else?

Drives the engine directly, with its default settings. 3,000 labelled training images of nine
classes are streamed once in batches of 100, then 2,000 without labels. Of these 20 % are of the
tenth class, or none (*none*), or 10 % are images of classes with their pixels in an order of each
image's own (*outliers*, of as many kinds as there are images). Purity is the share of the new
class among the samples of the first proposal that has any of it; *other* counts proposals
without a majority of it. The test set is not touched for these. Settings were chosen on MNIST.

*Naming*: 500 labelled training images of each of four classes, then 2,000 without labels of two
others; every proposal, and what is proposed when it is named, is called what most of the fifty
training images nearest to its prototype are, and test images that are called so are counted, of
the new classes and of the known ones.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks._arithmetic import as_in_the_trainer
from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import Dataset, load_dataset
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.events import ClassProposed

BATCH = 100
TAUGHT = 3000
LATER = 2000
SHARE = 0.2
OUTLIERS = 0.1
PER_CLASS = 500
KNOWN, NEW = (0, 1, 2, 3), (4, 5)
NEAREST = 50
PRESETS = ("mfa", "flat")


@dataclass(frozen=True)
class Outcome:
    """What one stream gave."""

    found: bool
    samples: int | None  # of the stream, unlabelled, until the class was proposed
    purity: float | None  # 0 to 1
    other: int  # proposals of something else
    unknown: float  # share of the new class's samples that were found unknown


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Every class of every data set as the new one."""
    names, seeds, classes = (("digits",), 1, 1) if quick else (("mnist", "fashion_mnist"), 1, 10)
    rows: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for name in names:
        data = load_dataset(name)
        per_class: dict[int, list[Outcome]] = {}
        nothing: dict[str, list[int]] = {"none": [], "outliers": []}
        for new in range(classes):
            for seed in range(seeds):
                stream = _Stream(data, new, seed)
                per_class.setdefault(new, []).append(stream.with_new_class())
                nothing["none"].append(stream.without(0.0))
                nothing["outliers"].append(stream.without(OUTLIERS))
            say(f"{name}, class {new}: {per_class[new]}")
            rows.append((f"{name} {new}", *_cells(per_class[new])))
        for kind, proposals in nothing.items():
            rows.append((f"{name} {kind}", "", "", "", str(sum(proposals)), ""))
        found = [outcome for runs in per_class.values() for outcome in runs]
        values[name] = {
            "classes": {str(new): [vars(run) for run in runs] for new, runs in per_class.items()},
            **nothing,
            "found": sum(outcome.found for outcome in found),
            "streams": len(found),
        }
    named = [
        (name, preset, seed, name_proposals(load_dataset(name), preset, seed))
        for name in (names if quick else (*names, "devanagari"))
        for preset in PRESETS
        for seed in range(1 if quick else 3)
    ]
    values["naming"] = [
        {"data": name, "preset": preset, "seed": seed, **vars(one)}
        for name, preset, seed, one in named
    ]
    shown = tuple(
        (
            f"{name} {preset} {seed}",
            str(one.proposals),
            *(f"{part:.3f}" for part in (*one.right, one.wrong)),
        )
        for name, preset, seed, one in named
    )
    heads = ("stream", "proposals", *(f"of {new} named" for new in NEW), "of known so named")
    naming = Table("names", heads, shown)
    columns = ("new class", "found", "after samples", "purity", "other", "found unknown")
    return Measurement((Table("new classes", columns, tuple(rows)), naming), values)


@dataclass(frozen=True)
class Named:
    """What names of proposals gave, of test samples."""

    proposals: int
    right: tuple[float, ...]  # share of each new class that is called so
    wrong: float  # share of the known classes that is called any of these


def name_proposals(data: Dataset, preset: str, seed: int) -> Named:
    """Two classes without labels after four with; every proposal is named."""
    generator = np.random.default_rng(seed)

    def rows(classes: tuple[int, ...], each: int) -> NDArray[np.int64]:
        parts = [
            generator.permutation((data.train_y == one).nonzero()[0])[:each] for one in classes
        ]
        chosen: NDArray[np.int64] = generator.permutation(np.concatenate(parts))
        return chosen

    def features(images: NDArray[Any]) -> torch.Tensor:
        flat = images.reshape(len(images), -1)
        return torch.from_numpy(flat.astype("f4") / (255 if flat.dtype == np.uint8 else 1))

    engine = Engine(EngineConfig(preset=preset, seed=seed))
    state = engine.start()
    known, later = rows(KNOWN, PER_CLASS), rows(NEW, LATER // len(NEW))
    for begin in range(0, len(known), BATCH):
        chosen = known[begin : begin + BATCH]
        labels = torch.from_numpy(data.train_y[chosen])
        as_images = data.train_x.dtype == np.uint8
        batch = Batch.of(features(data.train_x[chosen]), labels, images=as_images)
        state, _ = engine.step(state, batch)
    for begin in range(0, len(later), BATCH):
        state, _ = engine.step(state, Batch(features(data.train_x[later[begin : begin + BATCH]])))
    seen = np.isin(data.train_y, KNOWN + NEW).nonzero()[0][:20_000]
    images, truth = features(data.train_x[seen]), data.train_y[seen]
    named = 0
    while state.pending.proposals.open:
        proposal = state.pending.proposals.open[0]
        away = (images - proposal.prototype).square().sum(1)
        label = int(np.bincount(truth[away.argsort()[:NEAREST].numpy()]).argmax())
        name = label if label in KNOWN else f"new {label}"
        state, _ = engine.name(state, proposal.number, name)
        named += 1
    snapshot = engine.snapshot(state)

    def called(one: int) -> list[Any]:
        x = features(data.test_x[data.test_y == one])
        return [snapshot.answers[code] for code in snapshot.classify(x).codes.tolist()]

    right = tuple(called(one).count(f"new {one}") / max(1, len(called(one))) for one in NEW)
    answers = [name for one in KNOWN for name in called(one)]
    return Named(named, right, sum(str(one).startswith("new") for one in answers) / len(answers))


class _Stream:
    """A model that knows all classes but one, and what may come then."""

    def __init__(self, data: Dataset, new: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        order = generator.permutation(len(data.train_x))
        labels = data.train_y[order]
        n = min(TAUGHT, int((labels != new).sum()) // 3)
        known, mine = order[labels != new], order[labels == new]
        self.images, self.labels, self.new = data.train_x, data.train_y, new
        self.later, self.mine, self.generator = known[n:], mine, generator
        self.n = min(LATER, n)
        self.engine = Engine(EngineConfig(seed=seed))
        self.state = self.engine.start()
        for begin in range(0, n, BATCH):
            rows = known[begin : begin + BATCH]
            batch = Batch.of(
                self._features(rows), torch.from_numpy(data.train_y[rows]), images=True
            )
            self.state, _ = self.engine.step(self.state, batch)

    def with_new_class(self) -> Outcome:
        """A fifth of what comes is of the new class."""
        share = int(BATCH * SHARE)
        fresh = self.mine[np.arange(share * (self.n // BATCH)) % len(self.mine)]
        rows = [
            np.concatenate([self._known(index)[share:], fresh[index * share : (index + 1) * share]])
            for index in range(self.n // BATCH)
        ]
        purity, samples, other = None, None, 0
        state, seen = self.state, np.concatenate(rows)
        begin = state.stream.samples
        for index, chosen in enumerate(rows):
            state, events = self.engine.step(state, Batch(self._features(chosen)))
            for event in events:
                if not isinstance(event, ClassProposed):
                    continue
                pure = self._purity(state, event, seen, begin)
                if pure < 0.5:
                    other += 1
                elif purity is None:
                    purity, samples = pure, (index + 1) * BATCH
        return Outcome(purity is not None, samples, purity, other, self._unknown())

    def without(self, outliers: float) -> int:
        """Proposals where nothing new comes, but perhaps outliers."""
        state, n_proposed = self.state, 0
        for index in range(self.n // BATCH):
            x = self._features(self._known(index))
            for row in range(int(BATCH * outliers)):
                x[row] = x[row][torch.from_numpy(self.generator.permutation(x.shape[1]))]
            state, events = self.engine.step(state, Batch(x))
            n_proposed += sum(isinstance(event, ClassProposed) for event in events)
        return n_proposed

    def _purity(
        self, state: EngineState, event: ClassProposed, seen: NDArray[np.int64], begin: int
    ) -> float:
        """Share of the new class in a proposal that was just made."""
        proposal = state.pending.proposals.find(event.proposal)
        assert proposal is not None
        if len(proposal.unknowns):
            places = np.array(proposal.unknowns.arrived) - begin
            return float((self.labels[seen[places]] == self.new).mean())
        # Of a boundary: its samples are learned already, so the nearest of the stream stand in.
        rows = seen[event.first_sample - begin : event.last_sample - begin + 1]
        away = (self._features(rows) - proposal.prototype).square().sum(1)
        nearest = away.argsort()[: event.samples].numpy()
        return float((self.labels[rows[nearest]] == self.new).mean())

    def _unknown(self) -> float:
        scores = self.engine.learner.score(
            self.state.model.learner, self._standardised(self._features(self.mine[:1000]))
        )
        unknown = self.engine.discovery.unknown(self.state, scores)
        return float("nan") if unknown is None else float(unknown.double().mean())

    def _standardised(self, x: torch.Tensor) -> torch.Tensor:
        return self.state.standardiser.apply(x)

    def _known(self, index: int) -> NDArray[np.int64]:
        chosen: NDArray[np.int64] = self.later[index * BATCH : (index + 1) * BATCH]
        return chosen

    def _features(self, rows: NDArray[np.int64]) -> torch.Tensor:
        x = self.images[rows].reshape(len(rows), -1)
        scale = 255 if x.dtype == np.uint8 else 1
        return torch.from_numpy(x.astype("f4") / scale)


def _cells(runs: list[Outcome]) -> tuple[str, ...]:
    after = [run.samples for run in runs if run.samples is not None]
    purity = [run.purity for run in runs if run.purity is not None]
    return (
        f"{sum(run.found for run in runs)} of {len(runs)}",
        f"{statistics.median(after):.0f}" if after else "",
        f"{statistics.mean(purity):.2f}" if purity else "",
        str(sum(run.other for run in runs)),
        f"{statistics.mean(run.unknown for run in runs):.2f}",
    )
