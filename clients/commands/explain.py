"""`gmr explain`: what changed at a boundary."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from clients.commands.json_lines import print_json
from clients.commands.options import AsDocument, Url
from clients.commands.reading import share
from clients.http.answers import Boundary
from clients.http.answers.boundaries import MOMENTS
from clients.http.client import GMRClient
from clients.http.errors import InputError

SIGNALS = {
    "inliers": "samples became less likely",
    "likelihood": "samples became more likely",
    "doubt": "samples lie between what is known",
    "occupancy": "other components, classes or ranks than usual",
    "labels": "labels contradict what was known of such samples",
    "features": "a single feature lies elsewhere than usual",
}
"""What the detector's signals say."""

MOST_IN_WORDS, LEAST_IN_WORDS = 3, 0.1
"""Features that are told in words, at most, and their share of the change, at least."""


def explain_command(
    boundary: Annotated[
        str | None,
        typer.Argument(
            metavar="BOUNDARY",
            help="Its number, or its id in GET /drift/boundaries; without it the newest.",
            show_default=False,
        ),
    ] = None,
    url: Url = None,
    as_json: AsDocument = False,
) -> None:
    """Say what changed at a boundary: features, classes, components, and what people noted.

    Example: gmr explain

    Example: gmr explain 3 --json
    """
    with GMRClient(url) as client:
        found = client.boundary(id_of(client, boundary))
    if as_json:
        print_json(found.raw)
        return
    console = Console()
    console.print(_facts(found))
    why = found.explanation
    _print(
        console,
        ("feature", "share of the change", *MOMENTS),
        ((one.title, share(one.share), *one.moments) for one in why.features),
    )
    if why.samples and not why.features:
        console.print("No single feature has changed beyond its sampling error.")
    _print(
        console,
        ("class", "before", "now"),
        ((str(one.label), share(one.before), share(one.now)) for one in why.classes),
    )
    _print(
        console,
        ("called before", "called now", "samples"),
        ((str(one.before), str(one.now), f"{one.samples:,}") for one in why.labels),
    )
    _print(
        console,
        ("component", "before", "now"),
        ((str(one.component), share(one.before), share(one.now)) for one in why.components),
    )
    for note in found.notes:
        when = time.strftime("%d %b %H:%M", time.localtime(note.time))
        console.print(Text(printable(f"{when}, {note.by or 'somebody'}: {note.text}")))


def id_of(client: GMRClient, boundary: str | None) -> str:
    """The id of a boundary that a person names.

    Arguments:
        client: Of the service.
        boundary: A number, or an id; None for the newest.

    Raises:
        InputError: There is none.
    """
    if boundary is not None and not boundary.isdecimal():
        return boundary
    all_found = client.boundaries()
    if boundary is None and all_found:
        return all_found[-1].id
    for one in all_found:
        if boundary is not None and one.boundary == int(boundary):
            return one.id
    what = "no boundary yet" if boundary is None else f"no boundary {boundary}"
    known = f"1 to {max(one.boundary for one in all_found)}" if all_found else "none"
    raise InputError(
        f"There is {what}; expected a number of GET /drift/boundaries ({known}), or an id. "
        f"`gmr status` shows the newest."
    )


def printable(text: str) -> str:
    """A text that others have written, without what would control the terminal.

    Example:
        >>> printable("two" + chr(10) + "lines"), printable(chr(27) + "[31m")
        ('two\\nlines', '\ufffd[31m')
    """
    return "".join(one if one.isprintable() or one == "\n" else "\ufffd" for one in text)


def _facts(found: Boundary) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")

    def row(name: str, text: str, style: str = "") -> None:
        table.add_row(name, Text(text, style=style))

    why = found.explanation
    dropped = " (dropped by a rollback or an upload)" if found.dropped else ""
    row("boundary", f"{found.boundary}{dropped}", "bold")
    back = found.recurrence_of
    begins = f"{found.sub_task} begins" if back is None else f"{found.sub_task}: {back} is back"
    row("sub-task", begins)
    row(
        "began",
        f"at about sample {found.estimated_start_sample:,}; found at sample "
        f"{found.sample_index:,}, "
        f"{time.strftime('%d %b %Y %H:%M:%S', time.localtime(found.time))}",
    )
    signal = f", signal {found.signal}" if found.signal else ""
    says = f": {SIGNALS[found.signal]}" if found.signal in SIGNALS else ""
    row("found by", found.detector + signal + says)
    if found.severity is not None:
        row("severity", f"{found.severity:.2f} of 1, by {found.severity_view}")
    for place, one in enumerate(why.features[:MOST_IN_WORDS]):
        if one.share >= LEAST_IN_WORDS:
            row("" if place else "in words", printable(one.in_words))
    if why.samples:
        row("new samples", f"{why.samples:,}, of them {why.examined:,} looked at")
    if why.effect is not None:
        row("fit", f"{abs(why.effect):.2f} deviations {'worse' if why.effect < 0 else 'better'}")
    row("versions", f"{found.version_before} before, {found.version_after} after")
    return table


def _print(console: Console, heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    told = list(rows)
    if not told:
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(head, overflow="fold")
    for row in told:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console.print(table)
