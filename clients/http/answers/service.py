"""Answers about the service: events, readiness, and what became of every sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Ledger:
    """Samples accepted, by what became of them; `accepted` is the sum of `waiting` to `lost`."""

    accepted: int | None  # None wherever a number cannot be known
    waiting: int | None  # in the stream, not applied yet
    learned: int | None  # in the model
    set_aside: int | None  # while a change is suspected
    awaiting: int | None  # until their label comes
    unknown: int | None  # held as unknown, or in a proposal
    quarantined: int | None  # outliers of bursts
    passed: int | None  # scored while the model was at rest, and never learned
    rejected: int | None  # of dead letters
    dropped: int | None  # by a rollback or an upload
    lost: int | None  # of entries that no checkpoint held
    unaccounted: int | None  # 0
    waiting_entries: int
    entries_applied: int
    last_entry_id: str | None  # the last entry applied
    since: str | None  # the last entry that is not counted; None where all are
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class BatchFate:
    """What became of one batch, as it was accepted last."""

    batch_id: str
    entry_id: str  # in the stream
    kind: str  # "batch" or "labels"
    state: str  # "waiting", "learned", "set_aside", ..., or "split"; "rejected", "dropped", "lost"
    samples: int  # that it holds, or labels
    counts: Mapping[str, int] | None  # of its samples by what became of them, where that is known
    reason: str | None  # why it was rejected, in a word
    detail: str | None  # why, in full
    deadletter: str | None  # id of the letter, while that is kept
    accepted: int  # times that the id was accepted, of the last few
    last_entry_id: str | None  # the last entry applied
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class ServiceEvent:
    """One of the events of `core/events.py`, as the service published it."""

    id: str  # resume after it with `last_event_id`
    kind: str  # "missed" where events were dropped before they could be read
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Readiness:
    """Whether the service takes requests, and why not."""

    ready: bool
    reason: str = ""
