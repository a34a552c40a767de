"""When loops are compiled: at installation if asked for, else while a trainer starts."""

from __future__ import annotations

import threading

from core.config import EngineConfig
from core.engine.warm_up import warm_up


def warm_up_meanwhile(config: EngineConfig) -> None:
    """Compile or load them while samples are on their way, if anybody needs them."""
    if config.advised or "sequential" in (config.detector, *config.shadows):
        # A daemon: whoever stops the process does not wait for it.
        threading.Thread(target=warm_up, name="warm-up", daemon=True).start()


__all__ = ["warm_up", "warm_up_meanwhile"]
