"""One entry of the input stream in an archive: what came, and what became of it.

A record is a line and a body. The line holds a checksum (CRC-32 of all that follows, in eight
hexadecimal digits) and a JSON object; the body holds the fields' values, one after the other, as
Redis had them. A record that a kill has cut short, or in which a bit has turned, is none.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, Final

LONGEST_LINE: Final = 1 << 20
"""Bytes of a line, at most."""


@dataclass(frozen=True)
class Record:
    """An entry that was dealt with.

    Arguments:
        entry_id: Its id in the stream.
        n: Entries that the state contains with it, ever.
        fields: As they came; of an upload its bytes, in place of where they were.
        rejected: Whether it became a dead letter, and the state stayed.
        back_to: Of a rollback: entries that the state contains to which it went back; None where
            it went nowhere.
        without_raw: Whether that state had been kept without raw samples.
        joined: Entries that were learned as one batch, this one among them; each of them says so.
    """

    entry_id: str
    n: int
    fields: Mapping[bytes, bytes]
    rejected: bool = False
    back_to: int | None = None
    without_raw: bool = False
    joined: int = 1

    def to_bytes(self) -> bytes:
        """As `read` takes it."""
        facts: dict[str, Any] = {
            "id": self.entry_id,
            "n": self.n,
            "fields": [[name.decode("latin-1"), len(part)] for name, part in self.fields.items()],
        }
        if self.rejected:
            facts["rejected"] = True
        if self.back_to is not None:
            facts |= {"back_to": self.back_to, "without_raw": self.without_raw}
        if self.joined > 1:
            facts["joined"] = self.joined
        line = json.dumps(facts, separators=(",", ":")).encode() + b"\n"
        content = b"".join((line, *self.fields.values()))
        return b"%08x %s" % (zlib.crc32(content), content)


def read(file: IO[bytes]) -> Iterator[Record]:
    """The records of a file, up to its end or to the first that is not whole.

    Arguments:
        file: From its beginning on.
    """
    size = file.seek(0, 2)
    file.seek(0)
    while (line := file.readline(LONGEST_LINE)).endswith(b"\n"):
        try:
            facts = json.loads(line[9:])
            lengths = [(str(name).encode("latin-1"), int(n)) for name, n in facts["fields"]]
            if min((n for _, n in lengths), default=0) < 0:
                return
            if file.tell() + sum(n for _, n in lengths) > size:
                return
            values = [(name, file.read(n)) for name, n in lengths]
            crc = zlib.crc32(line[9:])
            for _, value in values:
                crc = zlib.crc32(value, crc)
            if line[:9] != b"%08x " % crc:
                return
            back_to = facts.get("back_to")
            yield Record(
                str(facts["id"]),
                int(facts["n"]),
                dict(values),
                bool(facts.get("rejected", False)),
                None if back_to is None else int(back_to),
                bool(facts.get("without_raw", False)),
                int(facts.get("joined", 1)),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return
