"""What an archive is told of an entry that was dealt with."""

from __future__ import annotations

from service.archive.record import Record
from service.broker.entries import Entry, Position
from service.trainer.applier import Applied
from service.wire import Control


def record_of(entry: Entry, before: Position, applied: Applied | None) -> Record:
    """The record of an entry.

    Arguments:
        entry: Which was dealt with.
        before: How far the state reached before it.
        applied: What came of it; None where it was rejected.
    """
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
