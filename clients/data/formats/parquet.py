"""Parquet tables, read row group by row group. Needs pyarrow, an optional dependency.

Features are the numeric columns in the file's order, or one column of lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from clients.data.encoding import TableEncoding
from clients.data.formats.ids import as_ids
from clients.data.formats.rows import (
    READ_IDS,
    Rows,
    as_features,
    as_labels,
    check_apart,
    check_chosen,
    check_encoded,
    check_named_once,
    integer_labels,
    names_of_columns,
)
from clients.http.errors import InputError
from clients.rounding import Rounding
from service.wire import SampleId

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


class ParquetSource:
    """Samples of a Parquet file."""

    kind = "parquet"

    def __init__(
        self,
        path: Path,
        label_column: str | None = None,
        id_column: str | None = None,
        columns: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        encoding: TableEncoding | None = None,
        rounding: Rounding | None = None,
    ) -> None:
        self.path, self._encoding, self._rounding = path, encoding, rounding
        columns = columns if encoding is None else encoding.names
        with open_parquet(path) as table:
            schema = table.schema_arrow
            self.n_samples: int | None = table.metadata.num_rows
            self._label = resolve(label_column, schema.names, path)
            self._id = resolve(id_column, schema.names, path)
            check_apart(self._label, self._id, path=path)
            self._apart = [name for name in (self._label, self._id) if name is not None]
            left_out = {resolve(column, schema.names, path) for column in drop}
            left_out |= set(self._apart)
            if encoding is not None:
                check_encoded(schema.names, encoding.names, path=path)
            if columns is not None:
                chosen = {resolve(column, schema.names, path) for column in columns}
                check_chosen(chosen & left_out, None, path=path)
                left_out |= set(schema.names) - chosen
            self._columns = [name for name in schema.names if name not in left_out]
            check_named_once(schema.names, self._columns, path=path, by_index=False)
            if encoding is None:
                self._check(schema)
            first = next(table.iter_batches(1, columns=self._columns), None)
        if first is None or not self._columns:
            raise InputError(
                f"{path} has {self.n_samples} rows and {len(self._columns)} feature columns; "
                f"expected at least one of each. Check the file and --label-column."
            )
        self.labelled = self._label is not None
        lists = any(_is_list(schema.field(name).type) for name in self._columns)
        names = None if lists else self._columns
        self.feature_names = names_of_columns(names if encoding is None else encoding.features)
        self.n_features = (
            self._features(first, 0).shape[1] if encoding is None else len(encoding.features)
        )

    def read(self, size: int, start: int = 0) -> Iterator[Rows]:
        for first, pieces in read_columns(self.path, self._columns + self._apart, size, start):
            yield self._rows(pieces, first)

    def read_ids(self) -> Iterator[list[SampleId]]:
        if self._id is None:
            return
        for first, pieces in read_columns(self.path, [self._id], READ_IDS):
            yield as_ids(column_of(pieces, self._id), path=self.path, start=first)

    def _rows(self, pieces: list[pa.RecordBatch], first: int) -> Rows:
        sizes = [piece.num_rows for piece in pieces]
        starts = [first, *(first + np.cumsum(sizes)).tolist()]
        features = np.concatenate([*map(self._features, pieces, starts)])
        labels = None
        if self._label is not None:
            labels = value_labels(column_of(pieces, self._label), self.path, first)
        ids = None
        if self._id is not None:
            ids = as_ids(column_of(pieces, self._id), path=self.path, start=first)
        return Rows(first, features, labels, ids)

    def _features(self, piece: pa.RecordBatch, first: int) -> NDArray[Any]:
        if self._encoding is not None:
            cells = [piece.column(name).to_pylist() for name in self._encoding.names]
            encoded = self._encoding.encode_columns(cells, str(self.path), first)
            return as_features(encoded, path=self.path, start=first)
        columns: list[Any] = []
        for name in self._columns:
            column = piece.column(name)
            if column.null_count:
                row = first + column.is_null().to_pylist().index(True)
                raise InputError(
                    f"{self.path}: row {row}, column {name!r} is null; every feature must be a "
                    f"number. Drop or fill missing values before sending, or encode them "
                    f"(`gmr encoding`).",
                    row=row,
                )
            columns.append(self._lists(column, name, first) if _is_list(column.type) else column)
        if len(columns) == 1 and isinstance(columns[0], np.ndarray):
            return as_features(columns[0], path=self.path, start=first)
        arrays = [column.to_numpy(zero_copy_only=False) for column in columns]
        # All uint8 stays uint8; a mixture becomes the type that holds every column.
        return as_features(
            np.stack(arrays, axis=1),
            path=self.path,
            start=first,
            rounding=self._rounding,
            names=self._columns,
        )

    def _lists(self, column: Any, name: str, first: int) -> NDArray[Any]:
        lengths = np.diff(column.offsets.to_numpy()) if hasattr(column, "offsets") else None
        if lengths is not None and len(set(lengths.tolist())) > 1:
            row = int(np.flatnonzero(lengths != lengths[0])[0])
            raise InputError(
                f"{self.path}: row {first + row} of column {name!r} holds {lengths[row]} values, "
                f"row {first} holds {lengths[0]}. Expected lists of one length.",
                row=first + row,
            )
        flat = column.flatten().to_numpy(zero_copy_only=False)
        rows: NDArray[Any] = flat.reshape(len(column), -1)
        return rows

    def _check(self, schema: pa.Schema) -> None:
        import pyarrow.types as types

        lists = [name for name in self._columns if _is_list(schema.field(name).type)]
        for name in self._columns:
            kind = schema.field(name).type
            element = kind.value_type if _is_list(kind) else kind
            if not (
                types.is_integer(element) or types.is_floating(element) or types.is_boolean(element)
            ):
                raise InputError(
                    f"{self.path}: column {name!r} holds {kind}; every feature must be a number. "
                    f"Leave the column out with --drop, or encode it (`gmr encoding`), or name it "
                    f"with --label-column if it is the label, with --id-column if it is the id."
                )
        if lists and len(self._columns) > 1:
            raise InputError(
                f"{self.path} has the list column {lists[0]!r} beside {len(self._columns) - 1} "
                f"others. Expected either one column of lists or columns of numbers."
            )


def read_columns(
    path: Path, columns: list[str], size: int, start: int = 0
) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Rows from `start` on, `size` at a time, each piece after the number of its first row.

    Raises:
        InputError: the file cannot be read.
    """
    with open_parquet(path) as table:
        groups, skip = _from_row(table, start)
        if not groups:
            return
        first = start
        pieces: list[pa.RecordBatch] = []
        held = 0
        # iter_batches ends a batch at the end of a row group; ours must not.
        for piece in table.iter_batches(size, row_groups=groups, columns=columns):
            if skip:
                dropped = min(skip, piece.num_rows)
                skip -= dropped
                piece = piece.slice(dropped)
            while held + piece.num_rows >= size:
                taken = size - held
                yield first, [*pieces, piece.slice(0, taken)]
                first += size
                piece, pieces, held = piece.slice(taken), [], 0
            if piece.num_rows:
                pieces.append(piece)
                held += piece.num_rows
        if held:
            yield first, pieces


