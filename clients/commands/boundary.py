"""`gmr boundary`: a boundary by hand."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, By, Url
from clients.http.client import GMRClient


def boundary_command(
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Becomes the boundary's first note.")
    ] = None,
    by: By = None,
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Declare that a sub-task ends here.

    Example: gmr boundary

    Example: gmr boundary --note "The lens was cleaned."

    The boundary takes its place in the stream after what was accepted before. A sub-task without a
    sample cannot end: status 1.
    """
    with GMRClient(url) as client:
        entry = client.declare_boundary(note, by=by)
    if as_json:
        print_json({"entry_id": entry})
    else:
        typer.echo(f"The boundary is entry {entry} of the stream.")
