"""`gmr merge`: let two classes be one."""

from __future__ import annotations

from typing import Annotated

import typer

from clients.commands.class_change import tell
from clients.commands.class_label import class_label
from clients.commands.options import AsDocument, By, Url
from clients.http.client import GMRClient


def merge_command(
    label: Annotated[
        str, typer.Argument(metavar="CLASS", help="The class that becomes part of the other.")
    ],
    into: Annotated[
        str, typer.Argument(metavar="OTHER", help="The other class, and both from now on.")
    ],
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; told with the event classes_merged.")
    ] = None,
    by: By = None,
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Let two classes be one from now on.

    Example: gmr merge wron worn --reason "a typing error"

    Example: gmr merge "crack, small" crack

    All that was learned of both is of the one. Samples that come later with the label that is no
    more are another class: let what sends them change over when this is done, and not before. A
    rollback behind it brings both back. A name that is a whole number is that number, unless a
    class is called by the text.
    """
    with GMRClient(url) as client:
        gone, other = class_label(client, label), class_label(client, into)
        done = client.merge_classes(gone, other, reason=reason, by=by)
    sentences = (
        f"Class {gone} is part of class {other}",
        f"let class {gone} be part of class {other}",
    )
    tell(done, gone, other, sentences, as_json)
