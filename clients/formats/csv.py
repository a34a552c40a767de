"""Comma, semicolon or tab separated text, read in pieces, plain or gzipped.

A first line that holds anything but numbers names the columns.
"""

from __future__ import annotations

import csv
import gzip
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from clients.errors import InputError
from clients.formats.rows import Label, Labels, Rows, as_features


class CsvSource:
    """Samples of a text table; every column but the label's is a feature."""

    kind = "csv"

    def __init__(self, path: Path, label_column: str | None = None) -> None:
        self.path = path
        self.n_samples: int | None = None
        with self._errors(), _open(path) as file:
            first = file.readline()
            if not first.strip():
                raise InputError(
                    f"{path} starts with an empty line; expected one sample per line, or the "
                    f"names of the columns. Check the file."
                )
            # The delimiter is what the first line has most of; a single column has none.
            self._delimiter = max(",;\t", key=first.count)
        with self._records() as reader:
            head = self._next(reader, 2)
        cells = head[0]
        self._width = len(cells)
        index = _integer(label_column)
        self._header = cells if _names_columns(head, index) else None
        self._label = None if label_column is None else self._index(label_column, cells)
        self.labelled = self._label is not None
        self.n_features = self._width - self.labelled
        if self.n_features == 0:
            raise InputError(
                f"{path} has one column, the labels; expected at least one feature beside it. "
                f"The delimiter was taken to be {self._delimiter!r}."
            )

    def read(self, size: int, start: int = 0) -> Iterator[Rows]:
        with self._records() as reader:
            skip = start + (self._header is not None)
            self._next(reader, skip)
            first = start
            while chunk := self._next(reader, size):
                yield self._rows(chunk, first)
                first += len(chunk)

    def _rows(self, chunk: list[list[str]], first: int) -> Rows:
        for offset, cells in enumerate(chunk):
            if len(cells) != self._width:
                raise InputError(
                    f"{self.path}: row {first + offset} has {len(cells)} columns, but the first "
                    f"has {self._width}. Expected the same number in every row "
                    f"(delimiter {self._delimiter!r}).",
                    row=first + offset,
                )
        labels: Labels | None = None
        if self._label is not None:
            index = self._label
            labels = _labels([cells.pop(index) for cells in chunk], self.path, first)
        return Rows(first, self._features(chunk, first), labels)

    def _features(self, chunk: list[list[str]], first: int) -> NDArray[np.float32]:
        try:
            values = np.array(chunk, dtype=np.float64)
        except ValueError:
            raise self._not_a_number(chunk, first) from None
        return cast("NDArray[np.float32]", as_features(values, path=self.path, start=first))

    def _not_a_number(self, chunk: list[list[str]], first: int) -> InputError:
        row, column = next(
            (row, column)
            for row, cells in enumerate(chunk)
            for column, cell in enumerate(cells)
            if not _is_number(cell)
        )
        text = chunk[row][column]
        if self._label is not None and column >= self._label:
            column += 1  # the label was taken out of the row
        name = f"column {column}" + (f" ({self._header[column]!r})" if self._header else "")
        what = f"holds {text!r}" if text.strip() else "is empty"
        return InputError(
            f"{self.path}: row {first + row}, {name} {what}; every feature must be a number. "
            f"Drop or encode the column, or name it with --label-column if it is the label.",
            row=first + row,
            column=column,
        )

    def _index(self, column: str, cells: list[str]) -> int:
        if self._header is not None and column in self._header:
            return self._header.index(column)
        index = _integer(column)
        if index is None or not -self._width <= index < self._width:
            what = "names" if self._header else "cells of the first line, which names none"
            raise InputError(
                f"{self.path} has no column {column!r}. Its {self._width} columns ({what}): "
                f"{', '.join(cells[:20])}{', ...' if len(cells) > 20 else ''}. Give a name, "
                f"or an index from 0 to {self._width - 1} (-1 is the last)."
            )
        return index % self._width

    @contextmanager
    def _records(self) -> Iterator[Iterator[list[str]]]:
        with _open(self.path) as file:
            yield (row for row in csv.reader(file, delimiter=self._delimiter) if row)

    def _next(self, reader: Iterator[list[str]], size: int) -> list[list[str]]:
        with self._errors():
            return list(islice(reader, size))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (csv.Error, UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
            raise InputError(
                f"{self.path} cannot be read on ({error}). Expected UTF-8 text with one sample "
                f"per line. Check the file."
            ) from error


@contextmanager
def _open(path: Path) -> Iterator[IO[str]]:
    if path.suffix == ".gz":
        with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
            yield cast(IO[str], file)
    else:
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield file


def _names_columns(head: list[list[str]], label_index: int | None) -> bool:
    """Whether the first line names the columns, from the first two."""
    first = head[0]
    label = None if label_index is None else label_index % len(first)
    if not all(_is_number(cell) for i, cell in enumerate(first) if i != label):
        return True
    # Columns may be called 0, 1, 2, ...: then only the label's name is no number, while the
    # label below it is one. (Text labels in both lines leave the first a sample.)
    second = head[1] if len(head) > 1 else []
    return (
        label is not None
        and label < len(second)
        and not _is_number(first[label])
        and _is_number(second[label])
    )


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _labels(cells: list[str], path: Path, first: int) -> Labels:
    """Whole numbers as integers ("3", "3.0"), other text as it is, empty as None."""
    try:
        return np.array([int(cell) for cell in cells], dtype=np.int64)
    except ValueError:
        return [_label(cell.strip(), path, first + row) for row, cell in enumerate(cells)]


def _label(cell: str, path: Path, row: int) -> Label | None:
    try:
        number = float(cell or "nan")
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
    return int(number)
