"""`gmr outliers`: how usual every sample of a file is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from clients.commands.answer_file import answer_all, labels_of, names_of, numbers
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


def outliers_command(
    file: SampleFile,
    out: AnswerFile = None,
    false_positive_rate: Annotated[
        float | None,
        typer.Option(help="Share of usual samples that may be called outliers, between 0 and 1."),
    ] = None,
    c: Annotated[
        float | None,
        typer.Option(help="Instead: deviations of the log-likelihood at which outliers begin."),
    ] = None,
    label_column: Annotated[
        str | None,
        typer.Option(help="Labels, which are no feature: a column's name or index, or an array."),
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
    """Say of every sample of a file how usual it is, as CSV.

    Example: gmr outliers new.csv --out verdicts.csv

    Example: gmr outliers test.csv --label-column species --false-positive-rate 0.01

    Example: gmr outliers photos/ --id-column path

    Example: tail -n +1 -F readings.csv | gmr outliers - --live

    Columns: row (or id), log_likelihood in nats, p_value (empty until enough has been learned),
    outlier (1 or 0), and label where the file has labels, which are not sent. How many outliers
    there are goes to standard error.
    """
    names = ["row" if id_column is None else "id", "log_likelihood", "p_value", "outlier"]
    n = found = 0

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
            nonlocal n, found
            answer = client.outliers(rows.features, c, false_positive_rate=false_positive_rate)
            outlying = [not inlier for inlier in answer.inliers.tolist()]
            told = [
                list(row)
                for row in zip(
                    names_of(rows),
                    answer.log_likelihoods.tolist(),
                    numbers(answer.p_values, len(rows)),
                    outlying,
                    strict=True,
                )
            ]
            if source.labelled:
                for row, label in zip(told, labels_of(rows), strict=True):
                    row.append(label)
            n += len(rows)
            found += sum(outlying)
            return answer.model_version, told

        def summary() -> Mapping[str, Any]:
            return {"outliers": found, "n": n}

        for remark in matched.remarks:
            typer.echo(remark, err=True)
        answer_all(source, batch_size, out, as_json, names, ask, summary, coming)
    for remark in () if table is None else table.remarks:
        typer.echo(remark, err=True)
    typer.echo(f"{found:,} of {n:,} samples are outliers", err=True)
