"""What a command tells of a class that goes by another label from now on."""

from __future__ import annotations

import typer

from clients.commands.json_lines import print_json
from clients.http.answers import Label, Restored


def tell(
    done: Restored, before: Label, now: Label, sentences: tuple[str, str], as_json: bool
) -> None:
    """Tell it.

    Arguments:
        done: The answer.
        before: The label that is no more.
        now: The label from now on.
        sentences: Where the model that answers has it already; and what an entry of the stream will
            do when its turn comes.
        as_json: Whether for a machine.
    """
    if as_json:
        print_json(
            {
                "entry_id": done.entry_id,
                "applied": done.applied,
                "label": now,
                "label_before": before,
                "model_version": done.model_version,
            }
        )
    elif done.applied:
        typer.echo(f"{sentences[0]}; version {done.model_version} answers.")
    else:
        typer.echo(f"Entry {done.entry_id} will {sentences[1]} when its turn comes.")
