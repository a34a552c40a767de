"""`gmr proposals`: classes that may be new, which wait for a name."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from clients.commands.class_label import class_label
from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, Url
from clients.http.answers import Label, Labelled, Proposal
from clients.http.client import GMRClient
from clients.http.errors import InputError
from core.counted import counted


class Action(StrEnum):
    """An action on proposals."""

    LIST = "list"
    NAME = "name"
    DISMISS = "dismiss"


def proposals_command(
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.LIST,
    proposal: Annotated[
        int | None,
        typer.Argument(
            metavar="[NUMBER]", show_default=False, help="Of a proposal, from the list."
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Argument(
            metavar="[CLASS]",
            show_default=False,
            help="Of name: what its samples are, new or known.",
        ),
    ] = None,
    url: Url = None,
    as_document: AsDocument = False,
) -> None:
    """List proposed new classes, name one, or dismiss it.

    Example: gmr proposals

    Example: gmr proposals name 1 "cracked lens"

    Example: gmr proposals dismiss 2

    Samples that came without a label, look alike and like no class known are proposed as a class.
    Named, they are learned with that label; dismissed, without one. A name that is a whole number
    is that number, unless a class is called by the text.
    """
    with GMRClient(url) as client:
        if action is Action.LIST:
            if proposal is not None:
                raise InputError(
                    f"`gmr proposals list` was given the number {proposal}; it lists all that are "
                    f"open. Leave the number out, or say name or dismiss."
                )
            _list(client.proposals(), as_document)
            return
        if proposal is None or (label is None) == (action is Action.NAME):
            expected = "a number and a class" if action is Action.NAME else "a number alone"
            raise InputError(
                f"`gmr proposals {action.value}` expects {expected}. `gmr proposals` has the "
                f"numbers."
            )
        name = None if label is None else class_label(client, label)
        answer = client.name_proposal(proposal, name)
        _tell(proposal, name, answer, as_document)


def _list(proposals: tuple[Proposal, ...], as_document: bool) -> None:
    if as_document:
        print_json({"proposals": [dict(one.raw) for one in proposals]})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("proposal", "samples", "from", "first sample", "last sample", "nearest classes"):
        table.add_column(column, overflow="fold", no_wrap=column != "nearest classes")
    for one in proposals:
        near = zip(one.nearest_classes, one.nearest_probabilities, strict=True)
        table.add_row(
            str(one.proposal),
            f"{one.samples:,}",
            one.origin,
            f"{one.first_sample:,}",
            f"{one.last_sample:,}",
            ", ".join(f"{label} ({100 * probability:.1f} %)" for label, probability in near),
        )
    if proposals:
        Console().print(table, markup=False)
    typer.echo(counted(len(proposals), "open proposal"))
    for one in proposals:
        if one.may_be_known:
            typer.echo(
                f"Proposal {one.proposal} may be the known classes, which have moved together: its "
                f"samples are spread as widely as those of all of them. A name would be the name "
                f"of them all."
            )


def _tell(proposal: int, label: Label | None, answer: Labelled, as_document: bool) -> None:
    if as_document:
        print_json({"proposal": proposal, "label": label, "entry_id": answer.entry_id})
        return
    what = "dismissed" if label is None else f"named {label}"
    typer.echo(f"Proposal {proposal} is {what}, by entry {answer.entry_id}.")
