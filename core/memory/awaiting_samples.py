"""Samples that await their label, and labels that await their sample: a bounded value.

Rules of this module:

1. A sample that came with an id and no label is in exactly one place: `held`, until its label
   comes or the wait is over; `due`, while a suspected change holds up all learning; or it has
   been learned. So it is learned once, whatever order labels come in.
2. A raw sample does not outlive its sub-task. At a boundary the samples of the old one are
   learned without a label; what waits on in `behind` is a mean of the model's own, on which a
   label that comes later falls as a vote.
3. Everything is bounded: samples by `EngineConfig.awaiting_limit`, and so are early labels and
   the ids that are remembered to tell a second label from one that came too late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from core.batch import Batch, Label, SampleId

DUPLICATE = "duplicate"
LATE = "late"
UNKNOWN = "unknown"
REASONS = (DUPLICATE, LATE, UNKNOWN)
"""Why a label is matched with no sample: its sample has one, was learned without one, or never
came."""

CHUNK = 128
"""Samples that are joined into one tensor, so that a stream of single samples holds few."""


@dataclass(frozen=True, eq=False)
class Rows:
    """N samples in the order of the stream.

    Arguments:
        ids: The sender's names for them.
        arrived: Samples of the stream before each.
        guesses: Code of the class that the model of then gave each, or -1.
        features: With shape (N, D), in the sender's units.
        bins: Of the confidence in those guesses (`core.memory.reliability`), or -1 where nothing
            is to be learned from them.
    """

    ids: tuple[SampleId, ...]
    arrived: tuple[int, ...]
    guesses: tuple[int, ...]
    features: Tensor
    bins: tuple[int, ...] = ()  # of an earlier release's checkpoint, none

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """All in one; none at all where there are no parts."""
        if not parts:
            return cls((), (), (), torch.zeros(0, 0))
        return cls(
            tuple(id for part in parts for id in part.ids),
            tuple(place for part in parts for place in part.arrived),
            tuple(guess for part in parts for guess in part.guesses),
            torch.cat([part.features for part in parts]),
            tuple(bin for part in parts for bin in part.known_bins),
        )

    @property
    def known_bins(self) -> tuple[int, ...]:
        """`bins`, N of them."""
        return self.bins or (-1,) * len(self)

    def select(self, rows: Sequence[int]) -> Rows:
        """Some of them, in this order."""
        index = torch.tensor(rows, dtype=torch.int64, device=self.features.device)
        return Rows(
            tuple(self.ids[row] for row in rows),
            tuple(self.arrived[row] for row in rows),
            tuple(self.guesses[row] for row in rows),
            self.features[index],
            tuple(self.known_bins[row] for row in rows),
        )


class EarlyLabel(NamedTuple):
    """A label whose sample has yet to come."""

    id: SampleId
    label: Label
    at: int  # samples of the stream before it


class Done(NamedTuple):
    """An id that awaits nothing any more."""

    id: SampleId
    matched: bool  # False: learned without a label


class Match(NamedTuple):
    """The outcome of matching some labels."""

    rows: Rows  # of the current sub-task, to be learned
    labels: tuple[Label, ...]  # theirs
    behind: Rows  # of earlier sub-tasks, to be voted for
    behind_labels: tuple[Label, ...]
    kept: int  # labels that wait for their sample now
    unmatched: dict[str, int]  # by reason


@dataclass(frozen=True, eq=False)
class AwaitingSamples:
    """Samples and labels that wait for each other, as a value.

    Arguments:
        held: Raw samples of the current sub-task that have no label yet.
        behind: Samples of earlier sub-tasks, each replaced by a mean of the model's.
        due: Samples whose wait is over, to be learned once a suspected change is decided about.
        early: Labels whose sample has yet to come, oldest first.
        done: Ids dealt with, oldest first.
        suspect_since: Samples of the stream before a change that is suspected now, if one is.

    Example:
        >>> rows = Rows((7,), (0,), (-1,), torch.zeros(1, 2))
        >>> awaiting = AwaitingSamples().joined(rows)
        >>> awaiting, match = awaiting.matched([(7, "a"), (8, "b")], 1, limit=9)
        >>> match.rows.ids, match.labels, match.kept, awaiting.early[0].id
        ((7,), ('a',), 1, 8)
    """

    held: tuple[Rows, ...] = ()
    behind: tuple[Rows, ...] = ()
    due: tuple[Batch, ...] = ()
    early: tuple[EarlyLabel, ...] = ()
    done: tuple[Done, ...] = ()
    suspect_since: int | None = None

    @property
    def samples(self) -> int:
        """Raw samples that await their label."""
        return sum(map(len, self.held))

    @property
    def raw_samples(self) -> int:
        """Raw samples held: those that await their label, and those that are due."""
        return self.samples + sum(map(len, self.due))

    @property
    def oldest(self) -> int | None:
        """Place in the stream of the first that awaits its label, if any does."""
        return min((part.arrived[0] for part in (*self.held, *self.behind)), default=None)

    @property
    def suspects(self) -> int:
        """Samples held that belong to a suspected change."""
        since = self.suspect_since
        if since is None:
            return 0
        return sum(place >= since for rows in self.held for place in rows.arrived)

    # Samples ------------------------------------------------------------------------------

    def since(self, place: int) -> tuple[Batch, ...]:
        """The raw samples held that arrived at a place in the stream or after it, unlabelled."""
        _, rows = _parted(self.held, lambda part, row: part.arrived[row] >= place)
        return (Batch(rows.features),) if len(rows) else ()

    def suspecting(self, since: int) -> AwaitingSamples:
        """While a change is suspected, since a place in the stream or an earlier one."""
        return self if self.suspect_since is not None else replace(self, suspect_since=since)

    def awaiting_ids(self) -> set[SampleId]:
        """Names of all samples that await their label."""
        return {id for rows in (*self.held, *self.behind) for id in rows.ids}

    def joined(self, rows: Rows) -> AwaitingSamples:
        """Add more samples, whose ids none of those here has."""
        if not len(rows):
            return self
        held = self.held
        if held and len(held[-1]) + len(rows) <= CHUNK:
            held, rows = held[:-1], Rows.joined([held[-1], rows])
        return replace(self, held=(*held, rows))._without_done(rows.ids)

    def claimed(
        self, ids: Sequence[SampleId | None], labelled: Sequence[bool], limit: int
    ) -> tuple[AwaitingSamples, dict[int, Label], int]:
        """Let arriving samples take the labels that came before them.

        Arguments:
            ids: Of the samples, None for those without.
            labelled: Which of them carry a label of their own, which counts.
            limit: Most ids remembered.

        Returns:
            The rest, the labels found by row, and how many were not needed.
        """
        early = {one.id: one.label for one in self.early}
        awaiting_ids = self.awaiting_ids()
        found: dict[int, Label] = {}
        finished: list[SampleId] = []
        duplicates = 0
        for row, (id, has_label) in enumerate(zip(ids, labelled, strict=True)):
            if id is None or id in awaiting_ids:
                continue
            label = early.pop(id, None)
            if label is not None and has_label:
                duplicates += 1
            elif label is not None:
                found[row] = label
            if has_label or label is not None:
                finished.append(id)
        if not finished:
            return self, {}, 0
        rest = tuple(one for one in self.early if one.id in early)
        return replace(self, early=rest)._finished(finished, True, limit), found, duplicates

    def released(self, before: int, limit: int) -> tuple[AwaitingSamples, Rows]:
        """Part with the held samples that arrived before a place: their wait is over."""
        if not any(part.arrived[0] < before for part in self.held):
            return self, Rows.joined([])
        held, rows = _parted(self.held, lambda part, row: part.arrived[row] < before)
        return replace(self, held=held)._finished(rows.ids, False, limit), rows

    def crossing(self, first: int) -> tuple[AwaitingSamples, Rows]:
        """Part with the held samples of a sub-task that ends before a place in the stream.

        Their ids are not done with: see `left_behind`.
        """
        held, rows = _parted(self.held, lambda part, row: part.arrived[row] < first)
        return replace(self, held=held, due=(), suspect_since=None), rows

    def left_behind(self, rows: Rows, surrogates: Tensor | None, limit: int) -> AwaitingSamples:
        """Keep samples of a sub-task that has ended as means of the model's, with shape (N, D).

        None where the model has nothing that a later label could fall on: then it comes too late.
        """
        if not len(rows):
            return self
        if surrogates is None:
            return self._finished(rows.ids, False, limit)
        return replace(self, behind=(*self.behind, replace(rows, features=surrogates)))

    def expired(self, before: int, limit: int) -> tuple[AwaitingSamples, int]:
        """Forget samples left behind and early labels from before a place in the stream.

        Returns:
            The rest, and how many labels never met their sample.
        """
        gone = self.without_behind(before, limit)
        early = tuple(one for one in self.early if one.at >= before)
        return replace(gone, early=early), len(self.early) - len(early)

    def without_behind(self, before: int, limit: int) -> AwaitingSamples:
        """Drop samples left behind that arrived before a place in the stream."""
        if not any(rows.arrived[0] < before for rows in self.behind):
            return self
        behind, rows = _parted(self.behind, lambda part, row: part.arrived[row] < before)
        return replace(self, behind=behind)._finished(rows.ids, False, limit)

    def surplus(self, limit: int) -> int:
        """Place in the stream before which samples must go, so that at most `limit` stay; or 0."""
        most = self.samples - limit
        if most <= 0:
            return 0
        places = [place for rows in self.held for place in rows.arrived]
        return places[most - 1] + 1

    def trimmed(self, limit: int) -> AwaitingSamples:
        """Keep at most `limit` samples left behind, the newest."""
        most = sum(map(len, self.behind)) - limit
        if most <= 0:
            return self
        places = [place for rows in self.behind for place in rows.arrived]
        return self.without_behind(places[most - 1] + 1, limit)

    def forgotten(self, limit: int) -> AwaitingSamples:
        """Drop every sample; labels that still come for them come too late."""
        ids = [id for rows in (*self.behind, *self.held) for id in rows.ids]
        nothing = AwaitingSamples(early=self.early, done=self.done)
        return nothing._finished(ids, False, limit)

    # Labels -------------------------------------------------------------------------------

    def matched(
        self, labels: Iterable[tuple[SampleId, Label]], at: int, limit: int
    ) -> tuple[AwaitingSamples, Match]:
        """Match labels, in whatever order they come, with the samples that await theirs.

        Arguments:
            labels: Names of samples, with the label of each.
            at: Samples of the stream before them.
            limit: Most labels kept for samples that have yet to come, the newest; and most
                ids remembered.
        """
        awaiting_ids = self.awaiting_ids()
        done = {one.id: one.matched for one in self.done}
        early = {one.id: one for one in self.early}
        wanted: dict[SampleId, Label] = {}
        unmatched = dict.fromkeys(REASONS, 0)
        before = len(early)
        for id, label in labels:
            if id in wanted or id in early:
                unmatched[DUPLICATE] += 1
            elif id in awaiting_ids:
                wanted[id] = label
            elif id in done:
                unmatched[DUPLICATE if done[id] else LATE] += 1
            else:
                early[id] = EarlyLabel(id, label, at)
        kept = len(early) - before
        newest = tuple(early.values())[-limit:]
        unmatched[UNKNOWN] += len(early) - len(newest)

        held, rows = _parted(self.held, lambda part, row: part.ids[row] in wanted)
        rest, behind = _parted(self.behind, lambda part, row: part.ids[row] in wanted)
        awaiting = replace(self, held=held, behind=rest, early=newest)
        match = Match(
            rows,
            tuple(wanted[id] for id in rows.ids),
            behind,
            tuple(wanted[id] for id in behind.ids),
            kept,
            unmatched,
        )
        return awaiting._finished(tuple(wanted), True, limit), match

    # Machinery ----------------------------------------------------------------------------

    def _finished(self, ids: Sequence[SampleId], matched: bool, limit: int) -> AwaitingSamples:
        if not ids:
            return self
        fresh = set(ids)
        rest = (one for one in self.done if one.id not in fresh)
        done = (*rest, *(Done(id, matched) for id in ids))
        return replace(self, done=done[-limit:])

    def _without_done(self, ids: Sequence[SampleId]) -> AwaitingSamples:
        again = set(ids).intersection(one.id for one in self.done)
        if not again:
            return self
        return replace(self, done=tuple(one for one in self.done if one.id not in again))


def _parted(
    chunks: tuple[Rows, ...], goes: Callable[[Rows, int], bool]
) -> tuple[tuple[Rows, ...], Rows]:
    """Chunks without some of their rows, and those rows."""
    stay: list[Rows] = []
    gone: list[Rows] = []
    for part in chunks:
        leaving = [row for row in range(len(part)) if goes(part, row)]
        if not leaving:
            stay.append(part)
            continue
        gone.append(part.select(leaving))
        left = set(leaving)
        if len(left) < len(part):
            stay.append(part.select([row for row in range(len(part)) if row not in left]))
    return tuple(stay), Rows.joined(gone)
