"""JSON, a document a line, read in pieces, plain or gzipped.

Rules of this module:

1. A line is an object, whose keys are the columns, or an array, whose columns have no names.
2. What is nested is flat: `{"place": {"x": 1}, "v": [2, 3]}` has the columns place.x, v.0 and v.1.
3. The first line says which columns there are. Others may have them in any order; what they have
   besides is passed over, and what they lack, or is null, is an empty cell.
4. Numbers stay as they are written, so that none is another one afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, ClassVar, Final

from clients.data.formats.text_table import LOOK_AT, TextTable, open_text
from clients.http.errors import InputError

_TRUTH: Final = {True: "true", False: "false"}
_NAMES: Final[Mapping[type, str]] = {dict: "object", list: "array"}


class JsonTable(TextTable):
    """A table whose rows are lines of JSON; as `TextTable`."""

    kind: ClassVar[str] = "jsonl"

    def _look(self, text_columns: Sequence[str | None], columns: Sequence[str] | None) -> None:
        with self.errors(), open_text(self.path) as file:
            first = next(self._documents(file, True), None)
        if not first:
            raise InputError(
                f"{self.path} has no line with a value. Expected one JSON object or array per "
                f"line, each a sample. Check the file."
            )
        self.header = [*first] if isinstance(first, dict) else None
        self.first_line = [*first]  # names, or the cells of an array
        self.width = len(self.first_line)
        with self.records(False) as rows:
            self._rows_seen = self.next(rows, LOOK_AT)

    @contextmanager
    def records(self, check: bool) -> Iterator[Iterator[list[str]]]:
        """See `TextTable`."""
        with open_text(self.path) as file:
            yield (self._row(flat) for flat in self._documents(file, check))

    def _lines(self) -> Iterator[int]:
        """See `TextTable`."""
        with open_text(self.path) as file:
            yield from (number for number, line in enumerate(file, 1) if not line.isspace())

    def _row(self, flat: dict[str, str] | list[str] | None) -> list[str]:
        if flat is None:
            return []
        return flat if isinstance(flat, list) else [flat.get(name, "") for name in self.first_line]

    def _documents(self, file: IO[str], check: bool) -> Iterator[dict[str, str] | list[str] | None]:
        """What each line holds; None where that cannot be used and is not checked.

        Raises:
            InputError: A line is no JSON, or is no object where the first is one.
        """
        kind: type | None = None
        lines = (line for line in file if not line.isspace())
        for row, line in enumerate(lines, self.first_row):
            flat = None
            try:
                flat = _flat(line)
                kind = kind or type(flat)
                if isinstance(flat, kind):
                    yield flat
                    continue
                fault = f"is no {_NAMES[kind]}, as the first is"
            except (ValueError, RecursionError) as error:
                fault = f"is no JSON object or array ({error})"
            if check:
                raise InputError(
                    f"{self.path}: row {row} {fault}. Expected one JSON object or array per line, "
                    f"each a sample. Check the file, or leave such rows out with --skip-bad-rows.",
                    row=row,
                )
            yield None


def _flat(line: str) -> dict[str, str] | list[str]:
    """The cells of a line, by name where it is an object.

    Raises:
        ValueError: It is no JSON, neither object nor array, or has two cells of one name.

    Example:
        >>> _flat('{"a": {"b": 1.50}, "c": [true, null]}')
        {'a.b': '1.50', 'c.0': 'true', 'c.1': ''}
        >>> _flat("[1, 2e3]")
        ['1', '2e3']
    """
    value = json.loads(
        line, parse_float=str, parse_int=str, parse_constant=str, object_pairs_hook=_once
    )
    if not isinstance(value, dict | list):
        raise ValueError(f"it holds {line.strip()[:20]}")
    cells: dict[str, str] = {}
    _add(value, "", cells)
    return cells if isinstance(value, dict) else [*cells.values()]


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object, each field of which came once: of two only the last would be read."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        raise _twice(next(name for name in names if names.count(name) > 1))
    return fields


def _twice(name: str) -> ValueError:
    return ValueError(f"it has the field {name[:40]!r} twice")


def _add(value: object, name: str, cells: dict[str, str]) -> None:
    """Add the cells of a value to others.

    Raises:
        ValueError: There is one of the same name, as where names have dots.
    """
    if name in cells:
        raise _twice(name)
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in parts:
            _add(part, f"{name}.{key}" if name else str(key), cells)
    elif value is None:
        cells[name] = ""
    else:
        cells[name] = _TRUTH[value] if isinstance(value, bool) else str(value)
