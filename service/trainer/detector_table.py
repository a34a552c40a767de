"""Shadows compared with the detector that decides, as events tell it one after the other.

The truth here is what was decided: the boundaries that the deciding detector found, and the changes
that it told in mode detect_only. Boundaries that a person declared are left out: detectors may not
have seen a sample of what comes.

Rules of this module:

1. An alarm matches a boundary if it came between the boundary's estimated start and the boundary.
   Shadows start anew at a boundary, so that none can speak of it later.
2. One that matches none is extra; so is the second that matches the same.
3. Memory is bounded: a median is that of the newest `DELAYS`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from typing import Any, Final

from core.events import BoundaryDetected, ChangeDetected, Event, ModelRestored, ShadowAlarm

DELAYS: Final = 101
"""Delays that are remembered of each detector, the newest."""

OPEN: Final = 64
"""Alarms since the last boundary that are remembered of each shadow, the newest."""

DECLARED: Final = "declared"

Table = dict[str, dict[str, Any]]
"""By the name of the detector: `boundaries`, `alarms`, `matched`, `delays`, `open`. A checkpoint
carries it."""


def begun(table: Table, deciding: str, shadows: Iterable[str]) -> Table:
    """The table with a row for each detector that runs, the deciding one first, and no others."""
    return {name: table.get(name) or _row() for name in (deciding, *shadows)}


def add(table: Table, event: Event) -> None:
    """Let the table follow one event.

    Example:
        >>> table = begun({}, "sequential", ["paper"])
        >>> add(table, ShadowAlarm("paper", 7, 700, 3.0, 2.0))
        >>> table["paper"]["alarms"], table["paper"]["matched"]
        (1, 0)
    """
    match event:
        case ShadowAlarm() if event.detector in table:
            row = table[event.detector]
            row["alarms"] += 1
            row["open"] = [*row["open"], [event.batch_index, event.sample_index]][-OPEN:]
        case BoundaryDetected() | ChangeDetected() if event.detector != DECLARED:
            for name, row in table.items():
                row["boundaries"] += 1
                if name == event.detector:
                    row["alarms"] += 1
                    _match(row, event.sample_index, event)
                else:
                    start = event.estimated_start_batch
                    spoke = (sample for batch, sample in row["open"] if batch >= start)
                    first = next(spoke, None)
                    if first is not None:
                        _match(row, first, event)
                row["open"] = []
        case BoundaryDetected() | ModelRestored():  # detectors start anew
            for row in table.values():
                row["open"] = []


def told(table: Table, latest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """For GET /drift: the deciding detector first.

    Arguments:
        table: As events have made it.
        latest: `statistic`, `threshold`, `statistics` and `thresholds` of the newest batch.
    """
    rows = []
    for index, (name, row) in enumerate(table.items()):
        decides = index == 0
        if decides:
            statistic, threshold = latest.get("statistic"), latest.get("threshold")
        else:
            statistic = latest.get("statistics", {}).get(name)
            threshold = latest.get("thresholds", {}).get(name)
        rows.append(
            {
                "detector": name,
                "decides": decides,
                "boundaries": row["boundaries"],
                "alarms": row["alarms"],
                "matched": row["matched"],
                "missed": row["boundaries"] - row["matched"],
                "extra": row["alarms"] - row["matched"],
                "delay_samples_median": statistics.median(row["delays"]) if row["delays"] else None,
                "ratio": statistic / threshold if threshold and statistic is not None else None,
            }
        )
    return rows


def _row() -> dict[str, Any]:
    return {"boundaries": 0, "alarms": 0, "matched": 0, "delays": [], "open": []}


def _match(row: dict[str, Any], sample: int, event: BoundaryDetected | ChangeDetected) -> None:
    row["matched"] += 1
    delay = max(0, sample - event.estimated_start_sample)
    row["delays"] = [*row["delays"], delay][-DELAYS:]
