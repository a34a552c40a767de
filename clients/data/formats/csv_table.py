"""Cells of text that , ; | or a tab separates, read in pieces, plain or gzipped.

A first line that holds anything but numbers names the columns.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, Final, cast

from clients.data.formats.ids import ID_NAMES
from clients.data.formats.numerals import POINT, Numerals
from clients.data.formats.rows import LABEL_NAMES
from clients.http.errors import InputError

_LOOK_AT: Final = 100
_SHOW_COUNTING: Final = 30  # rows; fewer may be as many of one week
_USUAL_NAMES: Final = frozenset((*ID_NAMES, *LABEL_NAMES))


class CsvTable:
    """A text table.

    Arguments:
        path: Where it is.
        text_columns: Names or indices of columns that may hold text, None for none.
        columns: Names or indices of the columns beside these that are read; None: all.
        numerals: How numbers are written.

    Attributes:
        width: How many columns it has.
        header: Their names, or None.
        found: Index of each of `text_columns`.
        chosen: Index of each of `columns`.

    Raises:
        InputError: it cannot be read, or has no such column.
    """

    def __init__(
        self,
        path: Path,
        text_columns: Sequence[str | None] = (),
        columns: Sequence[str] | None = None,
        numerals: Numerals = POINT,
    ) -> None:
        self.path = path
        with self._errors(), open_text(path) as file:
            first = file.readline()
            if not first.strip():
                raise InputError(
                    f"{path} starts with an empty line; expected one sample per line, or the "
                    f"names of the columns. Check the file."
                )
            # The delimiter is what the first line has most of; a single column has none.
            marks = ";\t|" if numerals.decimal == "," else ",;\t|"
            self.delimiter = max(marks, key=first.count)
        with self._records() as reader:
            head = self._next(reader, _LOOK_AT)
        self.first_line = head[0]
        self._head, self._numerals = head, numerals
        self.width = len(self.first_line)
        indices = [_integer(column) for column in text_columns]
        text = {index % self.width for index in indices if index is not None}
        if columns is not None:
            # What is not read may be anything.
            read = {index % self.width for one in columns if (index := _integer(one)) is not None}
            text |= set(range(self.width)) - read if len(read) == len(columns) else set()
        names = [name.strip() for name in self.first_line]
        self.header = names if _names_columns(head, text, numerals) else None
        self.found = tuple(
            None if column is None else self._index(column) for column in text_columns
        )
        self.chosen = tuple(self._index(column) for column in columns or ())

    def read(
        self, size: int, start: int = 0, *, check: bool = True
    ) -> Iterator[tuple[int, list[list[str]]]]:
        """Rows from `start` on, `size` at a time, each piece after the number of its first row.

        Arguments:
            size: Rows per piece.
            start: The first row.
            check: Every row must have as many cells as the first.
        """
        with self._records() as reader:
            self._next(reader, start + (self.header is not None))
            first = start
            while chunk := self._next(reader, size):
                if check:
                    self._check(chunk, first)
                yield first, chunk
                first += len(chunk)

    def name(self, column: int) -> str:
        """A column, for messages."""
        return f"column {column}" + (f" ({self.header[column]!r})" if self.header else "")

    def counter(self, apart: Collection[int]) -> int | None:
        """A column that counts the first rows by one, as tools write that keep a table's index.

        Arguments:
            apart: Columns that are not asked about.
        """
        rows = self._head[self.header is not None :]
        if len(rows) < _SHOW_COUNTING or any(len(cells) != self.width for cells in rows):
            return None
        for column in range(self.width):
            cells = [row[column] for row in rows]
            if column not in apart and all(map(self._numerals.is_number, cells)):
                numbers = [self._numerals.number(cell) for cell in cells]
                if all(after - before == 1 for before, after in pairwise(numbers)):
                    return column
        return None

    def _check(self, chunk: list[list[str]], first: int) -> None:
        for row, cells in enumerate(chunk, first):
            if len(cells) != self.width:
                raise InputError(
                    f"{self.path}: row {row} has {len(cells)} columns, but the first "
                    f"has {self.width}. Expected the same number in every row "
                    f"(delimiter {self.delimiter!r}).",
                    row=row,
                )

    def _index(self, column: str) -> int:
        if self.header is not None and column in self.header:
            return self.header.index(column)
        index = _integer(column)
        if index is None or not -self.width <= index < self.width:
            what = "names" if self.header else "cells of the first line, which names none"
            cells = self.first_line
            raise InputError(
                f"{self.path} has no column {column!r}. Its {self.width} columns ({what}): "
                f"{', '.join(cells[:20])}{', ...' if len(cells) > 20 else ''}. Give a name, "
                f"or an index from 0 to {self.width - 1} (-1 is the last)."
            )
        return index % self.width

    @contextmanager
    def _records(self) -> Iterator[Iterator[list[str]]]:
        with open_text(self.path) as file:
            cells = csv.reader(file, delimiter=self.delimiter, skipinitialspace=True)
            yield (row for row in cells if row)

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
                f"per line. Check the file; what another encoding was written in can be made so: "
                f"iconv -f WINDOWS-1252 -t UTF-8 old.csv > new.csv"
            ) from error


@contextmanager
def open_text(path: Path) -> Iterator[IO[str]]:
    """The text of a file, unpacked where it is gzipped; UTF-8, or UTF-16 where it is marked so."""
    packed = path.suffix == ".gz"
    with gzip.open(path) if packed else path.open("rb") as file:
        marked = file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    encoding = "utf-16" if marked else "utf-8-sig"
    if packed:
        with gzip.open(path, "rt", encoding=encoding, newline="") as file:
            yield cast(IO[str], file)
    else:
        with path.open(encoding=encoding, newline="") as file:
            yield file


def _names_columns(head: list[list[str]], text: set[int], numerals: Numerals) -> bool:
    """Whether the first line names the columns, from what follows it.

    Arguments:
        head: The first lines.
        text: Columns that may hold text, so far as they are known by their index.
        numerals: How numbers are written.
    """
    first, is_number = head[0], numerals.is_number
    if not all(numerals.is_feature(cell) for i, cell in enumerate(first) if i not in text):
        return True
    # Columns may be called 0, 1, 2, ...: then only the label's name is no number, while the
    # labels below it are. (Text labels below leave the first a sample.)
    below = head[1:]
    return any(
        first[i].strip().casefold() in _USUAL_NAMES
        or (
            not is_number(first[i])
            and len(below) > 0
            and all(i < len(cells) and is_number(cells[i]) for cells in below)
        )
        for i in text
    )


def _integer(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
