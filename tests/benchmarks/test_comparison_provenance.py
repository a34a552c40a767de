"""Tests for the benchmarks.comparison.provenance module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.comparison import provenance
from benchmarks.comparison.provenance import checksum, digest, source_digest
from clients.data.datasets import load_dataset

JSON = st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans()), max_size=4)


@given(values=JSON, other=JSON)
def test_digests_are_equal_exactly_where_values_are(
    values: dict[str, object], other: dict[str, object]
) -> None:
    backwards = dict(reversed(values.items()))
    assert digest(values) == digest(backwards)
    assert (digest(values) == digest(other)) == (_typed(values) == _typed(other))


def _typed(values: dict[str, object]) -> dict[str, str]:
    """1 and True are equal in Python and different in JSON."""
    return {key: repr(value) for key, value in values.items()}


def test_one_pixel_changes_the_checksum() -> None:
    digits = load_dataset("digits")
    x = digits.train_x.copy()
    x[700, 30] ^= 1
    assert checksum(digits) != checksum(replace(digits, train_x=x))
    assert checksum(digits) == checksum(replace(digits, train_x=np.asfortranarray(digits.train_x)))


Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module of ours into a made-up tree."""
    monkeypatch.setattr(provenance, "ROOT", tmp_path)

    def write(module: str, text: str) -> None:
        path = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        source_digest.cache_clear()

    yield write
    source_digest.cache_clear()


def test_what_a_module_imports_counts_wherever_the_import_stands(write: Write) -> None:
    write("core.top", "def f():\n    from core import middle\n    return middle.x\n")
    write("core.middle", "import core.bottom\nx = core.bottom.y\n")
    write("core.bottom", "y = 1\n")
    before = source_digest(("core.top",)), source_digest((), ("core.top",))
    write("core.bottom", "y = 2\n")
    after = source_digest(("core.top",)), source_digest((), ("core.top",))
    assert before[0] != after[0]
    assert before[1] == after[1]  # alone, without what it imports


def test_comments_docstrings_and_layout_do_not_count(write: Write) -> None:
    write("core.a", '"""Old."""\n\n\ndef f(x):\n    """Old."""\n    return x+1  # old\n')
    before = source_digest(("core.a",))
    write("core.a", '"""New."""\ndef f(x):\n    """New,\n    longer."""\n\n    return x + 1\n')
    assert source_digest(("core.a",)) == before
    write("core.a", '"""New."""\ndef f(x):\n    """New."""\n    return x + 2\n')
    assert source_digest(("core.a",)) != before


def test_circles_end_and_libraries_do_not_count(write: Write) -> None:
    write("core.a", "import core.b, torch\n")
    write("core.b", "import core.a\n")
    assert source_digest(("core.a",)) == source_digest(("core.b", "torch", "nowhere.at.all"))
