"""`gmr events`: what has happened, and what happens."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Annotated

import typer

from clients.commands.event_line import event_line
from clients.commands.json_lines import print_json
from clients.commands.options import Url
from clients.http.answers import ServiceEvent
from clients.http.client import GMRClient
from clients.sending.bar import check_reachable


def events_command(
    kinds: Annotated[
        str | None, typer.Option(help="Only these, separated by commas: boundary,replay.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Only those after this event; 0 for all that are kept."),
    ] = None,
    last: Annotated[
        int | None, typer.Option(min=1, help="Of those that are kept, only the newest so many.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")
    ] = False,
    url: Url = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document per line instead.")
    ] = False,
) -> None:
    """Print what has happened, and with --follow what happens.

    Example: gmr events --kinds boundary,class_discovered

    Example: gmr events --since 1700000000000-20003 --json

    Example: gmr events --follow --last 10

    Without --follow it ends with the newest event that is kept; with --follow, and without --since
    and --last, it begins with the next one. A JSON document is the event with its id.
    """
    wanted = None if kinds is None else [kind.strip() for kind in kinds.split(",") if kind.strip()]
    with GMRClient(url) as client:
        check_reachable(client)
        after = since
        try:
            if not follow or last is not None:
                kept: Iterable[ServiceEvent] = client.kept_events(since or "0", kinds=wanted)
                if last is not None:
                    kept = list(deque(kept, last))
                for event in kept:
                    _print(event, as_json)
                    after = event.id or after
            if follow:
                for event in client.events(after, kinds=wanted):
                    _print(event, as_json)
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _print(event: ServiceEvent, as_json: bool) -> None:
    if as_json:
        print_json({"id": event.id or None, "kind": event.kind, **event.data})
    else:
        typer.echo(event_line(event.kind, event.data))
