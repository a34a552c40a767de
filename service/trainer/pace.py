"""How often a writer looks after what is not learning."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from service.trainer.budget import Budget

NEVER: Final = -math.inf
"""When something happened that has not happened yet, by the monotonic clock."""


@dataclass(frozen=True)
class Pace:
    """How often a writer looks after what is not learning.

    Arguments:
        house_s: Seconds between two rounds of reporting, publishing and keeping, at least.
        status_s: Seconds after which the status is sent again although nothing came.
        metrics_s: Seconds between two texts of metrics, at least.
        asks: Whether it asks Redis itself what readers want; else it is told (`ring`).
        house: What rounds of all models may take together; None where there is one model.
        checkpoints: The same of writing them down.
    """

    house_s: float
    status_s: float
    metrics_s: float = 0.0
    asks: bool = True
    house: Budget | None = None
    checkpoints: Budget | None = None


ALONE: Final = Pace(0.1, 3.0)
AMONG_MANY: Final = Pace(0.5, 10.0, 5.0, asks=False)
