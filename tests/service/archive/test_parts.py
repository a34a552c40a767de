"""Tests for the service.archive.parts module: later parts overrule earlier ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.archive.parts import Part, parts_in, timeline
from service.archive.record import Record


def part(folder: Path, number: int, begins: int, ends: int) -> Part:
    """A part whose entries say of which part they are."""
    path = folder / f"{number:06d}-{begins}.entries"
    records = [Record(f"{n}-0", n, {b"part": b"%d" % number}) for n in range(begins + 1, ends + 1)]
    path.write_bytes(b"".join(one.to_bytes() for one in records))
    return Part(path, number, begins)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([], []),
        ([(0, 5)], [(1, 0, 5)]),
        ([(0, 5), (5, 9)], [(1, 0, 5), (2, 5, 9)]),
        # Read once more after a crash: what the first one said of 4 and 5 is overruled.
        ([(0, 5), (3, 9)], [(1, 0, 3), (2, 3, 9)]),
        # The newest checkpoint was damaged, so that a start went on from an earlier one.
        ([(0, 5), (5, 9), (3, 4)], [(1, 0, 3), (3, 3, 4)]),
        ([(0, 5), (5, 9), (5, 7)], [(1, 0, 5), (2, 5, 5), (3, 5, 7)]),
        # Entries 6 to 8 are missing.
        ([(0, 5), (8, 9)], [(1, 0, 5), (2, 8, 9)]),
        ([(4, 5), (0, 9)], [(2, 0, 9)]),
    ],
)
def test_of_each_entry_the_last_part_counts(
    tmp_path: Path, parts: list[tuple[int, int]], expected: list[tuple[int, int, int]]
) -> None:
    for number, (begins, ends) in enumerate(parts, 1):
        part(tmp_path, number, begins, ends)
    found = timeline(parts_in(tmp_path))
    assert [(one.part.number, one.part.begins, one.ends) for one in found] == expected
    for stretch in found:
        read = [(record.n, record.fields[b"part"]) for record in stretch.records()]
        wanted = range(stretch.part.begins + 1, stretch.ends + 1)
        assert read == [(n, b"%d" % stretch.part.number) for n in wanted]


def test_a_stretch_ends_before_a_gap_within_its_part(tmp_path: Path) -> None:
    broken = part(tmp_path, 1, 0, 3)
    more = Record("9-0", 9, {}).to_bytes()
    broken.path.write_bytes(broken.path.read_bytes() + more)
    [stretch] = timeline([broken])
    assert (stretch.ends, [one.n for one in stretch.records()]) == (3, [1, 2, 3])


def test_a_folder_that_is_not_there_has_no_parts(tmp_path: Path) -> None:
    assert parts_in(tmp_path / "missing") == []
