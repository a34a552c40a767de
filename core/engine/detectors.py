"""Detector name -> detector. The one place that knows all of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from core import extensions
from core.config import EngineConfig
from core.drift.baselines.never import NeverDetector
from core.drift.baselines.paper import PaperDetector
from core.drift.baselines.river import RIVER, RiverDetector
from core.drift.detector import Detector
from core.drift.sequential.detector import SequentialDetector
from core.drift.shadows import Shadows


def _of_river(name: str, config: EngineConfig) -> Detector[Any]:
    return RiverDetector(name, ert=config.ert, warm_up=config.warm_up, seed=config.seed)


DETECTORS: dict[str, Callable[[EngineConfig], Detector[Any]]] = {
    "sequential": lambda config: SequentialDetector(ert=config.ert, warm_up=config.warm_up),
    "paper": lambda config: PaperDetector(warm_up=config.warm_up),
    **{name: partial(_of_river, name) for name in RIVER},
    "none": lambda config: NeverDetector(),
}
"""Those of this project; others come from the installation (`core.extensions`)."""


def make_detector(config: EngineConfig, name: str | None = None) -> Detector[Any]:
    """The detector of `config.detector`, or another one with the same settings."""
    name = name or config.detector
    if name in DETECTORS:
        return DETECTORS[name](config)
    made: Detector[Any] = extensions.load(extensions.DETECTORS, name)(config)
    return made


def make_shadows(config: EngineConfig) -> Shadows:
    """Make the detectors of `config.shadow_detectors`."""
    return Shadows.of(config.shadows, lambda name: make_detector(config, name))
