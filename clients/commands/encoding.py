"""`gmr encoding`: how a table with categories and missing values becomes numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from clients.commands.answer_file import output
from clients.commands.options import DecimalSign, DroppedColumns, FeatureColumns, ModelColumn
from clients.data.encoding import Categories
from clients.data.formats.numerals import Numerals
from clients.data.formats.rows import column_names
from clients.data.standard_input import named_file
from clients.data.survey import MOST_CATEGORIES, Survey, survey
from core.counted import counted


def encoding_command(
    file: Annotated[
        Path,
        typer.Argument(help="A .csv, .tsv, .jsonl or .parquet with named columns; - is stdin."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="A file for the encoding; without it standard output.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Labels, which are no feature: a column's name or index.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Ids, which are no feature: as --label-column.")
    ] = None,
    model_column: ModelColumn = None,
    columns: FeatureColumns = None,
    drop: DroppedColumns = None,
    categories: Annotated[
        str | None,
        typer.Option(help="Columns whose numbers are codes of categories, separated by commas."),
    ] = None,
    most: Annotated[
        int, typer.Option(min=1, help="Categories of a column, at most.")
    ] = MOST_CATEGORIES,
    decimal: DecimalSign = ".",
    tell_missing: Annotated[
        bool,
        typer.Option(help="Let features of their own say where numbers are missing, or do not."),
    ] = True,
) -> None:
    """Say how a table with categories or missing values becomes numbers, as JSON.

    Example: gmr encoding orders.csv --label-column fraud --out orders.encoding.json

    Example: gmr encoding trips.parquet --categories zone --out trips.encoding.json

    `gmr ingest`, `gmr classify` and `gmr outliers` take the file with --encoding, so that every
    later table becomes the same features; programs read it with gmr.TableEncoding. A category
    becomes a column of 0 and 1. Where a number is missing the column's median stands, and a column
    of 0 and 1 says so. Standard error tells what was found, and what was left out: among others
    numbers that never fall, in the whole table or, with --model-column, in the rows of any model.
    Name the features with --columns to keep such a column, as of a table that is sorted by it.

    Example: gmr encoding fleet.csv --model-column machine --out fleet.encoding.json
    """
    apart = [name for name in (label_column, id_column) if name is not None]
    with named_file(file) as path:
        found = survey(
            path,
            apart=[*apart, *(column_names(drop) or ())],
            columns=column_names(columns),
            categories=column_names(categories) or (),
            most=most,
            numerals=Numerals(decimal),
            tell_missing=tell_missing,
            model_column=model_column,
        )
    with output(out) as written:
        written.write(found.encoding.to_json().decode())
    _tell(found)


def _tell(found: Survey) -> None:
    """What the table holds, one line a column."""
    console = Console(stderr=True)
    n = len(found.encoding.features)
    lines = [f"{counted(found.n_rows, 'row')}, {counted(n, 'feature')}:"]
    for column in found.encoding.columns:
        if isinstance(column, Categories):
            kinds = counted(len(column.categories), "category", "categories")
            lines.append(f"  {column.name}: {kinds} ({_some(column.categories)})")
        else:
            told = f", some missing: {column.missing:g} there" if column.says_missing else ""
            lines.append(f"  {column.name}: numbers{told}")
    lines += [f"  {name}: left out, {why}" for name, why in found.left_out.items()]
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True, markup=False)


def _some(categories: tuple[str, ...]) -> str:
    return ", ".join(categories[:4]) + (", ..." if len(categories) > 4 else "")
