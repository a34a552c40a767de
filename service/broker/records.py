"""What the API learns from Redis: outcomes of appends, counts, answers, reports and notices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Appended:
    """What became of an append.

    Arguments:
        entry_id: Of the entry in the input stream; of the first one for a duplicate.
        batch_id: The sender's, or one made here.
        duplicate: Whether the same batch was there before; nothing was added then.
        accepted: Entries accepted in all, ever. Less the entries that a snapshot
            holds, it is the backlog of that snapshot.
        rejected: Of a duplicate that ended among the dead letters: the reason.
        dead_letter: Likewise, the id of its dead letter.
    """

    entry_id: str
    batch_id: str
    duplicate: bool
    accepted: int
    rejected: str | None = None
    dead_letter: str | None = None


@dataclass(frozen=True)
class Counts:
    """What was counted by all API processes, ever.

    Arguments:
        samples_ingested: Samples accepted into the stream.
        batches_ingested: Batches accepted into the stream.
        rejected: Batches refused, by reason.
    """

    samples_ingested: int = 0
    batches_ingested: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """An answer of the trainer's that is ready to be taken.

    Arguments:
        request_id: Of what it answers.
        pieces: How many it comes in.
        size: Bytes in all.
    """

    request_id: str
    pieces: int
    size: int


@dataclass(frozen=True)
class Refusal:
    """Why the trainer does not answer with what was asked for.

    Arguments:
        detail: What happened.
        known: Versions that could be asked for; None where another attempt may go well.
    """

    detail: str
    known: list[int] | None


@dataclass(frozen=True)
class Record:
    """One record of a stream of reports: its id, and the event as JSON-ready values."""

    id: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Notice:
    """The trainer's word that a snapshot was published.

    Arguments:
        id: Of the notice.
        version: Of the model.
        entries_applied: Entries that the snapshot contains.
        last_entry_id: The last of them.
        location: Where the snapshot is; `service.broker.snapshots` knows the forms.
        time: When it was published, Unix seconds.
    """

    id: str
    version: int
    entries_applied: int
    last_entry_id: str
    location: str
    time: float
