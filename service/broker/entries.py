"""Entries of the input stream: what one is, how they are ordered, and how far something reaches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REPORTS_PER_ENTRY: Final = 10_000
LAST_REPORT: Final = REPORTS_PER_ENTRY - 1


@dataclass(frozen=True)
class Position:
    """How far into the input stream something reaches.

    Arguments:
        last_entry_id: The last entry it contains; `0-0` for none.
        entries_applied: How many entries that makes, ever.
    """

    last_entry_id: str = "0-0"
    entries_applied: int = 0


@dataclass(frozen=True)
class Entry:
    """One entry of the input stream, as it came."""

    id: str
    fields: dict[bytes, bytes]

    @property
    def nbytes(self) -> int:
        """Bytes of its fields."""
        return sum(map(len, self.fields.values()))

    def text(self, name: str) -> str | None:
        """A field as text, whatever its bytes are; None where there is no such field."""
        value = self.fields.get(name.encode())
        return None if value is None else value.decode("utf-8", "replace")


def came_at_ms(entry_id: str) -> int:
    """When Redis took an entry, Unix milliseconds; 0 for the id before all entries.

    Example:
        >>> came_at_ms("1700000000500-3"), came_at_ms("0-0")
        (1700000000500, 0)
    """
    return int(entry_id.partition("-")[0])


def report_id(entry_id: str, index: int) -> str:
    """The id of the k-th report of an entry: grows with the entry and with k.

    Example:
        >>> report_id("1700000000000-3", 2)
        '1700000000000-30002'
    """
    milliseconds, sequence = entry_id.split("-")
    return f"{milliseconds}-{int(sequence) * REPORTS_PER_ENTRY + min(index, LAST_REPORT)}"


def next_id(entry_id: str) -> str:
    """The smallest id after one."""
    milliseconds, sequence = entry_id.split("-")
    return f"{milliseconds}-{int(sequence) + 1}"


def id_before(entry_id: str) -> str:
    """The greatest id before one.

    Example:
        >>> id_before("5-3"), id_before("5-0")
        ('5-2', '4-1844674407370954')
    """
    milliseconds, sequence = map(int, entry_id.split("-"))
    if sequence:
        return f"{milliseconds}-{sequence - 1}"
    # Of which there can still be a report.
    return f"{max(milliseconds - 1, 0)}-{2**64 // REPORTS_PER_ENTRY - 1}"
