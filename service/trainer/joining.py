"""Which entries of the input stream are learned as one batch.

A step of the engine costs nearly the same for one sample as for a hundred. So samples that programs
send one by one are learned together, where that is asked for.

Rules of this module:

1. The stream alone decides, so that reading it again gives the same model. Entries belong together
   up to a `join` entry, up to another one that is no small batch, or up to the limit. Time decides
   only when the trainer appends a `join`: as soon as nothing more waits.
2. Batches are joined that are alike: of one type and shape of samples, and from one key. No sample
   id comes twice in a group. A dead letter that was sent again is learned by itself.
3. A group is applied as a whole, so that a checkpoint lies between two groups, and a start begins
   with the first entry of one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from core.errors import GMRError
from service.broker.entries import Entry
from service.wire import REQUEUED_FROM, Limits, RawBatch, SampleId, read_entry

FEW: Final = 10
"""Samples of a batch that would gain by being joined."""

MANY: Final = 1000
"""Such batches in a row, each with others behind it, after which a trainer says so."""


@dataclass(frozen=True)
class EntryGroup:
    """Entries that are applied together.

    Arguments:
        entries: In the order of the stream; at least one.
        parts: The batch of each, where they are learned as one; empty for one entry alone.
    """

    entries: tuple[Entry, ...]
    parts: tuple[RawBatch, ...] = ()

    @property
    def last(self) -> Entry:
        """The entry that the group ends with."""
        return self.entries[-1]

    @property
    def samples(self) -> dict[str, int]:
        """Samples of each entry, where they are learned as one; else empty."""
        entries = zip(self.entries, self.parts, strict=False)
        return {entry.id: len(part) for entry, part in entries}

    @property
    def batch(self) -> RawBatch | None:
        """What they are together; None for one entry alone."""
        return RawBatch.joined(self.parts) if self.parts else None

    def apart(self) -> list[EntryGroup]:
        """Each entry by itself."""
        return [EntryGroup((entry,)) for entry in self.entries]


class Joining:
    """Finds what belongs together in one model's stream.

    Arguments:
        most: Samples that are learned together, at most; 1 joins nothing.
        limits: Of a batch.
    """

    def __init__(self, most: int, limits: Limits) -> None:
        self._most = most
        self._limits = limits
        self._open: list[tuple[Entry, RawBatch]] = []
        self._samples = 0
        self._ids: set[SampleId] = set()
        self._few_in_a_row = 0

    @property
    def is_open(self) -> bool:
        """Whether entries wait for those that belong to them."""
        return bool(self._open)

    def add(self, entry: Entry) -> list[EntryGroup]:
        """Take the next entry.

        Returns:
            What is to be applied now, in order.
        """
        batch = self._joinable(entry)
        if batch is None:
            return [*self._closed(), EntryGroup((entry,))]
        done = []
        if self._open and not self._takes(batch):
            done = self._closed()
        self._open.append((entry, batch))
        self._samples += len(batch)
        self._ids.update(id for id in batch.sample_ids or () if id is not None)
        return done + (self._closed() if self._samples == self._most else [])

    def drop(self) -> None:
        """Forget what waits: it is read again."""
        self._open, self._samples, self._ids = [], 0, set()

    def would_gain(self, entry: Entry, *, more: bool) -> bool:
        """Whether by now `MANY` small batches have come to wait, and none is joined: told once.

        Arguments:
            entry: The next one.
            more: Whether others wait behind it.
        """
        if self._most > 1 or self._few_in_a_row >= MANY:
            return False
        samples = (entry.text("shape") or "").partition(",")[0]
        # It may be no shape, as an entry of another program may have any: such as thousands of
        # digits, which Python does not read.
        is_number = samples.isdecimal() and len(samples) <= len(str(FEW))
        few = entry.text("kind") == "batch" and is_number and int(samples) <= FEW
        self._few_in_a_row = self._few_in_a_row + 1 if few and more else 0
        return self._few_in_a_row == MANY

    def _joinable(self, entry: Entry) -> RawBatch | None:
        """Its batch; None where the entry is applied by itself."""
        if self._most == 1 or entry.text("kind") != "batch":
            return None
        if entry.text(REQUEUED_FROM) is not None:
            return None
        try:
            batch = read_entry(entry.fields, self._limits)
        except GMRError:
            return None  # whoever applies it says why
        return batch if isinstance(batch, RawBatch) and len(batch) < self._most else None

    def _takes(self, batch: RawBatch) -> bool:
        first = self._open[0][1]
        return (
            self._samples + len(batch) <= self._most
            and batch.by == first.by
            and batch.features.dtype == first.features.dtype
            and batch.features.shape[1:] == first.features.shape[1:]
            and self._ids.isdisjoint(batch.sample_ids or ())
        )

    def _closed(self) -> list[EntryGroup]:
        found = self._open
        self.drop()
        if not found:
            return []
        entries, parts = zip(*found, strict=True)
        return [EntryGroup(entries, parts if len(parts) > 1 else ())]
