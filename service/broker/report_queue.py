"""What the trainer reports, queued until it is sent in one go.

Reports carry ids made from the id of the entry that caused them. Reports made again after a crash
are refused by Redis as old, and so appear exactly once. So where replicas are to have them, those
that are not confirmed are sent again, in order, before what comes next: a replica that took over
may lack them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from service.broker.entries import report_id
from service.broker.fenced import Command, Fenced
from service.broker.keys import QUARANTINE_LENGTH
from service.settings import MIB

FLUSH_COMMANDS: Final = 1000
MOST_UNCONFIRMED: Final = 4 * FLUSH_COMMANDS
"""Commands that are sent again while replicas are behind; older ones are taken for told."""

BOUNDARIES_LENGTH: Final = 100_000
EXPLANATIONS_LENGTH: Final = 256
"""At 784 features 25 kB each; at 4,096, the most that are explained in full, 150 kB."""

OUTBOX_LENGTH: Final = 10_000
QUARANTINE_BYTES: Final = 16 * MIB


class ReportQueue:
    """Reports of one model.

    Arguments:
        redis: To send them by.
        events_length: Events kept, about.
        history_length: Events of batches kept, about.
    """

    def __init__(self, redis: Fenced, events_length: int, history_length: int) -> None:
        self._redis = redis
        self._keys = keys = redis.keys
        self._lengths = {
            keys.events: events_length,
            keys.history: history_length,
            keys.boundaries: BOUNDARIES_LENGTH,
            keys.explanations: EXPLANATIONS_LENGTH,
            keys.outbox: OUTBOX_LENGTH,
        }
        self._queue: deque[Command] = deque()
        self._unconfirmed: list[Command] = []

    def add(self, key: str, entry_id: str, index: int, data: bytes) -> None:
        """Queue an event.

        Arguments:
            key: `keys.events`, or one of the streams that hold a part of it.
            entry_id: Of the entry that caused it.
            index: Which event of that entry; grows.
            data: As JSON.
        """
        id = report_id(entry_id, index)
        self._queue.append(("XADD", key, "MAXLEN", "~", self._lengths[key], id, "data", data))

    def quarantine(self, entry_id: str, index: int, data: bytes) -> None:
        """Queue an outlier; the newest are kept, as many as fit into a fixed room.

        Arguments:
            entry_id: Of the entry by which the burst was over.
            index: Which outlier; grows.
            data: As JSON.
        """
        length = max(1, min(QUARANTINE_LENGTH, QUARANTINE_BYTES // len(data)))
        id, key = report_id(entry_id, index), self._keys.quarantine
        self._queue.append(("XADD", key, "MAXLEN", "~", length, id, "data", data))

    def put(self, key: str, value: bytes) -> None:
        """Queue a plain value, such as the status."""
        self._queue.append(("SET", key, value))

    def account(
        self, ledger: bytes, fates: Mapping[str, bytes], gone: Sequence[str], *, anew: bool
    ) -> None:
        """Queue the ledger before everything else, so that it goes out as a whole.

        Arguments:
            ledger: As JSON.
            fates: Of entries, as JSON, that are new or have changed.
            gone: Entries that have none any more.
            anew: Whether there are no others.
        """
        keys = self._keys
        commands: list[Command] = [("SET", keys.ledger, ledger)]
        if anew:
            commands.append(("DEL", keys.fates))
        commands += [("HDEL", keys.fates, *some) for some in _parts(gone)]
        commands += [
            ("HSET", keys.fates, *(part for id in some for part in (id, fates[id])))
            for some in _parts(list(fates))
        ]
        self._queue.extendleft(reversed(commands))

    def forget(self, key: str) -> None:
        """Queue that a plain value is no more."""
        self._queue.append(("DEL", key))

    def flush(self) -> None:
        """Send what is queued, in order."""
        while self._queue:
            commands = list(islice(self._queue, FLUSH_COMMANDS))
            confirmed = self._redis.write([*self._unconfirmed, *commands])
            self._unconfirmed += commands
            if confirmed:
                self._unconfirmed = []
            del self._unconfirmed[:-MOST_UNCONFIRMED]
            for _ in commands:
                self._queue.popleft()

    @property
    def waiting(self) -> bool:
        """Whether events are queued."""
        return any(command[0] == "XADD" for command in self._queue)


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """As many at a time as one command takes."""
    for start in range(0, len(ids), FLUSH_COMMANDS):
        yield ids[start : start + FLUSH_COMMANDS]
