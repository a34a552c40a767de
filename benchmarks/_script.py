"""A benchmark as a script with options: what it prints, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rich.console import Console

from clients.commands.bench import Measurement, Say, rich_table
from clients.http.errors import InputError
from core.config import EngineConfig
from core.errors import InvalidSettings


class _Plan(Protocol):
    @property
    def folder(self) -> Path: ...


P = TypeVar("P", bound=_Plan)


def names(values: Sequence[str] | None) -> tuple[str, ...]:
    """Names that may be separated by blanks or by commas.

    Example:
        >>> names(["mfa,flat", "paper"])
        ('mfa', 'flat', 'paper')
    """
    return tuple(name for text in values or () for name in text.split(",") if name)


def settings_of(texts: Sequence[str]) -> dict[str, Any]:
    """`NAME=VALUE` as fields of `EngineConfig`.

    Raises:
        InputError: there is no such setting, or it cannot have that value.

    Example:
        >>> settings_of(["preset=flat", "ert=20000"])
        {'preset': 'flat', 'ert': 20000}
    """
    values = fields_of(texts, EngineConfig)
    try:
        EngineConfig(**values)
    except InvalidSettings as error:
        raise InputError(str(error)) from error
    return values


def fields_of(texts: Sequence[str], kind: type) -> dict[str, Any]:
    """`NAME=VALUE` as fields of a dataclass, numbers as numbers.

    Raises:
        InputError: it has no such field.
    """
    known = {one.name: one for one in fields(kind)}
    values: dict[str, Any] = {}
    for text in texts:
        name, _, value = text.partition("=")
        if name not in known:
            raise InputError(
                f"There is no setting {name!r}. Known: {', '.join(known)}. Choose one of these."
            )
        values[name] = _plain(value)
    return values


def _plain(text: str) -> Any:
    """A number where it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def run(plan_of: Callable[[Sequence[str]], P], carry_out: Callable[[P, Say], Measurement]) -> int:
    """Carry out what the options ask for, and print the tables.

    Arguments:
        plan_of: Reads the options; may raise `InputError`.
        carry_out: Measures; what it has measured when interrupted is kept.

    Returns:
        The exit status: 0, 1 if a floor is not met, 2 for wrong options, 130 if interrupted.
    """
    console = Console()
    try:
        plan = plan_of(sys.argv[1:])
        measurement = carry_out(
            plan, lambda text: console.print(text, style="dim", markup=False, highlight=False)
        )
    except InputError as error:
        console.print(str(error), markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("Interrupted. What is measured is kept: run it again, and it goes on.")
        return 130
    for table in measurement.tables:
        console.print(rich_table(table))
    console.print(f"written to {plan.folder}", style="dim", highlight=False)
    return 0 if all(floor.met for floor in measurement.floors) else 1
