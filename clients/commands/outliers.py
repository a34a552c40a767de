"""`gmr outliers`: how usual every sample of a file is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from clients.commands.answer_file import numbers
from clients.commands.asking import Asking
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
    ModelColumn,
    SampleFile,
    SamplesPerQuestion,
    SkipBadRows,
    Url,
)
from clients.commands.question import Table
from clients.data.encoding import TableEncoding
from clients.data.files import Rows
from clients.http.client import GMRClient


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
    model_column: ModelColumn = None,
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

    Example: gmr outliers fleet.csv --model-column machine

    Columns: row (or id), log_likelihood in nats, p_value (empty until enough has been learned),
    outlier (1 or 0), and label where the file has labels, which are not sent. How many outliers
    there are goes to standard error. With --model-column each row is asked of the named model
    (gmr models) that the column says, and a column model stands after the first.
    """
    question = _Outliers(c, false_positive_rate)
    table = Table(
        file,
        by_place=by_place,
        columns=columns,
        drop=drop,
        label_column=label_column,
        labels=None,
        id_column=id_column,
        encoding=None if encoding is None else TableEncoding.read(encoding),
        decimal=decimal,
        skip_bad_rows=skip_bad_rows,
        images=form_of(size, grey),
        live=live,
        every=every,
    )
    Asking(url, batch_size, out, as_json, model_column).answer(table, question)
    typer.echo(f"{question.found:,} of {question.n:,} samples are outliers", err=True)


class _Outliers:
    """How usual every sample is.

    Arguments:
        c: Deviations of the log-likelihood at which outliers begin; None: another rule.
        false_positive_rate: Share of usual samples that may be called outliers; None: the
            service's.

    Attributes:
        n: Samples so far.
        found: Outliers among them.
    """

    names = ("log_likelihood", "p_value", "outlier")

    def __init__(self, c: float | None, false_positive_rate: float | None) -> None:
        self._c, self._false_positive_rate = c, false_positive_rate
        self.n = self.found = 0

    def ask(self, client: GMRClient, rows: Rows) -> tuple[int, list[list[Any]]]:
        """See `Question`."""
        answer = client.outliers(
            rows.features, self._c, false_positive_rate=self._false_positive_rate
        )
        outlying = [not inlier for inlier in answer.inliers.tolist()]
        likelihoods, p_values = answer.log_likelihoods.tolist(), numbers(answer.p_values, len(rows))
        self.n += len(rows)
        self.found += sum(outlying)
        told = [list(row) for row in zip(likelihoods, p_values, outlying, strict=True)]
        return answer.model_version, told

    def summary(self) -> Mapping[str, Any]:
        """See `Question`."""
        return {"outliers": self.found, "n": self.n}
