"""Tables of the comparison: one per data set, as Markdown, as JSON and for a terminal.

Rules: every number is made from outcomes and from what the paper reports, by name; a
cell that was not measured is shown as missing, never left out; accuracies are in percent,
with the standard deviation over seeds (n - 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.comparison.cell import Cell, Outcome
from benchmarks.comparison.curriculum import baseline_of
from benchmarks.comparison.published import MODELS, model_beside, reported
from clients.commands.bench import Table
from clients.data.tasks import SLT
from clients.evaluation import scores
from clients.evaluation.scores import Spread

SCHEMA = "gmr-comparison/1"

MISSING = "missing"


@dataclass(frozen=True)
class Row:
    """One system on one SLT, over the seeds that were measured.

    Attributes:
        slt: Its name.
        system: Its name.
        wanted: Seeds that were asked for.
        outcomes: By seed.
        drop: Mean accuracy on all classes at once less that on this SLT, in points; NaN
            where either is missing.
    """

    slt: str
    system: str
    wanted: tuple[int, ...]
    outcomes: Mapping[int, Outcome]
    drop: float = math.nan

    @property
    def accuracy(self) -> Spread:
        """In percent, after the last sub-task."""
        return self._spread("accuracy", 100)

    @property
    def forgetting(self) -> float:
        """Mean over seeds and sub-tasks of best earlier accuracy less the last, in points.

        NaN for a single sub-task (Chaudhry et al. 2018).
        """
        several = [one for one in self.outcomes.values() if len(one.matrix) > 1]
        return 100 * Spread.of([scores.forgetting(one.matrix) for one in several]).mean

    @property
    def missing(self) -> tuple[int, ...]:
        """Seeds that were not measured."""
        return tuple(seed for seed in self.wanted if seed not in self.outcomes)

    @property
    def passes(self) -> str:
        """How often a sample is seen."""
        one = next(iter(self.outcomes.values()), None)
        if one is None:
            return ""
        repeats = one.configuration["repeats"]
        return one.epochs if repeats == 1 else f"{one.epochs}, {repeats} times"

    @property
    def boundaries(self) -> str:
        """Found of how many, over all seeds, and false ones; "told" where they were told."""
        if not self.outcomes:
            return ""
        if any(one.told for one in self.outcomes.values()):
            return "told"
        true = sum(len(one.matrix) - 1 for one in self.outcomes.values())
        found = sum(one.found or 0 for one in self.outcomes.values())
        false = sum(one.false or 0 for one in self.outcomes.values())
        return f"{found} of {true}" + (f", {false} false" if false else "")

    def mean(self, name: str) -> float:
        """Mean over seeds of a number of the outcomes, by name; NaN without any."""
        return self._spread(name).mean

    def _spread(self, name: str, factor: float = 1) -> Spread:
        return Spread.of([factor * getattr(one, name) for one in self.outcomes.values()])


def rows_of(
    data: str,
    slts: Sequence[SLT],
    systems: Sequence[str],
    seeds: Sequence[int],
    outcomes: Mapping[Cell, Outcome],
) -> list[Row]:
    """A row for every SLT and system that was asked for, measured or not."""
    bare: dict[tuple[str, str], Row] = {}
    for slt in slts:
        for system in systems:
            cells = {seed: Cell(system, data, slt, seed) for seed in seeds}
            done = {seed: outcomes[cell] for seed, cell in cells.items() if cell in outcomes}
            bare[slt.name, system] = Row(slt.name, system, tuple(seeds), done)
    rows = []
    for (slt_name, system), row in bare.items():
        whole = bare.get((baseline_of(slt_name) or "", system))
        drop = math.nan
        if whole is not None and whole.slt != slt_name:
            drop = whole.accuracy.mean - row.accuracy.mean
        rows.append(Row(row.slt, row.system, row.wanted, row.outcomes, drop))
    return rows


COLUMNS = (
    "SLT",
    "system",
    "accuracy, %",
    "paper, %",
    "drop",
    "paper's drop",
    "forgets",
    "boundaries",
    "passes",
    "parameters",
    "MB",
    "seconds",
    "samples/s",
    "seeds",
)


SHORT = ("SLT", "system", "accuracy, %", "paper, %", "drop", "boundaries", "seconds", "seeds")
"""Those that fit on a terminal."""


def cells_of(data: str, row: Row) -> tuple[str, ...]:
    """The cells of a row under `COLUMNS`."""
    beside = reported(model_beside(row.system), data, row.slt)
    whole = reported(model_beside(row.system), data, baseline_of(row.slt) or "")
    dropped = beside is not None and whole is not None and row.slt != "D10"
    return (
        row.slt,
        row.system,
        spread_text(row.accuracy),
        "" if beside is None else f"{beside.accuracy:.1f} ± {beside.deviation:.1f}",
        number(row.drop, 1),
        f"{whole.accuracy - beside.accuracy:.1f}" if dropped and whole and beside else "",
        number(row.forgetting, 1),
        row.boundaries,
        row.passes,
        number(row.mean("parameters"), 0),
        number(row.mean("bytes") / 1e6, 2),
        number(row.mean("seconds"), 1),
        number(row.mean("samples_per_second"), 0),
        f"{len(row.outcomes)} of {len(row.wanted)}",
    )


def terminal_table(data: str, rows: Sequence[Row]) -> Table:
    """For `gmr bench`: the columns that a terminal has room for."""
    places = [COLUMNS.index(name) for name in SHORT]
    lines = [cells_of(data, row) for row in rows]
    return Table(
        f"{data}: accuracy over all classes after the last sub-task",
        SHORT,
        tuple(tuple(line[place] for place in places) for line in lines),
    )


def markdown(data: str, rows: Sequence[Row], note: str) -> str:
    """The table of a data set, as a page.

    Arguments:
        note: What a reader must know of how it was measured: versions, machine, size.
    """
    slts = list(dict.fromkeys(row.slt for row in rows))
    systems = list(dict.fromkeys(row.system for row in rows))
    by_place = {(row.slt, row.system): row for row in rows}
    lacking = [row for row in rows if row.missing]
    parts = [f"# {data}", note, "## Accuracy over all classes after the last sub-task, %"]
    lines = [
        (system, *(spread_text(by_place[slt, system].accuracy) for slt in slts))
        for system in systems
    ]
    for model in MODELS:
        told = [reported(model, data, slt) for slt in slts]
        if any(told):
            entries = (f"{one.accuracy:.1f} ± {one.deviation:.1f}" if one else "" for one in told)
            lines.append((f"*{model}, as the paper reports it*", *entries))
    parts.append(pipes(("system", *slts), lines))
    if len(slts) > 1:
        parts.append("## Lost against learning all classes at once, points")
        lines = [
            (system, *(number(by_place[slt, system].drop, 1) for slt in slts)) for system in systems
        ]
        parts.append(pipes(("system", *slts), lines))
    parts.append("## Everything")
    parts.append(pipes(COLUMNS, [cells_of(data, row) for row in rows]))
    parts.append(_LEGEND)
    parts.append("## Missing")
    parts.append(
        "\n".join(
            f"* {row.slt}, {row.system}: seeds {', '.join(map(str, row.missing))}"
            for row in lacking
        )
        or "Nothing: every cell that was asked for was measured."
    )
    return "\n\n".join(parts) + "\n"


_LEGEND = """\
* `paper, %`: what the paper reports of the model that the system stands beside (GMR, EWC or GR);
  the best of a run, on its own splits.
