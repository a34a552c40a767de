"""`gmr release`: serve what the gate holds back."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, By, Url
from clients.http.client import GMRClient


def release_command(
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; told with the event hold_ended.")
    ] = None,
    by: By = None,
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Serve what is learned although the gate holds it back because it has forgotten.

    Example: gmr release --reason "the old product is not made any more"

    What was lost counts as accepted. `gmr status` says whether a version is held back, and why.
    """
    with GMRClient(url) as client:
        done = client.release(reason, by=by)
    if as_json:
        print_json(
            {
                "entry_id": done.entry_id,
                "applied": done.applied,
                "model_version": done.model_version,
            }
        )
    elif done.applied:
        typer.echo(f"Version {done.model_version} answers.")
    else:
        typer.echo(f"Entry {done.entry_id} will end the hold when its turn comes.")
