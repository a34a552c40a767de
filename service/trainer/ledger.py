"""The ledger: what became of every sample that was accepted, as counts that add up.

`accepted` counts what the entries of the stream brought; every other number is counted where
samples end up: in the model, in what waits beside it, among outliers and dead letters. So that
they add up is no definition, and `unaccounted`, which must be 0, is measured.

Rules of this module:

1. It is made from entries, events and states alone: the same stream gives the same ledger. A
   checkpoint carries it, and a rollback goes back to that of its version.
2. What is in no model and in no store counts as `dropped`: a rollback or an upload let it go.
3. What passed by a model at rest counts as `passed`: it was told and is in no model.
4. What a single batch came to is kept only where it is not simply learned: for batches of which
   something waits, which limits of the engine bound, and for the newest `most` of which
   something was quarantined, dropped or passed by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from core.batch import Batch
from core.engine.state import EngineState, StreamState
from core.events import BatchPassed, BatchScored, EntriesLost, Event, OutlierBurst
from service.broker.branch import FIRST_ID
from service.broker.branch import position as place_of
from service.broker.entries import Position

MOST_LOST: Final = 100
"""Losses whose entries are remembered as lost, not as dropped."""

LEARNED, SET_ASIDE, AWAITING, UNKNOWN, QUARANTINED, PASSED, DROPPED = (
    "learned",
    "set_aside",
    "awaiting",
    "unknown",
    "quarantined",
    "passed",
    "dropped",
)


class Share(NamedTuple):
    """One batch of which not everything was learned at once.

    Arguments:
        first: Samples of the stream before it.
        samples: That it holds.
        quarantined: Of these, outliers of a burst.
        dropped: Of these, those that waited when a rollback went back to a state of then.
        passed: Of these, those that passed by a model at rest: all, or none.
    """

    first: int
    samples: int
    quarantined: int = 0
    dropped: int = 0
    passed: int = 0


@dataclass(frozen=True)
class Ledger:
    """Counts of samples since `since`, at one position of the stream.

    Arguments:
        since: The last entry that is not counted: `0-0` where all are.
        accepted: Samples that entries brought. A dead letter sent again brings none.
        before: Samples that the model had learned by then, or elsewhere.
        quarantined: Outliers of bursts, neither learned nor lost.
        passed: Scored and told while the model was at rest, and not learned.
        rejected: Samples of dead letters.
        dropped: Samples that a rollback or an upload left out of the model.
        lost: Samples of entries that no checkpoint held; None where their number is not known.
        losses: The newest ranges of such entries.
        shares: By entry, oldest first.
        split_since: The last entry whose share was let go of to make room.
    """

    since: str = FIRST_ID
    accepted: int = 0
    before: int = 0
    quarantined: int = 0
    passed: int = 0
    rejected: int = 0
    dropped: int = 0
    lost: int | None = 0
    losses: tuple[tuple[str, str], ...] = ()
    shares: Mapping[str, Share] = field(default_factory=dict)
    split_since: str = FIRST_ID

    @classmethod
    def begun(cls, state: EngineState, position: Position) -> Ledger:
        """A ledger of a model that has none yet.

        What waits in the state counts as accepted; of which entries it is, is not known.
        """
        return cls(
            since=position.last_entry_id,
            accepted=sum(_waiting(state).values()),
            before=state.model.samples_seen,
            split_since=position.last_entry_id,
        )

    # One entry ----------------------------------------------------------------------------

    def applied(
        self,
        entry_id: str,
        again: str | None,
        events: Sequence[Event],
        quarantined: Iterable[Batch],
        stream: StreamState,
        parts: Mapping[str, int] | None = None,
    ) -> Ledger:
        """After an entry was applied, or several as one.

        Arguments:
            entry_id: Of the entry, or the last of them.
            again: The entry that it repeats: a dead letter sent again. None otherwise.
            events: That it caused.
            quarantined: Outliers of a burst that it ended.
            stream: After it, which knows what passed by.
            parts: Samples of each of several entries, in order, whose batches were learned as one.
        """
        ledger = self
        if any(isinstance(event, OutlierBurst) for event in events):
            parts_of = {
                id: share
                for event in events
                if isinstance(event, BatchScored)
                for id, share in _shares(entry_id, event, parts).items()
            }
            ledger = ledger._with_outliers(parts_of, quarantined, stream)
        scored = next((event for event in events if isinstance(event, BatchScored)), None)
        if scored is None:
            return ledger
        if self._knows(again):
            ledger = replace(ledger, rejected=ledger.rejected - scored.samples)
        else:
            ledger = replace(ledger, accepted=ledger.accepted + scored.samples)
        if scored.kind == "batch_learned" and not (scored.awaiting or scored.unknown):
            return ledger
        shares = _shares(entry_id, scored, parts)
        shares = {id: ledger.shares.get(id, share) for id, share in shares.items()}
        if isinstance(scored, BatchPassed):
            shares = {id: share._replace(passed=share.samples) for id, share in shares.items()}
            ledger = replace(ledger, passed=ledger.passed + scored.samples)
        return replace(ledger, shares={**ledger.shares, **shares})

    def refused(self, again: str | None, samples: int) -> Ledger:
        """After an entry became a dead letter.

        Arguments:
            again: The entry that it repeats, if any.
            samples: That it holds, as far as it can be read.
        """
        if self._knows(again):
            return self  # counted the first time
        accepted, rejected = self.accepted + samples, self.rejected + samples
        return replace(self, accepted=accepted, rejected=rejected)

    def went_missing(self, gap: EntriesLost, accepted: int | None) -> Ledger:
        """After entries were given up.

        Arguments:
            gap: Which.
            accepted: Samples that they and all before had brought; None where that is not known.
        """
        more = None if accepted is None else max(0, accepted - self.accepted)
        known = None if self.lost is None or more is None else self.lost + more
        losses = (*self.losses, (gap.first_entry_id, gap.last_entry_id))[-MOST_LOST:]
        return replace(self, lost=known, losses=losses, accepted=self.accepted + (more or 0))

    def rolled_back(self, kept: Ledger | None, state: EngineState) -> Ledger:
        """After a rollback.

        Arguments:
            kept: Of the version that is served again; None where it has none.
            state: Of that version, before what waits in it was let go.
        """
        if kept is None or kept.since != self.since:
            return self.uploaded(state)
        waits = kept.open(state)
        shares = {
            id: share._replace(dropped=share.dropped + sum(waits.get(id, {}).values()))
            for id, share in kept.shares.items()
        }
        ledger = self._restarted(kept.before, kept.quarantined, kept.passed, shares)
        return ledger._summed(kept.learned(state) + kept.quarantined + kept.passed)

    def uploaded(self, state: EngineState) -> Ledger:
        """After the upload of a checkpoint: of what was accepted here nothing is left in the model.

        Arguments:
            state: The uploaded one.
        """
        return self._restarted(state.model.samples_seen, 0, 0, {})._summed(0)

    # What there is to tell ----------------------------------------------------------------

    def learned(self, state: EngineState) -> int:
        """Samples in the model that were accepted here."""
        return state.model.samples_seen - self.before

    def counts(self, state: EngineState) -> dict[str, int | None]:
        """Samples by what became of them, and how many of them are not accounted for.

        Arguments:
            state: At the ledger's position.
        """
        counts = {
            LEARNED: self.learned(state),
            **_waiting(state),
            QUARANTINED: self.quarantined,
            PASSED: self.passed,
            "rejected": self.rejected,
            DROPPED: self.dropped,
        }
        left = self.accepted - sum(counts.values()) - (self.lost or 0)
        known = self.lost is not None
        return {
            "accepted": self.accepted if known else None,
            **counts,
            "lost": self.lost,
            "unaccounted": left if known else None,
        }

    def open(self, state: EngineState) -> dict[str, dict[str, int]]:
        """Samples that wait, by entry and by what they wait for.

        Arguments:
            state: At the ledger's position.
        """
        ids, found = list(self.shares), dict[str, dict[str, int]]()
        for fate, places in _places(state).items():
            for index, n in _fallen(self.shares, places):
                found.setdefault(ids[index], {})[fate] = n
        return found

    def first_set_aside(self, state: EngineState) -> str | None:
        """The first entry of which something is set aside; None where that is not known.

        Arguments:
            state: At the ledger's position.
        """
        return next((id for id, parts in self.open(state).items() if SET_ASIDE in parts), None)

    def fates(self, state: EngineState) -> dict[str, dict[str, int]]:
        """Samples of single batches by what became of them, of those not simply learned.

        Arguments:
            state: At the ledger's position.
        """
        waits = self.open(state)
        found = {}
        for id, share in self.shares.items():
            parts = {
                **waits.get(id, {}),
                QUARANTINED: share.quarantined,
                PASSED: share.passed,
                DROPPED: share.dropped,
            }
            parts = {fate: n for fate, n in parts.items() if n}
            if parts:
                rest = share.samples - sum(parts.values())
                found[id] = parts | ({LEARNED: rest} if rest else {})
        return found

    def pruned(self, state: EngineState, most: int) -> Ledger:
        """The same without shares of which nothing is left to tell.

        Arguments:
            state: At the ledger's position.
            most: Shares kept of which nothing waits any more.
        """
        waits = self.open(state)
        closed = [
            id
            for id, share in self.shares.items()
            if id not in waits and (share.quarantined or share.dropped or share.passed)
        ]
        gone = closed[: max(0, len(closed) - most)]
        kept = {*waits, *closed} - {*gone}
        if len(kept) == len(self.shares):
            return self
        shares = {id: share for id, share in self.shares.items() if id in kept}
        since = max((self.split_since, *gone), key=place_of)
        return replace(self, shares=shares, split_since=since)

    # In a checkpoint ----------------------------------------------------------------------

    def to_json(self) -> str:
        """As text for a checkpoint."""
        shares = {id: list(share) for id, share in self.shares.items()}
        return orjson.dumps({**vars(self), "shares": shares}).decode()

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """The inverse of `to_json`.

        Raises:
            TypeError, ValueError: It is no such text.
        """
        document: dict[str, Any] = orjson.loads(text)
        losses = tuple((str(first), str(last)) for first, last in document.pop("losses"))
        shares = {id: Share(*map(int, share)) for id, share in document.pop("shares").items()}
        return cls(**document, losses=losses, shares=shares)

    # Machinery ----------------------------------------------------------------------------

    def _knows(self, entry_id: str | None) -> bool:
        """Whether an entry is counted here."""
        return entry_id is not None and place_of(entry_id) > place_of(self.since)

    def _with_outliers(
        self, scored: Mapping[str, Share], batches: Iterable[Batch], stream: StreamState
    ) -> Ledger:
        shares = {**self.shares, **{id: scored[id] for id in scored if id not in self.shares}}
        ids, outliers = list(shares), tuple(batches)
        for index, n in _fallen(shares, _places_of(outliers, stream)):
            share = shares[ids[index]]
            shares[ids[index]] = share._replace(quarantined=share.quarantined + n)
        total = self.quarantined + sum(map(len, outliers))
        return replace(self, quarantined=total, shares=shares)

    def _restarted(
        self, before: int, quarantined: int, passed: int, shares: Mapping[str, Share]
    ) -> Ledger:
        return replace(self, before=before, quarantined=quarantined, passed=passed, shares=shares)

    def _summed(self, accounted: int) -> Ledger:
        """What is neither held by the model nor rejected or lost was dropped."""
        return replace(self, dropped=self.accepted - self.rejected - (self.lost or 0) - accounted)


def _shares(
    entry_id: str, scored: BatchScored, parts: Mapping[str, int] | None
) -> dict[str, Share]:
    """The share of each entry whose samples were scored as one batch."""
    shares, first = dict[str, Share](), scored.sample_index
    for id, samples in (parts or {entry_id: scored.samples}).items():
        shares[id] = Share(first, samples)
        first += samples
    return shares


def _waiting(state: EngineState) -> dict[str, int]:
    """Samples that wait beside the model, by what for."""
    pending = state.pending
    due = sum(map(len, pending.awaiting.due))
    return {
        SET_ASIDE: pending.set_aside_samples + due,
        AWAITING: pending.awaiting.samples,
        UNKNOWN: pending.proposals.raw_samples,
    }


def _places(state: EngineState) -> dict[str, list[int]]:
    """Their places in all of the stream."""
    pending, proposals, stream = state.pending, state.pending.proposals, state.stream
    return {
        SET_ASIDE: _places_of(pending.undecided, stream),
        AWAITING: [stream.place(place) for rows in pending.awaiting.held for place in rows.arrived],
        UNKNOWN: [
            stream.place(place)
            for unknowns in (proposals.unknown, *(one.unknowns for one in proposals.open))
            for place in unknowns.arrived
        ],
    }


def _places_of(batches: Iterable[Batch], stream: StreamState) -> list[int]:
    """Places of samples in all of the stream; an earlier release did not note them."""
    noted = (one.places for one in batches if one.places is not None)
    return [stream.place(place) for places in noted for place in places.tolist()]


def _fallen(shares: Mapping[str, Share], places: Sequence[int]) -> Iterable[tuple[int, int]]:
    """Which of some batches these places fall on, by index, and how many on each."""
    firsts = np.array([share.first for share in shares.values()], dtype=np.int64)
    index = np.searchsorted(firsts, np.array(places, dtype=np.int64), side="right") - 1
    # Before all of them: of a batch from before the ledger.
    which, n = np.unique(index[index >= 0], return_counts=True)
    return zip(which.tolist(), n.tolist(), strict=True)
