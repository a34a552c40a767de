"""Entries that were let go from the stream, and that no checkpoint of this data dir holds.

That is a wrong or an empty data dir, or the loss of two files. To go on would overwrite what may
still be found elsewhere, so a trainer refuses, until somebody names the number of entries that
are given up. Their batch ids are forgotten then, as those that a rollback drops.
"""

from __future__ import annotations

from pathlib import Path

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


def check_accepted(gap: EntriesLost, accepted: int | None, data_dir: Path) -> None:
    """Return where the operator has named the number of entries that are missing.

    Raises:
        InvalidSettings: They have not, or another number.
    """
    if accepted == gap.entries:
        return
    named = "" if accepted is None else f" GMR_ACCEPT_LOSS names {accepted}."
    raise InvalidSettings(
        f"{gap.entries} entries were learned and removed from the stream, but no checkpoint in "
        f"{data_dir / 'checkpoints'} holds them.{named} Expected the data dir that this model was "
        f"kept in: look whether GMR_DATA_DIR is right and its disk is there, or bring the "
        f"checkpoints back. To go on without them, start once with --accept-loss {gap.entries}; "
        f"their batches can be sent again then."
    )
