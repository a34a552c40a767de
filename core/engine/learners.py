"""Preset name -> learner. The one place that knows all of them."""

from __future__ import annotations

from typing import Any

from core.config import EngineConfig
from core.learners.learner import Learner
from core.learners.per_class.flat import FlatLearner
from core.learners.per_class.mfa import MfaLearner
from core.learners.sgd.dcgmm import DcgmmLearner
from core.learners.sgd.dcgmm.settings import PACES
from core.learners.sgd.paper import ONE_PASS, PUBLISHED, PaperLearner


def make_learner(config: EngineConfig) -> Learner[Any]:
    """The learner of `config.preset`."""
    if config.preset == "mfa":
        return MfaLearner(config)
    if config.preset == "flat":
        return FlatLearner(config)
    if config.preset == "dcgmm":
        return DcgmmLearner(config, PACES[config.pace])
    return PaperLearner(config, PUBLISHED if config.pace == "published" else ONE_PASS)
