"""Tests for the core.drift.compiled module: loops run compiled wherever they are."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import core.drift.compiled as module
from core.drift.bets import Array
from core.drift.compiled import compiled, vectorised


def double(values: Array) -> None:
    for i in range(len(values)):
        values[i] *= 2


def test_a_loop_does_the_same_compiled() -> None:
    values = np.arange(4.0)
    compiled(double)(values)
    assert values.tolist() == [0, 2, 4, 6]
    assert isinstance(compiled(double), numba.core.dispatcher.Dispatcher)


def test_sums_of_many_numbers_at_a_time_are_the_same_but_for_rounding() -> None:
    def total(values: Array) -> float:
        result = 0.0
        for value in values:
            result += value
        return result

    values = np.random.default_rng(0).normal(size=1000)
    assert vectorised(total)(values) == pytest.approx(values.sum(), abs=1e-9)


def test_an_index_out_of_range_is_an_error_and_not_somebody_elses_memory() -> None:
    def beyond(values: Array) -> None:
        values[len(values)] = 1

    with pytest.raises(IndexError):
        compiled(beyond)(np.arange(4.0))


def test_what_is_compiled_is_kept_beside_the_source_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    beside: Any = compiled(double)
    assert Path(beside.stats.cache_path) == Path(__file__).parent / "__pycache__"
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    elsewhere: Any = compiled(double)
    elsewhere(np.arange(4.0))
    assert str(tmp_path) not in str(elsewhere.stats.cache_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


SOURCE = """
def double(values):
    for i in range(len(values)):
        values[i] *= 2
"""


def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """As numba finds it where no folder can be written."""

    def refuse(dir: str) -> None:
        raise PermissionError(dir)

    monkeypatch.setattr("numba.core.caching.tempfile.TemporaryFile", refuse)


def test_what_was_kept_is_read_where_nothing_can_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "loops.py").write_text(SOURCE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    loop = importlib.import_module("loops").double
    compiled(loop)(np.arange(4.0))
    kept = {path.name: path.read_bytes() for path in (tmp_path / "__pycache__").iterdir()}
    assert any(name.endswith(".nbc") for name in kept)
    read_only(monkeypatch)
    again: Any = compiled(loop)
    values = np.arange(4.0)
    again(values)
    assert values.tolist() == [0, 2, 4, 6]
    assert sum(again.stats.cache_hits.values()) == 1
    # What is not there is compiled for this run.
    whole = np.arange(4)
    again(whole)
    assert whole.tolist() == [0, 2, 4, 6]
    assert sum(again.stats.cache_misses.values()) == 1
    after = {path.name: path.read_bytes() for path in (tmp_path / "__pycache__").iterdir()}
    assert after == kept


def test_where_no_folder_can_be_written_it_is_compiled_for_this_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nowhere(cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return numba.njit(**options)

    monkeypatch.setattr(module, "njit", nowhere)
    values = np.arange(4.0)
    compiled(double)(values)
    assert values.tolist() == [0, 2, 4, 6]
