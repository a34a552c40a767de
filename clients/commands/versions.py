"""`gmr versions` and `gmr rollback`: earlier versions of the model."""

from __future__ import annotations

import sys
import time
from dataclasses import fields
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, Url
from clients.http.client import GMRClient
from clients.http.errors import InputError
from core.counted import counted


def versions_command(
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """List the versions of the model that are kept.

    Example: gmr versions

    The newest comes first. What was learned between a version and today is dropped by going back
    to it: `gmr rollback`.
    """
    with GMRClient(url) as client:
        kept = client.versions()
        now = client.model().model_version
    if as_json:
        versions = [
            {field.name: getattr(one, field.name) for field in fields(one) if field.name != "raw"}
            for one in kept
        ]
        print_json({"model_version": now, "versions": versions})
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("version", "kept", "from", "sub-task", "samples", "classes", "before boundary"):
        table.add_column(column, overflow="fold")
    for one in kept:
        table.add_row(
            str(one.version),
            "" if one.time is None else time.strftime("%d %b %H:%M:%S", time.localtime(one.time)),
            one.origin + ("" if one.parent is None else f", {one.parent}"),
            str(one.sub_task),
            f"{one.samples_seen:,}",
            str(one.classes),
            "" if one.before_boundary is None else str(one.before_boundary),
        )
    if kept:
        Console().print(table, markup=False)
    typer.echo(f"kept: {counted(len(kept), 'version')}; version {now} answers")


def rollback_command(
    version: Annotated[int, typer.Argument(min=0, help="A version that is kept: `gmr versions`.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Serve a version of the model again that is kept.

    Example: gmr rollback 12

    Example: gmr rollback 12 --yes --json

    Everything that was accepted before is learned first, and dropped with the newer version; its
    batches may be sent again. On a terminal it asks first; elsewhere it wants --yes.
    """
    with GMRClient(url) as client:
        if not yes:
            if not on_terminal():
                raise InputError(
                    f"Nobody can be asked whether to go back to version {version}, because "
                    f"standard input is no terminal. Expected a yes. Add --yes."
                )
            now = client.model()
            typer.confirm(
                f"Version {now.model_version} has learned {now.samples_seen:,} samples. Drop what "
                f"version {version} does not hold?",
                abort=True,
                err=True,
            )
        done = client.rollback(version)
    if as_json:
        print_json(
            {
                "entry_id": done.entry_id,
                "applied": done.applied,
                "model_version": done.model_version,
            }
        )
    elif done.applied:
        typer.echo(f"Version {done.model_version} answers: version {version}, served again.")
    else:
        typer.echo(f"Entry {done.entry_id} will bring version {version} back when its turn comes.")


def on_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()
