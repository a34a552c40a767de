"""How much faster is POST /classify than the same mixture behind other model servers?

Our service learns 10,000 made-up samples of D = 784; its snapshot is then served by FastAPI as
its documentation teaches it, by LitServe, MLServer and BentoML, each in an environment of its own
(made below the benchmark's folder, once) and by our own scoring function, so that what differs is
the way in and out. All run at once and are asked in turns, round by round, for 100 samples a
request; a ratio is ours over theirs within a round. Before that every server must name the classes
that ours names. What cannot be installed is left out, and the reason is said.

What the others do not do: none learns, keeps versions, or has p-values calibrated on the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from benchmarks._streams import made_up
from benchmarks.servers.door import BINARY, Door, Samples, as_json, as_safetensors
from benchmarks.servers.environment import Unavailable, python_of
from benchmarks.servers.load import Load, ask, load
from benchmarks.servers.process import started
from benchmarks.servers.registry import COMMON, SERVERS
from clients.commands.bench import Measurement, Say, Table, milliseconds
from clients.evaluation.local import LocalService
from clients.evaluation.scores import Latency
from clients.http.client import GMRClient
from core.config import EngineConfig
from core.engine.checkpoint import load as state_of
from core.engine.engine import Engine

OURS: Final = "gmr-stream"
OUR_DOORS: Final = (as_json("/classify"), as_safetensors("/classify"))
THREADS: Final = 1
"""Of torch, in every server; ours has one by default."""
PRESETS: Final = (EngineConfig().preset, "flat")
"""The default first: what a user gets who sets nothing."""


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Arguments:
        learned: Samples that the model learns.
        batch: Samples per request.
        rounds: Turns of all servers.
        seconds: That each is asked in a round, by each number of connections.
        connections: Numbers of connections.
    """

    learned: int = 10_000
    batch: int = 100
    rounds: int = 5
    seconds: float = 2.0
    connections: tuple[int, ...] = (1, 4)


QUICK: Final = Size(1_000, 20, 1, 0.2, (1,))


@dataclass(frozen=True)
class Asked:
    """A door of a running server."""

    server: str
    port: int
    door: Door


def measure(quick: bool, say: Say, folder: Path) -> Measurement:
    """Quick: our service and, of the others, what is installed already."""
    size = QUICK if quick else Size()
    folder.mkdir(parents=True, exist_ok=True)
    pythons = dict(_pythons(folder, quick, say))
    tables: list[Table] = []
    values: dict[str, Any] = {"size": asdict(size), "presets": {}}
    for preset in PRESETS:
        found = _preset(preset, size, folder, pythons, say)
        tables.append(_table(preset, size, found))
        values["presets"][preset] = [
            {
                "server": asked.server,
                "body": asked.door.body,
                "connections": connections,
                "requests_per_second": [one.per_second for one in loads],
                "latency": [asdict(Latency.of(list(one.durations))) for one in loads],
            }
            for (asked, connections), loads in found.items()
        ]
    return Measurement(tables=tuple(tables), values=values)


def _pythons(folder: Path, quick: bool, say: Say) -> Iterator[tuple[str, Path]]:
    """Server -> interpreter, of those that can be had."""
    for server in SERVERS:
        home = folder / "environments" / server.module
        if quick and not home.is_dir():
            say(f"{server.name}: left out, since the quick size installs nothing")
            continue
        say(f"{server.name}: its environment")
        try:
            yield server.name, python_of(home, (*server.requirements, *COMMON))
        except Unavailable as error:
            say(f"{server.name}: left out. {error}")


def _preset(
    preset: str, size: Size, folder: Path, pythons: dict[str, Path], say: Say
) -> dict[tuple[Asked, int], list[Load]]:
    x, y = made_up(size.learned)
    x = x.astype(np.float32)
    with LocalService(settings={"preset": preset}) as service, ExitStack() as stack:
        snapshot = folder / f"{preset}.snapshot"
        snapshot.write_bytes(_taught(service.url, x, y, size.batch))
        doors = [Asked(OURS, service.port, door) for door in OUR_DOORS]
        for server in SERVERS:
            if server.name not in pythons:
                continue
            say(f"{preset}: {server.name} starts")
            log = folder / f"{preset}-{server.module}.log"
            try:
                port = stack.enter_context(
                    started(server, pythons[server.name], snapshot, THREADS, log)
                )
            except Unavailable as error:
                say(f"{server.name}: left out. {error}")
                continue
            doors += [Asked(server.name, port, door) for door in server.doors]
        return _rounds(preset, size, doors, x, say)


def _taught(url: str, x: Samples, y: Any, batch: int) -> bytes:
    """The snapshot of a service that has learned these."""
    with GMRClient(url) as client:
        for first in range(0, len(x), batch):
            client.ingest(x[first : first + batch], y[first : first + batch])
        client.wait_until_learned()
        state, config, _ = state_of(client.checkpoint())
    return Engine(config).snapshot(state).to_bytes({})


def _rounds(
    preset: str, size: Size, doors: list[Asked], x: Samples, say: Say
) -> dict[tuple[Asked, int], list[Load]]:
    batches = [x[first : first + size.batch] for first in range(0, len(x), size.batch)][:20]
    bodies = {asked: [asked.door.write(batch) for batch in batches] for asked in doors}
    for which in range(2):
        named = {asked: ask(asked.port, asked.door, bodies[asked][which]) for asked in doors}
        for asked, labels in named.items():
            if labels != named[doors[0]]:
                raise RuntimeError(f"{asked.server} by {asked.door.body} names other classes.")
    found: dict[tuple[Asked, int], list[Load]] = {
        (asked, connections): [] for asked in doors for connections in size.connections
    }
    for turn in range(size.rounds):
        say(f"{preset}: round {turn + 1} of {size.rounds}")
        for (asked, connections), loads in found.items():
            loads.append(load(asked.port, asked.door, bodies[asked], connections, size.seconds))
    return found


def _table(preset: str, size: Size, found: dict[tuple[Asked, int], list[Load]]) -> Table:
    binary = {
        connections: loads
        for (asked, connections), loads in found.items()
        if asked.server == OURS and asked.door.body == BINARY
    }
    same = {
        (asked.door.body, connections): loads
        for (asked, connections), loads in found.items()
        if asked.server == OURS
    }
    rows = []
    for (asked, connections), loads in found.items():
        latency = Latency.of([one for each in loads for one in each.durations])
        rows.append(
            (
                asked.server,
                asked.door.body,
                str(connections),
                f"{median(one.per_second for one in loads):,.0f}",
                milliseconds(latency.p50),
                milliseconds(latency.p99),
                _ratio(same[asked.door.body, connections], loads),
                _ratio(binary[connections], loads),
            )
        )
    return Table(
        f"Preset {preset}: {size.batch} samples of 784 float32 a request, {size.rounds} rounds",
        (
            "server",
            "body",
            "connections",
            "requests/s",
            "p50, ms",
            "p99, ms",
            "ours, same body, over it",
            "ours, binary, over it",
        ),
        tuple(rows),
    )


def _ratio(ours: list[Load], theirs: list[Load]) -> str:
    """Median, least and greatest of the ratios within rounds."""
    ratios = [a.per_second / b.per_second for a, b in zip(ours, theirs, strict=True)]
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
