"""`gmr keys`: who may ask the service what."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from clients.commands.options import Url
from clients.http.answers import ApiKey
from clients.http.client import GMRClient
from clients.http.errors import InputError
from core.counted import counted


class Action(StrEnum):
    """What to do with keys."""

    LIST = "list"
    ADD = "add"
    REVOKE = "revoke"


class Role(StrEnum):
    """What a key may do."""

    INGEST = "ingest"
    READ = "read"
    ADMIN = "admin"


def keys_command(
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.LIST,
    name: Annotated[
        str | None, typer.Argument(help="Of add: whose key it is. Of revoke: the key's id.")
    ] = None,
    role: Annotated[
        list[Role] | None, typer.Option(help="Of add: what it may do; may be given again.")
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Of add: a model that it counts for, or the beginning of names and a * "
            "('pump-*'); may be given again. Without it: all models, and the whole service."
        ),
    ] = None,
    url: Url = None,
) -> None:
    """List, make or revoke the keys by which others may ask.

    Example: gmr keys add "camera 7" --role ingest

    Example: gmr keys add "pump 7" --role ingest --model pump-7

    Example: gmr keys revoke 3f9a0c12be77

    Where the service wants a key, this wants one with the role admin, in GMR_API_KEY: at first the
    service's own GMR_ADMIN_KEY. A new key counts at once, a revoked one for a second at most. A
    service on loopback wants none, unless it has an admin key.
    """
    with GMRClient(url) as client:
        if action is Action.LIST:
            _list(client)
        elif name is None:
            what = "a name for the key" if action is Action.ADD else "the id of a key"
            raise InputError(
                f"`gmr keys {action.value}` was given nothing to go by. Expected {what}. Add it."
            )
        elif action is Action.ADD:
            made = client.make_api_key(name, [one.value for one in role or [Role.READ]], model)
            typer.echo(made.key)
            typer.echo(
                f"Key {made.id} of {made.name}, for {', '.join(made.roles)}, of {_models(made)}. "
                f"It is shown this once: keep it in GMR_API_KEY, or in the header "
                f"`Authorization: Bearer ...`.",
                err=True,
            )
        else:
            client.revoke_api_key(name)
            typer.echo(f"Key {name} no longer counts.")


def _list(client: GMRClient) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("id", "name", "roles", "models", "made", "share learned"):
        table.add_column(column, overflow="fold")
    keys, shares = client.api_keys(), client.key_shares()
    share_of = {row.name: row.share for row in shares.keys}
    for key in keys:
        made = time.strftime("%d %b %Y %H:%M", time.localtime(key.made))
        share = _percent(share_of.get(key.name))
        table.add_row(key.id, key.name, ", ".join(key.roles), _models(key), made, share)
    if keys:
        Console().print(table, markup=False)
    typer.echo(counted(len(keys), "key"))
    if shares.keys:
        rows = [(row.name or "without a key", row) for row in shares.keys]
        if shares.other is not None:
            rows.append(("others", shares.other))
        parts = (
            f"{name} {_percent(row.share)} ({counted(row.outliers, 'outlier')})"
            for name, row in rows
        )
        typer.echo(
            f"Learned last: {counted(shares.samples, 'sample')}, of these {', '.join(parts)}."
        )


def _models(key: ApiKey) -> str:
    return "all models" if key.models is None else ", ".join(key.models)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"
