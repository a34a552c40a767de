"""Detector name -> detector. The one place that knows all of them."""

from __future__ import annotations

from typing import Any

from core.config import EngineConfig
from core.drift.baselines.never import NeverDetector
from core.drift.baselines.paper import PaperDetector
from core.drift.baselines.river import RIVER, RiverDetector
from core.drift.detector import Detector
from core.drift.sequential.detector import SequentialDetector
from core.drift.shadows import Shadows


def make_detector(config: EngineConfig, name: str | None = None) -> Detector[Any]:
    """The detector of `config.detector`, or another one with the same settings."""
    name = name or config.detector
    if name in RIVER:
        return RiverDetector(name, ert=config.ert, warm_up=config.warm_up, seed=config.seed)
    if name == "paper":
        return PaperDetector(warm_up=config.warm_up)
    if name == "none":
        return NeverDetector()
    return SequentialDetector(ert=config.ert, warm_up=config.warm_up)


def make_shadows(config: EngineConfig) -> Shadows:
    """Those of `config.shadow_detectors`."""
    return Shadows.of(config.shadows, lambda name: make_detector(config, name))