def column_of(pieces: list[pa.RecordBatch], name: str) -> list[Any]:
    """The values of one column, as Python has them."""
    return [value for piece in pieces for value in piece.column(name).to_pylist()]


def open_parquet(path: Path) -> pq.ParquetFile:
    """An open Parquet file.

    Raises:
        InputError: it cannot be read, or pyarrow is not installed.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(
            f"{path} is a Parquet file, and reading those needs pyarrow, which is not installed. "
            f"Install it with: pip install 'gmr-stream[parquet]'"
        ) from None
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} cannot be read as Parquet ({error}). Check that it is complete."
        ) from error


def resolve(column: str | None, names: list[str], path: Path) -> str | None:
    """The name of a column given by name or index; None where none is given.

    Raises:
        InputError: there is no such column, or several have its name.
    """
    if column is None:
        return None
    try:
        name = column if column in names else names[int(column)]
    except (ValueError, IndexError):
        raise InputError(
            f"{path} has no column {column!r}. Its {len(names)} columns: "
            f"{', '.join(names[:20])}{', ...' if len(names) > 20 else ''}. Give one of these "
            f"names, or an index from 0 to {len(names) - 1} (-1 is the last)."
        ) from None
    # Parquet is read by name.
    check_named_once(names, (name,), path=path, by_index=False)
    return name


def _from_row(table: pq.ParquetFile, start: int) -> tuple[list[int], int]:
    """Row groups that hold row `start` and those after it, and rows to skip in the first."""
    skip = start
    for group in range(table.num_row_groups):
        rows = table.metadata.row_group(group).num_rows
        if skip < rows:
            return list(range(group, table.num_row_groups)), skip
        skip -= rows
    return [], 0


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def value_labels(values: list[Any], path: Path, first: int) -> Any:
    """Integers, whole floats or text as labels; null, NaN and empty text as None."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, bool}:
        return integer_labels([None if value is None else int(value) for value in values])
    if kinds <= {int, bool, float}:
        numbers = [float("nan") if value is None else float(value) for value in values]
        return as_labels(np.array(numbers), path=path, start=first)
    if kinds <= {str}:
        return [value or None for value in values]
    names = sorted(kind.__name__ for kind in kinds)
    raise InputError(
        f"{path}: labels are of type {', '.join(names)}; labels must be whole numbers or text. "
        f"Name the column of the classes with --label-column."
    )
