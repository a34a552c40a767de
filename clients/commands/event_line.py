"""One event as a line of text."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from clients.http.answers.boundaries import feature_title

_SAID_BEFORE: Final = ("kind", "time", "entry_id")


def event_line(kind: str, data: Mapping[str, Any]) -> str:
    """The time, the kind and every single value of an event; lists and tables are left out.

    Of features that are told to drift their names stand in place of the table, and settings that
    were changed like single values. What would end the line or control a terminal is shown as a
    sign of its own: others have written it.

    Example:
        >>> event_line("class_discovered", {"label": "cat", "sub_task": 0, "shares": [1]})
        '-                class_discovered         label=cat sub_task=0'
        >>> event_line("class_discovered", {"label": "a" + chr(10) + chr(27) + "[2J"})
        '-                class_discovered         label=a\ufffd\ufffd[2J'
    """
    when = data.get("time")
    clock = "-" if when is None else time.strftime("%d %b %H:%M:%S", time.localtime(float(when)))
    told = [
        f"{name}={_value(value)}"
        for name, value in data.items()
        if name not in _SAID_BEFORE and isinstance(value, (bool, int, float, str))
    ]
    if kind == "features_drifting":
        titles = (feature_title(one["feature"], one.get("name")) for one in data["features"])
        told.insert(0, ", ".join(titles) + ":")
    if kind == "settings_changed":
        told[:0] = [f"{name}={_value(value)}" for name, value in data["settings"].items()]
    line = f"{clock:16} {kind:24} {' '.join(told)}".rstrip()
    return "".join(one if one.isprintable() else "\ufffd" for one in line)


def _value(value: bool | float | str | None) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
