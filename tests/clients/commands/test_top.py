"""Tests for clients.commands.top: what the reading of a moment shows."""

from __future__ import annotations

from typing import Any

import pytest

from clients.commands.top import Watch, line

DOCUMENT: dict[str, Any] = {
    "ready": True,
    "model_version": 3,
    "sub_task": 1,
    "armed_in": 0,
    "set_aside": 0,
    "backlog": 0,
    "inlier_rate": 0.9,
    "accuracy": None,
    "statistic": 9.0,
    "threshold": 8.0,
}


@pytest.mark.parametrize(
    ("phase", "mode", "evidence"),
    [
        ("armed", "learn", "9.0 of 8.0"),
        ("warning", "learn", "9.0 of 8.0"),
        ("armed", "detect_only", "9.0 of 8.0"),
        ("learning", "learn", "-"),  # what the alarm said is of the sub-task before
        ("armed", "frozen", "-"),
    ],
)
def test_evidence_is_shown_while_the_detector_compares(
    phase: str, mode: str, evidence: str
) -> None:
    watch = Watch()
    watch.document = {**DOCUMENT, "phase": phase, "mode": mode}
    assert f"evidence {evidence}  accuracy" in line(watch)
