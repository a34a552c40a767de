"""A wall clock that jumps, for every process of a service and its Redis at once (`clock.c`)."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Final

from tests.chaos.preloaded import compiled

AHEAD: Final = "CHAOS_CLOCK"
SOURCE: Final = Path(__file__).with_suffix(".c")


class Clock:
    """The clock of some processes; right at first.

    Arguments:
        folder: For the library, and for what it reads.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._ahead_s = 0.0
        self._file.write_bytes(struct.pack("=q", 0))
        self.library = compiled(SOURCE, folder)
        self.environment = {AHEAD: str(self._file)}

    def jump(self, seconds: float) -> None:
        """Set it forward, or back."""
        self._ahead_s += seconds
        with self._file.open("r+b") as file:  # in place, as those that read it have it mapped
            file.write(struct.pack("=q", int(self._ahead_s * 1e9)))
