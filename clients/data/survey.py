"""A table -> what its columns hold -> an encoding.

Rules of this module:

1. The whole table is read, and little of it is held: of each column its first categories, and a
   part of its numbers that is spread evenly.
2. A column of numbers holds nothing else; any other is one of categories, if there are few. Times,
   names and free text are left out. So is a column that counts the rows, or holds times as numbers,
   unless it was chosen: no sample would be like one before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from clients.data.encoding import Categories, Numbers, TableEncoding
from clients.data.files import kind_of
from clients.data.formats.cells import category_of, numbers_of
from clients.data.formats.numerals import POINT, Numerals
from clients.data.formats.parquet import open_parquet, read_columns, resolve
from clients.data.formats.rows import check_chosen
from clients.data.formats.text_source import TABLES
from clients.data.formats.text_table import TextTable
from clients.data.formats.times import Times
from clients.http.errors import InputError

MOST_CATEGORIES: Final = 50

_ROWS: Final = 4096
_NUMBERS: Final = 32_768
"""Numbers of a column that are held, at most twice as many."""

Piece = list[list[object]]
"""Cells of some rows, column by column."""


class Survey(NamedTuple):
    """What a table holds.

    Attributes:
        encoding: Of its columns.
        left_out: Columns that are no features, and why.
        n_rows: How many there are.
    """

    encoding: TableEncoding
    left_out: dict[str, str]
    n_rows: int


@dataclass
class _Column:
    """What is known of a column so far."""

    name: str
    most: int
    is_category: bool
    is_chosen: bool = False
    are_numbers: bool = True
    n_missing: int = 0
    categories: dict[str, None] = field(default_factory=dict)  # in the order in which they came
    numbers: list[float] = field(default_factory=list)
    times: Times = field(default_factory=Times)
    _every: int = 1
    _n: int = 0

    def add(self, values: Sequence[object], numerals: Numerals) -> None:
        """Look at more of its cells."""
        if len(self.categories) <= self.most:
            for value in dict.fromkeys(values):
                if (category := category_of(value)) is not None:
                    self.categories[category] = None
        if not self.are_numbers:
            return
        numbers = numbers_of(values, numerals)
        if numbers is None:
            self.are_numbers, self.numbers = False, []
            return
        self.times.add(numbers)
        known = numbers[np.isfinite(numbers)]  # what is infinite tells no size, either
        self.n_missing += len(numbers) - len(known)
        self.numbers += known[-self._n % self._every :: self._every].tolist()
        self._n += len(known)
        if len(self.numbers) > 2 * _NUMBERS:
            self.numbers, self._every = self.numbers[::2], 2 * self._every

    def found(self) -> Numbers | Categories | str:
        """What it is, or why it is left out."""
        if self.are_numbers and not self.is_category:
            if not self.numbers:
                return "it holds nothing"
            if self.times.found and not self.is_chosen:
                return "it holds times, as numbers since 1970 that only rise"
            return Numbers(self.name, float(np.median(self.numbers)), self.n_missing > 0)
        if not self.categories:
            return "it holds nothing"
        if len(self.categories) > self.most:
            return f"it holds text, of more than {self.most} kinds"
        return Categories(self.name, tuple(sorted(self.categories)))


def survey(
    path: Path,
    *,
    apart: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    categories: Sequence[str] = (),
    most: int = MOST_CATEGORIES,
    numerals: Numerals = POINT,
    tell_missing: bool = True,
) -> Survey:
    """What a table holds.

    Arguments:
        path: A .csv, .tsv, .jsonl or .parquet file whose columns have names.
        apart: Columns that are no features, by name or index: those of labels and ids as well.
        columns: Columns that are; None: all others.
        categories: Columns whose numbers are codes of categories.
        most: Categories of a column, at most.
        numerals: How numbers are written.
        tell_missing: Whether features of their own say where numbers are missing.

    Raises:
        InputError: The file cannot be read, names no columns, lacks one, or has no feature.
    """
    names, left_out, pieces = _open(path, apart, columns, numerals)
    if lacking := sorted(set(categories) - set(names)):
        raise InputError(
            f"{path} has no feature {lacking[0]!r} to hold categories. Its features: "
            f"{', '.join(names[:20])}. Correct --categories."
        )
    chosen = columns is not None
    found = [_Column(name, most, name in categories, chosen) for name in names]
    n_rows = 0
    for piece in pieces:
        n_rows += len(piece[0]) if piece else 0
        for column, values in zip(found, piece, strict=True):
            column.add(values, numerals)
    kept: list[Numbers | Categories] = []
    for column in found:
        what = column.found()
        if isinstance(what, Numbers) and not tell_missing:
            what = replace(what, says_missing=False)
        if isinstance(what, str):
            left_out[column.name] = what
        else:
            kept.append(what)
    if not kept:
        why = "".join(f" {name!r}: {why}." for name, why in left_out.items())
        raise InputError(
            f"{path} has no column that could be a feature.{why} Expected numbers, or categories "
            f"of at most {most} kinds (--most)."
        )
    return Survey(TableEncoding(kept), left_out, n_rows)


def _open(
    path: Path, apart: Sequence[str], columns: Sequence[str] | None, numerals: Numerals
) -> tuple[list[str], dict[str, str], Iterator[Piece]]:
    """Names of the columns to look at, those left out at once with the reason, and all cells."""
    if not path.is_file():
        raise InputError(f"{path} is no file. Expected a .csv, .tsv, .jsonl or .parquet file.")
    kind = kind_of(path)
    if kind in TABLES:
        return _open_text(TABLES[kind](path, apart, columns, numerals), columns)
    if kind == "parquet":
        return _open_parquet(path, apart, columns)
    raise InputError(
        f"{path} is an array ({kind}) and no table: its values are numbers already. Send it as it "
        f"is."
    )


def _open_text(
    table: TextTable, columns: Sequence[str] | None
) -> tuple[list[str], dict[str, str], Iterator[Piece]]:
    path, header = table.path, table.header
    if header is None or any(table.numerals.is_number(name) for name in header):
        raise InputError(
            f"{path} begins with {table.first_line[:5]}, which names no columns. An encoding finds "
            f"columns by their names. Give the file a first line with one for each."
        )
    taken = {index for index in table.found if index is not None}
    chosen = [i for i in range(table.width) if i not in taken]
    left_out: dict[str, str] = {}
    if columns is not None:
        check_chosen(taken & set(table.chosen), header, path=path)
        chosen = list(table.chosen)
    elif (counter := table.counter(taken)) is not None:
        left_out[header[counter]] = "it counts the rows"
        chosen.remove(counter)
    names = [header[i] for i in chosen]
    _check_names(names, path)

    def pieces() -> Iterator[Piece]:
        for _, rows in table.read(_ROWS):
            yield [[cells[i] for cells in rows] for i in chosen]

    return names, left_out, pieces()


def _open_parquet(
    path: Path, apart: Sequence[str], columns: Sequence[str] | None
) -> tuple[list[str], dict[str, str], Iterator[Piece]]:
    with open_parquet(path) as table:
        schema = table.schema_arrow
    taken = {resolve(column, schema.names, path) for column in apart}
    wanted = [name for name in schema.names if name not in taken]
    if columns is not None:
        chosen = [resolve(column, schema.names, path) for column in columns]
        check_chosen(taken & set(chosen), None, path=path)
        wanted = [name for name in chosen if name is not None]
    left_out = {
        name: f"it holds {schema.field(name).type}"
        for name in wanted
        if not _can_hold(schema.field(name).type)
    }
    names = [name for name in wanted if name not in left_out]
    _check_names(names, path)

    def pieces() -> Iterator[Piece]:
        for _, batches in read_columns(path, names, _ROWS):
            yield [[v for one in batches for v in one.column(name).to_pylist()] for name in names]

    return names, left_out, pieces()


def _can_hold(kind: object) -> bool:
    """Whether a column of this type of Arrow may hold numbers or categories."""
    import pyarrow.types as types

    kind = kind.value_type if types.is_dictionary(kind) else kind  # type: ignore[attr-defined]
    tests = (types.is_integer, types.is_floating, types.is_boolean, types.is_string)
    return any(test(kind) for test in (*tests, types.is_large_string, types.is_decimal))


def _check_names(names: Collection[str], path: Path) -> None:
    """Raise `InputError` unless each column has a name of its own."""
    seen = set[str]()
    for name in names:
        if not name or name in seen:
            what = f"two columns {name!r}" if name else "a column without a name"
            raise InputError(
                f"{path} has {what}; an encoding finds columns by their names. Give each one of "
                f"its own."
            )
        seen.add(name)
