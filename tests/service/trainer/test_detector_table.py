"""Tests for the table of shadows beside the detector that decides."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from core.events import BoundaryDetected, ModelRestored, ShadowAlarm
from service.trainer import detector_table
from service.trainer.totals import Totals


def alarm(batch: int, detector: str = "paper") -> ShadowAlarm:
    return ShadowAlarm(detector, batch, 100 * batch, 3.0, 2.0)


def boundary(start: int, batch: int, detector: str = "sequential") -> BoundaryDetected:
    values: dict[str, Any] = dict.fromkeys(field.name for field in fields(BoundaryDetected))
    values |= {"detector": detector, "batch_index": batch, "sample_index": 100 * batch}
    values |= {"estimated_start_batch": start, "estimated_start_sample": 100 * start + 20}
    values |= {"set_aside_batches": 0, "set_aside_samples": 0}
    return BoundaryDetected(**values)


def row(totals: Totals, name: str) -> dict[str, Any]:
    rows = detector_table.told(totals.detectors, totals.latest)
    return next(one for one in rows if one["detector"] == name)


def counted(*events: Any, shadows: tuple[str, ...] = ("paper", "adwin")) -> Totals:
    totals = Totals(detectors=detector_table.begun({}, "sequential", shadows))
    for event in events:
        totals.count(event)
    return totals


def test_alarms_match_the_boundaries_that_they_came_in_time_for() -> None:
    totals = counted(
        alarm(4),  # of nothing
        alarm(10),
        alarm(11),  # once more of the same
        boundary(10, 12),
        alarm(13),  # of what is over: shadows have started anew
        boundary(20, 21),
        alarm(30),
        boundary(30, 30),  # in the very batch
        alarm(40, "another"),
    )
    assert row(totals, "paper") | {"ratio": None} == {
        "detector": "paper",
        "decides": False,
        "boundaries": 3,
        "alarms": 5,
        "matched": 2,
        "missed": 1,
        "extra": 3,
        "delay_samples_median": 0.0,
        "ratio": None,
    }
    assert (row(totals, "adwin")["missed"], row(totals, "adwin")["delay_samples_median"]) == (
        3,
        None,
    )
    own = row(totals, "sequential")
    assert (own["decides"], own["alarms"], own["matched"], own["extra"]) == (True, 3, 3, 0)
    assert own["delay_samples_median"] == 80.0


def test_declared_boundaries_and_rollbacks_let_alarms_pass_unmatched() -> None:
    totals = counted(alarm(5), boundary(5, 6, "declared"), boundary(5, 7))
    assert row(totals, "paper")["matched"] == 0
    assert row(totals, "paper")["boundaries"] == 1
    totals = counted(alarm(5), ModelRestored(1, 2, "rollback"), boundary(5, 7))
    assert row(totals, "paper")["matched"] == 0


def test_the_table_survives_a_checkpoint_and_has_the_detectors_that_run() -> None:
    totals = counted(alarm(10), boundary(10, 12), alarm(20))
    again = Totals.from_json(totals.to_json())
    assert again.detectors == totals.detectors
    again.count(boundary(20, 21))
    assert row(again, "paper")["matched"] == 2
    other = detector_table.begun(again.detectors, "paper", ["kswin"])
    assert list(other) == ["paper", "kswin"]
    assert other["kswin"]["boundaries"] == 0


def test_memory_is_bounded_and_the_ratio_is_of_the_newest_batch() -> None:
    events = [alarm(batch) for batch in range(300)]
    totals = counted(*events, *(boundary(400 + n, 400 + n) for n in range(300)))
    assert max(len(one["open"]) for one in totals.detectors.values()) <= detector_table.OPEN
    assert len(totals.detectors["sequential"]["delays"]) == detector_table.DELAYS
    totals.latest = {
        "statistic": 1.0,
        "threshold": 4.0,
        "statistics": {"paper": 3.0, "adwin": 1.0},
        "thresholds": {"paper": 2.0, "adwin": 0.0},
    }
    ratios = [row(totals, name)["ratio"] for name in ("sequential", "paper", "adwin")]
    assert ratios == [0.25, 1.5, None]
