"""Entries that were let go from the stream, and that no checkpoint of this data dir holds.

That is a wrong or an empty data dir, or the loss of two files. To go on would overwrite what may
still be found elsewhere, so a trainer refuses, until somebody names the number of entries that
are given up. Their batch ids are forgotten then, as those that a rollback drops.
"""

from __future__ import annotations

from core.errors import InvalidSettings
from core.events import EntriesLost
from service.broker.entries import Position, next_id
from service.broker.feed import Feed


def find_gap(feed: Feed, held: Position, opened: Position) -> EntriesLost | None:
    """What is missing between a checkpoint and the stream; None where nothing is.

    Arguments:
        feed: Just opened.
        held: By the checkpoint.
        opened: What `Feed.open` made of that.
    """
    n_missing = opened.entries_applied - held.entries_applied
    if not n_missing:
        return None
    return EntriesLost(n_missing, next_id(held.last_entry_id), feed.last_removed())


def check_accepted(gap: EntriesLost, accepted: int | None, place: str) -> None:
    """Return where the operator has named the number of entries that are missing.

    Arguments:
        gap: What is missing.
        accepted: The number that was named, if any.
        place: Where the checkpoints of this model are.

    Raises:
        InvalidSettings: They have not, or another number.
    """
    if accepted == gap.entries:
        return
    named = "" if accepted is None else f" GMR_ACCEPT_LOSS names {accepted}."
    raise InvalidSettings(
        f"{gap.entries} entries were learned and removed from the stream, but no checkpoint in "
        f"{place} holds them.{named} Expected the place that this model was kept in: look whether "
        f"GMR_DATA_DIR and GMR_CHECKPOINTS are right and the disk or store is there, or bring the "
        f"checkpoints back. To go on without them, start once with --accept-loss {gap.entries}; "
        f"their batches can be sent again then."
    )
