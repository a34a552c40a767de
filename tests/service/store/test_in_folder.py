"""Tests for service.store.in_folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from service.store.in_folder import FolderCheckpoints
from service.store.kept import BEFORE_BOUNDARY, BOUNDARIES_KEPT, NEWEST_KEPT


@pytest.fixture
def checkpoints(tmp_path: Path) -> FolderCheckpoints:
    return FolderCheckpoints(tmp_path / "checkpoints")


def entries(checkpoints: FolderCheckpoints) -> list[int]:
    return [kept.entries_applied for kept in checkpoints.kept()]


def test_time_orders_checkpoints_not_the_version(checkpoints: FolderCheckpoints) -> None:
    checkpoints.write(b"a", version=9, entries_applied=9, note={})
    checkpoints.write(b"b", version=4, entries_applied=10, note={})  # after a rollback
    checkpoints.write(b"c", version=100, entries_applied=2, note={})
    assert [(kept.version, kept.path.read_bytes()) for kept in checkpoints.kept()] == [
        (4, b"b"),
        (9, b"a"),
        (100, b"c"),
    ]


def test_the_newest_and_those_before_boundaries_are_kept(checkpoints: FolderCheckpoints) -> None:
    for i in range(1, 41):
        note = {BEFORE_BOUNDARY: i // 2} if i % 2 == 0 and i <= 30 else {}
        checkpoints.write(b"x", version=i, entries_applied=i, note=note)
    checkpoints.prune()
    newest = [40, 39, 38]
    before = list(range(30, 30 - 2 * BOUNDARIES_KEPT, -2))
    assert entries(checkpoints) == newest + before
    assert len(newest) == NEWEST_KEPT
    # Notes go with their checkpoints.
    files = {path.suffix for path in checkpoints.directory.iterdir()}
    assert files == {".safetensors", ".json"}
    assert len(list(checkpoints.directory.iterdir())) == 2 * (NEWEST_KEPT + BOUNDARIES_KEPT)


def test_other_files_are_left_alone(checkpoints: FolderCheckpoints) -> None:
    (checkpoints.directory / "lock").write_text("1")
    (checkpoints.directory / "notes-of-mine.txt").write_text("1")
    checkpoints.write(b"x", version=1, entries_applied=1, note={})
    checkpoints.prune()
    assert {"lock", "notes-of-mine.txt"} <= set(os.listdir(checkpoints.directory))
    assert entries(checkpoints) == [1]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_note_does_not_matter(checkpoints: FolderCheckpoints, content: bytes) -> None:
    checkpoints.write(b"x", version=1, entries_applied=1, note={"sub_task": 1})
    (checkpoints.directory / "1-1.json").write_bytes(content)
    assert [kept.note for kept in checkpoints.kept()] == [{}]


def test_leftovers_of_a_killed_write_are_deleted_at_the_next_start(tmp_path: Path) -> None:
    (tmp_path / "5-5.safetensors.tmp").write_bytes(b"half")
    assert entries(FolderCheckpoints(tmp_path)) == []
    assert list(tmp_path.iterdir()) == []


WRITER = textwrap.dedent("""
    import sys
    from pathlib import Path
    from service.store.in_folder import FolderCheckpoints

    checkpoints = FolderCheckpoints(Path(sys.argv[1]))
    for i in range(1, 100_000):
        checkpoints.write(bytes([i % 256]) * 300_000, version=i, entries_applied=i, note={"i": i})
        checkpoints.prune()
        print(i, flush=True)
""")


def test_a_killed_writer_leaves_whole_files_and_the_last_that_it_told(tmp_path: Path) -> None:
    told = 0
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        ) as writer:
            assert writer.stdout is not None
            for _ in range(10):
                told = int(writer.stdout.readline())
            time.sleep(0.003)
            writer.send_signal(signal.SIGKILL)
            told = max([told, *map(int, writer.stdout.read().split())])
        kept = FolderCheckpoints(tmp_path).kept()
        assert kept[0].entries_applied >= told
        for one in kept:
            assert one.path.read_bytes() == bytes([one.version % 256]) * 300_000
        for path in tmp_path.iterdir():
            path.unlink()
