"""The plan of `gmr evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from clients.data.table_reading import AS_IT_IS, TableReading
from clients.http.errors import InputError


@dataclass(frozen=True)
class Plan:
    """The requested evaluation."""

    source: str
    slt: str = "D2-2-2-2-2a"
    batch_size: int = 100
    epochs: int = 1
    seeds: tuple[int, ...] = (0,)
    labelled: float = 1.0  # share of training samples sent with their label
    limit: int | None = None  # training samples per sub-task, at most
    tolerance_samples: int = 2000  # the longest delay at which a boundary counts as found
    url: str | None = None  # None: a private service for every seed
    allow_warm: bool = False  # use a service that has learned before
    reference: bool = False  # learn each sub-task by a fresh model, too, for forward transfer
    settings: Mapping[str, object] = field(default_factory=dict)  # of the private service
    reading: TableReading = AS_IT_IS  # of a table

    def check(self) -> None:
        """Raise `InputError` for what cannot be done."""
        if not 0 <= self.labelled <= 1:
            raise InputError(
                f"The labelled share is {self.labelled}; expected 0 to 1. "
                f"Use 1 for all labels, 0.1 for every tenth."
            )
        if self.url is not None and len(self.seeds) > 1:
            raise InputError(
                f"{len(self.seeds)} seeds need as many fresh models, but the service at {self.url} "
                f"has one. Leave --url out, so that each seed gets a private service."
            )
        if self.url is not None and self.settings:
            raise InputError(
                f"The service at {self.url} has its own settings, so {', '.join(self.settings)} "
                f"cannot be chosen here. Start it with them, or leave --url out."
            )
