"""Where a model stands: its state, how far into the stream that reaches, and how it came about."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.engine.state import EngineState
from core.events import EntriesLost
from service.broker.branch import Branch
from service.broker.entries import Entry, Position
from service.trainer.gate import Gate
from service.trainer.ledger import Ledger
from service.trainer.releases import Samples
from service.trainer.saver import Checkpoint
from service.trainer.totals import Totals


@dataclass(frozen=True)
class Standing:
    """Where a model stands. A value: each entry makes another one.

    Arguments:
        state: The engine's.
        position: Entries of the input stream that it contains.
        branch: Which of those entries the state does not come from.
        ledger: What became of its samples.
        gate: Whether what it has learned is served; None without a gate.
    """

    state: EngineState
    position: Position
    branch: Branch
    ledger: Ledger
    gate: Gate | None = None

    @classmethod
    def recovered(cls, checkpoint: Checkpoint) -> Standing:
        """Where a checkpoint was written."""
        state, position = checkpoint.state, checkpoint.position
        ledger = checkpoint.ledger or Ledger.begun(state, position)
        return cls(state, position, checkpoint.branch, ledger, checkpoint.gate)

    @classmethod
    def begun(cls, state: EngineState) -> Standing:
        """Before the first entry."""
        return cls(state, Position(), Branch(), Ledger.begun(state, Position()))

    def after(self, entries: Sequence[Entry]) -> Standing:
        """Behind the next entries, which have been dealt with."""
        position = Position(entries[-1].id, self.position.entries_applied + len(entries))
        return replace(self, position=position)

    def without(self, gap: EntriesLost, released: Samples | None) -> Standing:
        """The same, that goes on behind entries that are lost.

        Arguments:
            gap: These.
            released: Since which entry samples are counted, and how many came up to the last one
                that was released; None where that is not known.
        """
        known = released is not None and released[0] == self.ledger.since
        ledger = self.ledger.went_missing(gap, released[1] if released and known else None)
        branch = self.branch.lost(gap.first_entry_id, gap.last_entry_id)
        return replace(self, branch=branch, ledger=ledger)

    def pruned(self, ledger_length: int) -> Standing:
        """The same, whose ledger knows the fate of so many entries at most."""
        return replace(self, ledger=self.ledger.pruned(self.state, ledger_length))

    def to_checkpoint(self, totals: Totals, ledger_length: int) -> Checkpoint:
        """What a checkpoint holds.

        Arguments:
            totals: What was counted so far.
            ledger_length: Entries of which the ledger knows the fate, at most.
        """
        state, totals = self.state, copy.deepcopy(totals)
        ledger = self.ledger.pruned(state, ledger_length)
        open_from = None
        if state.pending.set_aside:
            place = state.stream.batch_place(state.stream.batches - len(state.pending.set_aside))
            # Where more has passed by since than is remembered, the ledger still knows.
            open_from = totals.entry_of(place) or ledger.first_set_aside(state)
        return Checkpoint(state, self.position, totals, self.branch, open_from, ledger, self.gate)
