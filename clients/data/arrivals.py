"""Images that come into a folder that is watched, and into folders in it.

Rules of this module:

1. An image is given once it has not changed for a while: whoever writes it may not be done.
2. Images of one look come together, in the order in which they were written.
3. An image that changes after it was sent is told, not given again; one that could not be used is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from clients.data.folder import LOOK_EVERY_S, Settling
from clients.data.formats.image import images_of


class Arrival(NamedTuple):
    """An image that has come.

    Arguments:
        file: Its path in the folder, with `/` between the parts.
        size: In bytes.
        changed: When it was written last, Unix time in nanoseconds.
    """

    file: str
    size: int
    changed: int


def arrival_of(folder: Path, path: Path) -> Arrival | None:
    """A file as it is now; None where it has gone."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return Arrival(path.relative_to(folder).as_posix(), facts.st_size, facts.st_mtime_ns)


def arrivals(
    folder: Path,
    before: Iterable[Arrival],
    *,
    most: int,
    unusable: Container[str],
    changed: Callable[[Path], None],
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
) -> Iterator[list[Arrival]]:
    """Images as they come, for ever.

    Arguments:
        folder: Where they come; the folders in it are looked into.
        before: Those that were given by an earlier run.
        most: Images that are given together, at most.
        unusable: Paths in the folder of images that were given and could not be sent.
        changed: Is told of an image that changed after it was sent, once for each change.
        pause: Waits so many seconds.
        now: Unix seconds.

    Raises:
        InputError: The folder cannot be read.
    """
    given = {one.file: one for one in before}
    settling = Settling(now)
    while True:
        come = []
        for path in images_of(folder):
            one = arrival_of(folder, path)
            if one is None or given.get(one.file) == one:
                continue
            if one.file in given and one.file not in unusable:
                given[one.file] = one
                changed(path)
            elif settling.is_settled(one.file, (one.size, one.changed)):
                given[one.file] = one
                come.append(one)
        come.sort(key=lambda one: one.changed)  # by path where they were written together
        for start in range(0, len(come), most):
            yield come[start : start + most]
        pause(LOOK_EVERY_S)
