"""Ids and labels that come line by line, read as `label_file.py` reads a file of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from clients.data.label_file import LabelFile, LabelRows
from clients.data.live import LiveInput


class LiveLabels:
    """Ids and labels as they come; once, from the first.

    An id may come again in a later piece: the service tells it as a duplicate.

    Arguments:
        live: Where they come from.
        id_column: As of `LabelFile`.
        label_column: Likewise.

    Raises:
        InputError: There is no such column.
    """

    path = Path("standard input")
    n_rows: int | None = None

    def __init__(
        self, live: LiveInput, id_column: str | None = None, label_column: str | None = None
    ) -> None:
        self._live = live
        self._first = LabelFile(live.path, id_column, label_column)

    def read(self, size: int) -> Iterator[LabelRows]:
        """All rows, `size` at a time at most, as they come.

        Raises:
            InputError: An id or a label cannot be used.
        """
        row, file = 0, self._first
        while True:
            for rows in file.read(size):
                row += rows.rows
                yield rows
            if (piece := self._live.next(size)) is None:
                return
            file = LabelFile(piece[0], like=self._first, first_row=row)
