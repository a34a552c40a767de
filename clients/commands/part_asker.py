"""How tables are asked about with --model-column: each row of the model that it names.

Rules of this module:

1. Models are asked one after the other. Their answers wait in a file until all are there, and are
   written in the order of the table.
2. A model that cannot answer is told, and the others are asked. What it had answered before stays.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer
from rich.console import Console

from clients.commands.answer_file import Answers, asked_of, bar, say_skipped
from clients.commands.answer_spool import AnswerSpool
from clients.commands.file_sender import say_error
from clients.commands.named_parts import check_no_model, missing_models, no_such_models, of_whole
from clients.commands.question import Question, Table
from clients.data.formats.rows import column_names
from clients.data.live import input_of
from clients.data.parts import Part, Parts, parts_of
from clients.data.standard_input import title_of
from clients.http.address import address
from clients.http.client import GMRClient
from clients.http.errors import InputError, NotLearnedYet, RequestRefused
from core.counted import counted


@dataclass(frozen=True)
class PartAsker:
    """Asks the named models of a service about the rows of a table.

    Arguments:
        column: Of the table, which says the model of each row.
        url, batch_size, out, as_json: As of `Asking`.
    """

    column: str
    url: str | None
    batch_size: int
    out: Path | None
    as_json: bool

    def answer(self, table: Table, question: Question) -> None:
        """Write the answers about all samples, in the order of the table.

        Raises:
            InputError: The table cannot be parted, or some model could not be asked.
            ClientError: The service is away.
        """
        check_no_model(self.url, self.column)
        _check_parted(table)
        with ExitStack() as stack:
            path, _ = stack.enter_context(
                input_of(table.file, live=False, wait_s=table.every, most=self.batch_size)
            )
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gmr-parts-")))
            parts = self._parted(table, path, folder)
            self._check_models(parts, table.name)
            spool = stack.enter_context(AnswerSpool(folder / "answers"))
            asked = _Parts(self, table, question, spool)
            with bar(table.name, sum(len(part.rows) for part in parts.each), self.out) as advance:
                for part in parts.each:
                    asked.ask(part, parts, advance)
            if asked.failed and not any(asked.versions.values()):
                raise asked.without_answers()
            name, *others = table.columns_of(question, labelled=asked.labelled)
            columns = [name, "model", *others]
            with Answers.to(self.out, columns, as_json=self.as_json) as answers:
                for row in spool.read():
                    answers.write([row])
                versions = {model: sorted(found) for model, found in asked.versions.items()}
                answers.end({"model_versions": versions, **question.summary()})
        say_skipped(parts.skipped + asked.skipped)
        if asked.failed:
            raise asked.without_answers()

    def _parted(self, table: Table, path: Path, folder: Path) -> Parts:
        encoding, dropped = table.encoding, column_names(table.drop) or ()
        return parts_of(
            path,
            self.column,
            folder,
            text_columns=(table.label_column, table.id_column, *dropped),
            columns=column_names(table.columns) if encoding is None else encoding.names,
            encoded=encoding is not None,
            decimal=table.decimal,
            skip_bad_rows=table.skip_bad_rows,
        )

    def _check_models(self, parts: Parts, name: str) -> None:
        with GMRClient(self.url) as client:
            if missing := missing_models(client, [part.model for part in parts.each]):
                remedy = "Correct the names, or teach them first, with gmr ingest --model-column."
                raise no_such_models(name, missing, remedy)


class _Parts:
    """Asks each model about its rows.

    Attributes:
        labelled: Whether the rows have labels.
        versions: Of each model, the versions that have answered.
        skipped: Rows that could not be read.
        failed: Models that could not be asked about all of their rows.
    """

    def __init__(
        self, asker: PartAsker, table: Table, question: Question, spool: AnswerSpool
    ) -> None:
        self._asker, self._table, self._question = asker, table, question
        self._spool = spool
        self._told: set[str] = set()
        self.labelled = False
        self.versions: dict[str, set[int]] = {}
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

    def without_answers(self) -> InputError:
        """The error for a table with rows that could not be asked about."""
        others = "; all others have" if any(self.versions.values()) else ""
        return InputError(
            f"Rows of {counted(self.failed, 'model')} in {self._table.name} have no answers, as "
            f"told above{others}. Put right what is wrong, and ask again."
        )

    def _ask(self, part: Part, advance: Callable[[int], None]) -> None:
        table, size = self._table, self._asker.batch_size
        # Where nothing says which columns are features, that of the models would be one.
        chosen = table.columns is not None or table.encoding is not None
        no_features = () if chosen else (self._asker.column,)
        with GMRClient(address(self._asker.url, part.model)) as client:
            matched = table.opened(client, part.path, besides=no_features)
            self.labelled = self.labelled or matched.source.labelled
            for remark in matched.remarks:
                self._say(remark.replace(title_of(part.path), table.name))
            versions = self.versions.setdefault(part.model, set())
            for asked in asked_of(matched.source, size, partial(self._question.ask, client)):
                rows = asked.rows
                places = range(rows.start, rows.start + len(rows))
                for place, (name, *told) in zip(
                    places if rows.places is None else rows.places, asked.told, strict=True
                ):
                    row = part.rows[place]
                    own = row if table.id_column is None else name
                    self._spool.add(row, [own, part.model, *told])
                versions.add(asked.version)
                self.skipped += rows.skipped
                advance(len(rows))

    def _say(self, remark: str) -> None:
        """Tell people, once of all models of which it is true."""
        if remark not in self._told:
            self._told.add(remark)
            typer.echo(remark, err=True)


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
