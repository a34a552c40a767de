"""`gmr note`: say something about a boundary."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.commands.explain import id_of
from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, By, Url
from clients.http.client import GMRClient


def note_command(
    boundary: Annotated[
        str, typer.Argument(metavar="BOUNDARY", help="Its number, or its id in GET /drift.")
    ],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Up to 2,000 characters.")],
    by: By = None,
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Add a note to a boundary.

    Example: gmr note 3 "The lens was cleaned."
    """
    with GMRClient(url) as client:
        note = client.add_note(id_of(client, boundary), text, by=by)
    if as_json:
        print_json({"text": note.text, "by": note.by, "time": note.time})
    else:
        typer.echo(f"Noted at boundary {boundary}")
