"""What `gmr classify` and `gmr outliers` have in common: a table is asked about, and answered."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer

from clients.commands.answer_file import Answers, asked_of, bar, say_skipped
from clients.commands.part_asker import PartAsker
from clients.commands.question import Question, Table
from clients.data.live import input_of
from clients.http.client import GMRClient


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
            parted = PartAsker(self.model_column, self.url, self.batch_size, self.out, self.as_json)
            parted.answer(table, question)
        for remark in () if table.encoding is None else table.encoding.remarks:
            typer.echo(remark, err=True)

    def _by_one(self, table: Table, question: Question) -> None:
        reading = input_of(table.file, live=table.live, wait_s=table.every, most=self.batch_size)
        with reading as (path, coming), GMRClient(self.url) as client:
            matched = table.opened(client, path, live=coming)
            source = matched.source
            for remark in matched.remarks:
                typer.echo(remark, err=True)
            columns = table.columns_of(question, labelled=source.labelled)
            with (
                Answers.to(self.out, columns, as_json=self.as_json, live=table.live) as answers,
                bar(source.path.name, source.n_samples, self.out) as advance,
            ):
                try:
                    for asked in asked_of(source, self.batch_size, partial(question.ask, client)):
                        answers.add(asked)
                        advance(len(asked.rows))
                except KeyboardInterrupt:
                    if coming is None:
                        raise
                answers.end(question.summary())
            answers.skipped += 0 if coming is None else coming.untold
        say_skipped(answers.skipped)
