"""Tests for the benchmarks.comparison.store module."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.comparison.store import Store, write_whole

PLACE = Path("mnist/D10/flat.json")
MADE = {"seed": 1, "source": "abc", "versions": {"torch": "2"}}


def test_a_result_is_read_back_only_for_its_own_configuration(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.read(PLACE, MADE) is None
    store.write(PLACE, {"configuration": MADE, "accuracy": 0.5})
    assert store.read(PLACE, dict(reversed(MADE.items()))) == {
        "configuration": MADE,
        "accuracy": 0.5,
    }
    for key, value in (("seed", 2), ("source", "abd"), ("versions", {"torch": "3"}), ("new", 1)):
        assert store.read(PLACE, {**MADE, key: value}) is None


def test_results_of_other_code_are_believed_where_that_is_asked_for(tmp_path: Path) -> None:
    Store(tmp_path).write(PLACE, {"configuration": MADE})
    lenient = Store(tmp_path, any_source=True)
    assert lenient.read(PLACE, {**MADE, "source": "abd", "versions": {}}) is not None
    assert lenient.read(PLACE, {**MADE, "seed": 2}) is None


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b'{"configuration": 3}', b"\xff"])
def test_what_cannot_be_read_counts_as_not_there(tmp_path: Path, damage: bytes) -> None:
    store = Store(tmp_path)
    store.write(PLACE, {"configuration": MADE})
    (tmp_path / PLACE).write_bytes(damage)
    assert store.read(PLACE, MADE) is None


def test_an_interrupted_write_leaves_the_old_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.write(PLACE, {"configuration": MADE, "accuracy": 0.5})

    def interrupted(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.write(PLACE, {"configuration": MADE, "accuracy": 0.9})
    found = store.read(PLACE, MADE)
    assert found is not None
    assert found["accuracy"] == 0.5


def test_a_file_is_written_into_folders_that_were_not_there(tmp_path: Path) -> None:
    path = write_whole(tmp_path / "a" / "b" / "c.md", b"text")
    assert path.read_bytes() == b"text"
    assert [one.name for one in path.parent.iterdir()] == ["c.md"]
