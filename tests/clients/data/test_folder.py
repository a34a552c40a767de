"""Tests for clients.data.folder."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from clients.data.folder import SETTLED_S, files_of
from clients.http.errors import InputError


class Clock:
    """Time that passes where it is waited for; something may happen at each pause."""

    def __init__(self, *happens: object) -> None:
        self.time = 1000.0
        self.happens = list(happens)

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.time += seconds
        if self.happens:
            happen = self.happens.pop(0)
            if callable(happen):
                happen()

    def write(self, path: Path, text: str = "1,2") -> None:
        """A file that was changed just now."""
        path.write_text(text, "utf-8")
        os.utime(path, (self.time, self.time))


def test_files_come_by_name_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    clock = Clock()
    for name in ("b.csv", "a.npz", "c.CSV.gz", ".hidden.csv", "notes.txt", "x.csv.part"):
        clock.write(tmp_path / name)
    clock.write(tmp_path / "train-labels-idx1-ubyte")
    clock.write(tmp_path / "train-images-idx3-ubyte")
    (tmp_path / "folder.csv").mkdir()
    clock.time += 60
    found = files_of(tmp_path, watch=False, pause=clock.pause, now=clock.now)
    names = ["a.npz", "b.csv", "c.CSV.gz", "train-images-idx3-ubyte"]
    assert [path.name for path in found] == names
    assert clock.time == 1060


def test_a_file_that_is_still_written_is_waited_for(tmp_path: Path) -> None:
    clock = Clock()
    clock.write(tmp_path / "old.csv")
    clock.time += 60
    clock.write(tmp_path / "growing.csv")
    clock.happens = [lambda: clock.write(tmp_path / "growing.csv", "1,2\n3,4")]
    found = files_of(tmp_path, watch=False, pause=clock.pause, now=clock.now)
    assert [path.name for path in found] == ["old.csv", "growing.csv"]
    assert clock.time >= 1060 + 1 + SETTLED_S


@pytest.mark.parametrize("watch", [False, True])
def test_a_file_of_a_clock_that_is_ahead_is_given_once_it_has_settled(
    tmp_path: Path, watch: bool
) -> None:
    clock, ahead = Clock(), tmp_path / "ahead.csv"
    clock.write(ahead)
    os.utime(ahead, (9000, 9000))
    clock.happens = [lambda: (ahead.write_text("1,2\n3,4"), os.utime(ahead, (9000, 9000)))]
    found = files_of(tmp_path, watch=watch, pause=clock.pause, now=clock.now)
    assert next(found) == ahead
    assert 1000 + 1 + SETTLED_S <= clock.time < 1010


def test_a_watched_folder_gives_what_comes_and_what_changes_once_it_has_settled(
    tmp_path: Path,
) -> None:
    clock = Clock()
    first, second = tmp_path / "z.csv", tmp_path / "a.csv"
    clock.write(first)
    clock.time += 60
    clock.happens = [
        lambda: clock.write(second),
        lambda: clock.write(first, "changed"),
        None,
        lambda: clock.write(tmp_path / "b.csv"),
    ]
    found = files_of(tmp_path, watch=True, pause=clock.pause, now=clock.now)
    assert [path.name for path in islice(found, 4)] == ["z.csv", "a.csv", "z.csv", "b.csv"]


def test_a_folder_that_is_not_watched_gives_no_file_twice(tmp_path: Path) -> None:
    clock = Clock()
    clock.write(tmp_path / "old.csv")
    clock.time += 60
    clock.write(tmp_path / "slow.csv")
    clock.happens = [lambda: clock.write(tmp_path / "old.csv", "changed"), None, None]
    found = files_of(tmp_path, watch=False, pause=clock.pause, now=clock.now)
    assert [path.name for path in found] == ["old.csv", "slow.csv"]


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read as a folder: No such file"):
        next(files_of(tmp_path / "none", watch=True))
