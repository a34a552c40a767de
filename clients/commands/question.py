"""A question about the samples of a table, and the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from clients.data.encoding import TableEncoding
from clients.data.files import Rows
from clients.data.formats.image import ImageForm
from clients.data.standard_input import STANDARD_INPUT
from clients.http.client import GMRClient
from clients.sending.feature_names import Matched, open_matched


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
        """The file, or a part of it, with the features of the client's model.

        Arguments:
            client: Of the model.
            path: Where the file or the part lies.
            others: Further arguments of `open_matched`.
        """
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

    def columns_of(self, question: Question, *, labelled: bool) -> list[str]:
        """Names of the columns of answers: the sample's own name, the answer, and its label."""
        first = "row" if self.id_column is None else "id"
        return [first, *question.names, *(["label"] if labelled else [])]
