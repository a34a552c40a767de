"""Which entries Redis may drop: those behind the second newest checkpoint on disk.

The newest file alone is no reason: a single bit of it may turn, and then a start goes on from
the file before, for which the entries since must still be there. So where nothing new comes, the
newest checkpoint is written once more, as its own twin; after that the stream is empty, and the
checkpoints of earlier sub-tasks may lose their raw samples.
"""

from __future__ import annotations

from collections import deque

from service.broker.branch import position as place
from service.broker.entries import Entry, Position
from service.broker.feed import Feed
from service.trainer.saver import Saved

Samples = tuple[str, int]
"""Since which entry they are counted, and how many."""


class Releases:
    """Follows what is read and what is saved, and lets entries go.

    Arguments:
        feed: By which to let go.
    """

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._files: list[tuple[str, Position, Samples]] = []  # the newest two, oldest first
        self._ids: deque[str] = deque()  # of the entries read and not released
        self._nbytes = 0

    def open(self, position: Position, samples: Samples = ("0-0", 0)) -> None:
        """Begin with the checkpoint that a start went on from; there may be none.

        Arguments:
            position: That it reaches to.
            samples: Since which entry samples are counted, and how many came up to there.
        """
        self._files = [("", position, samples)] if position.entries_applied else []

    def read(self, entry: Entry) -> None:
        """An entry is part of the state."""
        self._ids.append(entry.id)
        self._nbytes += entry.nbytes

    def saved(self, saved: Saved) -> None:
        """A checkpoint is on disk."""
        others = [one for one in self._files if one[0] != saved.file]
        self._files = [*others, (saved.file, saved.position, saved.samples)][-2:]
        if len(self._files) < 2:
            return
        _, older, samples = self._files[0]
        released = []
        while self._ids and place(self._ids[0]) <= place(older.last_entry_id):
            released.append(self._ids.popleft())
        self._feed.release(older, released, samples)
        if not self._ids:
            self._nbytes = 0

    @property
    def nbytes(self) -> int:
        """Of the entries that wait for a checkpoint or for its twin, at most."""
        return self._nbytes

    @property
    def twin_missing(self) -> bool:
        """Whether the newest checkpoint is on disk, and the one before it holds less."""
        match self._files:
            case [(_, older, _), (_, newest, _)]:
                return older != newest
            case [_]:
                return True
        return False
