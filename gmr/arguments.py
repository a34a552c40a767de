"""Arguments of estimators, of the types that the engine computes with."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Final

from core.config import EngineConfig
from core.errors import InvalidSettings

WHOLE: Final = ("n_components", "warm_up", "max_classes", "seed")
NUMBERS: Final = ("ert", "outlier_false_positive_rate")
OPTIONAL: Final = ("n_components", "outlier_false_positive_rate")
"""Settings of an engine that estimators take: integers, other numbers, and which may be None."""


def whole(name: str, value: object) -> int:
    """An argument that is an integer, of Python or NumPy.

    Raises:
        InvalidSettings: It is none.

    Example:
        >>> whole("batch_size", 10)
        10
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InvalidSettings(
            f"{name} is {value!r}, of type {type(value).__name__}; it must be an integer. "
            f"Pass one, such as 100."
        )
    return int(value)


def number(name: str, value: object) -> float:
    """An argument that is a number, of Python or NumPy.

    Raises:
        InvalidSettings: It is none.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidSettings(
            f"{name} is {value!r}, of type {type(value).__name__}; it must be a number. Pass one, "
            f"without quotes."
        )
    return float(value)


def batch_size_of(value: object) -> int:
    """Samples learned at a time.

    Raises:
        InvalidSettings: It is no integer, or below 1.
    """
    size = whole("batch_size", value)
    if size < 1:
        raise InvalidSettings(f"batch_size is {size}; it must be at least 1.")
    return size


def config_of(**settings: Any) -> EngineConfig:
    """Settings of an engine from arguments.

    Raises:
        InvalidSettings: One cannot be used.
    """
    for name, value in settings.items():
        if value is None and name in OPTIONAL:
            continue
        if name in WHOLE:
            settings[name] = whole(name, value)
        elif name in NUMBERS:
            settings[name] = number(name, value)
    return EngineConfig(**settings)
