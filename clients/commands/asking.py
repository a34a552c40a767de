"""What `gmr classify` and `gmr outliers` have in common: a table, a question, and answers.

A table may say the model of each row (`--model-column`). Then its rows are asked about model after
model; answers wait in a file until all are there, and are written in the order of the table.
"""

from __future__ import annotations

import tempfile
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import orjson
import typer
from rich.console import Console

from clients.commands.answer_file import Answers, asked_of, bar
from clients.commands.file_sender import say_error
from clients.commands.named_parts import (
    check_no_model,
    missing_models,
    no_such_models,
    of_whole,
)
from clients.data.encoding import TableEncoding
from clients.data.files import Rows
from clients.data.formats.image import ImageForm
from clients.data.formats.rows import column_names
from clients.data.live import input_of
from clients.data.parts import Part, Parts, parts_of
from clients.data.standard_input import STANDARD_INPUT, title_of
from clients.http.address import address
from clients.http.client import GMRClient
from clients.http.errors import InputError, NotLearnedYet, RequestRefused
from clients.sending.bar import check_reachable
from clients.sending.feature_names import Matched, open_matched
from core.counted import counted


class Question(Protocol):
    """What is asked about samples, and what is to be said of all answers."""

    @property
    def names(self) -> Sequence[str]:
        """Columns of an answer, after the sample's own name."""
        ...

    def ask(self, client: GMRClient, rows: Rows) -> tuple[int, list[list[Any]]]:
        """The version that answered, and an answer per sample."""
        ...

    def summary(self) -> Mapping[str, Any]:
        """What is to be said of all of them, once they are there."""
        ...


@dataclass(frozen=True)
class Table:
    """The file that is asked about; arguments are as of `open_matched`.

    Arguments:
        file: It; - is standard input.
        live: Whether it is lines that come one by one.
        every: Seconds that such a line waits for others.
    """

    file: Path
    by_place: bool
    columns: str | None
    drop: str | None
    label_column: str | None
    labels: Path | None
    id_column: str | None
    encoding: TableEncoding | None
    decimal: str
    skip_bad_rows: bool
    images: ImageForm
    live: bool
    every: float

    @property
    def name(self) -> str:
        """What it is called to the person who asks."""
        return "standard input" if self.file == STANDARD_INPUT else str(self.file)

    def opened(self, client: GMRClient, path: Path, **others: Any) -> Matched:
        """The file, or a part of it, with the features of the client's model."""
        return open_matched(
            client,
            path,
            by_place=self.by_place,
            columns=self.columns,
            drop=self.drop,
            label_column=self.label_column,
            labels=self.labels,
            id_column=self.id_column,
            encoding=self.encoding,
            decimal=self.decimal,
            skip_bad_rows=self.skip_bad_rows,
            images=self.images,
            **others,
        )


@dataclass(frozen=True)
class Asking:
    """Asks a service about tables.

    Arguments:
        url: Where it listens; None: where the environment says.
        batch_size: Samples per question.
        out: Where answers go; None: standard output.
        as_json: Write one JSON document in place of CSV.
        model_column: Says the model of each row; None: all are of one model.
    """

    url: str | None
    batch_size: int
    out: Path | None
    as_json: bool
    model_column: str | None

    def answer(self, table: Table, question: Question) -> None:
        """Write the answers about all samples.

        Raises:
            InputError: The table cannot be read, or some model could not be asked.
            ClientError: The service is away, or refuses.
        """
        if self.model_column is None:
            self._by_one(table, question)
        else:
            self._by_each(table, question, self.model_column)
        for remark in () if table.encoding is None else table.encoding.remarks:
            typer.echo(remark, err=True)

    def _by_one(self, table: Table, question: Question) -> None:
        reading = input_of(table.file, live=table.live, wait_s=table.every, most=self.batch_size)
        with reading as (path, coming), GMRClient(self.url) as client:
            matched = table.opened(client, path, live=coming)
            source = matched.source
            for remark in matched.remarks:
                typer.echo(remark, err=True)
            columns = self._columns(table, question, labelled=source.labelled)
            with (
                Answers.to(self.out, columns, as_json=self.as_json) as answers,
                bar(source.path.name, source.n_samples, self.out) as advance,
            ):
                told = asked_of(source, self.batch_size, lambda rows: question.ask(client, rows))
                try:
                    for asked in told:
                        answers.add(asked)
                        advance(len(asked.rows))
                except KeyboardInterrupt:
                    if coming is None:
                        raise
                answers.end(question.summary())
            answers.skipped += 0 if coming is None else coming.untold
        _say_skipped(answers.skipped)

    def _by_each(self, table: Table, question: Question, column: str) -> None:
        check_no_model(self.url, column)
        _check_parted(table)
        with ExitStack() as stack:
            path, _ = stack.enter_context(
                input_of(table.file, live=False, wait_s=table.every, most=self.batch_size)
            )
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gmr-parts-")))
            encoding = table.encoding
            parts = parts_of(
                path,
                column,
                folder,
                text_columns=(
                    table.label_column,
                    table.id_column,
                    *(column_names(table.drop) or ()),
                ),
                columns=column_names(table.columns) if encoding is None else encoding.names,
                decimal=table.decimal,
                skip_bad_rows=table.skip_bad_rows,
            )
            self._check_models(parts, table.name)
            kept = stack.enter_context(_Kept(folder / "answers"))
            by_model = _ByModel(self, table, question, column, kept)
            with bar(table.name, sum(len(part.rows) for part in parts.each), self.out) as advance:
                for part in parts.each:
                    by_model.ask(part, parts, advance)
            names = self._columns(table, question, labelled=by_model.labelled)
            with Answers.to(
                self.out, [names[0], "model", *names[1:]], as_json=self.as_json
            ) as answers:
                for row in kept.read():
                    answers.write([row])
                answers.end({"model_versions": by_model.versions, **question.summary()})
        _say_skipped(parts.skipped + by_model.skipped)
        if by_model.failed:
            raise InputError(
                f"The rows of {counted(by_model.failed, 'model')} in {table.name} have no answers, "
                f"as told above; all others have. Put right what is wrong, and ask again."
            )

    def _check_models(self, parts: Parts, name: str) -> None:
        with GMRClient(self.url) as client:
            check_reachable(client)
            if missing := missing_models(client, [part.model for part in parts.each]):
                remedy = "Correct the names, or teach them first, with gmr ingest --model-column."
                raise no_such_models(name, missing, remedy)

    def _columns(self, table: Table, question: Question, *, labelled: bool) -> list[str]:
        first = "row" if table.id_column is None else "id"
        return [first, *question.names, *(["label"] if labelled else [])]


