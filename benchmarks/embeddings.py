"""Who names the next samples of a stream of embeddings or texts best, and what does it cost?

Embeddings of digits and clothes: a random convolutional network (two layers of random filters, the
larger of neighbours, means over nine places, a random projection), each less the mean of all and of
unit length, sent as tables. Words: made-up texts on ten topics, as TF-IDF of unit length. *At
random*: every batch is named before it is learned. *In pairs*: two classes at a time, each pair
once; held-out samples of all ten are named at the end. Beside the engine as it is served stands its
mixture alone, without experts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from benchmarks._arithmetic import as_in_the_trainer
from benchmarks.classification import registry
from benchmarks.classification.course import course
from benchmarks.classification.stream import LabelledStream
from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import load_dataset
from clients.http.errors import InputError

SETS = {"digits": "mnist", "clothes": "fashion_mnist"}
SIZES = (128, 256, 384, 768, 1024, 3072)
SAMPLES, HELD_OUT = 6000, 1000
BATCH = 100
TOPICS = 10
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "mfa": ("mfa", {}),
    "flat": ("flat", {}),
    "mfa, mixture": ("mfa", {"experts": False}),
    "flat, mixture": ("flat", {"experts": False}),
    "knn-scaled": ("knn-scaled", {}),
    "sgd": ("sgd", {}),
}
"""Name in the table -> opponent and its settings."""

Features = NDArray[Any]
Samples = tuple[Features, Features]
Made = Callable[[int], Samples]
"""From a number of features to samples and their classes."""


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Quick: one size, 1,000 made-up images, the engine alone."""
    sizes = SIZES[1:3] if quick else SIZES
    systems = dict(list(SYSTEMS.items())[:2]) if quick else SYSTEMS
    rows, values = [], []
    sets = _of_images(_made_up()) if quick else embedded_images(say)
    if not quick:
        sets["words"] = partial(words, SAMPLES + HELD_OUT)
    for name, made in sets.items():
        for size in sizes:
            stream = LabelledStream(f"{name}-{size}", *made(size))
            for system in systems:
                found = _measured(system, stream)
                values.append({"set": name, "features": size, "system": system, **found})
                rows.append(
                    (
                        name,
                        str(size),
                        system,
                        f"{100 * found['random']:.1f}",
                        f"{100 * found['pairs']:.1f}",
                        f"{found['microseconds']:,.0f}",
                    )
                )
                say("  ".join(rows[-1]))
    columns = ("set", "features", "system", "at random, %", "in pairs, %", "us per sample")
    return Measurement((Table("Embeddings", columns, tuple(rows)),), {"results": values})


def _measured(system: str, stream: LabelledStream) -> dict[str, float]:
    name, settings = SYSTEMS[system]
    n = len(stream) - min(HELD_OUT, len(stream) // 6)
    learned = LabelledStream(stream.name, stream.x[:n], stream.y[:n])
    found = course(registry.make(name, learned, 0, settings), learned, BATCH)
    order = np.argsort(learned.y // 2, kind="stable")
    pairs = LabelledStream(stream.name, learned.x[order], learned.y[order])
    opponent = registry.make(name, pairs, 0, settings)
    for begin in range(0, n, BATCH):
        rows = slice(begin, begin + BATCH)
        opponent.learn(pairs.x[rows], pairs.y[rows])
    held = float((opponent.predict(stream.x[n:]) == stream.y[n:]).mean())
    return {"random": found.accuracy, "pairs": held, "microseconds": found.microseconds}


def embedded(images: Features, size: int, seed: int) -> Features:
    """Embeddings of N images, with shape (N, size), float32, of unit length.

    Arguments:
        images: With shape (N, height, width), 0 to 1.
        size: Features of an embedding.
        seed: Of the network.
    """
    generator = torch.Generator().manual_seed(seed)

    def filters(n: int, inputs: int, side: int) -> torch.Tensor:
        scale = (inputs * side * side) ** -0.5
        return torch.randn(n, inputs, side, side, generator=generator).mul_(scale)

    with torch.no_grad():
        x = torch.from_numpy(images.astype(np.float32))[:, None]
        x = functional.conv2d(x - x.mean(), filters(32, 1, 5), padding=2).relu()
        x = functional.conv2d(functional.max_pool2d(x, 2), filters(64, 32, 3), padding=1).relu()
        x = functional.adaptive_avg_pool2d(x, 3).flatten(1)
        x = x @ torch.randn(x.shape[1], size, generator=generator)
        found: Features = functional.normalize(x - x.mean(0)).numpy()
    return found


def embedded_images(say: Say) -> dict[str, Made]:
    """Embeddings of each set of images that is there, by its name."""
    return _of_images(_images(say))


def _of_images(sets: list[tuple[str, Features, Features]]) -> dict[str, Made]:
    return {name: partial(_embedded, images, labels) for name, images, labels in sets}


def _embedded(images: Features, labels: Features, size: int) -> Samples:
    return embedded(images, size, 0), labels


def words(n: int, size: int, seed: int = 0) -> Samples:
    """Texts of 20 to 60 words and their topics, with shapes (n, size), float32, and (n,), int64.

    Seven words of ten are a topic's own, of which some are common and most are rare.

    Arguments:
        n: Texts.
        size: Words that there are.
        seed: Of topics and texts.
    """
    rng = np.random.default_rng(seed)
    topics = rng.dirichlet(np.full(size, 0.05), TOPICS)
    common, labels = topics.mean(0), rng.integers(0, TOPICS, n)
    counts = np.stack(
        [rng.multinomial(rng.integers(20, 60), 0.7 * topics[one] + 0.3 * common) for one in labels]
    )
    weighted = np.log1p(counts) * np.log(n / (1 + (counts > 0).sum(0)))
    length = np.linalg.norm(weighted, axis=1, keepdims=True)
    return (weighted / length).astype(np.float32), labels.astype(np.int64)


def _images(say: Say) -> list[tuple[str, Features, Features]]:
    found = []
    for name, source in SETS.items():
        try:
            data = load_dataset(source)
        except InputError as error:
            say(f"{name} is left out: {error}")
            continue
        rows = np.random.default_rng(0).permutation(len(data.train_x))[: SAMPLES + HELD_OUT]
        images = np.asarray(data.train_x)[rows].reshape(len(rows), 28, 28) / 255
        found.append((name, images, data.train_y[rows].astype(np.int64)))
    return found


def _made_up() -> list[tuple[str, Features, Features]]:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 1000)
    images = rng.random((4, 28, 28))[labels] * 0.5 + rng.random((1000, 28, 28)) * 0.5
    return [("made up", images, labels.astype(np.int64))]
