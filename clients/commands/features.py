"""`gmr features`: what the features are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, Url
from clients.http.client import GMRClient
from clients.http.errors import InputError
from core.counted import counted


def features_command(
    name: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Name them: a text file with one name a line, in order."),
    ] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Let them have numbers only.")] = False,
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Print what the features are called, or name them.

    Example: gmr features

    Example: gmr features --name names.txt

    `gmr ingest` names them by itself after the columns of a table, or its encoding. Boundaries tell
    the names of features that have changed.
    """
    if name is not None and forget:
        raise InputError("--name and --forget say opposite things. Expected one of them.")
    with GMRClient(url) as client:
        if name is not None:
            client.name_features(_lines(name))
        elif forget:
            client.name_features(None)
        kept = client.feature_names()
    if as_json:
        print_json({"feature_names": kept})
        return
    for place, one in enumerate(kept or ()):
        typer.echo(f"{place}\t{one}")
    told = "no names" if kept is None else counted(len(kept), "name")
    typer.echo(f"features: {told}", err=True)


def _lines(path: Path) -> list[str]:
    """The names in a file.

    Raises:
        InputError: It cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path} cannot be read ({error}). Expected a text file (UTF-8) with the name of one "
            f"feature a line. Check the path."
        ) from error
    return [line.strip() for line in text.splitlines()]
