"""Tests for the service.archive.writer module: parts grow, are divided, and the oldest go."""

from __future__ import annotations

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.archive import writer
from service.archive.parts import parts_in, timeline
from service.archive.record import Record
from service.archive.writer import Archive


def record(n: int, nbytes: int = 0) -> Record:
    return Record(f"{n}-0", n, {b"x": bytes(nbytes)})


def numbers(folder: Path) -> list[int]:
    """Of the entries that are there."""
    return [one.n for stretch in timeline(parts_in(folder)) for one in stretch.records()]


def test_a_part_begins_with_what_came_before_its_first_entry(tmp_path: Path) -> None:
    for first in (1, 4):
        archive = Archive(tmp_path / "archive", 1 << 20)
        for n in range(first, first + 3):
            archive.append([record(n)], lambda n=n: b"state before %d" % n)  # type: ignore[misc]
        archive.close()
    parts = parts_in(tmp_path / "archive")
    assert [part.begins for part in parts] == [0, 3]
    assert [part.base.read_bytes() for part in parts] == [b"state before 1", b"state before 4"]
    assert numbers(tmp_path / "archive") == [1, 2, 3, 4, 5, 6]


def test_nothing_is_made_before_there_is_an_entry(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "archive", 1 << 20)
    archive.sync()
    archive.close()
    assert not (tmp_path / "archive").exists()


def test_what_was_synced_outlives_a_kill(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 1 << 20)
    archive.append([record(1)], lambda: b"")
    archive.sync()
    archive.append([record(2)], lambda: b"")  # still in a buffer
    assert numbers(tmp_path) == [1]
    archive.close()
    assert numbers(tmp_path) == [1, 2]


def test_the_oldest_parts_go_where_all_are_too_large(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 40_000)
    for n in range(1, 201):
        archive.append([record(n, 1000)], lambda: bytes(100))
    archive.close()
    kept = numbers(tmp_path)
    assert kept == list(range(kept[0], 201))
    assert 25 <= len(kept) <= 50
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1.3 * 40_000
    assert len(parts_in(tmp_path)) * 2 == len(list(tmp_path.iterdir()))


def test_checkpoints_are_not_most_of_an_archive_however_small_its_limit(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 1000)
    begun = []
    for n in range(1, 101):
        archive.append([record(n, 1000)], lambda: begun.append(1) or bytes(20_000))  # type: ignore[func-returns-value]
    archive.close()
    assert len(begun) <= 6
    assert numbers(tmp_path)[-1] == 100


def test_a_checkpoint_without_entries_is_deleted(tmp_path: Path) -> None:
    orphan = tmp_path / "000001-0.safetensors"
    orphan.write_bytes(b"of a trainer that was killed just then")
    archive = Archive(tmp_path, 1000)
    archive.append([record(6)], lambda: b"")
    archive.close()
    assert not orphan.exists()
    assert [part.begins for part in parts_in(tmp_path)] == [5]
    assert numbers(tmp_path) == [6]


def test_a_full_disk_leaves_a_gap_and_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(tmp_path, 1 << 20)
    archive.append([record(1)], lambda: b"")
    archive.sync()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("service.archive.writer.os.fsync", full)
        archive.append([record(2)], lambda: b"")
        archive.sync()
        assert "No space left" in (archive.error or "")
        archive.append([record(3)], lambda: b"")  # not tried again so soon
    monkeypatch.setattr(writer, "PAUSE_S", 0.0)
    archive.append([record(4)], lambda: b"")
    archive.close()
    assert archive.error is None
    found = timeline(parts_in(tmp_path))
    assert [one.part.begins for one in found] == [0, 3]
    assert numbers(tmp_path)[-1] == 4


def test_two_writers_never_write_to_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Archive(tmp_path, 1 << 20), Archive(tmp_path, 1 << 20)
    old.append([record(1)], lambda: b"")
    # Looks at the folder before the other one's part is there.
    monkeypatch.setattr(writer, "parts_in", lambda _: [])
    monkeypatch.setattr(Archive, "_prune", lambda _: None)
    new.append([record(1)], lambda: b"")
    old.close()
    new.close()
    assert [part.number for part in parts_in(tmp_path)] == [1, 2]


def test_no_part_ends_between_entries_that_were_applied_together(tmp_path: Path) -> None:
    archive = Archive(tmp_path, 4000)
    together = [replace(record(n, 500), joined=5) for n in range(1, 6)]
    archive.append(together, lambda: b"")
    archive.append([record(6, 500)], lambda: b"")
    archive.close()
    first, second = parts_in(tmp_path)
    assert [one.n for one in first.records()] == [1, 2, 3, 4, 5]
    assert [one.joined for one in first.records()] == [5] * 5
    assert (second.begins, [one.n for one in second.records()]) == (5, [6])
