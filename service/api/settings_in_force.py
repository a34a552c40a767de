"""Which settings of a model that can be asked for while it runs are in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from core.engine.asked_settings import ADJUSTABLE
from service.settings import Settings


def settings_in_force(settings: Settings, status: Mapping[str, Any] | None) -> dict[str, Any]:
    """Value of each setting by name, and whether it was asked for.

    Arguments:
        settings: Of the model.
        status: What its trainer reported last; None where it has said nothing, so that nothing
            was asked for yet.
    """
    told = {} if status is None else status.get("settings", {})
    configured = settings.engine_config()
    return {
        name: told.get(name, {"value": getattr(configured, name), "asked": False})
        for name in ADJUSTABLE
    }
