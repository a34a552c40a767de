"""Tests for the benchmarks.comparison.tables module."""

from __future__ import annotations

import math

import orjson
import pytest

from benchmarks.comparison import tables
from benchmarks.comparison.cell import Cell, Outcome
from benchmarks.comparison.tables import COLUMNS, Row, cells_of, rows_of
from clients.data.tasks import SLT
from tests.benchmarks.comparison_parts import an_outcome

SLTS = [SLT.parse("D10"), SLT.parse("D2-2-2-2-2a")]
SEEDS = (0, 1)


def measured() -> dict[Cell, Outcome]:
    """Flat complete, EWC with one seed of D10 only."""
    d10, pairs = SLTS
    return {
        Cell("flat", "mnist", d10, 0): an_outcome(0.92, told=False, boundaries=(0,)),
        Cell("flat", "mnist", d10, 1): an_outcome(0.94, told=False, boundaries=(1,)),
        Cell("flat", "mnist", pairs, 0): an_outcome(
            0.91, 5, told=False, boundaries=(0, 1, 2, 3, 4)
        ),
        Cell("flat", "mnist", pairs, 1): an_outcome(
            0.90, 5, told=False, boundaries=(0, 1, 1, 2, 3)
        ),
        Cell("ewc", "mnist", d10, 0): an_outcome(0.97),
    }


@pytest.fixture
def rows() -> dict[tuple[str, str], Row]:
    found = rows_of("mnist", SLTS, ["flat", "ewc"], SEEDS, measured())
    return {(row.slt, row.system): row for row in found}


def cells(row: Row) -> dict[str, str]:
    return dict(zip(COLUMNS, cells_of("mnist", row), strict=True))


def test_a_row_shows_mean_and_deviation_beside_the_paper(rows: dict[tuple[str, str], Row]) -> None:
    shown = cells(rows["D2-2-2-2-2a", "flat"])
    assert shown["accuracy, %"] == "90.50 ± 0.71"
    assert shown["paper, %"] == "77.9 ± 3.8"
    assert (shown["drop"], shown["paper's drop"]) == ("2.5", "9.5")
    assert shown["boundaries"] == "7 of 8"
    assert shown["samples/s"] == "500"
    assert shown["seeds"] == "2 of 2"


def test_a_baseline_has_the_papers_figures_of_that_baseline(
    rows: dict[tuple[str, str], Row],
) -> None:
    shown = cells(rows["D10", "ewc"])
    assert shown["paper, %"] == "97.6 ± 0.3"
    assert (shown["drop"], shown["paper's drop"], shown["forgets"]) == ("", "", "")
    assert shown["boundaries"] == "told"
    assert shown["seeds"] == "1 of 2"


def test_false_boundaries_are_shown(rows: dict[tuple[str, str], Row]) -> None:
    assert cells(rows["D10", "flat"])["boundaries"] == "0 of 0, 1 false"


def test_what_is_missing_is_shown_as_missing(rows: dict[tuple[str, str], Row]) -> None:
    assert cells(rows["D2-2-2-2-2a", "ewc"])["accuracy, %"] == "missing"
    page = tables.markdown("mnist", list(rows.values()), "a note")
    assert "* D10, ewc: seeds 1\n" in page
    assert "* D2-2-2-2-2a, ewc: seeds 0, 1\n" in page
    assert "| ewc | 97.00 | missing |" in page
    assert "*GMR, as the paper reports it* | 87.4 ± 0.6 | 77.9 ± 3.8" in page


def test_forgetting_is_that_of_the_matrix() -> None:
    matrix = ((0.9, 0.0), (0.7, 0.8))
    row = Row("0/1", "flat", (0,), {0: an_outcome(0.75, 2, matrix=matrix)})
    assert row.forgetting == pytest.approx(20)
    assert math.isnan(Row("D10", "flat", (0,), {0: an_outcome(0.75)}).forgetting)


def test_json_holds_every_seed_and_nothing_that_json_cannot_say(
    rows: dict[tuple[str, str], Row],
) -> None:
    values = tables.json_values("mnist", list(rows.values()), "a note")
    read = orjson.loads(orjson.dumps(values))
    by_place = {(row["slt"], row["system"]): row for row in read["rows"]}
    flat = by_place["D2-2-2-2-2a", "flat"]
    assert flat["accuracy"]["by_seed"] == {"0": 91.0, "1": 90.0}
    assert flat["accuracy"]["mean"] == pytest.approx(90.5)
    assert flat["paper"] == {"model": "GMR", "accuracy": 77.9, "deviation": 3.83}
    assert by_place["D2-2-2-2-2a", "ewc"]["accuracy"]["mean"] is None
    assert by_place["D2-2-2-2-2a", "ewc"]["missing"] == [0, 1]


def test_every_line_of_a_page_has_as_many_cells_as_its_head(
    rows: dict[tuple[str, str], Row],
) -> None:
    page = tables.markdown("mnist", list(rows.values()), "a note")
    for block in page.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) <= 1, block
