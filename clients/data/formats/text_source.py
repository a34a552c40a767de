"""Samples of a table of text (`csv_table.py`, `json_table.py`), read in pieces."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from clients.data.encoding import TableEncoding
from clients.data.formats.cells import LARGEST
from clients.data.formats.csv_table import CsvTable
from clients.data.formats.ids import as_ids
from clients.data.formats.json_table import JsonTable
from clients.data.formats.numerals import POINT, Numerals
from clients.data.formats.rows import (
    READ_IDS,
    Label,
    Labels,
    Rows,
    as_features,
    check_apart,
    check_chosen,
    names_of_columns,
)
from clients.data.formats.text_table import TextTable
from clients.http.errors import InputError
from clients.rounding import Rounding
from service.wire import SampleId

_EXACT: Final = 2.0**53
"""Whole numbers below have a float of their own."""

_INT64: Final = np.iinfo(np.int64)


TABLES: Final[Mapping[str, type[CsvTable] | type[JsonTable]]] = {
    table.kind: table for table in (CsvTable, JsonTable)
}
"""Tables of text, by kind."""


class TextSource:
    """Samples of a table of text; every column but the label's and the id's is a feature.

    Arguments:
        kind: Of `TABLES`.
        like: A source that this one goes on, row by row: it has the same columns, and its rows are
            numbered from `first_row`.
        goes_on: Others follow, so that none of its own rows need be usable.
        rounding: Looks at numbers before they are float32.
    """

    def __init__(
        self,
        path: Path,
        label_column: str | None = None,
        id_column: str | None = None,
        columns: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        skip_bad_rows: bool = False,
        numerals: Numerals = POINT,
        encoding: TableEncoding | None = None,
        kind: str = "csv",
        like: TextSource | None = None,
        first_row: int = 0,
        goes_on: bool = False,
        rounding: Rounding | None = None,
    ) -> None:
        self.path, self.kind = path, kind
        self._rounding = rounding
        self._goes_on = goes_on or like is not None
        self.n_samples: int | None = None
        self._numerals, self._encoding = numerals, encoding
        columns = columns if encoding is None else encoding.names
        before = None if like is None else like._table
        self._table: TextTable = TABLES[kind](
            path,
            (label_column, id_column, *drop),
            columns,
            numerals,
            before,
            first_row,
            encoded=encoding is not None,
        )
        self._label, self._id, *dropped = self._table.found
        check_apart(self._label, self._id, path=path)
        apart = {index for index in (self._label, self._id, *dropped) if index is not None}
        if columns is None:
            self._table.check_named_once(set(range(self._table.width)) - apart)
        if columns is not None:
            chosen = set(self._table.chosen)
            check_chosen(chosen & apart, self._table.header, path=path)
            apart |= set(range(self._table.width)) - chosen
        elif (counter := self._table.counter(apart)) is not None:
            raise InputError(
                f"{path}: {self._table.name(counter)} counts the rows, by one each, so that no "
                f"sample would be like one before. Expected features that say what samples are "
                f"like. Leave the column out with --drop {counter}, or take it out of the file; if "
                f"it is meant to be learned, name the features with --columns.",
                column=counter,
            )
        elif times := self._table.times(apart):
            named = " and ".join(map(self._table.name, times))
            raise InputError(
                f"{path}: {named} {'hold' if len(times) > 1 else 'holds'} times, as numbers since "
                f"1970 that only rise, so that no sample would be like one before. Expected "
                f"features that say what samples are like. Leave such columns out with --drop "
                f"{','.join(map(str, times))}, or take them out of the file; what is meant to be "
                f"learned, name with --columns.",
                column=times[0],
            )
        # From the right, so that taking one out moves none of the others.
        self._apart = sorted(apart, reverse=True)
        left = [index for index in range(self._table.width) if index not in apart]
        self._chosen = [left.index(index) for index in self._table.chosen]
        self._skip = skip_bad_rows
        self.labelled = self._label is not None
        self.n_features = len(left) if encoding is None else len(encoding.features)
        names = self._table.header and [self._table.header[index] for index in left]
        self.feature_names = names_of_columns(names if encoding is None else encoding.features)
        if self.n_features == 0:
            what = "no column left" if dropped else "one column, the labels"
            what = what if self._id is None else "no column beside the ids"
            raise InputError(
                f"{path} has {what}; expected at least one feature beside it. "
                f"The delimiter was taken to be {self._table.delimiter!r}."
            )

    def read(self, size: int, start: int = 0) -> Iterator[Rows]:
        if self._skip:
            yield from self._usable_rows(size, start)
            return
        for first, chunk in self._table.read(size, start):
            yield self._rows(chunk, first)

    def _usable_rows(self, size: int, start: int) -> Iterator[Rows]:
        """The same without rows that cannot be used.

        Raises:
            InputError: There are no others.
        """
        last: Rows | None = None
        skipped = 0  # before the first that can be used
        for first, chunk in self._table.read(size, start, check=False):
            good = self._good(chunk)
            if not good:
                # They are told with the piece before them, so that it ends where they do.
                if last is None:
                    skipped += len(chunk)
                else:
                    last = replace(last, skipped=last.skipped + len(chunk))
                continue
            if last is not None:
                yield last
            places = [first + row for row, cells in enumerate(chunk) if self._usable(cells)]
            bad = skipped + len(chunk) - len(good)
            last = replace(self._rows(good, first - skipped), skipped=bad, places=places)
            skipped = 0
        if last is not None:
            yield last
        elif skipped and not start and not self._goes_on:
            self._refuse(skipped)

    def _refuse(self, n: int) -> None:
        """Say why no row at all can be used.

        Raises:
            InputError: Always.
        """
        try:
            for first, chunk in self._table.read(1):
                self._rows(chunk, first)
        except InputError as error:
            raise InputError(
                f"None of the {n} rows of {self.path} can be used. The first: {error}"
            ) from None

    def count(self) -> int:
        """How many rows there are, those that cannot be used included."""
        return sum(len(chunk) for _, chunk in self._table.read(READ_IDS, check=False))

    def read_ids(self) -> Iterator[list[SampleId]]:
        if self._id is None:
            return
        for first, chunk in self._table.read(READ_IDS, check=not self._skip):
            cells_of_ids = (cells[self._id] for cells in self._good(chunk))
            yield as_ids(cells_of_ids, path=self.path, start=first)

    def _good(self, chunk: list[list[str]]) -> list[list[str]]:
        """The rows that can be used, where others are to be left out; else all."""
        return [cells for cells in chunk if self._usable(cells)] if self._skip else chunk

    def _usable(self, cells: list[str]) -> bool:
        if len(cells) != self._table.width:
            return False
        features = [cell for index, cell in enumerate(cells) if index not in self._apart]
        number, is_number = self._numerals.number, self._numerals.is_number
        value, is_value = self._numerals.feature, self._numerals.is_feature
        if self._encoding is not None:
            chosen = [features[index] for index in self._chosen]
            if not self._encoding.fits(chosen, self._numerals):
                return False
        elif not all(is_value(cell) and abs(value(cell)) <= LARGEST for cell in features):
            return False
        if self._label is None or not is_number(cells[self._label]):
            return True
        label = number(cells[self._label])
        return math.isnan(label) or label.is_integer()

    def _rows(self, chunk: list[list[str]], first: int) -> Rows:
        taken = {index: [cells.pop(index) for cells in chunk] for index in self._apart}
        labels: Labels | None = None
        if self._label is not None:
            labels = cell_labels(taken[self._label], self.path, first, self._numerals)
        ids: list[SampleId] | None = None
        if self._id is not None:
            ids = as_ids(taken[self._id], path=self.path, start=first)
        return Rows(first, self._features(chunk, first), labels, ids)

    def _features(self, chunk: list[list[str]], first: int) -> NDArray[np.float32]:
        values: NDArray[np.float32] | NDArray[np.float64]
        if self._encoding is not None:
            cells = [[row[index] for row in chunk] for index in self._chosen]
            values = self._encoding.encode_columns(cells, str(self.path), first, self._numerals)
        else:
            try:
                values = self._values(chunk)
            except ValueError:
                raise self._not_a_number(chunk, first) from None
        return cast(
            "NDArray[np.float32]",
            as_features(
                values,
                path=self.path,
                start=first,
                rounding=self._rounding,
                names=self.feature_names,
            ),
        )

    def _values(self, chunk: list[list[str]]) -> NDArray[np.float64]:
        """The numbers of cells with shape (N, D).

        Raises:
            ValueError: One of them holds none.
        """
        if self._numerals.decimal == "." and "_" not in "".join(map("".join, chunk)):
            # As nearly all tables are written: at once.
            with suppress(ValueError):
                return np.array(chunk, dtype=np.float64)
        return np.array([[self._numerals.feature(cell) for cell in row] for row in chunk])

    def _not_a_number(self, chunk: list[list[str]], first: int) -> InputError:
        row, column = next(
            (row, column)
            for row, cells in enumerate(chunk)
            for column, cell in enumerate(cells)
            if not self._numerals.is_feature(cell)
        )
        text = chunk[row][column]
        for index in reversed(self._apart):
            column += column >= index  # that one was taken out of the row
        name = self._table.name(column)
        what, advice = "is empty", "Leave such rows out with --skip-bad-rows. "
        if text.strip():
            what = f"holds {text!r}"
            advice = self._numerals.advice(text, self._table.delimiter)
        return InputError(
            f"{self.path}: row {first + row}, {name} {what}"
            f"{self._table.place(first + row)}; every feature must be a number. "
            f"{advice}Leave the column out with --drop, or encode it (`gmr encoding`), or name it "
            f"with --label-column if it is the label, with --id-column if it is the id.",
            row=first + row,
            column=column,
        )


def cell_labels(cells: list[str], path: Path, first: int, numerals: Numerals = POINT) -> Labels:
    """Whole numbers as integers ("3", "3.0"), other text as it is, empty as None.

    Text are also codes such as "1_2", and numbers that int64 does not hold.
    """
    labels = [_label(cell.strip(), path, row, numerals) for row, cell in enumerate(cells, first)]
    if all(type(label) is int for label in labels):
        return np.array(labels, dtype=np.int64)
    return labels


def _label(cell: str, path: Path, row: int, numerals: Numerals) -> Label | None:
    try:
        number = numerals.number(cell or "nan")
    except ValueError:
        return cell
    if math.isnan(number):  # how an absent label is written by many tools
        return None
    if not number.is_integer():
        raise InputError(
            f"{path}: the label at row {row} is {cell}; labels must be whole numbers or text. "
            f"Name the column of the classes with --label-column.",
            row=row,
        )
    if abs(number) < _EXACT:
        return int(number)
    try:
        whole = int(cell)
    except ValueError:
        return cell
    return whole if _INT64.min <= whole <= _INT64.max else cell