class _ByModel:
    """Asks each model about its rows.

    Attributes:
        labelled: Whether the rows have labels.
        versions: Of each model, the versions that have answered.
        skipped: Rows that could not be read.
        failed: Models that could not be asked about all of their rows.
    """

    def __init__(
        self, asking: Asking, table: Table, question: Question, column: str, kept: _Kept
    ) -> None:
        self._asking, self._table, self._question = asking, table, question
        self._column, self._kept = column, kept
        self._told: set[str] = set()
        self.labelled = False
        self.versions: dict[str, list[int]] = {}
        self.skipped = self.failed = 0

    def ask(self, part: Part, parts: Parts, advance: Callable[[int], None]) -> None:
        """Ask about the rows of one model, and go on where that cannot be."""
        try:
            try:
                self._ask(part, advance)
            except InputError as error:
                raise of_whole(error, part, parts, self._table.name) from error
        except (InputError, RequestRefused, NotLearnedYet) as error:
            self.failed += 1
            told = error if isinstance(error, InputError) else InputError(f"{part.model}: {error}")
            say_error(Console(stderr=True), told)

    def _ask(self, part: Part, advance: Callable[[int], None]) -> None:
        table, size = self._table, self._asking.batch_size
        features = table.columns is None and table.encoding is None
        with GMRClient(address(self._asking.url, part.model)) as client:
            matched = table.opened(client, part.path, besides=(self._column,) if features else ())
            self.labelled = self.labelled or matched.source.labelled
            for remark in matched.remarks:
                self._say(remark.replace(title_of(part.path), table.name))
            versions: set[int] = set()
            for asked in asked_of(
                matched.source, size, lambda rows: self._question.ask(client, rows)
            ):
                rows = asked.rows
                places = range(rows.start, rows.start + len(rows))
                for place, (name, *told) in zip(
                    places if rows.places is None else rows.places, asked.told, strict=True
                ):
                    row = part.rows[place]
                    own = row if table.id_column is None else name
                    self._kept.add(row, [own, part.model, *told])
                versions.add(asked.version)
                self.skipped += rows.skipped
                advance(len(rows))
        self.versions[part.model] = sorted(versions)

    def _say(self, remark: str) -> None:
        """Tell people, once of all models of which it is true."""
        if remark not in self._told:
            self._told.add(remark)
            typer.echo(remark, err=True)


class _Kept:
    """Answers that wait in a file; in memory stay two numbers of each.

    Arguments:
        path: A new file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._rows, self._places = array("q"), array("q")

    def __enter__(self) -> _Kept:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, row: int, answer: Sequence[Any]) -> None:
        """Keep the answer about a row of the table, each once."""
        self._rows.append(row)
        self._places.append(self._file.tell())
        self._file.write(orjson.dumps(answer) + b"\n")

    def read(self) -> Iterator[list[Any]]:
        """The answers in the order of rows."""
        for index in np.argsort(np.asarray(self._rows)):
            self._file.seek(self._places[index])
            yield orjson.loads(self._file.readline())


def _check_parted(table: Table) -> None:
    if table.live:
        raise InputError(
            "Lines that come one by one are not parted by --model-column. Ask about those of each "
            "model by a command of its own with --model, or leave out --live."
        )
    if table.labels is not None:
        raise InputError(
            f"{table.labels} has labels for a file as a whole, which is parted by --model-column. "
            f"Keep the labels in the table (--label-column)."
        )


def _say_skipped(n: int) -> None:
    if n:
        typer.echo(f"{counted(n, 'row')} could not be used, left out.", err=True)
