"""Settings that are asked for while a model runs, in place of those that it was made with.

They are part of the state, so that reading a stream again gives the same model. Only settings that
say nothing about what was learned before can be asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, Final

from core.config import EngineConfig
from core.errors import InvalidRequest, InvalidSettings

Value = float | int | None

NUMBERS: Final = frozenset({"outlier_c", "outlier_false_positive_rate"})
"""Settings that are no whole numbers."""


@dataclass(frozen=True)
class AskedSettings:
    """Values in force in place of configured ones, explained at `EngineConfig`.

    None: as configured. Where `outlier_c` is asked for, it decides what is an outlier, unless
    `outlier_false_positive_rate` is asked for, too.
    """

    outlier_c: float | None = None
    outlier_false_positive_rate: float | None = None
    set_aside_limit: int | None = None
    label_wait_samples: int | None = None
    awaiting_limit: int | None = None
    proposal_samples: int | None = None
    max_classes: int | None = None
    cooldown: int | None = None

    @property
    def values(self) -> dict[str, Value]:
        """Those that are asked for, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def with_changes(self, changes: Mapping[str, Value]) -> AskedSettings:
        """The same with other values.

        Arguments:
            changes: By name; None: as configured.

        Raises:
            InvalidRequest: No such setting can be asked for, or a value is not of its kind.

        Example:
            >>> asked = AskedSettings().with_changes({"outlier_c": 3, "max_classes": 50})
            >>> asked.values
            {'outlier_c': 3.0, 'max_classes': 50}
            >>> asked.with_changes({"outlier_c": None}).values
            {'max_classes': 50}
        """
        checked: dict[str, Any] = {name: _checked(name, one) for name, one in changes.items()}
        return replace(self, **checked)

    def over(self, config: EngineConfig) -> EngineConfig:
        """The settings in force.

        Raises:
            InvalidRequest: A value is not allowed.
        """
        return config if self == NOTHING_ASKED else _over(self, config)

    def of_answers(self, config: EngineConfig) -> tuple[float, float | None]:
        """Those in force that change what a version answers."""
        there = self.over(config)
        return there.outlier_c, there.outlier_false_positive_rate


NOTHING_ASKED: Final = AskedSettings()
ADJUSTABLE: Final = tuple(field.name for field in fields(AskedSettings))
"""Names of the settings that can be asked for."""


def _checked(name: str, value: Value) -> Value:
    if name not in ADJUSTABLE:
        raise InvalidRequest(
            f"{name!r:.80} cannot be changed while the model runs. Expected "
            f"{', '.join(ADJUSTABLE)}. Change others by a restart."
        )
    if value is None:
        return None
    whole = name not in NUMBERS
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise InvalidRequest(
            f"{name} is {value!r:.80}; expected {'a whole number' if whole else 'a number'}, or "
            f"null for what the settings say."
        )
    return value if whole else float(value)


@lru_cache(256)
def _over(asked: AskedSettings, config: EngineConfig) -> EngineConfig:
    values = asked.values
    if "outlier_c" in values:
        values.setdefault("outlier_false_positive_rate", None)
    try:
        return replace(config, **values)  # type: ignore[arg-type]  # checked when they came
    except InvalidSettings as error:
        raise InvalidRequest(str(error)) from error
