"""Tests for clients.whole_file: what has the name, while it is written and after a failure."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from clients.http.errors import InputError
from clients.whole_file import WholeFile, write_whole


def test_what_was_there_stays_until_the_new_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("before")
    path.chmod(0o640)
    with WholeFile(path) as whole, whole.text() as text:
        text.write("ä\n")
        text.flush()
        assert path.read_text() == "before"
    assert path.read_bytes() == "ä\n".encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [*tmp_path.iterdir()] == [path]


def test_after_a_failure_there_is_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("before")
    for name in (path, tmp_path / "new.csv"):
        with suppress(RuntimeError), WholeFile(name) as whole:
            whole.file.write(b"half")
            raise RuntimeError
    assert path.read_text() == "before"
    assert [*tmp_path.iterdir()] == [path]


def test_a_file_that_was_given_its_name_grows_under_it_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with suppress(RuntimeError), WholeFile(path) as whole, whole.text() as text:
        text.write("one\n")
        text.flush()
        whole.give_name()
        assert path.read_text() == "one\n"
        text.write("two\n")
        text.flush()
        whole.give_name()
        assert path.read_text() == "one\ntwo\n"
        raise RuntimeError
    assert path.read_text() == "one\ntwo\n"
    assert [*tmp_path.iterdir()] == [path]


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path: Path) -> None:
    path, link, pipe = tmp_path / "a", tmp_path / "link", tmp_path / "pipe"
    path.write_text("before")
    link.symlink_to(path)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert path.read_bytes() == b"new"
    os.mkfifo(pipe)
    read = list[bytes]()
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"through")
    reader.join(10)
    assert read == [b"through"]
    assert pipe.is_fifo()


def test_what_cannot_be_written_is_told(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "a.csv", Path("/dev/full")):
        with pytest.raises(InputError, match=r"cannot be written \(.+\)\. Choose another"):
            write_whole(path, b"x")
    with pytest.raises(InputError, match="No space left"), WholeFile(tmp_path / "a"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert [*tmp_path.iterdir()] == []
