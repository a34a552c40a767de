"""`gmr deadletters`: entries that were accepted and could not be used."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from clients.commands.options import Url
from clients.http.answers import DeadLetter
from clients.http.client import GMRClient
from clients.http.errors import ClientError, InputError, ServiceError
from clients.whole_file import write_whole
from core.counted import counted

_PAGE = 1000

_WIDE = 10_000
"""Columns of what is no terminal: programs read it by lines."""


class Action(StrEnum):
    """An action on dead letters."""

    LIST = "list"
    SHOW = "show"
    SAVE = "save"
    REQUEUE = "requeue"
    DROP = "drop"


def deadletters_command(
    action: Annotated[Action, typer.Argument(help="What to do.")] = Action.LIST,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID]...", help="Of letters, from the list.")
    ] = None,
    url: Url = None,
    every: Annotated[
        bool, typer.Option("--all", help="Of requeue and drop: all of them, instead of ids.")
    ] = False,
    reason: Annotated[
        str | None, typer.Option(help="Of list, and with --all: only those with this reason.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Of save: a file; .safetensors holds a batch, any other JSON."),
    ] = None,
) -> None:
    """List, show, save, send again or drop batches that were accepted and could not be used.

    Example: gmr deadletters list

    Example: gmr deadletters show 1700000000000-20000

    Example: gmr deadletters save 1700000000000-20000 --out batch.safetensors

    Example: gmr deadletters requeue --all --reason invalid_labels

    Example: gmr deadletters drop 1700000000000-20000

    A letter is sent again once, under the batch id that it had; do so when what was wrong has been
    put right. A batch whose letter is dropped may also be sent again by its sender.
    """
    chosen = list(ids or ())
    with GMRClient(url) as client:
        if action is Action.LIST:
            _list(client, reason)
            return
        if action in (Action.SHOW, Action.SAVE):
            _show(client, _one(chosen), out if action is Action.SAVE else None, action)
            return
        if every == bool(chosen):
            raise InputError(
                f"`gmr deadletters {action.value}` was given {len(chosen)} ids and "
                f"{'also' if every else 'no'} --all. Expected either ids or --all. Name the "
                f"letters; `gmr deadletters list` has their ids."
            )
        if every:
            chosen = [one.id for one in _letters(client, reason) if _fits(one, action)]
        _each(client, action, chosen)


def _list(client: GMRClient, reason: str | None) -> None:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("id", "when", "reason", "batch", "samples", "bytes", "what"):
        table.add_column(name, overflow="fold")
    n = 0
    for one in _letters(client, reason):
        n += 1
        when = time.strftime("%d %b %H:%M:%S", time.localtime(one.time))
        what = f"sent again as {one.requeued_as}" if one.requeued_as else one.detail
        samples = "" if one.samples is None else str(one.samples)
        size = f"{one.size:,}" + ("" if one.whole else " (not kept)")
        table.add_row(one.id, when, one.reason, one.batch_id or "", samples, size, what)
    if n:
        _console().print(table, markup=False)
    typer.echo(counted(n, "dead letter"))
    dropped = client.dead_letters(limit=1).dropped
    if dropped:
        typer.echo(
            f"{dropped} older ones made room for newer ones. For more, raise "
            f"GMR_DEAD_LETTERS_LENGTH or GMR_DEAD_LETTERS_MIB.",
            err=True,
        )


def _console() -> Console:
    """Standard output; where it is no terminal, wide enough that a row stays a line."""
    console = Console()
    return console if console.is_terminal else Console(width=_WIDE)


def _show(client: GMRClient, id: str, out: Path | None, action: Action) -> None:
    if out is not None and out.suffix == ".safetensors":
        content = client.dead_letter_batch(id)
    else:
        content = json.dumps(dict(client.dead_letter(id).raw), indent=1).encode()
    if action is Action.SHOW:
        typer.echo(content.decode())
        return
    if out is None:
        raise InputError("Nothing says where to save the letter. Expected a file. Add --out FILE.")
    write_whole(out, content)
    typer.echo(f"{out}: {len(content)} bytes")


def _each(client: GMRClient, action: Action, ids: list[str]) -> None:
    """Send letters again, or drop them; go on where one of them cannot be."""
    done, failed = 0, list[str]()
    for id in ids:
        try:
            if action is Action.REQUEUE:
                again = client.requeue_dead_letter(id)
                typer.echo(f"{id} sent again as entry {again.entry_id}")
            else:
                client.drop_dead_letter(id)
        except ServiceError as error:
            failed.append(f"{id}: {error}")
        else:
            done += 1
    typer.echo(f"{done} {'sent again' if action is Action.REQUEUE else 'dropped'}")
    if failed:
        raise ClientError(f"{len(failed)} of {len(ids)} could not be: {' '.join(failed)}")


def _letters(client: GMRClient, reason: str | None) -> Iterator[DeadLetter]:
    since = None
    while True:
        page = client.dead_letters(since, limit=_PAGE)
        yield from (one for one in page.letters if reason in (None, one.reason))
        if page.next is None:
            return
        since = page.next


def _fits(letter: DeadLetter, action: Action) -> bool:
    """Whether `--all` means this letter."""
    return action is Action.DROP or (letter.whole and letter.requeued_as is None)


def _one(ids: list[str]) -> str:
    if len(ids) != 1:
        raise InputError(
            f"{len(ids)} ids were given; expected one. `gmr deadletters list` has them."
        )
    return ids[0]
