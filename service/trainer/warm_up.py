"""When loops are compiled: at installation if asked for, else while a trainer starts."""

from __future__ import annotations

import threading

from core.config import EngineConfig
from core.engine.warm_up import rehearse


def rehearse_now() -> None:
    """Compile them, and keep them beside the package where that can be written."""
    rehearse()


def rehearse_meanwhile(config: EngineConfig) -> None:
    """Compile or load them while samples are on their way, if anybody needs them."""
    if config.advised or "sequential" in (config.detector, *config.shadows):
        # A daemon: whoever stops the process does not wait for it.
        threading.Thread(target=rehearse, name="rehearsal", daemon=True).start()
