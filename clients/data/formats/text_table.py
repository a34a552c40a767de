"""Rows of cells of text, whatever parts them: what `csv_table.py` and `json_table.py` share."""

from __future__ import annotations

import codecs
import csv
import gzip
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, ClassVar, Final, cast

from clients.data.formats.cells import numbers_of
from clients.data.formats.numerals import POINT, Numerals
from clients.data.formats.rows import check_encoded, check_named_once
from clients.data.formats.times import Times
from clients.http.errors import InputError

LOOK_AT: Final = 100
"""Rows that are looked at before any is read."""

_SHOW_COUNTING: Final = 30  # rows; fewer may be as many of one week


class TextTable(ABC):
    """A table of text.

    Arguments:
        path: Where it is.
        text_columns: Names or indices of columns that may hold text, None for none.
        columns: Names or indices of the columns beside these that are read; None: all.
        numerals: How numbers are written.
        like: A table that this one goes on: it has the same columns, and no line that names them.
        first_row: Number of its first row, where others came before it.

    Attributes:
        kind: What it is, for messages.
        delimiter: What parts cells.
        width: How many columns it has.
        header: Their names, or None.
        found: Index of each of the columns that may hold text; None for none.
        chosen: Index of each of the columns that were chosen.
        first_line: The cells of the first line, or names of columns where each line has them.

    Raises:
        InputError: it cannot be read, or has no such column.
    """

    kind: ClassVar[str]
    delimiter = ","
    width: int
    header: list[str] | None
    found: tuple[int | None, ...]
    chosen: tuple[int, ...]
    first_line: list[str]

    def __init__(
        self,
        path: Path,
        text_columns: Sequence[str | None] = (),
        columns: Sequence[str] | None = None,
        numerals: Numerals = POINT,
        like: TextTable | None = None,
        first_row: int = 0,
        *,
        encoded: bool = False,
    ) -> None:
        self.path = path
        self.numerals = numerals
        self.first_row = first_row
        self.is_piece = like is not None  # whose lines are not those of what is read
        self._rows_seen: list[list[str]] = []  # the first ones
        if like is not None:
            self.delimiter, self.width, self.header = like.delimiter, like.width, like.header
            self.found, self.chosen, self.first_line = like.found, like.chosen, like.first_line
            return
        self._look(text_columns, columns)
        if encoded:
            check_encoded(self.header, columns or (), path=path)
        self.found = tuple(
            None if column is None else self._index(column) for column in text_columns
        )
        self.chosen = tuple(self._index(column) for column in columns or ())

    @abstractmethod
    def _look(self, text_columns: Sequence[str | None], columns: Sequence[str] | None) -> None:
        """See which columns there are, by the first lines."""

    @abstractmethod
    def records(self, check: bool) -> AbstractContextManager[Iterator[list[str]]]:
        """All rows, the names of columns left out.

        Arguments:
            check: Raise where one cannot be read; else it has no cells.
        """

    def read(
        self, size: int, start: int = 0, *, check: bool = True
    ) -> Iterator[tuple[int, list[list[str]]]]:
        """Rows from `start` on, `size` at a time, each piece after the number of its first row.

        Arguments:
            size: Rows per piece.
            start: The first row.
            check: Every row must be readable, and have as many cells as the first.
        """
        with self.records(check) as rows:
            self.next(rows, start)
            first = self.first_row + start
            while chunk := self.next(rows, size):
                if check:
                    self._check(chunk, first)
                yield first, chunk
                first += len(chunk)

    def place(self, row: int) -> str:
        """Where a row stands in the file, for messages: what editors count, too; else nothing.

        Arguments:
            row: Its number, from 0, the names of columns left out.
        """
        if self.is_piece or row < 0:
            return ""
        with suppress(InputError), self.errors():
            line = next(islice(self._lines(), row, None), None)
            return "" if line is None else f" (line {line} of the file)"
        return ""

    @abstractmethod
    def _lines(self) -> Iterator[int]:
        """The line, from 1, in which each row begins, the names of columns left out."""

    def check_named_once(self, columns: Collection[int]) -> None:
        """Raise `InputError` where two of these columns have one name; numbers are none."""
        named = [(self.header or [])[index] for index in sorted(columns) if self.header]
        names = [name for name in named if name and not self.numerals.is_feature(name)]
        twice = [name for name, times in Counter(names).items() if times > 1]
        check_named_once(self.header or (), twice, path=self.path, by_index=True)

    def name(self, column: int) -> str:
        """A column, for messages."""
        return f"column {column}" + (f" ({self.header[column]!r})" if self.header else "")

    def counter(self, apart: Collection[int]) -> int | None:
        """A column that counts the first rows by one, as tools write that keep a table's index.

        Arguments:
            apart: Columns that are not asked about.
        """
        rows = self._rows_seen
        if len(rows) < _SHOW_COUNTING or any(len(cells) != self.width for cells in rows):
            return None
        for column in range(self.width):
            cells = [row[column] for row in rows]
            if column not in apart and all(map(self.numerals.is_number, cells)):
                numbers = [self.numerals.number(cell) for cell in cells]
                if all(after - before == 1 for before, after in pairwise(numbers)):
                    return column
        return None

    def times(self, apart: Collection[int]) -> list[int]:
        """Columns of times that are written as numbers and never fall, by the first rows.

        Arguments:
            apart: Columns that are not asked about.
        """
        # Rows of another width are refused, or left out, elsewhere.
        rows = [cells for cells in self._rows_seen if len(cells) == self.width]
        found: list[int] = []
        for column in set(range(self.width)) - set(apart) if rows else ():
            numbers = numbers_of([row[column] for row in rows], self.numerals)
            seen = Times()
            if numbers is not None:
                seen.add(numbers)
            found += [column] if seen.found else []
        return sorted(found)

    def next(self, rows: Iterator[list[str]], size: int) -> list[list[str]]:
        """The next rows, `size` at most."""
        with self.errors():
            return list(islice(rows, size))

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what goes wrong while text is read into `InputError`."""
        try:
            yield
        except (csv.Error, UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
            raise InputError(
                f"{self.path} cannot be read on ({error}). Expected UTF-8 text with one sample "
                f"per line. Check the file; what another encoding was written in can be made so: "
                f"iconv -f WINDOWS-1252 -t UTF-8 old.csv > new.csv"
            ) from error

    def _check(self, chunk: list[list[str]], first: int) -> None:
        for row, cells in enumerate(chunk, first):
            if len(cells) != self.width:
                raise InputError(
                    f"{self.path}: row {row} has {len(cells)} columns, but the first "
                    f"has {self.width}{self.place(row)}. Expected the same number in every row "
                    f"(delimiter {self.delimiter!r}).",
                    row=row,
                )

    def _index(self, column: str) -> int:
        if self.header is not None and column in self.header:
            check_named_once(self.header, (column,), path=self.path, by_index=True)
            return self.header.index(column)
        index = integer(column)
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


def integer(text: str | None) -> int | None:
    """The index that a column was named by; None where it is a name."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None
