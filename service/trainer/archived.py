"""What an archive is told of entries that were dealt with."""

from __future__ import annotations

from service.archive.record import Record
from service.broker.entries import Entry, Position
from service.trainer.applier import Applied
from service.trainer.joining import EntryGroup
from service.wire import Control


def records_of(group: EntryGroup, before: Position, applied: Applied | None) -> list[Record]:
    """The records of entries that were applied together.

    Arguments:
        group: Which were dealt with.
        before: How far the state reached before them.
        applied: What came of them; None where they were rejected.
    """
    if not group.parts:
        return [_record_of(group.last, before, applied)]
    first, joined = before.entries_applied + 1, len(group.entries)
    return [
        Record(entry.id, n, entry.fields, joined=joined)
        for n, entry in enumerate(group.entries, first)
    ]


def _record_of(entry: Entry, before: Position, applied: Applied | None) -> Record:
    n = before.entries_applied + 1
    if applied is None:
        return Record(entry.id, n, entry.fields, rejected=True)
    restored, fields = applied.restored, entry.fields
    if restored is None:
        return Record(entry.id, n, fields)
    if restored.checkpoint is not None:  # Redis keeps the pieces of an upload no longer
        uploaded = Control("restore", checkpoint=restored.checkpoint).to_entry()
        fields = {name.encode(): bytes(value) for name, value in uploaded.items()}
    went = restored.entries_applied, restored.without_raw
    return Record(entry.id, n, fields, False, *went)
