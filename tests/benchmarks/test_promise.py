"""Tests for the benchmarks.promise module."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks import promise
from clients.http.errors import InputError


def test_a_part_that_is_unknown_is_named_before_anything_runs() -> None:
    said: list[str] = []
    with pytest.raises(InputError, match=r"'nothing'.*price, archive, backlog, endless"):
        promise.measure(True, said.append, ["nothing"])
    assert said == []


def test_what_is_learned_is_compared_in_each_round() -> None:
    lives = {
        "a": [{"accepted": 10.0, "learned": 4.0}, {"accepted": 20.0, "learned": 8.0}],
        "b": [{"accepted": 10.0, "learned": 2.0}, {"accepted": 20.0, "learned": 6.0}],
    }
    table = promise._table("Appended", lives)
    assert table.rows == (
        ("a", "15 (10 to 20)", "6 (4 to 8)", "1.00 (1.00 to 1.00)"),
        ("b", "15 (10 to 20)", "4 (2 to 6)", "0.62 (0.50 to 0.75)"),
    )


def test_memory_and_files_are_told_in_mib(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "file").write_bytes(bytes(3 << 20))
    assert promise._size(tmp_path) == 3
    memories = promise._memories(os.getpid())
    assert 10 < memories["supervisor"] < 10_000
