"""Tests for the core.compiled.loops module: loops run compiled wherever they are."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_origin

import numba
import numpy as np
import pytest

from core.compiled import loops
from core.compiled.kept import _digest
from core.compiled.loops import Array, compiled, vectorised

ROOT = Path(__file__).parents[3]


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


def test_a_division_by_zero_is_an_error_but_where_numbers_are_dealt_with_several_at_a_time() -> (
    None
):
    def one_by_one(values: Array) -> None:
        for i in range(len(values)):
            values[i] = 1 / values[i]

    def several(values: Array) -> None:
        for i in range(len(values)):
            values[i] = 1 / values[i]

    with pytest.raises(ZeroDivisionError):
        compiled(one_by_one)(np.arange(4.0))
    values = np.arange(4.0)
    vectorised(several)(values)
    assert values.tolist() == pytest.approx([np.inf, 1, 1 / 2, 1 / 3])


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

    def refuse(*anything: object) -> None:
        raise PermissionError("Read-only file system")

    monkeypatch.setattr("numba.core.caching.IndexDataCacheFile.save", refuse)


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


NAMED = """
from typing import NamedTuple
from numpy import ndarray

class {0}(NamedTuple):
    values: ndarray

def double(pair):
    for i in range(len(pair.values)):
        pair.values[i] *= 2

made = {0}
"""


@pytest.mark.parametrize("writable", [True, False])
def test_what_another_release_kept_of_types_that_are_gone_is_compiled_anew(
    writable: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    name = f"named_{writable}"

    def run(source: str) -> Any:
        (tmp_path / f"{name}.py").write_text(source, "utf-8")
        _digest.cache_clear()
        importlib.invalidate_caches()
        sys.modules.pop(name, None)
        module = importlib.import_module(name)
        loop, pair = compiled(module.double), module.made(np.arange(4.0))
        loop(pair)
        assert pair.values.tolist() == [0, 2, 4, 6]
        return loop

    run(NAMED.format("Old"))
    if not writable:
        read_only(monkeypatch)
    renamed = NAMED.format("Renamed")
    run(renamed)
    again = run(renamed)
    assert sum(again.stats.cache_hits.values()) == writable


def test_what_was_cut_off_is_compiled_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cut_off.py").write_text(SOURCE, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    loop = importlib.import_module("cut_off").double
    compiled(loop)(np.arange(4.0))
    kept = [
        path for path in (tmp_path / "__pycache__").iterdir() if path.suffix in (".nbi", ".nbc")
    ]
    assert len(kept) == 2
    for path in kept:
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        values = np.arange(4.0)
        compiled(loop)(values)
        assert values.tolist() == [0, 2, 4, 6]
    again: Any = compiled(loop)
    again(np.arange(4.0))
    assert sum(again.stats.cache_hits.values()) == 1


INNER = """
from core.compiled.loops import compiled

@compiled
def factor():
    return {}
"""

OUTER = """
from core.compiled.loops import compiled
from inner import factor

@compiled
def scaled(value):
    return factor() * value
"""


def test_what_was_kept_is_not_read_once_another_file_of_the_folder_has_changed(
    tmp_path: Path,
) -> None:
    """numba by itself would go on with the old factor."""
    (tmp_path / "outer.py").write_text(OUTER, "utf-8")
    script = "from outer import scaled; print(scaled(10), *scaled.stats.cache_hits.values())"
    command = [sys.executable, "-B", "-c", script]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}

    def said(factor: int) -> str:
        (tmp_path / "inner.py").write_text(INNER.format(factor), "utf-8")
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert said(2) == "20"
    assert said(2) == "20 1"
    assert said(3) == "30"


def test_a_loop_of_no_file_is_compiled_for_this_run() -> None:
    names: dict[str, Any] = {}
    exec(SOURCE, names)
    values = np.arange(4.0)
    compiled(names["double"])(values)
    assert values.tolist() == [0, 2, 4, 6]


LOOK = """
import hashlib
import numpy as np
from core.drift.sequential.scores import look

generator = np.random.default_rng(0)
n, k = 100, 67
joint = generator.normal(0, 300, (n, k)).astype(np.float32)
scores, winners = np.zeros((5, n)), np.zeros(n, np.int64)
classes = (np.arange(k) % 4).astype(np.int32)
look(scores, winners, joint, joint.max(1), (0.5, classes, classes, True, 28.0))
print(hashlib.sha256(scores.tobytes()).hexdigest())
"""


def test_what_is_compiled_now_and_what_is_read_back_give_the_same_bits(tmp_path: Path) -> None:
    unkept = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "core", tmp_path / "core", ignore=unkept)

    def bits() -> str:
        command = [sys.executable, "-c", LOOK]
        return subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout

    now = bits()
    assert list((tmp_path / "core").rglob("*.nbi"))
    assert bits() == now


def test_the_class_of_arrays_can_be_told_from_their_type() -> None:
    """By it checkpoints know them. Of `numpy.typing.NDArray` it cannot be told from 2.5 on."""
    assert get_origin(Array) is np.ndarray
    assert "NDArray" not in vars(loops)  # whose origin is that of an array before 2.5
