"""What `gmr evaluate` prints: bars while it runs, tables when it is done.

Rules: shows what it is told, measures nothing; without a terminal there are no
bars but one line per sub-task, so that a log file stays readable.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table

from clients.data.tasks import SubTask
from clients.evaluation.report import Report
from clients.evaluation.report_rows import held_rows, score_rows, unwatched_lines
from clients.evaluation.results import Evaluation, Milestone


class Bars:
    """A `ProgressListener` that draws one bar per sub-task; a context manager."""

    def __init__(self, console: Console, *, n_seeds: int = 1) -> None:
        self._console, self._n_seeds = console, n_seeds
        self._bar: TaskID | None = None
        self._starting: TaskID | None = None
        self._name, self._samples = "", 0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None, complete_style="cyan", finished_style="green"),
            TextColumn("{task.percentage:>3.0f} %"),
            TextColumn("{task.fields[note]}", style="dim"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            disable=not console.is_terminal,
            expand=True,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def starting(self, seed: int) -> None:
        """A bar without an end, until the service is there."""
        self._starting = self._progress.add_task("starting a private service", total=None, note="")

    def warned(self, message: str) -> None:
        """On a line of its own."""
        self._console.print(escape(message), style="yellow", highlight=False, soft_wrap=True)

    def began(self, seed: int, sub_task: SubTask) -> None:
        """A new bar."""
        if self._starting is not None:
            self._progress.remove_task(self._starting)
            self._starting = None
        names = " ".join(map(str, sub_task.classes))
        seed_note = f"seed {seed}, " if self._n_seeds > 1 else ""
        self._name = escape(f"{seed_note}sub-task {sub_task.index} ({names})")
        self._samples = 0
        self._bar = self._progress.add_task(self._name, total=len(sub_task), note="")

    def sent(self, samples: int) -> None:
        """The bar grows."""
        if self._bar is not None:
            self._samples += samples
            self._progress.advance(self._bar, samples)

    def saw(self, inlier_rate: float, boundaries: int) -> None:
        """The news beside the bar."""
        if self._bar is not None:
            plural = "boundary" if boundaries == 1 else "boundaries"
            self._progress.update(
                self._bar,
                note=f"inlier rate {inlier_rate:.2f}, {boundaries} {plural} found",
            )

    def measured(self, milestone: Milestone) -> None:
        """The result of the sub-task beside its bar, or on a line of its own."""
        note = (
            f"accuracy {100 * milestone.accuracy_seen:.1f} % on classes seen, "
            f"{100 * milestone.accuracy_joint:.1f} % on all"
        )
        if self._console.is_terminal and self._bar is not None:
            self._progress.update(self._bar, note=note)
        else:
            self._console.print(f"{self._name}: {self._samples:,} samples, {note}", highlight=False)


def print_results(evaluation: Evaluation, report: Report | None, console: Console) -> None:
    """The headline scores, and where the report is."""
    several = len(evaluation.runs) > 1
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("score")
    table.add_column("value", justify="right", style="bold")
    if several:
        for name in ("std", "min", "max"):
            table.add_column(name, justify="right")
    roomy = console.width >= 120
    if roomy:
        table.add_column("what it says", style="dim")
    for name, value, std, low, high, meaning in score_rows(evaluation.summary()):
        spread = (std, low, high) if several else ()
        table.add_row(name, value, *spread, *((meaning,) if roomy else ()))
    data, protocol = evaluation.data, evaluation.protocol
    seeds = f"{len(evaluation.runs)} seeds" if several else f"seed {protocol.seeds[0]}"
    console.print()
    console.print(f"[bold]{escape(data.name)}, {escape(protocol.slt)}[/], {seeds}", highlight=False)
    console.print(table)
    _print_held(evaluation, several, console)
    for text in unwatched_lines(evaluation):
        console.print(escape(text), style="yellow", highlight=False, soft_wrap=True)
    if report is not None:
        console.print()
        console.print(f"report   {report.html}", highlight=False, soft_wrap=True)
        others = f"{report.json}, {report.scores}, {report.history}"
        console.print(f"numbers  {others}", highlight=False, soft_wrap=True)


def _print_held(evaluation: Evaluation, several: bool, console: Console) -> None:
    """What the service says of past sub-tasks by itself, beside what test data say."""
    run = evaluation.runs[0]
    if not run.held:
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("still held\n(classes)")
    columns = {
        "own_accuracy": "accuracy, %\nown samples",
        "test_accuracy": "accuracy, %\ntest data",
        "own_probability": "certainty, %\nown samples",
        "test_probability": "certainty, %\ntest data",
    }
    for name in columns.values():
        table.add_column(name, justify="right")
    for row in held_rows(run):
        table.add_row(escape(row["classes"]), *(row[column] for column in columns))
    console.print()
    console.print(table)
    seed = f" (seed {run.seed})" if several else ""
    console.print(
        f"after each sub-task and now{seed}; certainty: probability of the right class",
        style="dim",
        highlight=False,
    )
