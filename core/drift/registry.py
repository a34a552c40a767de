"""Detector name -> detector. The one place that knows all of them."""

from __future__ import annotations

from typing import Any

from core.config import EngineConfig
from core.drift.detector import Detector
from core.drift.never import NeverDetector
from core.drift.paper import PaperDetector
from core.drift.sequential import SequentialDetector


def make_detector(config: EngineConfig) -> Detector[Any]:
    """The detector of `config.detector`."""
    if config.detector == "paper":
        return PaperDetector(warm_up=config.warm_up)
    if config.detector == "none":
        return NeverDetector()
    return SequentialDetector(ert=config.ert, warm_up=config.warm_up)
