"""Large bytes in Redis: in pieces, under the fields 0, 1, 2, ... of one hash.

One value may have half a gigabyte at most, and a process that hands bytes on need not hold all
of them. Writing a piece twice does what writing it once does, so that it may be repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from service.settings import MIB

PIECE_BYTES: Final = 4 * MIB

UPLOAD_S: Final = 600
"""Seconds for which pieces are kept that no entry of the stream names yet."""

ANSWER_S: Final = 60
"""Seconds for which an answer waits for its next piece to be taken."""


def pieces(data: bytes) -> Iterator[memoryview]:
    """The bytes, some at a time.

    Example:
        >>> [len(piece) for piece in pieces(bytes(PIECE_BYTES + 1))]
        [4194304, 1]
    """
    view = memoryview(data)
    for start in range(0, len(data), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]
