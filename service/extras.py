"""Libraries that a setting needs and an installation may lack, looked for before the start."""

from __future__ import annotations

import importlib.util
from typing import Final

from core.errors import InvalidSettings
from service.settings import Settings

OF_RIVER: Final = ("adwin", "page_hinkley", "kswin")
"""Detectors that come with River. Named here, too, because what has them imports torch."""


def check_extras(settings: Settings) -> None:
    """Return when everything that the settings name is installed.

    Raises:
        InvalidSettings: It is not; the message says how to install it.
    """
    named = (settings.detector, *settings.engine_config().shadows)
    missing = [name for name in named if name in OF_RIVER]
    if missing and importlib.util.find_spec("river") is None:
        setting = "detector" if settings.detector in missing else "shadow_detectors"
        raise InvalidSettings(
            f"{setting} names {missing[0]!r}, which is River's, and River is not installed. "
            f"Install it with pip install 'gmr-stream[river]', or take the name out."
        )
    library = settings.checkpoints_in_store and not settings.checkpoints_in_redis
    if library and importlib.util.find_spec("obstore") is None:
        raise InvalidSettings(
            f"checkpoints is {settings.checkpoints}, which needs obstore, and obstore is not "
            f"installed. Install it with pip install 'gmr-stream[store]', or set "
            f"GMR_CHECKPOINTS=dir."
        )
