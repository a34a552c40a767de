"""Reads settings from where they come from, and says what is wrong with them.

Precedence is that of `read`: a flag before an environment variable, before a file that one names,
before a key of the TOML file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from core.errors import InvalidSettings
from service.settings.masking import masked
from service.settings.names import (
    CLIENT_VARIABLES,
    CONFIG_VARIABLE,
    PREFIX,
    SECRET_FILES,
    flag,
    suggestion,
    variable,
)

EXPECTED: Final[Mapping[str, str]] = {
    "model": "expected 1 to 64 letters, digits, dots, underscores and hyphens",
    "device": "expected auto, cpu, cuda, or cuda: with a number",
    "ert": "expected 2 samples or more (5000000, 1e8), at most 1e16, or a time (12h, 30d; units s, "
    "min, h, d)",
    "image": "expected HEIGHT,WIDTH or HEIGHT,WIDTH,CHANNELS, like 28,28 or 32,32,3",
    "webhook_events": "expected kinds of events, separated by commas, like boundary,outlier_burst",
}
"""In words, what a setting that is checked by a pattern must be."""


def read(
    known: Iterable[str], flags: Mapping[str, object], config: Path | None
) -> tuple[dict[str, object], dict[str, str]]:
    """What was set, by name, and where each value comes from.

    Arguments:
        known: Names of all settings.
        flags: Name to value; None means that the flag was not given.
        config: TOML file with names as keys; without it the file that `GMR_CONFIG` names, if any.

    Raises:
        InvalidSettings: An unknown name, with a suggestion, or a file that cannot be read.
    """
    known = list(known)
    environment = {
        name.upper(): value
        for name, value in os.environ.items()
        if name.upper().startswith(PREFIX) and value != ""
    }
    _refuse_unknown_variables(environment, known)
    if config is None and CONFIG_VARIABLE in environment:
        config = Path(environment[CONFIG_VARIABLE])

    values: dict[str, object] = {}
    sources: dict[str, str] = {}

    if config is not None:
        for name, value in _read_file(config, known).items():
            values[name], sources[name] = value, f"file {config}"
    for its, name in SECRET_FILES.items():
        if its in environment:
            values[name] = _read_secret(Path(environment[its]), its)
            sources[name] = f"environment {its}"
    for name in known:
        if (its := variable(name)) in environment:
            values[name], sources[name] = environment[its], f"environment {its}"
    for name, value in flags.items():
        if value is not None:
            values[name], sources[name] = value, f"flag {flag(name)}"
    return values, sources


def _refuse_unknown_variables(environment: Mapping[str, str], names: Iterable[str]) -> None:
    known = {
        *map(variable, names),
        *CLIENT_VARIABLES,
        CONFIG_VARIABLE,
        *SECRET_FILES,
    }
    unknown = sorted(set(environment) - known)
    if unknown:
        raise InvalidSettings(
            f"The environment variable {unknown[0]} is no setting. "
            f"{suggestion(unknown[0], known)} `gmr serve --show-config` lists them all.",
            unknown=unknown,
        )


def _read_file(path: Path, known: Iterable[str]) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidSettings(
            f"The settings file {path} cannot be read: {error.strerror}. Check the path and its "
            f"permissions, or leave --config and {CONFIG_VARIABLE} out."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(
            f"The settings file {path} is no TOML: {error}. Write one `name = value` per line, "
            f"with text in quotes."
        ) from error
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise InvalidSettings(
            f"The key {unknown[0]!r} in {path} is no setting. "
            f"{suggestion(unknown[0], set(known))} "
            f"`gmr serve --show-config` lists them all.",
            unknown=unknown,
        )
    return values


def _read_secret(path: Path, its: str) -> str:
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSettings(
            f"The file {path} that {its} names cannot be read: {error}. It should hold "
            f"{SECRET_FILES[its]} on one line; check its path and permissions."
        ) from error


def explain(
    error: ValidationError,
    fields: Mapping[str, FieldInfo],
    values: Mapping[str, object],
    sources: Mapping[str, str],
) -> InvalidSettings:
    """The first complaint of pydantic in our words: value, source, what was expected."""
    first = error.errors(include_url=False, include_context=False)[0]
    name = str(first["loc"][0])
    if name not in fields:
        return InvalidSettings(
            f"{name!r} is no setting. {suggestion(name, set(fields))} "
            f"`gmr serve --show-config` lists them all.",
            unknown=[name],
        )
    # The value may hold a password even where it is not valid.
    shown = masked(name, str(values.get(name)))
    expected = first["msg"].removeprefix("Value error, ")
    if first["type"] == "string_pattern_mismatch":
        expected = EXPECTED[name]  # a regular expression is no explanation
    return InvalidSettings(
        f"{name} is {shown} (from {sources.get(name, 'the program')}), which will not do: "
        f"{expected[:1].lower()}{expected[1:]}. {name} means: "
        f"{fields[name].description}",
        setting=name,
    )
