"""Files that get their name when they are whole: what had it before is kept until then."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from clients.http.errors import InputError

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of whoever writes, in the midst of it."""


class WholeFile:
    """A file that is written beside its name, and gets it at the end of the block.

    A block that ends by an exception leaves what was there as it was. What is no file, such as
    /dev/stdout or a pipe, is written as it is; so is a file in a folder that cannot be written.

    Arguments:
        path: The name; a link is followed.

    Attributes:
        file: Where to write.

    Raises:
        InputError: It cannot be written.
    """

    file: IO[bytes]

    def __init__(self, path: Path) -> None:
        self._path = path
        self._beside: Path | None = None

    def __enter__(self) -> Self:
        try:
            self._target = self._path.resolve()
            if self._is_replaced():
                name = f".{self._target.name}.{os.getpid()}.tmp"
                self._beside = self._target.with_name(name)
            self.file = (self._beside or self._target).open("wb")
        except OSError as error:
            raise self._unwritable(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        try:
            self.file.close()
            if error is None:
                self.give_name()
        except OSError as fault:
            raise self._unwritable(fault) from fault
        finally:
            if self._beside is not None:
                with contextlib.suppress(OSError):
                    self._beside.unlink()
        if isinstance(error, OSError) and error.errno in _NO_ROOM:
            raise self._unwritable(error) from error

    def text(self) -> io.TextIOWrapper:
        """The file as text, UTF-8, with ends of lines as they are written."""
        return io.TextIOWrapper(self.file, encoding="utf-8", newline="")

    def give_name(self) -> None:
        """Give the file its name, also where it grows from now on."""
        if self._beside is None:
            return
        with contextlib.suppress(FileNotFoundError):
            shutil.copymode(self._target, self._beside)
        self._beside.replace(self._target)
        self._beside = None

    def _is_replaced(self) -> bool:
        if not self._target.exists():
            return True
        return self._target.is_file() and os.access(self._target.parent, os.W_OK)

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(f"{self._path} cannot be written ({error.strerror}). Choose another.")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, or leave what has its name as it is.

    Raises:
        InputError: It cannot be written.
    """
    with WholeFile(path) as whole:
        whole.file.write(content)
