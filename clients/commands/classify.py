"""`gmr classify`: the class of every sample of a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from clients.commands.answer_file import labels_of, numbers, plain
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
    """Name the class of every sample of a file, as CSV.

    Example: gmr classify new.csv --out classes.csv

    Example: gmr classify test.csv --label-column species --p-values

    Example: cat new.csv | gmr classify -

    Example: gmr classify photos/ --id-column path --size 28,28 --grey

    Example: gmr classify fleet.csv --model-column machine

    Columns: row (or id), class, probability; p_value with --p-values; with --unknown-rate an
    unknown answer has no class; label where the file has labels. Labels are not sent: the accuracy
    on them goes to standard error. With --model-column each row is asked of the named model
    (gmr models) that the column says, and a column model stands after the first.
    """
    question = _Classes(p_values or unknown_rate is not None, unknown_rate)
    table = Table(
        file,
        by_place=by_place,
        columns=columns,
        drop=drop,
        label_column=label_column,
        labels=labels,
        id_column=id_column,
        encoding=None if encoding is None else TableEncoding.read(encoding),
        decimal=decimal,
        skip_bad_rows=skip_bad_rows,
        images=form_of(size, grey),
        live=live,
        every=every,
    )
    Asking(url, batch_size, out, as_json, model_column).answer(table, question)
    if question.known:
        typer.echo(question.accuracy_in_words(), err=True)


class _Classes:
    """The class of every sample, compared with labels where there are any.

    Arguments:
        p_values: Whether to ask how usual each is.
        unknown_rate: Share of usual samples that may be called unknown; None: none is.

    Attributes:
        known: Labelled samples so far.
    """

    def __init__(self, p_values: bool, unknown_rate: float | None) -> None:
        self._p_values, self._unknown_rate = p_values, unknown_rate
        self.names = ("class", "probability", *(("p_value",) if p_values else ()))
        self.known = self._right = self._unknown = 0

    def ask(self, client: GMRClient, rows: Rows) -> tuple[int, list[list[Any]]]:
        """See `Question`."""
        answer = client.classify(
            rows.features, unknown_rate=self._unknown_rate, p_values=self._p_values
        )
        classes = [plain(label) for label in answer.labels]
        likeliest = answer.probabilities.max(axis=1).tolist()
        told = [list(pair) for pair in zip(classes, likeliest, strict=True)]
        if self._p_values:
            for row, value in zip(told, numbers(answer.p_values, len(rows)), strict=True):
                row.append(value)
        true = labels_of(rows)
        pairs = [pair for pair in zip(classes, true, strict=True) if pair[1] is not None]
        self._right += sum(named == label for named, label in pairs)
        self._unknown += sum(named is None for named, _ in pairs)
        self.known += len(pairs)
        return answer.model_version, told

    def summary(self) -> Mapping[str, Any]:
        """See `Question`."""
        accuracy = self._right / self.known if self.known else None
        return {"accuracy": accuracy, "labelled": self.known, "unknown": self._unknown}

    def accuracy_in_words(self) -> str:
        """How many labelled samples were named by their labels."""
        unknown = self._unknown
        part = f", {unknown} of them unknown, which counts as wrong" if unknown else ""
        return (
            f"accuracy {100 * self._right / self.known:.2f} % ({self._right:,} of {self.known:,} "
            f"labelled samples{part})"
        )
