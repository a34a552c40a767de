"""Options that several commands have, each with its one explanation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

Url = Annotated[
    str | None,
    typer.Option(help="Where the service listens.", envvar="GMR_URL", show_default=False),
]
Model = Annotated[
    str | None,
    typer.Option(help="Name of the model; without it the service's own.", show_default=False),
]
By = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Who asks, where the service requires no keys."),
]
AsDocument = Annotated[bool, typer.Option("--json", help="Print one JSON document instead.")]

# Of commands that answer every sample of a file.
SampleFile = Annotated[
    Path, typer.Argument(help="A file as `gmr ingest` reads; - is standard input.")
]
ModelColumn = Annotated[
    str | None,
    typer.Option(help="Of a table: the column that names the model of each row, by name or index."),
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
EncodingFile = Annotated[
    Path | None,
    typer.Option(
        "--encoding",
        help="Of a table with categories or missing values: the file that `gmr encoding` made.",
    ),
]
ByPlace = Annotated[
    bool,
    typer.Option(
        "--by-place", help="Of a table: take features by their place, whatever columns are called."
    ),
]
DecimalSign = Annotated[
    Literal[".", ","],
    typer.Option(help="Of a .csv: the sign before decimals. With a comma, cells are parted by ;."),
]
SkipBadRows = Annotated[
    bool,
    typer.Option(
        "--skip-bad-rows",
        help="Of a .csv: leave out rows with a cell that cannot be used; of images, those that "
        "cannot be read.",
    ),
]
ImageSize = Annotated[
    str | None,
    typer.Option("--size", help="Of images: HEIGHT,WIDTH that all are stretched or shrunk to."),
]
InGrey = Annotated[bool, typer.Option("--grey", help="Of images: turn colours into grey levels.")]
SamplesPerQuestion = Annotated[int, typer.Option(min=1, help="Samples per question.")]
Live = Annotated[
    bool,
    typer.Option("--live", help="Of standard input: go on with lines as they come, until it ends."),
]
Every = Annotated[
    float,
    typer.Option(
        min=0.01, help="With --live: seconds that a line waits for others, if they are few."
    ),
]
InsteadOfCsv = Annotated[
    bool, typer.Option("--json", help="Write one JSON document instead of CSV.")
]


def for_one_model(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command with `url` that takes `model` as well, which becomes part of the address."""

    @wraps(command)
    def asked(*, url: str | None = None, model: str | None = None, **others: Any) -> Any:
        if model is not None:
            from clients.http.address import address  # `gmr --help` need not load it

            url = address(url, model)
        return command(url=url, **others)

    signature = inspect.signature(command, eval_str=True)
    option = inspect.Parameter(
        "model", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Model
    )
    parameters = [*signature.parameters.values(), option]
    asked.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    asked.__annotations__ = {one.name: one.annotation for one in parameters}
    del asked.__wrapped__  # whose signature would be read instead
    return asked
