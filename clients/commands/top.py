"""`gmr top`: a service, live.

Rules of this module:

1. One task asks once per interval, another follows the events; both end with the command.
2. A service that goes away is shown as away, and asked again.
3. Where standard output is no terminal there is one line per reading and nothing else.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from clients.commands.event_line import event_line
from clients.commands.json_lines import print_json
from clients.commands.options import Url
from clients.commands.reading import AWAY, Reading, accuracy_of, gate_of, phase_of, share
from clients.http.answers import ServiceEvent
from clients.http.async_client import AsyncGMRClient
from clients.http.retry import RetryPolicy
from core.counted import counted

_BARS: Final = "▁▂▃▄▅▆▇█"
_RATES: Final = 40
_EVENTS: Final = 12
_BAR: Final = 24
_USUAL: Final = ("batch_learned", "model_published")
"""Kinds that come with every batch: the numbers above the events tell of them."""


def top_command(
    interval: Annotated[
        float, typer.Option(min=0.05, max=3600, help="Seconds between two readings.")
    ] = 1.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many readings.", show_default=False)
    ] = None,
    url: Url = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document per reading instead.")
    ] = False,
) -> None:
    """Watch a service live: throughput, inlier rate, evidence of a change, newest events.

    Example: gmr top

    Example: gmr top --interval 10 | tee top.log

    Example: gmr top --json --count 1

    Ends by Ctrl-C, with status 0. Where the output is no terminal it is a line per reading.
    """
    console = Console()
    try:
        asyncio.run(_watch(url, interval, count, console, as_json))
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


class Watch:
    """The last readings and events of a service."""

    def __init__(self) -> None:
        self.document: dict[str, Any] = {}
        self.speed: float | None = None  # samples per second; None before the second reading
        self.rates: deque[float] = deque(maxlen=_RATES)
        self.events: deque[ServiceEvent] = deque(maxlen=_EVENTS)
        self._before: tuple[float, int] | None = None

    def read(self, reading: Reading, now: float) -> None:
        """Take a reading.

        Arguments:
            reading: The newest.
            now: A clock, in seconds.
        """
        self.document = reading.document()
        samples = self.document["stream_samples"]
        self.speed = None
        if samples is not None:
            if self._before is not None and now > self._before[0]:
                # A rollback makes the stream shorter: that is no speed.
                self.speed = max(0.0, (samples - self._before[1]) / (now - self._before[0]))
            self._before = now, samples
        if self.document["inlier_rate"] is not None:
            self.rates.append(self.document["inlier_rate"])


async def _watch(
    url: str | None, interval: float, count: int | None, console: Console, as_json: bool
) -> None:
    watch = Watch()
    live = None
    if console.is_terminal and not as_json:
        live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
    async with AsyncGMRClient(url, retry=RetryPolicy(total_s=0), timeout=10) as client:
        following = asyncio.create_task(_follow(client, watch, interval))
        if live is not None:
            live.start()
        try:
            readings = 0
            while True:
                began = time.monotonic()
                watch.read(await _reading(client), time.monotonic())
                if live is not None:
                    live.update(picture(watch, console.size.height - 1), refresh=True)
                elif as_json:
                    print_json(_document(watch))
                else:
                    typer.echo(line(watch))
                readings += 1
                if readings == count:
                    return
                await asyncio.sleep(max(0.0, interval - (time.monotonic() - began)))
        finally:
            if live is not None:
                live.stop()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


async def _reading(client: AsyncGMRClient) -> Reading:
    try:
        readiness = await client.ready()
        if not readiness.ready:
            return Reading(client.url, readiness)
        model, drift, boundaries = await asyncio.gather(
            client.model(), client.drift(), client.boundaries()
        )
        return Reading(client.url, readiness, model, drift, boundaries)
    except AWAY as error:
        return Reading.away(client.url, error)


async def _follow(client: AsyncGMRClient, watch: Watch, pause: float) -> None:
    last = None
    while True:
        try:
            async for event in client.events(last):
                last = event.id or last
                if event.kind not in _USUAL:
                    watch.events.append(event)
        except AWAY:
            await asyncio.sleep(pause)


def line(watch: Watch) -> str:
    """The last reading as one line."""
    document = watch.document
    clock = time.strftime("%H:%M:%S")
    if not document["ready"]:
        return f"{clock}  not ready: {document['reason']}"
    speed = "-" if watch.speed is None else f"{watch.speed:,.0f}"
    return (
        f"{clock}  version {document['model_version']}  sub-task {document['sub_task']}  "
        f"{phase_of(document)}  backlog {document['backlog']}  {speed} samples/s  "
        f"inliers {share(document['inlier_rate'])}  "
        f"evidence {_evidence(document)}  accuracy {share(document['accuracy'])}"
    )


def picture(watch: Watch, height: int) -> Group:
    """The last reading and the newest events as one picture.

    Arguments:
        watch: What was read.
        height: Rows that may be used.
    """
    document = watch.document
    head = Text.assemble((" gmr top ", "bold reverse"), "  ", (document["url"], "cyan underline"))
    if not document["ready"]:
        return Group(head, Text(f"not ready: {document['reason']}", style="bold red"))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis")
    speed = "-" if watch.speed is None else f"{watch.speed:,.0f} samples/s"
    warned = document["phase"] == "warning"
    table.add_row(
        "model",
        f"version {document['model_version']}, {counted(document['components'], 'component')}, "
        f"{counted(document['classes'], 'class', 'classes')}",
    )
    phase = f"sub-task {document['sub_task']}: {phase_of(document)}"
    table.add_row("phase", Text(phase, style="bold yellow" if warned else ""))
    if (held := gate_of(document)) is not None:
        table.add_row("gate", Text(held, style="bold yellow"))
    table.add_row("stream", f"{speed}, backlog {counted(document['backlog'], 'entry', 'entries')}")
    table.add_row("accuracy", accuracy_of(document))
    rate = f"{share(document['inlier_rate'])}, usual {share(document['inlier_rate_mean'])}  "
    table.add_row("inliers", Text.assemble(rate, (_sparkline(watch.rates), "cyan")))
    table.add_row("evidence", Text.assemble(_bar(document), f"  {_evidence(document)}"))
    room = max(0, height - table.row_count - 3)
    shown = [event_line(event.kind, event.data) for event in list(watch.events)[-room:]]
    events = [Text(text, no_wrap=True, overflow="ellipsis") for text in shown if room]
    return Group(head, table, Text(""), *events)


def _document(watch: Watch) -> dict[str, Any]:
    events = [{"id": one.id or None, "kind": one.kind, **one.data} for one in watch.events]
    watch.events.clear()  # each is told once
    return {
        "time": time.time(),
        **watch.document,
        "samples_per_second": watch.speed,
        "events": events,
    }


def _statistic(document: dict[str, Any]) -> tuple[float, float] | None:
    """What the deciding detector compares, and with what; None while it compares nothing.

    What it said last, before a boundary or before the model was frozen, is of another time.

    Example:
        >>> document = {"phase": "armed", "mode": "learn", "statistic": 2.0, "threshold": 8.0}
        >>> _statistic(document)
        (2.0, 8.0)
        >>> _statistic({**document, "mode": "frozen"})
        >>> _statistic({**document, "phase": "learning"})
    """
    statistic, threshold = document["statistic"], document["threshold"]
    at_rest = document["phase"] == "learning" or document.get("mode") == "frozen"
    return None if at_rest or statistic is None or not threshold else (statistic, threshold)


def _evidence(document: dict[str, Any]) -> str:
    compared = _statistic(document)
    return "-" if compared is None else f"{compared[0]:.1f} of {compared[1]:.1f}"


def _bar(document: dict[str, Any]) -> Text:
    """The statistic over the threshold."""
    compared = _statistic(document)
    part = 0.0 if compared is None else min(1.0, max(0.0, compared[0] / compared[1]))
    filled = round(part * _BAR)
    colour = "green" if part < 0.5 else "yellow" if part < 1 else "red"
    return Text.assemble(("━" * filled, colour), ("━" * (_BAR - filled), "bright_black"))


def _sparkline(rates: Sequence[float]) -> str:
    """Shares as bars, the newest on the right.

    Example:
        >>> _sparkline([0.0, 0.5, 1.0])
        '▁▅█'
    """
    return "".join(_BARS[min(7, int(rate * 8))] for rate in rates)
