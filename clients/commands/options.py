"""Options that several commands have, each with its one explanation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Url = Annotated[
    str | None,
    typer.Option(help="Where the service listens.", envvar="GMR_URL", show_default=False),
]
AsDocument = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]

# Of commands that answer every sample of a file.
SampleFile = Annotated[
    Path, typer.Argument(help="A file as `gmr ingest` reads; - is standard input.")
]
AnswerFile = Annotated[
    Path | None, typer.Option(help="A file for the answers; without it standard output.")
]
IdColumn = Annotated[
    str | None, typer.Option(help="Ids of samples, as --label-column; without it their rows.")
]
FeatureColumns = Annotated[
    str | None,
    typer.Option(help="Of a table: the features, by name or index, separated by commas."),
]
DroppedColumns = Annotated[
    str | None, typer.Option(help="Of a table: columns that are no features, likewise.")
]
SamplesPerQuestion = Annotated[int, typer.Option(min=1, help="Samples per question.")]
InsteadOfCsv = Annotated[
    bool, typer.Option("--json", help="Write one JSON document instead of CSV.")
]
