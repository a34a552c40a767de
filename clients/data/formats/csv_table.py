"""Cells of text that , ; | or a tab separates, read in pieces, plain or gzipped.

A first line that holds anything but numbers names the columns.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import ClassVar, Final

from clients.data.formats.ids import ID_NAMES
from clients.data.formats.numerals import Numerals
from clients.data.formats.rows import LABEL_NAMES
from clients.data.formats.text_table import LOOK_AT, TextTable, integer, open_text
from clients.http.errors import InputError

_USUAL_NAMES: Final = frozenset((*ID_NAMES, *LABEL_NAMES))


class CsvTable(TextTable):
    """A table whose cells a delimiter parts; as `TextTable`."""

    kind: ClassVar[str] = "csv"
    _names_first = False

    def _look(self, text_columns: Sequence[str | None], columns: Sequence[str] | None) -> None:
        path, numerals = self.path, self.numerals
        with self.errors(), open_text(path) as file:
            first = file.readline()
            if not first.strip():
                raise InputError(
                    f"{path} starts with an empty line; expected one sample per line, or the "
                    f"names of the columns. Check the file."
                )
            # The delimiter is what the first line has most of; a single column has none.
            marks = ";\t|" if numerals.decimal == "," else ",;\t|"
            self.delimiter = max(marks, key=first.count)
        with self.records(True) as rows:
            head = self.next(rows, LOOK_AT)
        self.first_line = head[0]
        self.width = len(self.first_line)
        indices = [integer(column) for column in text_columns]
        text = {index % self.width for index in indices if index is not None}
        if columns is not None:
            # What is not read may be anything.
            read = {index % self.width for one in columns if (index := integer(one)) is not None}
            text |= set(range(self.width)) - read if len(read) == len(columns) else set()
        self._names_first = _names_columns(head, text, numerals)
        names = [name.strip() for name in self.first_line]
        self.header = names if self._names_first else None
        self._rows_seen = head[self._names_first :]

    @contextmanager
    def records(self, check: bool) -> Iterator[Iterator[list[str]]]:
        """See `TextTable`."""
        with open_text(self.path) as file:
            cells = csv.reader(file, delimiter=self.delimiter, skipinitialspace=True)
            rows = (row for row in cells if row)
            self.next(rows, int(self._names_first))
            yield rows

    def _lines(self) -> Iterator[int]:
        """See `TextTable`."""
        with open_text(self.path) as file:
            reader = csv.reader(file, delimiter=self.delimiter, skipinitialspace=True)
            rows = (
                reader.line_num - sum(cell.count("\n") for cell in row) for row in reader if row
            )
            yield from islice(rows, int(self._names_first), None)


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
