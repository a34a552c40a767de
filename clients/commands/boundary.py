"""`gmr boundary`: a boundary by hand."""

from __future__ import annotations

import typer

from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, Url
from clients.http.client import GMRClient


def boundary_command(
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Declare that a sub-task ends here.

    Example: gmr boundary

    The boundary takes its place in the stream after what was accepted before. A sub-task without a
    sample cannot end: status 1.
    """
    with GMRClient(url) as client:
        entry = client.declare_boundary()
    if as_json:
        print_json({"entry_id": entry})
    else:
        typer.echo(f"The boundary is entry {entry} of the stream.")
