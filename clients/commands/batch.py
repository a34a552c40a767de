"""`gmr batch`: what became of one batch."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, Url
from clients.http.answers import BatchFate
from clients.http.client import GMRClient
from clients.http.errors import RequestRefused

IN_WORDS = {
    "waiting": "waits in the stream",
    "learned": "is learned",
    "set_aside": "is set aside while a change is suspected",
    "awaiting": "awaits its labels",
    "unknown": "is held as unknown",
    "quarantined": "was quarantined as outliers",
    "passed": "passed by a model at rest",
    "split": "is split",
    "applied": "is applied",
    "rejected": "is a dead letter",
    "dropped": "was dropped by a rollback or an upload",
    "lost": "was lost: no checkpoint held it",
}

NOT_REMEMBERED = "/unknown-batch"
"""End of the type of the problem that no batch with this id is remembered."""


def batch_command(
    batch_id: Annotated[str, typer.Argument(metavar="ID", help="As it was sent, or answered.")],
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Say what became of a batch.

    Example: gmr batch 7f3a

    Ends with status 1 where it is not remembered, rejected, dropped or lost.
    """
    with GMRClient(url) as client:
        try:
            fate = client.batch(batch_id)
        except RequestRefused as error:
            if not error.type.endswith(NOT_REMEMBERED):
                raise
            typer.secho(f"Error: {error}", fg="red", err=True)
            raise typer.Exit(1) from None
    if as_json:
        print_json(dict(fate.raw))
    else:
        typer.echo(_sentence(fate))
    if fate.state in ("rejected", "dropped", "lost"):
        raise typer.Exit(1)


def _sentence(fate: BatchFate) -> str:
    what = "labels" if fate.kind == "labels" else "samples"
    text = f"The batch {fate.batch_id} ({fate.samples} {what}, entry {fate.entry_id}) "
    text += IN_WORDS.get(fate.state, fate.state)
    if fate.counts is not None and fate.state == "split":
        parts = [f"{n} {name.replace('_', ' ')}" for name, n in fate.counts.items() if n]
        text += f": {', '.join(parts)}"
    if fate.reason is not None:
        text += f" ({fate.reason}): {fate.detail or 'the letter itself is gone'}"
    return text if text.endswith(".") else f"{text}."
