"""Tests for the service.broker.entries module."""

from __future__ import annotations

from service.broker.entries import LAST_REPORT, report_id


def test_ids_of_reports_grow_with_the_entry_and_its_events() -> None:
    ids = [
        report_id("5-0", 0),
        report_id("5-0", 1),
        report_id("5-0", LAST_REPORT),
        report_id("5-1", 0),
        report_id("6-0", 0),
    ]
    assert ids == ["5-0", "5-1", "5-9999", "5-10000", "6-0"]
    assert report_id("5-0", 10**9) == report_id("5-0", LAST_REPORT)
