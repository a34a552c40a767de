"""Standard input as a file, because formats are told and read by looking twice."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from clients.http.errors import InputError

STANDARD_INPUT = Path("-")
"""What is typed in place of a file."""


def title_of(path: Path) -> str:
    """What people call a file: its path, or standard input where it holds that.

    Example:
        >>> title_of(Path("/tmp/gmr-x/standard-input.csv")), title_of(Path("a.csv"))
        ('standard input', 'a.csv')
    """
    held = path.parent.name.startswith(_FOLDER) and path.name.startswith(f"{_HELD}.")
    return "standard input" if held else str(path)


@contextmanager
def told_as_standard_input(folder: Path) -> Iterator[None]:
    """Let errors call what lies in a folder standard input: nobody knows the file that holds it."""
    try:
        yield
    except InputError as error:
        held = re.escape(str(folder / _HELD)) + r"(\.\w+)*"
        message = re.sub(f"^{held}", "Standard input", str(error))
        error.args = (re.sub(held, "standard input", message),)
        raise


_FOLDER, _HELD = "gmr-", "standard-input"
"""Beginnings of the folder and of the file that hold it."""

_BEGINNINGS = (
    *((b"PK", ".npz"), (b"\x93NUMPY", ".npy"), (b"PAR1", ".parquet"), (b"\0\0", ".idx")),
    *((b"\x89PNG", ".png"), (b"\xff\xd8\xff", ".jpg"), (b"GIF8", ".gif")),
    *((b"{", ".jsonl"), (b"[", ".jsonl")),
)


@contextmanager
def named_file(path: Path, stream: IO[bytes] | None = None) -> Iterator[Path]:
    """The file of a path; of "-" one that holds what standard input brings, until the block ends.

    All of it is read before the block begins. What begins as no other format does is a table of
    text, plain or gzipped. (`live.py` has the one that goes on.)

    Arguments:
        path: What was typed.
        stream: Read in place of standard input.

    Raises:
        InputError: standard input brings nothing, or there is no room for it.
    """
    if path != STANDARD_INPUT:
        yield path
        return
    stream = sys.stdin.buffer if stream is None else stream
    with tempfile.TemporaryDirectory(prefix=_FOLDER) as folder:
        held = Path(folder) / _HELD
        try:
            with held.open("wb") as file:
                shutil.copyfileobj(stream, file)
        except OSError as error:
            raise InputError(
                f"Standard input cannot be kept in {folder} ({error.strerror}). Expected room for "
                f"all of it. Set TMPDIR to a folder that has it, or give the path of a file."
            ) from error
        with held.open("rb") as file:
            beginning = file.read(8)
        if not beginning:
            raise InputError(
                "Standard input brought nothing. Expected the content of a file of samples. Pipe "
                "one in, or give its path."
            )
        ending = next((end for start, end in _BEGINNINGS if beginning.startswith(start)), ".csv")
        if beginning.startswith(b"\x1f\x8b"):
            ending += ".gz"
        with told_as_standard_input(Path(folder)):
            yield held.rename(held.with_name(held.name + ending))
