"""Preset name -> learner. The one place that knows all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core import extensions
from core.config import EngineConfig
from core.learners.learner import Learner
from core.learners.per_class.flat import FlatLearner
from core.learners.per_class.mfa import MfaLearner
from core.learners.sgd.dcgmm import DcgmmLearner
from core.learners.sgd.dcgmm.settings import PACES
from core.learners.sgd.paper import ONE_PASS, PUBLISHED, PaperLearner

LEARNERS: dict[str, Callable[[EngineConfig], Learner[Any]]] = {
    "mfa": MfaLearner,
    "flat": FlatLearner,
    "paper": lambda config: PaperLearner(
        config, PUBLISHED if config.pace == "published" else ONE_PASS
    ),
    "dcgmm": lambda config: DcgmmLearner(config, PACES[config.pace]),
}
"""Those of this project; others come from the installation (`core.extensions`)."""


def make_learner(config: EngineConfig) -> Learner[Any]:
    """The learner of `config.preset`."""
    if config.preset in LEARNERS:
        return LEARNERS[config.preset](config)
    made: Learner[Any] = extensions.load(extensions.LEARNERS, config.preset)(config)
    return made
