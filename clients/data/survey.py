"""A table -> what its columns hold -> an encoding.

Rules of this module:

1. The whole table is read, and little of it is held: of each column its first categories, and a
   part of its numbers that is spread evenly.
2. A column of numbers holds nothing else; any other is one of categories, if there are few. Times,
   names and free text are left out. So is a column that counts the rows, holds times as numbers, or
   never falls, unless it was chosen: no sample would be like one before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clients.counters import Counters, counting
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

COUNTER: Final = (
    "it never falls: a counter, by which each later row is new; send its rise from row to row "
    "where that tells something"
)
"""Why a column is left out that counts."""

_SHOW_COUNTING: Final = 50
"""Numbers of a column that tell whether it counts."""

_ROWS: Final = 4096
_NUMBERS: Final = 32_768
"""Numbers of a column that are held, at most twice as many."""

Piece = tuple[list[list[object]], Sequence[object] | None]
"""Cells of some rows, column by column, and those that name their models where a column does."""

Places = NDArray[np.intp] | slice
"""Rows of a piece."""


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
    counters: dict[str | None, Counters] = field(default_factory=dict)  # by model
    counts: bool = True
    _every: int = 1
    _n: int = 0

    def add(
        self, values: Sequence[object], numerals: Numerals, models: Mapping[str | None, Places]
    ) -> None:
        """Look at more of its cells.

        Arguments:
            values: Of consecutive rows.
            numerals: How numbers are written.
            models: The rows among these that each has.
        """
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
        self._count(numbers, models)
        known = numbers[np.isfinite(numbers)]  # what is infinite tells no size, either
        self.n_missing += len(numbers) - len(known)
        self.numbers += known[-self._n % self._every :: self._every].tolist()
        self._n += len(known)
        if len(self.numbers) > 2 * _NUMBERS:
            self.numbers, self._every = self.numbers[::2], 2 * self._every

    def _count(self, numbers: NDArray[np.float64], models: Mapping[str | None, Places]) -> None:
        """Look whether these numbers, with shape (N,), fall anywhere in a model's rows."""
        for model, rows in models.items() if self.counts else ():
            counters = self.counters.setdefault(model, Counters())
            finite = np.where(np.isfinite(numbers[rows]), numbers[rows], np.nan)
            counters.add(finite[:, None])
            if counters.fell.any():
                self.counts, self.counters = False, {}
                return

    def found(self) -> Numbers | Categories | str:
        """What it is, or why it is left out."""
        if self.are_numbers and not self.is_category:
            if not self.numbers:
                return "it holds nothing"
            if self.times.found and not self.is_chosen:
                return "it holds times, as numbers since 1970 that only rise"
            if counting(self.counters.values(), _SHOW_COUNTING) and not self.is_chosen:
                return COUNTER
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
    model_column: str | None = None,
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
        model_column: Which names the model of each row, by name or index, and is no feature: a
            column that falls in no model's rows counts. None: all rows are of one.

    Raises:
        InputError: The file cannot be read, names no columns, lacks one, or has no feature.
    """
    names, left_out, pieces = _open(path, apart, columns, numerals, model_column)
    if lacking := sorted(set(categories) - set(names)):
        raise InputError(
            f"{path} has no feature {lacking[0]!r} to hold categories. Its features: "
            f"{', '.join(names[:20])}. Correct --categories."
        )
    chosen = columns is not None
    found = [_Column(name, most, name in categories, chosen) for name in names]
    n_rows = 0
    for piece, named in pieces:
        n_rows += len(piece[0]) if piece else 0
        models = _places(named)
        for column, values in zip(found, piece, strict=True):
            column.add(values, numerals, models)
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


def _places(models: Sequence[object] | None) -> dict[str | None, Places]:
    """Which rows each model has."""
    if models is None:
        return {None: slice(None)}
    names = np.array(list(map(str, models)))
    return {str(name): np.nonzero(names == name)[0] for name in np.unique(names)}


def _open(
    path: Path,
    apart: Sequence[str],
    columns: Sequence[str] | None,
    numerals: Numerals,
    model: str | None,
) -> tuple[list[str], dict[str, str], Iterator[Piece]]:
    """Names of the columns to look at, those left out at once with the reason, and all cells."""
    if not path.is_file():
        raise InputError(f"{path} is no file. Expected a .csv, .tsv, .jsonl or .parquet file.")
    kind = kind_of(path)
    if kind in TABLES:
        return _open_text(TABLES[kind](path, (model, *apart), columns, numerals), columns)
    if kind == "parquet":
        return _open_parquet(path, apart, columns, model)
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

    model = table.found[0]

    def pieces() -> Iterator[Piece]:
        for _, rows in table.read(_ROWS):
            models = None if model is None else [cells[model] for cells in rows]
            yield [[cells[i] for cells in rows] for i in chosen], models

    return names, left_out, pieces()


def _open_parquet(
    path: Path, apart: Sequence[str], columns: Sequence[str] | None, model: str | None
) -> tuple[list[str], dict[str, str], Iterator[Piece]]:
    with open_parquet(path) as table:
        schema = table.schema_arrow
    model = resolve(model, schema.names, path)
    taken = {model, *(resolve(column, schema.names, path) for column in apart)}
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

    read = names if model is None else [*names, model]

    def pieces() -> Iterator[Piece]:
        for _, batches in read_columns(path, read, _ROWS):
            cells = [[v for one in batches for v in one.column(name).to_pylist()] for name in read]
            yield cells[: len(names)], None if model is None else cells[-1]

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
