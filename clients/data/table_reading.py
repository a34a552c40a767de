"""How the table of a data set is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from clients.data.encoding import TableEncoding


@dataclass(frozen=True)
class TableReading:
    """Which columns of a table are what, as `clients.data.files.open_source` takes it.

    Attributes:
        label_column: The class, by name or index; None: the last column.
        id_column: Ids, which are no feature.
        columns: The features; None: all others.
        drop: Columns that are none.
        encoding: Of a table with categories or missing numbers.
        decimal: The sign before decimals.
        skip_bad_rows: Leave out rows that cannot be used.
    """

    label_column: str | None = None
    id_column: str | None = None
    columns: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    encoding: TableEncoding | None = None
    decimal: str = "."
    skip_bad_rows: bool = False


AS_IT_IS: Final = TableReading()
"""The last column is the class, and all others are features."""