* `drop`: accuracy on the same classes in one sub-task, less this.
* `forgets`: mean over sub-tasks of the best earlier accuracy less the last.
* `boundaries`: found of how many, over all seeds; or told.
* `parameters`, `MB`: what is kept after the last sub-task.
* `seconds`: spent learning; processor time of one thread, or time by the clock on a GPU.
* `samples/s`: samples of the stream per such second, each counted once, however often seen."""


def json_values(data: str, rows: Sequence[Row], note: str) -> dict[str, Any]:
    """The table of a data set, JSON-ready, with the numbers of every seed."""
    return {
        "schema": SCHEMA,
        "data": data,
        "note": note,
        "rows": [_row_values(data, row) for row in rows],
    }


def _row_values(data: str, row: Row) -> dict[str, Any]:
    model = model_beside(row.system)
    beside = reported(model, data, row.slt)
    accuracy = row.accuracy
    return {
        "slt": row.slt,
        "system": row.system,
        "seeds": sorted(row.outcomes),
        "missing": list(row.missing),
        "accuracy": {
            "mean": _plain(accuracy.mean),
            "deviation": _plain(accuracy.std),
            "by_seed": {
                str(seed): round(100 * one.accuracy, 4) for seed, one in row.outcomes.items()
            },
        },
        "paper": None if beside is None else {"model": model, **vars(beside)},
        "drop": _plain(row.drop),
        "forgetting": _plain(row.forgetting),
        "boundaries": row.boundaries,
        "passes": row.passes,
        **{
            name: _plain(row.mean(name))
            for name in ("parameters", "bytes", "seconds", "wall_seconds", "samples_per_second")
        },
        "sub_task_seconds": {
            str(seed): list(one.sub_task_seconds) for seed, one in row.outcomes.items()
        },
    }


def spread_text(spread: Spread) -> str:
    """Mean and deviation, in as many digits as they deserve.

    Example:
        >>> spread_text(Spread.of([98.2, 98.3])), spread_text(Spread.of([98.2]))
        ('98.25 ± 0.07', '98.20')
        >>> spread_text(Spread.of([]))
        'missing'
    """
    if not spread.n:
        return MISSING
    return f"{spread.mean:.2f}" + (f" ± {spread.std:.2f}" if spread.n > 1 else "")


def number(value: float, digits: int) -> str:
    """A number as a table shows it; nothing for NaN.

    Example:
        >>> number(1234.56, 1), number(float("nan"), 1)
        ('1,234.6', '')
    """
    return "" if math.isnan(value) else f"{value:,.{digits}f}"


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None


def pipes(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    rule = "|".join("---" for _ in head)
    return "\n".join(
        [f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(line)} |" for line in lines)]
    )
