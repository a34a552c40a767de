"""Names of a table's columns, read before it is known which of them are features."""

from __future__ import annotations

from pathlib import Path

from clients.data.files import kind_of
from clients.data.formats.numerals import Numerals
from clients.data.formats.parquet import open_parquet
from clients.data.formats.text_source import TABLES


def header_of(path: Path, decimal: str = ".") -> tuple[str, ...] | None:
    """What the columns of a table are called; None where a file is no table, or names nothing.

    Of a .csv it is the first line, unless that holds numbers alone. That line may be a sample with
    text in it, so what it gives is a name only where it is one that is looked for.

    Arguments:
        path: The file.
        decimal: The sign before the decimals of a text's numbers.

    Raises:
        InputError: It cannot be read.
    """
    if not path.is_file():
        return None  # which is told where it is opened
    kind = kind_of(path)
    if kind == "parquet":
        with open_parquet(path) as table:
            return tuple(table.schema_arrow.names)
    if kind not in TABLES:
        return None
    numerals = Numerals(decimal)
    line = [cell.strip() for cell in TABLES[kind](path, numerals=numerals).first_line]
    return None if all(map(numerals.is_feature, line)) else tuple(line)
