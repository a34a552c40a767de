"""`gmr audit`: what administrators of the service did."""

from __future__ import annotations

import time
from typing import Annotated

import orjson
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from clients.commands.options import Url
from clients.http.client import GMRClient


def audit_command(
    last: Annotated[int, typer.Option(help="Actions to show, at most 1000.")] = 50,
    json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    url: Url = None,
) -> None:
    """Show what administrators did: who, what, when, and what became of it.

    Example: gmr audit --last 20

    Where the service wants a key, this wants one with the role admin, in GMR_API_KEY. What has no
    status was asked of a process that died before it answered.
    """
    with GMRClient(url) as client:
        actions = client.audit(last)
    if json:
        for action in actions:
            typer.echo(orjson.dumps(dict(action.raw)).decode())
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("when", "by", "what", "asked", "status", "entry or id", "request"):
        table.add_column(name, overflow="fold")
    for action in actions:
        asked = "" if action.asked is None else orjson.dumps(action.asked).decode()
        table.add_row(
            time.strftime("%d %b %H:%M:%S", time.localtime(action.time)),
            action.by,
            f"{action.method} {action.path}",
            asked,
            "" if action.status is None else str(action.status),
            action.entry_id or action.made or "",
            action.request_id,
        )
    if actions:
        Console().print(table, markup=False)
    typer.echo(f"{len(actions)} actions")
