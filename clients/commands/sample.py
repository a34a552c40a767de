"""`gmr sample`: samples drawn from the model."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from clients.commands.answer_file import output, plain
from clients.commands.image_form import shape_of
from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, Url
from clients.data.encoding import TableEncoding
from clients.data.formats.rows import made_up_names
from clients.http.answers import Samples
from clients.http.client import GMRClient
from clients.http.errors import InputError
from clients.whole_file import WholeFile, write_whole

_ENDINGS = (".npz", ".csv", ".png")


def sample_command(
    n: Annotated[
        int | None,
        typer.Option(min=1, help="How many; without it 25, or as many as the service allows."),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option(
            help="Only of these classes, separated by commas; may come again. A class that has a "
            "comma in it is named alone."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A file: .npz, .csv or .png; without it CSV to standard output."),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Of the draw; without it a new one each time.")
    ] = None,
    min_probability: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="What the model must give a sample's class."),
    ] = None,
    noise: Annotated[
        bool, typer.Option(help="With the noise of single features, or cleaner without.")
    ] = True,
    shape: Annotated[
        str | None,
        typer.Option(
            help="Of one sample in a .png: HEIGHT,WIDTH or HEIGHT,WIDTH,3; not needed for squares, "
            "nor where images came in their shape."
        ),
    ] = None,
    encoding: Annotated[
        Path | None,
        typer.Option(
            help="Draw rows of a table: the JSON file of `gmr encoding` with which samples were "
            "sent."
        ),
    ] = None,
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Draw samples from the model, as CSV, .npz or picture.

    Example: gmr sample --classes 2 --n 5

    Example: gmr sample --classes "Login, password" --classes Delivery

    Example: gmr sample --n 1000 --seed 7 --out drawn.npz

    Example: gmr sample --classes 0,1,2 --n 30 --out drawn.png

    Example: gmr sample --encoding shops.json --out drawn.csv

    A .csv has the label first and then the features; an .npz holds features, labels,
    log_likelihoods, probabilities, short and seed. `gmr ingest` reads both. With --encoding there
    are the columns of the table that was encoded, with the nearest category where one was drawn.
    """
    ending = "" if out is None else out.suffix.lower()
    if out is not None and (ending not in _ENDINGS or as_json):
        raise InputError(
            f"Samples cannot be saved as {out}{' and as JSON at once' if as_json else ''}. "
            f"Expected a name that ends in {', '.join(_ENDINGS)}, without --json. Choose one."
        )
    if encoding is not None and ending in (".npz", ".png"):
        raise InputError(
            f"Rows of a table cannot be saved as {out}. Expected --json, or a name that ends in "
            f".csv. Choose one, or leave out --encoding."
        )
    table = None if encoding is None else TableEncoding.read(encoding)
    options: dict[str, Any] = {"min_probability": min_probability, "noise": noise}
    with GMRClient(url) as client:
        if out is not None and ending == ".png":
            _save(out, client.sample_image(n, classes, seed, shape_of(shape), **options))
            return
        drawn = client.sample(n, classes, seed, **options)
        names = client.feature_names()
    rows = None if table is None else table.decode(drawn.features, names)
    columns = table.names if table is not None else names
    if as_json:
        print_json(_document(drawn, columns or (), rows))
    elif out is not None and ending == ".npz":
        _save_arrays(out, drawn, names)
    else:
        with output(out) as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["label", *(columns or made_up_names(drawn.features.shape[1]))])
            cells = drawn.features.tolist() if rows is None else rows
            for label, row in zip(drawn.labels, cells, strict=True):
                writer.writerow([_cell(value) for value in (plain(label), *row)])
    if short := int(drawn.short.sum()):
        typer.echo(
            f"{short} of {len(drawn.short)} samples are less probable than was asked for: the best "
            f"that came.",
            err=True,
        )


def _cell(value: int | float | str | None) -> int | str:
    """A value as CSV has it."""
    if isinstance(value, float):
        return f"{value:.7g}"
    return "" if value is None else value


def _document(
    drawn: Samples, columns: Sequence[str], rows: Sequence[Sequence[object]] | None
) -> dict[str, Any]:
    of_table = (
        {} if rows is None else {"rows": [dict(zip(columns, row, strict=True)) for row in rows]}
    )
    return {
        **of_table,
        "model_version": drawn.model_version,
        "seed": drawn.seed,
        "features": drawn.features.tolist(),
        "labels": [plain(label) for label in drawn.labels],
        "log_likelihoods": drawn.log_likelihoods.tolist(),
        "probabilities": drawn.probabilities.tolist(),
        "short": drawn.short.tolist(),
    }


def _save_arrays(out: Path, drawn: Samples, names: Sequence[str] | None) -> None:
    labels = drawn.labels
    if labels.dtype == object:  # Python values would be pickled
        labels = np.array(["" if label is None else str(label) for label in labels])
    arrays: dict[str, Any] = {
        "features": drawn.features,
        "labels": labels,
        "log_likelihoods": drawn.log_likelihoods,
        "probabilities": drawn.probabilities,
        "short": drawn.short,
        "seed": np.array(-1 if drawn.seed is None else drawn.seed),
    }
    if names is not None:
        arrays["feature_names"] = np.array(names)
    with WholeFile(out) as whole:
        np.savez_compressed(whole.file, **arrays)
    typer.echo(f"{out}: {len(labels)} samples", err=True)


def _save(out: Path, content: bytes) -> None:
    write_whole(out, content)
    typer.echo(f"{out}: {len(content):,} bytes", err=True)
