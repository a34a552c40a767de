"""Everybody who takes part, by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

from benchmarks.classification.engine import Ours
from benchmarks.classification.nearest import KNN
from benchmarks.classification.opponent import LastLabel, Majority, Opponent
from benchmarks.classification.rivers import MODELS, Rivers
from benchmarks.classification.sam_knn import SAMKNN
from benchmarks.classification.sgd import SGD
from benchmarks.classification.stream import LabelledStream
from core.config import PRESETS

Maker = Callable[[LabelledStream, int], Opponent]
"""Stream (of which only the classes may be looked at) and seed -> one that knows nothing."""


def _rivers(name: str) -> Maker:
    return lambda stream, seed: Rivers(MODELS[name](seed))


OPPONENTS: dict[str, Maker] = {
    "last-label": lambda stream, seed: LastLabel(),
    "majority": lambda stream, seed: Majority(),
    "knn": lambda stream, seed: KNN(scaled=False),
    "knn-scaled": lambda stream, seed: KNN(scaled=True),
    "sam-knn": lambda stream, seed: SAMKNN(seed=seed),
    "sam-knn-scaled": lambda stream, seed: SAMKNN(scaled=True, seed=seed),
    "sgd": lambda stream, seed: SGD(stream.classes, seed),
    **{name: _rivers(name) for name in MODELS},
}
"""Name -> how one is made."""

MODULES = {
    **dict.fromkeys(("last-label", "majority"), "opponent"),
    **dict.fromkeys(("knn", "knn-scaled"), "nearest"),
    **dict.fromkeys(("sam-knn", "sam-knn-scaled"), "sam_knn"),
    "sgd": "sgd",
    **dict.fromkeys(MODELS, "rivers"),
}
"""Name -> the module that its numbers depend on."""

BASELINES = ("last-label", "majority")
"""They show what a stream is worth; nobody is compared with them as the best of the others."""


def has_river() -> bool:
    """Whether River is installed."""
    return find_spec("river") is not None


def is_ours(name: str) -> bool:
    """Whether a name is that of a preset."""
    return name in PRESETS


def make(name: str, stream: LabelledStream, seed: int, settings: dict[str, Any]) -> Opponent:
    """One that knows nothing.

    Arguments:
        name: A preset, or one of `OPPONENTS`.
        settings: Fields of `EngineConfig`, for a preset.
    """
    if is_ours(name):
        return Ours(**{**settings, "preset": name, "seed": seed})
    return OPPONENTS[name](stream, seed)
