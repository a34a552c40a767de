"""What a sender is told of what it sent."""

from __future__ import annotations

from fastapi import Response

from service.api import answers
from service.broker.records import Appended


def receipt(appended: Appended, entries_applied: int, **counted: int) -> Response:
    """The answer to a batch, or to labels.

    Arguments:
        appended: What became of it.
        entries_applied: Entries that the served model holds; the backlog is counted from there.
        counted: How many samples or labels it had, by what they are.
    """
    return answers.json(
        {
            "entry_id": appended.entry_id,
            "batch_id": appended.batch_id,
            **counted,
            "backlog": max(0, appended.accepted - entries_applied),
            "duplicate": appended.duplicate,
            "rejected": appended.rejected,
            "deadletter": appended.dead_letter,
        },
        status=200 if appended.duplicate else 202,
    )
