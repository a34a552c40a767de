"""The files of an archive: parts, each of which begins with a checkpoint.

A part is two files: `<number>-<entries applied>.safetensors` holds the state in which it begins,
`<number>-<entries applied>.entries` the entries from there on (`service.archive.record`). Every
start of a trainer begins a part, and so does one that has grown large. A part overrules what
earlier ones say of the entries behind its beginning: after a crash these were read once more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from service.archive.record import Record, read

ARCHIVE: Final = "archive"
"""The folder in a model's data dir."""

NAME: Final = re.compile(r"(\d{6,18})-(\d{1,18})\.entries")


@dataclass(frozen=True)
class Part:
    """One part of an archive.

    Arguments:
        path: Of its entries.
        number: Grows from part to part.
        begins: Entries that the state contains in which it begins.
    """

    path: Path
    number: int
    begins: int

    @property
    def base(self) -> Path:
        """Of the checkpoint in which it begins."""
        return self.path.with_suffix(".safetensors")

    @property
    def nbytes(self) -> int:
        """Bytes of both files; 0 for one that is gone."""
        return sum(path.stat().st_size for path in (self.path, self.base) if path.exists())

    def records(self) -> Iterator[Record]:
        """Its entries, up to the first that is not whole."""
        with self.path.open("rb") as file:
            yield from read(file)


def parts_in(directory: Path) -> list[Part]:
    """The parts of a folder, oldest first; none where there is no such folder."""
    if not directory.is_dir():
        return []
    found = [
        Part(path, int(match[1]), int(match[2]))
        for path in directory.iterdir()
        if (match := NAME.fullmatch(path.name))
    ]
    return sorted(found, key=lambda part: part.number)


@dataclass(frozen=True)
class Stretch:
    """Entries of one part that no later part overrules.

    Arguments:
        part: Of which.
        ends: The last of them, counted from the stream's first; `part.begins` for none.
    """

    part: Part
    ends: int

    def records(self) -> Iterator[Record]:
        """Its entries, in order and without a gap."""
        n = self.part.begins
        for record in self.part.records():
            if record.n != n + 1 or record.n > self.ends:
                return
            n = record.n
            yield record


def timeline(parts: list[Part]) -> list[Stretch]:
    """What became of a stream in the end, by all parts, oldest first.

    Where the end of a stretch is before the beginning of the next one, entries are missing.
    """
    stretches: list[Stretch] = []
    for part in parts:
        while stretches and stretches[-1].part.begins > part.begins:
            stretches.pop()
        if stretches and stretches[-1].ends > part.begins:
            stretches[-1] = Stretch(stretches[-1].part, part.begins)
        whole = Stretch(part, 2**63)
        ends = max((record.n for record in whole.records()), default=part.begins)
        stretches.append(Stretch(part, ends))
    return stretches
