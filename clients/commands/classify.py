"""`gmr classify`: the class of every sample of a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from clients.commands.answer_file import answer_all, labels_of, names_of, numbers, plain
from clients.commands.image_form import form_of
from clients.commands.options import (
    AnswerFile,
    ByPlace,
    DecimalSign,
    DroppedColumns,
    EncodingFile,
    Every,
    FeatureColumns,
    IdColumn,
    ImageSize,
    InGrey,
    InsteadOfCsv,
    Live,
    SampleFile,
    SamplesPerQuestion,
    SkipBadRows,
    Url,
)
from clients.data.encoding import TableEncoding
from clients.data.files import Rows
from clients.data.live import input_of
from clients.http.client import GMRClient
from clients.sending.feature_names import open_matched


def classify_command(
    file: SampleFile,
    out: AnswerFile = None,
    p_values: Annotated[
        bool, typer.Option("--p-values", help="Tell how usual each sample is, too.")
    ] = False,
    unknown_rate: Annotated[
        float | None,
        typer.Option(help="Share of usual samples that may be called unknown, between 0 and 1."),
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(help="Labels, to be compared: a column's name or index, or an array."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(help="Labels: a file of their own (.npy, .npz or IDX).")
    ] = None,
    id_column: IdColumn = None,
    columns: FeatureColumns = None,
    drop: DroppedColumns = None,
    encoding: EncodingFile = None,
    by_place: ByPlace = False,
    decimal: DecimalSign = ".",
    skip_bad_rows: SkipBadRows = False,
    size: ImageSize = None,
    grey: InGrey = False,
    batch_size: SamplesPerQuestion = 500,
    live: Live = False,
    every: Every = 1.0,
    url: Url = None,
    as_json: InsteadOfCsv = False,
) -> None:
    """Name the class of every sample of a file, as CSV.

    Example: gmr classify new.csv --out classes.csv

    Example: gmr classify test.csv --label-column species --p-values

    Example: cat new.csv | gmr classify -

    Example: gmr classify photos/ --id-column path --size 28,28 --grey

    Columns: row (or id), class, probability; p_value with --p-values; with --unknown-rate an
    unknown answer has no class; label where the file has labels. Labels are not sent: the accuracy
    on them goes to standard error.
    """
    names = ["row" if id_column is None else "id", "class", "probability"]
    asked = p_values or unknown_rate is not None
    names += ["p_value"] if asked else []
    right = known = unknown = 0

    table = None if encoding is None else TableEncoding.read(encoding)
    reading = input_of(file, live=live, wait_s=every, most=batch_size)
    with reading as (path, coming), GMRClient(url) as client:
        matched = open_matched(
            client,
            path,
            by_place=by_place,
            columns=columns,
            drop=drop,
            label_column=label_column,
            labels=labels,
            id_column=id_column,
            encoding=table,
            decimal=decimal,
            skip_bad_rows=skip_bad_rows,
            images=form_of(size, grey),
            live=coming,
        )
        source = matched.source
        names += ["label"] if source.labelled else []

        def ask(rows: Rows) -> tuple[int, list[list[Any]]]:
            nonlocal right, known, unknown
            answer = client.classify(rows.features, unknown_rate=unknown_rate, p_values=asked)
            classes = [plain(label) for label in answer.labels]
            told = [
                list(row)
                for row in zip(
                    names_of(rows), classes, answer.probabilities.max(axis=1).tolist(), strict=True
                )
            ]
            if asked:
                for row, value in zip(told, numbers(answer.p_values, len(rows)), strict=True):
                    row.append(value)
            if source.labelled:
                true = labels_of(rows)
                for row, label in zip(told, true, strict=True):
                    row.append(label)
                pairs = [pair for pair in zip(classes, true, strict=True) if pair[1] is not None]
                right += sum(named == label for named, label in pairs)
                unknown += sum(named is None for named, _ in pairs)
                known += len(pairs)
            return answer.model_version, told

        def summary() -> Mapping[str, Any]:
            accuracy = right / known if known else None
            return {"accuracy": accuracy, "labelled": known, "unknown": unknown}

        for remark in matched.remarks:
            typer.echo(remark, err=True)
        answer_all(source, batch_size, out, as_json, names, ask, summary, coming)
    for remark in () if table is None else table.remarks:
        typer.echo(remark, err=True)
    if known:
        part = f", {unknown} of them unknown, which counts as wrong" if unknown else ""
        typer.echo(
            f"accuracy {100 * right / known:.2f} % ({right:,} of {known:,} labelled samples{part})",
            err=True,
        )
