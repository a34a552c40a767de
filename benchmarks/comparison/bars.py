"""How far a campaign has come: bars on a terminal, a line per cell elsewhere.

Rule: shows what it is told, measures nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks.comparison.cell import Cell, Outcome


class Bars:
    """A `ProgressListener` of a campaign; a context manager.

    Arguments:
        console: Where the bars go, if it is a terminal.
        say: Takes a line for every cell that was measured or failed.
        total: Cells of the campaign.
    """

    def __init__(self, console: Console, say: Callable[[str], None], total: int) -> None:
        self._say = say
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24, complete_style="cyan", finished_style="green"),
            TextColumn("{task.fields[done]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[note]}", style="dim"),
            console=console,
            disable=not console.is_terminal,
        )
        self._total = total
        self._all = self._progress.add_task("all cells", total=total, done="", note="")
        self._cell = self._progress.add_task("", visible=False, done="", note="")

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

    def began(self, cell: Cell, samples: int) -> None:
        """A bar for the cell."""
        self._progress.reset(
            self._cell,
            total=samples,
            visible=True,
            description=escape(str(cell)),
            done="",
            note="",
        )

    def sub_task(self, index: int, of: int) -> None:
        """Which sub-task it is at."""
        self._progress.update(self._cell, note=f"sub-task {index + 1} of {of}")

    def learned(self, samples: int) -> None:
        """The cell's bar grows."""
        self._progress.advance(self._cell, samples)

    def ended(self, cell: Cell, outcome: Outcome, *, kept: bool) -> None:
        """One cell further; what was kept from before is counted and not told."""
        self._further()
        if not kept:
            self._say(f"{cell}: {100 * outcome.accuracy:.2f} %, {outcome.seconds:,.1f} s")

    def failed(self, cell: Cell, error: Exception) -> None:
        """One cell further, and why it has no result."""
        self._further()
        self._say(f"{cell}: failed, {type(error).__name__}: {error}")

    def _further(self) -> None:
        self._progress.update(self._cell, visible=False)
        self._progress.advance(self._all)
        done = self._progress.tasks[self._all].completed
        self._progress.update(self._all, done=f"{done:.0f} of {self._total}")
