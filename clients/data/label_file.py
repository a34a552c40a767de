"""A file of ids and labels -> rows to send, whatever the format.

Columns beside the two may hold anything. A row without a label is left out: its label is
not known yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clients.data.files import FORMATS, check_has_ids, kind_of
from clients.data.formats.arrays import array_of, load_npz
from clients.data.formats.ids import ID_NAMES, as_ids, check_unique
from clients.data.formats.parquet import (
    column_of,
    open_parquet,
    read_columns,
    resolve,
    value_labels,
)
from clients.data.formats.rows import (
    LABEL_NAMES,
    READ_IDS,
    Label,
    Labels,
    as_labels,
    check_apart,
    check_count,
)
from clients.data.formats.text_source import TABLES, cell_labels
from clients.data.formats.text_table import TextTable
from clients.http.errors import InputError
from service.wire import SampleId

Piece = tuple[int, list[SampleId], Labels]
"""Number of the first row, ids, labels."""


@dataclass(frozen=True)
class LabelRows:
    """Consecutive rows of a file of labels.

    Attributes:
        start: Position of the first in the file, from 0.
        rows: How many rows of the file these are.
        ids: Of those that have a label.
        labels: Theirs.
    """

    start: int
    rows: int
    ids: list[SampleId]
    labels: list[Label]


class LabelFile:
    """Ids and labels of a .csv, .tsv, .jsonl, .parquet or .npz file.

    Arguments:
        path: The file.
        id_column: A column's name or index, or the name of an array; None for `id`,
            `sample_id`, `ids` or `sample_ids`, whichever is there.
        label_column: Likewise; None for `label` or `labels`.
        like: A table of text that this one goes on: it has the same columns, and its rows are
            numbered from `first_row`.
        first_row: Number of its first row.
        ids_once: Whether an id may name one row only, for which all of them are read.

    Attributes:
        n_rows: How many there are, or None when only reading on would tell.

    Raises:
        InputError: there is no such file or column, or an id names two rows.
    """

    def __init__(
        self,
        path: Path,
        id_column: str | None = None,
        label_column: str | None = None,
        *,
        like: LabelFile | None = None,
        first_row: int = 0,
        ids_once: bool = True,
    ) -> None:
        if not path.is_file():
            what = "is a folder, not a file" if path.is_dir() else "does not exist"
            raise InputError(f"{path} {what}. Expected a file: {FORMATS}. Check the path.")
        self.path = path
        self.n_rows: int | None = None
        self._table: TextTable | None = None
        self._like, self._first_row = None if like is None else like._table, first_row
        kind = kind_of(path)
        check_has_ids(path, kind)
        opened = {
            "csv": self._text,
            "jsonl": self._text,
            "parquet": self._parquet,
            "npz": self._npz,
        }[kind]
        self._pieces = opened(id_column, label_column)
        if ids_once:
            check_unique(lambda: (ids for _, ids, _ in self._pieces(READ_IDS)), path=path)

    def read(self, size: int) -> Iterator[LabelRows]:
        """All rows, `size` at a time; only the last may be fewer.

        Raises:
            InputError: an id or a label cannot be used.
        """
        for start, ids, labels in self._pieces(size):
            plain = labels.tolist() if isinstance(labels, np.ndarray) else labels
            known = [(id, label) for id, label in zip(ids, plain, strict=True) if label is not None]
            yield LabelRows(start, len(ids), [id for id, _ in known], [label for _, label in known])

    def _text(self, id_column: str | None, label_column: str | None) -> _Read:
        read_as, like = TABLES[kind_of(self.path)], self._like
        if like is None:
            names = read_as(self.path).first_line
            id_column = id_column or self._usual(names, ID_NAMES, "ids", "--id-column")
            label_column = label_column or self._usual(
                names, LABEL_NAMES, "labels", "--label-column"
            )
        columns = (id_column, label_column)
        table = read_as(self.path, columns, like=like, first_row=self._first_row)
        self._table = table
        id, label = table.found
        assert id is not None
        assert label is not None
        check_apart(label, id, path=self.path)

        def read(size: int) -> Iterator[Piece]:
            for start, rows in table.read(size):
                ids = as_ids((cells[id] for cells in rows), path=self.path, start=start)
                yield start, ids, cell_labels([cells[label] for cells in rows], self.path, start)

        return read

    def _parquet(self, id_column: str | None, label_column: str | None) -> _Read:
        with open_parquet(self.path) as table:
            names = table.schema_arrow.names
            self.n_rows = table.metadata.num_rows
        id_column = id_column or self._usual(names, ID_NAMES, "ids", "--id-column")
        label_column = label_column or self._usual(names, LABEL_NAMES, "labels", "--label-column")
        id, label = (resolve(column, names, self.path) for column in (id_column, label_column))
        assert id is not None
        assert label is not None
        check_apart(label, id, path=self.path)

        def read(size: int) -> Iterator[Piece]:
            for start, rows in read_columns(self.path, [id, label], size):
                ids = as_ids(column_of(rows, id), path=self.path, start=start)
                yield start, ids, value_labels(column_of(rows, label), self.path, start)

        return read

    def _npz(self, id_column: str | None, label_column: str | None) -> _Read:
        arrays = load_npz(self.path)
        names = list(arrays)
        id_column = id_column or self._usual(names, ID_NAMES, "ids", "--id-column")
        label_column = label_column or self._usual(names, LABEL_NAMES, "labels", "--label-column")
        check_apart(label_column, id_column, path=self.path)
        found_ids = array_of(arrays, id_column, "ids", self.path)
        found_labels = array_of(arrays, label_column, "labels", self.path)
        for what, array in (("ids", found_ids), ("labels", found_labels)):
            if array.ndim != 1:
                raise InputError(
                    f"{self.path} holds {what} of shape {array.shape}; expected (N,), one per "
                    f"sample. Name another array."
                )
        check_count(len(found_ids), len(found_labels), path=self.path)
        self.n_rows = len(found_ids)

        def read(size: int) -> Iterator[Piece]:
            for start in range(0, len(found_ids), size):
                ids = as_ids(found_ids[start : start + size].tolist(), path=self.path, start=start)
                labels = found_labels[start : start + size]
                yield start, ids, as_labels(labels, path=self.path, start=start)

        return read

    def _usual(self, names: Sequence[Any], usual: Sequence[str], what: str, option: str) -> str:
        for name in usual:
            if name in names:
                return name
        shown = ", ".join(map(str, names[:20])) + (", ..." if len(names) > 20 else "")
        raise InputError(
            f"{self.path} has no column or array called {' or '.join(usual)}; it has "
            f"{shown}. Name the one with the {what} with {option}; a column may be given by its "
            f"index, too: {option} 0."
        )


_Read = Callable[[int], Iterator[Piece]]
