"""`gmr bench NAME`: runs a benchmark, prints its tables and writes them as JSON.

A benchmark is a script in `benchmarks/`, one per question, whose docstring opens
with that question and which has a function

    def measure(quick: bool, say: Callable[[str], None]) -> Measurement

or, where it keeps more than numbers, one that takes besides

    folder: Path  # for its own files, NAME in the folder of all
    arguments: Sequence[str]  # options of its own, as they were given

Rules: a benchmark starts what it needs and stops it again; `quick` makes it small
enough for a test (seconds) and says nothing about speed; numbers come with the
hardware and versions they were taken on; a floor that is missed is an exit status.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import orjson
import typer
from rich.console import Console
from rich.table import Table as RichTable

from clients.evaluation import environment
from clients.extras import naming_the_extra
from clients.http.errors import InputError
from clients.whole_file import write_whole

SCHEMA = "gmr-bench/1"
FOLDER = Path(__file__).resolve().parent.parent.parent / "benchmarks"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Table:
    """Rows of text under named columns; the first column names the row."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Floor:
    """The least that a number must reach."""

    name: str
    value: float
    at_least: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether it does."""
        return self.value >= self.at_least


@dataclass(frozen=True)
class Measurement:
    """The result of a benchmark."""

    tables: tuple[Table, ...]
    values: dict[str, Any]  # every number of the tables, JSON-ready, and those behind them
    floors: tuple[Floor, ...] = ()


def names() -> dict[str, str]:
    """Benchmark -> the question it answers."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.py"))}
    return {name: _question(text) for name, text in texts.items() if "\ndef measure(" in text}


def run(
    name: str, *, quick: bool, out: Path, console: Console, arguments: Sequence[str] = ()
) -> int:
    """Run one benchmark.

    Arguments:
        name: One of `names()`.
        quick: Take the small size.
        out: Folder for NAME.json.
        console: Where the tables go.
        arguments: Options of its own.

    Returns:
        0, or 1 when a floor was missed at full size.

    Raises:
        InputError: there is no such benchmark, or no folder of benchmarks, or it takes no options.
    """
    measure = _measure(name)
    console.print(f"[bold]{name}[/]: {names()[name]}{' (quick size)' if quick else ''}")
    own: dict[str, Any] = {}
    if "folder" in inspect.signature(measure).parameters:
        own["folder"] = out / name
    if arguments:
        if "arguments" not in inspect.signature(measure).parameters:
            raise InputError(
                f"gmr bench {name} takes no options beside --quick and --out, and was given "
                f"{' '.join(arguments)}. Leave them out."
            )
        own["arguments"] = arguments
    begun, start = datetime.now(UTC), time.perf_counter()
    measurement = measure(
        quick, lambda text: console.print(text, style="dim", markup=False, highlight=False), **own
    )
    seconds = time.perf_counter() - start

    for table in measurement.tables:
        console.print(rich_table(table))
    for floor in measurement.floors:
        verdict = "[green]met[/]" if floor.met else "[bold red]missed[/]"
        console.print(
            f"floor {'not judged at the quick size' if quick else verdict}: {floor.name} "
            f"{floor.value:,.0f} {floor.unit}, at least {floor.at_least:,.0f} asked for",
            highlight=False,
        )
    path = out / f"{name}.json"
    out.mkdir(parents=True, exist_ok=True)
    content = {
        "schema": SCHEMA,
        "name": name,
        "quick": quick,
        "created": begun.isoformat(timespec="seconds"),
        "duration_seconds": round(seconds, 2),
        "hardware": environment.hardware(),
        "versions": environment.versions(),
        "values": measurement.values,
        "floors": [{**vars(floor), "met": floor.met} for floor in measurement.floors],
        "tables": [vars(table) for table in measurement.tables],
    }
    options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
    write_whole(path, orjson.dumps(content, option=options))
    console.print(f"written to {path}", style="dim", highlight=False)
    return 0 if quick or all(floor.met for floor in measurement.floors) else 1


def listing(console: Console) -> None:
    """Print the benchmarks and their questions."""
    table = RichTable("benchmark", "question", box=None, header_style="bold", pad_edge=False)
    for name, question in names().items():
        table.add_row(name, question)
    console.print(table)


def rich_table(table: Table) -> RichTable:
    """A table as a terminal shows it."""
    shown = RichTable(
        title=table.title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )
    for number, column in enumerate(table.columns):
        shown.add_column(
            column, justify="right" if number else "left", header_style="dim", no_wrap=True
        )
    for row in table.rows:
        shown.add_row(*row)
    return shown


def _measure(name: str) -> Callable[..., Measurement]:
    known = names()
    if not known:
        raise InputError(
            f"There are no benchmarks in {FOLDER}. They are part of the repository, not of the "
            f"installed package: clone it, and run gmr bench from there."
        )
    if name not in known:
        raise InputError(
            f"There is no benchmark {name!r}. Known: {', '.join(known)}. Choose one of these."
        )
    measure: Callable[..., Measurement] = _load(name).measure
    return measure


def _load(name: str) -> ModuleType:
    # The repository's root, for scripts that share helpers in the same folder.
    root = str(FOLDER.parent)
    if root not in sys.path:
        sys.path.insert(0, root)
    with naming_the_extra(f"gmr bench {name}", "cluster"):  # the largest
        return importlib.import_module(f"{FOLDER.name}.{name}")


def _question(source: str) -> str:
    """The first line of a script's docstring, without importing it."""
    return source.strip().partition("\n")[0].strip('" ')


def milliseconds(seconds: float) -> str:
    """A duration as a table shows it.

    Example:
        >>> milliseconds(0.01234)
        '12.3'
    """
    return f"{1000 * seconds:,.1f}"


def bench_command(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Which one, or all; without it, a list."),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small size, in seconds; says nothing about speed.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for NAME.json.")] = Path("report/bench"),
) -> None:
    """Run the benchmark NAME, print its tables and keep its numbers as JSON.

    Further options are the benchmark's own, where it has any: benchmarks/README.md.

    Example: gmr bench ingest --quick
    """
    console = Console()
    if name is None:
        if context.args:
            raise InputError(
                f"{' '.join(context.args)} was given, and no benchmark that could take it. Name "
                f"one first: gmr bench lists them."
            )
        listing(console)
        return
    chosen = list(names()) if name == "all" else [name]
    own = context.args
    raise typer.Exit(
        max(run(one, quick=quick, out=out, console=console, arguments=own) for one in chosen)
    )
