"""When loops are compiled: at installation if asked for, else while a trainer starts."""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import core
from core.config import EngineConfig
from core.engine.warm_up import warm_up

logger = logging.getLogger(__name__)

FOLDER = Path(core.__file__).parent
"""In which loops are, and are kept beside their sources (`core.compiled.kept`)."""


def warm_up_meanwhile(config: EngineConfig) -> None:
    """Compile or load them while samples are on their way, if anybody needs them."""
    if not (config.advised or "sequential" in (config.detector, *config.shadows)):
        return
    if not any(FOLDER.rglob("__pycache__/*.nbi")):
        logger.info(
            "No compiled loops are kept yet, so they are compiled now, which takes a processor "
            "half a minute, and minutes where it is busy. What comes meanwhile waits."
        )
    # A daemon: whoever stops the process does not wait for it.
    threading.Thread(target=warm_up, name="warm-up", daemon=True).start()


__all__ = ["warm_up", "warm_up_meanwhile"]
