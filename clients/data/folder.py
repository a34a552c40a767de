"""The files of a folder, one after the other, and those that come while it is watched.

Rules of this module:

1. A file is given once it has not changed for a while: whoever writes it may not be done.
2. Files come in the order of their names, those of one look before those of the next.
3. A file that changes after it was given is given again, in a folder that is watched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from clients.data.formats.image import IMAGE_ENDINGS, images_of, is_image
from clients.http.errors import InputError

SETTLED_S: Final = 2.0
"""How long a file must not have changed."""

LOOK_EVERY_S: Final = 1.0

_ENDINGS: Final = (
    *(".npz", ".npy", ".parquet", ".csv", ".tsv", ".csv.gz", ".tsv.gz"),
    *(".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"),
    *("-ubyte", ".idx", "-ubyte.gz", ".idx.gz"),
)
_ALL_ENDINGS: Final = (*_ENDINGS, *IMAGE_ENDINGS)

State = tuple[int, int]
"""Size in bytes, and time of the last change in nanoseconds."""


class Settling:
    """Tells which files have not changed for a while.

    A file may say that it was changed in the future: another clock has written it, or an archive
    from another time zone. Then it counts from when it was seen so first.

    Arguments:
        now: Unix seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._seen: dict[str, tuple[State, float]] = {}

    def is_settled(self, file: str, state: State) -> bool:
        """Whether a file has been in a state for long enough.

        Arguments:
            file: Names it.
            state: As it is now.
        """
        now = self._now()
        if now - state[1] / 1e9 >= SETTLED_S:
            self._seen.pop(file, None)
            return True
        before, since = self._seen.get(file, (None, now))
        since = min(since, now) if before == state else now
        self._seen[file] = state, since
        return now - since >= SETTLED_S


def files_of(
    folder: Path,
    *,
    watch: bool,
    pause: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.time,
) -> Iterator[Path]:
    """Files of samples in a folder, each once, or once more after every change.

    Arguments:
        folder: Of it, not of folders in it. Left out are files whose names begin with a dot,
            files of labels in IDX, and files of other endings.
        watch: Go on for ever with those that come, and with those that change.
        pause: Waits so many seconds.
        now: Unix seconds.

    Raises:
        InputError: The folder is none, or cannot be read.
    """
    given: dict[Path, State] = {}
    settling = Settling(now)
    while True:
        unsettled = False
        for path, state in _look(folder):
            if given.get(path) == state:
                continue
            if path in given and not watch:
                continue
            if not settling.is_settled(path.name, state):
                unsettled = True
                continue
            given[path] = state
            yield path
        if not (watch or unsettled):
            return
        pause(LOOK_EVERY_S)


def holds_images(folder: Path) -> bool:
    """Whether a folder is one of images, which lie in it or in folders of it.

    Raises:
        InputError: It holds images and other files of samples, or cannot be read.
    """
    images = images_of(folder)
    others = [path for path, _ in _look(folder) if not is_image(path.name)]
    if images and others:
        raise InputError(
            f"{folder} holds images ({images[0]}) and other files of samples ({others[0]}); "
            f"expected one of them, since samples of one model are alike. Name a file, or put the "
            f"images into a folder of their own."
        )
    return bool(images)


def will_hold_images(folder: Path, *, pause: Callable[[float], None] = time.sleep) -> bool:
    """Whether the first files that come into a folder are images; see `holds_images`."""
    while not holds_images(folder):
        if _look(folder):
            return False
        pause(LOOK_EVERY_S)
    return True


def _look(folder: Path) -> list[tuple[Path, State]]:
    """Files that are there now, by name."""
    found = []
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise InputError(
            f"{folder} cannot be read as a folder: {error.strerror}. Name a folder with files of "
            f"samples, or a file."
        ) from None
    for path in entries:
        name = path.name.lower()
        if name.startswith(".") or not name.endswith(_ALL_ENDINGS) or "labels-idx1" in name:
            continue
        try:
            facts = path.stat()
        except OSError:  # moved away meanwhile
            continue
        if path.is_file():
            found.append((path, (facts.st_size, facts.st_mtime_ns)))
    return found
