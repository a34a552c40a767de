"""Runs many cells, one after the other, and keeps each as it ends.

Rules: what is kept already is not measured again; an interruption loses the cell that
was running and nothing else; a cell that fails is reported and left out, so that a long
run is worth something even where one system breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from benchmarks.comparison import cell as cells
from benchmarks.comparison.cell import Cell, Listener, Maker, Outcome
from benchmarks.comparison.store import Store
from clients.data.datasets import Dataset


class ProgressListener(Listener, Protocol):
    """Is told how far a campaign has come."""

    def began(self, cell: Cell, samples: int) -> None:
        """A cell is measured now; so many samples will be learned."""
        ...

    def ended(self, cell: Cell, outcome: Outcome, *, kept: bool) -> None:
        """A cell is done; `kept`: it had been measured before."""
        ...

    def failed(self, cell: Cell, error: Exception) -> None:
        """A cell could not be measured."""
        ...


@dataclass
class Campaign:
    """Cells, and what became of them.

    Attributes:
        wanted: Cells, in the order in which they are measured.
        outcomes: Of those that are done.
        failures: Why others could not be measured.
    """

    wanted: Sequence[Cell]
    outcomes: dict[Cell, Outcome] = field(default_factory=dict)
    failures: dict[Cell, str] = field(default_factory=dict)

    def run(
        self,
        store: Store,
        load: Callable[[str], Dataset],
        make: Maker,
        listener: ProgressListener,
        *,
        quick: bool,
    ) -> None:
        """Measure every cell that is not in the store.

        Arguments:
            load: Name of a data set -> the data set.
            make: The systems.
            quick: What the systems are told: small sizes, few epochs.
        """
        for cell in self.wanted:
            try:
                dataset = load(cell.data)
                system = cells.make_fresh(cell, dataset, make, quick)
                configuration = cells.configuration_of(cell, system, dataset, quick)
                known = store.read(cell.path, configuration)
                if known is None:
                    rows = len(cell.slt.rows(dataset.train_y))
                    listener.began(cell, rows * configuration["repeats"])
                    outcome = cells.measure(cell, system, dataset, quick, listener)
                    store.write(cell.path, outcome.to_dict())
                else:
                    outcome = Outcome.from_dict(known)
            except Exception as error:  # of whatever system: the others go on
                self.failures[cell] = f"{type(error).__name__}: {error}"
                listener.failed(cell, error)
                continue
            self.outcomes[cell] = outcome
            listener.ended(cell, outcome, kept=known is not None)
