"""Tests for the benchmarks.comparison.bars module."""

from __future__ import annotations

import io

from rich.console import Console

from benchmarks.comparison.bars import Bars
from benchmarks.comparison.cell import Cell
from clients.data.tasks import SLT
from tests.benchmarks.comparison_parts import an_outcome

CELL = Cell("flat", "digits", SLT.parse("D5-5a"), 3)


def told(console: Console) -> list[str]:
    """What is said of one cell that is measured, one that was kept, and one that fails."""
    said: list[str] = []
    with Bars(console, said.append, 3) as bars:
        bars.began(CELL, 200)
        bars.sub_task(0, 2)
        bars.learned(100)
        bars.ended(CELL, an_outcome(0.931), kept=False)
        bars.ended(CELL, an_outcome(0.931), kept=True)
        bars.failed(CELL, ValueError("no"))
    return said


def test_without_a_terminal_there_is_a_line_per_cell_and_no_bar():
    out = io.StringIO()
    assert told(Console(file=out, width=100)) == [
        "digits D5-5a flat seed 3: 93.10 %, 2.0 s",
        "digits D5-5a flat seed 3: failed, ValueError: no",
    ]
    assert out.getvalue().strip() == ""


def test_on_a_terminal_a_bar_shows_how_many_cells_are_done():
    out = io.StringIO()
    told(Console(file=out, width=160, force_terminal=True, color_system=None))
    assert "3 of 3" in out.getvalue()
