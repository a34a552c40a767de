"""Answers about entries that could not be used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class DeadLetter:
    """An entry that was accepted and could not be used."""

    id: str
    entry_id: str
    time: float  # when it was rejected, Unix seconds
    reason: str  # in a word
    detail: str
    kind: str | None  # "batch", "labels", "name", or what a control is
    batch_id: str | None
    samples: int | None  # or labels
    size: int  # bytes
    whole: bool  # kept whole, so that it can be sent again
    requeued_from: str | None = None  # the entry that this one repeated
    requeued_as: str | None = None  # the entry that it was sent again as
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class DeadLetters:
    """Some dead letters, oldest first."""

    letters: tuple[DeadLetter, ...]
    next: str | None  # give it as `since` for the next page; None at the end
    total: int  # kept and not sent again
    bytes: int  # of their entries
    dropped: int | None  # that made room for newer ones, ever; None where that is not known


@dataclass(frozen=True)
class Requeued:
    """A dead letter was sent again."""

    entry_id: str  # the new one
    batch_id: str
    samples: int
    backlog: int  # entries accepted and not yet learned
    deadletter: str
    requeued_from: str
