"""Room on the disk of the embedded Redis, below which nothing more is accepted.

An append-only file that cannot be written ends a Redis that forces every write to disk. So batches
are refused while there is still room for what must be written to get out of that: reports,
checkpoints, and the file anew without what is trimmed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from service.broker.connection import StreamUnavailable
from service.settings import MIB, Settings


class DiskRoom:
    """Looks at a disk before something is written.

    Arguments:
        directory: On it.
        reserve: Bytes that must be free.
    """

    def __init__(self, directory: Path, reserve: int) -> None:
        self._directory = directory
        self._reserve = reserve

    def check(self) -> None:
        """Return where there is room.

        Raises:
            StreamUnavailable: There is too little.
        """
        free = shutil.disk_usage(self._directory).free
        if free < self._reserve:
            raise StreamUnavailable(
                f"The disk of the embedded Redis has {free // MIB} MiB left, less than the "
                f"{self._reserve // MIB} MiB of GMR_DISK_RESERVE_MIB; nothing was accepted. Make "
                f"room in the data dir's file system, then send the same again."
            )


def room_of(settings: Settings) -> DiskRoom | None:
    """Room for the embedded Redis of these settings; None where Redis is another's."""
    directory = settings.data_dir / "redis"
    address = settings.redis_address() or ""
    if not address.startswith("unix://") or not directory.is_dir():
        return None
    return DiskRoom(directory, settings.disk_reserve_mib * MIB)
