"""`gmr rename`: call a class otherwise."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.commands.class_change import tell
from clients.commands.class_label import class_label
from clients.commands.options import AsDocument, By, Url
from clients.http.client import GMRClient


def rename_command(
    label: Annotated[str, typer.Argument(metavar="CLASS", help="As its samples were labelled.")],
    to: Annotated[
        str, typer.Argument(metavar="NAME", help="Its label from now on; no class has it yet.")
    ],
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; told with the event class_renamed.")
    ] = None,
    by: By = None,
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Call a class otherwise from now on.

    Example: gmr rename proposal-3 "worn bearing"

    Example: gmr rename 7 8 --reason "a typing error"

    All that was learned of it stays. Samples that come later with the old label are another class:
    let what sends them change over when this is done, and not before. A rollback behind it brings
    the old label back. A name that is a whole number is that number, unless a class is called by
    the text.
    """
    with GMRClient(url) as client:
        before, now = class_label(client, label), class_label(client, to)
        done = client.rename_class(before, now, reason=reason, by=by)
    sentences = (
        f"Class {before} is called {now}",
        f"call class {before} {now}",
    )
    tell(done, before, now, sentences, as_json)
