"""Answers about the samples of a file, as CSV or JSON, to standard output or to a file.

Rules of this module:

1. Answers are in the order of the samples. About one model they are written as they come; nothing
   is held but a batch. A file of them gets its name at the end, so that a command that fails leaves
   what had it before; of samples that come one by one it does with the first answer.
2. Standard output is for answers alone; what else is said goes to standard error.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np
import orjson
import typer
from rich import progress as bars
from rich.console import Console

from clients.data.files import Rows, Source
from clients.whole_file import WholeFile
from core.counted import counted
from service.wire import SampleId


class AnswerFile(Protocol):
    """Takes answers, row by row."""

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows, in the order of the columns."""


class CsvAnswers:
    """Answers as CSV; None and NaN are empty cells."""

    def __init__(self, file: IO[str], columns: Sequence[str]) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(columns)

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows."""
        self._writer.writerows([[_cell(value) for value in row] for row in rows])


class JsonAnswers:
    """Answers as one JSON document: {"samples": [{column: value}, ...], ...}."""

    def __init__(self, file: IO[str], columns: Sequence[str]) -> None:
        self._file, self._columns = file, columns
        self._first = True
        file.write('{"samples":[')

    def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows."""
        for row in rows:
            self._file.write("\n" if self._first else ",\n")
            self._first = False
            self._file.write(_dump(dict(zip(self._columns, row, strict=True))))

    def end(self, summary: Mapping[str, Any]) -> None:
        """Write what is to be said about all of them."""
        self._file.write(f"\n],{_dump(dict(summary))[1:]}\n")


@contextmanager
def output(out: Path | None) -> Iterator[IO[str]]:
    """The file that was asked for, once it is whole, or standard output.

    Raises:
        InputError: the file cannot be written.
    """
    if out is None:
        yield sys.stdout
        sys.stdout.flush()
        return
    with WholeFile(out) as whole, whole.text() as file:
        yield file


@dataclass(frozen=True)
class Asked:
    """Answers about some samples of a file.

    Arguments:
        rows: The samples.
        version: Of the model, that answered.
        told: A row of answers per sample, its name first; last its label where the file has labels.
    """

    rows: Rows
    version: int
    told: Sequence[Sequence[Any]]


def asked_of(
    source: Source,
    batch_size: int,
    ask: Callable[[Rows], tuple[int, Sequence[Sequence[Any]]]],
) -> Iterator[Asked]:
    """Answers about every batch of a file, in the order of the samples.

    Arguments:
        source: The open file.
        batch_size: Samples per question.
        ask: From samples to the version that answered, and one row of answers per sample.

    Raises:
        InputError: the file cannot be read.
    """
    for rows in source.read(batch_size):
        version, told = ask(rows)
        ends = [[label] for label in labels_of(rows)] if source.labelled else [[]] * len(rows)
        named = zip(names_of(rows), told, ends, strict=True)
        yield Asked(rows, version, [[name, *answer, *end] for name, answer, end in named])


class Answers:
    """Answers on their way to a file or to standard output.

    Arguments:
        file: Where they are written.
        columns: Their names.
        as_json: Write one JSON document in place of CSV.
        written: Is called whenever answers have been written as they came.

    Attributes:
        skipped: Rows that could not be read.
    """

    def __init__(
        self,
        file: IO[str],
        columns: Sequence[str],
        *,
        as_json: bool,
        written: Callable[[], None] | None = None,
    ) -> None:
        self._file, self._written = file, written
        self._answers = (JsonAnswers if as_json else CsvAnswers)(file, columns)
        self._versions: set[int] = set()
        self.skipped = 0

    @classmethod
    @contextmanager
    def to(
        cls, out: Path | None, columns: Sequence[str], *, as_json: bool, live: bool = False
    ) -> Iterator[Answers]:
        """To a file, or to standard output.

        Arguments:
            out: The file; None: standard output.
            columns: Their names.
            as_json: Write one JSON document in place of CSV.
            live: Whether the file is to be read while it grows.

        Raises:
            InputError: the file cannot be written.
        """
        if out is None or not live:
            with output(out) as file:
                yield cls(file, columns, as_json=as_json)
            return
        with WholeFile(out) as whole, whole.text() as text:
            yield cls(text, columns, as_json=as_json, written=whole.give_name)

    def add(self, asked: Asked) -> None:
        """Write answers as they have come."""
        self.write(asked.told)
        self._file.flush()
        if self._written is not None:
            self._written()
        self._versions.add(asked.version)
        self.skipped += asked.rows.skipped

    def write(self, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows, in the order of the columns."""
        self._answers.add(rows)

    def end(self, summary: Mapping[str, Any]) -> None:
        """Write what is to be said about all of them, where there is room for it."""
        if isinstance(self._answers, JsonAnswers):
            self._answers.end({"model_versions": sorted(self._versions), **summary})


def say_skipped(n: int) -> None:
    """Tell people how many rows could not be read, where there were any."""
    if n:
        typer.echo(f"{counted(n, 'row')} could not be used, left out.", err=True)


def names_of(rows: Rows) -> list[SampleId]:
    """The id of each sample where the file has ids, else its row, from 0."""
    if rows.ids is not None:
        return rows.ids
    return (
        list(range(rows.start, rows.start + len(rows))) if rows.places is None else [*rows.places]
    )


def labels_of(rows: Rows) -> list[int | str | None]:
    """The label of each sample; None where it has none."""
    if rows.labels is None:
        return [None] * len(rows)
    return [plain(label) for label in rows.labels]


def plain(value: Any) -> Any:
    """A number of NumPy as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def numbers(values: Any, n: int) -> list[float | None]:
    """N numbers, or N times None where there are none."""
    return [None] * n if values is None else [float(value) for value in values]


@contextmanager
def bar(name: str, total: int | None, out: Path | None) -> Iterator[Callable[[int], None]]:
    """A progress bar on standard error, where that is a terminal that shows no answers.

    Arguments:
        name: Of what is asked about.
        total: Samples; None: not known.
        out: Where answers go; None: standard output.
    """
    console = Console(stderr=True)
    shown = console.is_terminal and not (out is None and sys.stdout.isatty())
    progress = bars.Progress(
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
        console=console,
        disable=not shown,
    )
    with progress:
        task = progress.add_task(name, total=total)
        yield lambda n: progress.update(task, completed=n)


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.7g}"
    if isinstance(value, bool):
        return int(value)
    return "" if value is None else value


def _dump(document: dict[str, Any]) -> str:
    return orjson.dumps(document).decode()
