"""`gmr settings`: the settings of a model that can be changed while it runs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from clients.commands.assignments import assignments
from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, By, Url
from clients.http.client import GMRClient
from clients.http.errors import InputError


def settings_command(
    changes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME=VALUE]...", help="What to change; VALUE `settings`: what these say."
        ),
    ] = None,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; told with the event settings_changed.")
    ] = None,
    by: By = None,
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Show or change settings of a model while it runs.

    Example: gmr settings

    Example: gmr settings outlier_false_positive_rate=0.01 max_classes=50 --reason "rare faults"

    Example: gmr settings max_classes=settings

    What is changed holds until somebody changes it again, after a restart and a rollback, too.
    """
    with GMRClient(url) as client:
        if not changes:
            settings = client.settings()
            if as_json:
                print_json({"settings": {name: vars(one) for name, one in settings.items()}})
                return
            table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
            for column in ("setting", "value", "asked for"):
                table.add_column(column)
            for name, one in settings.items():
                value = "none" if one.value is None else str(one.value)
                table.add_row(name, value, "yes" if one.asked else "")
            Console().print(table, markup=False)
            return
        asked = {name: _value(name, text) for name, text in assignments(changes).items()}
        done = client.change_settings(asked, reason=reason, by=by)
    if as_json:
        print_json({"entry_id": done.entry_id, "applied": done.applied, "settings": asked})
        return
    told = ", ".join(
        f"{name} = {'what the settings say' if value is None else value}"
        for name, value in asked.items()
    )
    later = "" if done.applied else f" (entry {done.entry_id}, which the trainer has yet to read)"
    typer.echo(f"From now on {told}{later}; version {done.model_version} answers")


def _value(name: str, text: str) -> float | int | None:
    if text == "settings":
        return None
    try:
        return int(text.replace("_", ""))
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise InputError(
            f"{name} is {text!r}; expected a number, or `settings` for what these say."
        ) from None
