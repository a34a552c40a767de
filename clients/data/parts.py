"""The rows of each model in one table: a table a model.

Rules of this module:

1. The table is read once, and whole before anything is sent: a row without a model is found first.
2. A part has the columns of the table, and its rows in their order. Parts of text are CSV.
3. Parts are written in pieces. In memory stay the numbers of rows, eight bytes each.
"""

from __future__ import annotations

import csv
from array import array
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from clients.data.files import kind_of
from clients.data.formats.numerals import Numerals
from clients.data.formats.parquet import open_parquet, read_columns, resolve
from clients.data.formats.text_source import TABLES
from clients.data.formats.text_table import TextTable
from clients.http.errors import InputError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

MOST_PARTS: Final = 10_000
"""More values are no models: somebody has named another column."""

MOST_OF_PARQUET: Final = 500
"""Parts of a Parquet file, each of which is an open file until the last row."""

_ROWS: Final = 16_384
"""That are read at a time."""


@dataclass(frozen=True)
class Part:
    """The rows of one model.

    Attributes:
        model: Its name, as the table says it.
        path: A table that holds them.
        rows: Where each stands in the whole table, from 0.
    """

    model: str
    path: Path
    rows: array[int]


@dataclass(frozen=True)
class Parts:
    """A table by models.

    Attributes:
        each: A part a model, in the order in which they first come.
        skipped: Rows that cannot be read or say no model, and were left out.
        table: The whole table, where it is text.
    """

    each: tuple[Part, ...]
    skipped: int = 0
    table: TextTable | None = None

    def place(self, row: int) -> str:
        """Where a row of the whole table stands in its file, for messages; "" where nobody counts.

        Arguments:
            row: From 0.
        """
        return "" if self.table is None else self.table.place(row)


def parts_of(
    path: Path,
    column: str,
    folder: Path,
    *,
    text_columns: Sequence[str | None] = (),
    columns: Sequence[str] | None = None,
    encoded: bool = False,
    decimal: str = ".",
    skip_bad_rows: bool = False,
) -> Parts:
    """Write the rows of each model into a table of its own.

    Arguments:
        path: A table (csv, tsv, jsonl, parquet) whose columns have names.
        column: Which says the model of each row, by name or index.
        folder: An empty one, for the parts.
        text_columns: Other columns that may hold text, by name or index.
        columns: That are read as features; None: all others.
        encoded: Whether these are an encoding's, which have names.
        decimal: The sign before decimals.
        skip_bad_rows: Leave out rows of text that cannot be read, or say no model.

    Raises:
        InputError: It is no such table, or a row says no model.
    """
    if not path.is_file():
        raise InputError(f"{path} does not exist, or is no file. Expected a table. Check the path.")
    kind = kind_of(path)
    if kind not in (*TABLES, "parquet"):
        raise InputError(
            f"{path} is to be parted by its column {column!r}, but it is no table. Expected a "
            f".csv, .tsv, .jsonl or .parquet file. Leave out --model-column, and send to one model "
            f"with --model."
        )
    if kind == "parquet":
        return _of_parquet(path, column, folder)
    table = TABLES[kind](path, (column, *text_columns), columns, Numerals(decimal), encoded=encoded)
    return _of_text(table, column, folder, skip_bad_rows)


def _of_text(table: TextTable, column: str, folder: Path, skip_bad_rows: bool) -> Parts:
    path, place = table.path, table.found[0]
    assert place is not None
    if table.header is None:
        raise InputError(
            f"{path} has no names of columns, so that its parts could not be told from it. "
            f"Expected them in the first line, or objects a line in a .jsonl. Add them."
        )
    rows: dict[str, array[int]] = {}
    skipped = 0
    for first, chunk in table.read(_ROWS, check=not skip_bad_rows):
        mine: dict[str, list[list[str]]] = {}
        for row, cells in enumerate(chunk, first):
            model = cells[place].strip() if len(cells) == table.width else ""
            if model:
                mine.setdefault(model, []).append(cells)
                rows.setdefault(model, array("q")).append(row)
            elif skip_bad_rows:
                skipped += 1
            else:
                raise _no_model(path, row, column, table.place(row))
        _check_count(rows, path, column, MOST_PARTS)
        numbers = {model: number for number, model in enumerate(rows)}
        for model, lines in mine.items():
            part = _file_of(folder, numbers[model], "csv")
            begins = not part.exists()
            with part.open("a", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, delimiter=table.delimiter, lineterminator="\n")
                writer.writerows([table.header, *lines] if begins else lines)
    return Parts(_each(rows, folder, "csv"), skipped, table)


def _of_parquet(path: Path, column: str, folder: Path) -> Parts:
    with open_parquet(path) as table:
        schema = table.schema_arrow
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(schema.names)
    place = names.index(str(resolve(column, names, path)))
    rows: dict[str, array[int]] = {}
    with ExitStack() as stack:
        writers: dict[str, pq.ParquetWriter] = {}
        for first, pieces in read_columns(path, names, _ROWS):
            piece = pa.Table.from_batches(pieces)
            mine: dict[str, list[int]] = {}
            for row, value in enumerate(piece.column(place).to_pylist()):
                if value is None or not (model := _written(value)):
                    raise _no_model(path, first + row, column, "")
                mine.setdefault(model, []).append(row)
            for model, found in mine.items():
                rows.setdefault(model, array("q")).extend(first + row for row in found)
                _check_count(rows, path, column, MOST_OF_PARQUET)
                if model not in writers:
                    part = _file_of(folder, len(writers), "parquet")
                    writers[model] = stack.enter_context(pq.ParquetWriter(part, schema))
                writers[model].write_table(piece.take(found))
    return Parts(_each(rows, folder, "parquet"))


def _each(rows: Mapping[str, array[int]], folder: Path, kind: str) -> tuple[Part, ...]:
    return tuple(
        Part(model, _file_of(folder, number, kind), places)
        for number, (model, places) in enumerate(rows.items())
    )


def _file_of(folder: Path, number: int, kind: str) -> Path:
    """Where a part lies; names of models are no names of files."""
    return folder / f"{number}.{kind}"


def _written(value: object) -> str:
    """A value of a column as text; whole numbers without a fraction.

    Example:
        >>> _written(7.0), _written(" pump-7 ")
        ('7', 'pump-7')
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip()


def _no_model(path: Path, row: int, column: str, place: str) -> InputError:
    return InputError(
        f"{path}: row {row} says no model in column {column!r}{place}. Expected the name of a "
        f"model in every row. Nothing of it was sent. Put the file right; of a text table rows "
        f"without one can be left out with --skip-bad-rows.",
        row=row,
    )


def _check_count(rows: Mapping[str, array[int]], path: Path, column: str, most: int) -> None:
    if len(rows) > most:
        raise InputError(
            f"{path}: column {column!r} has more than {most:,} different values. Expected the "
            f"names of so many models at most. Name the column that says whose a row is, or send "
            f"the table in several files."
        )
