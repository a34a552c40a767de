"""Tests for the service.webhook.envelope module."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from cloudevents.core.bindings.http import HTTPMessage, from_structured_event

from service.webhook.envelope import CONTENT_TYPE, MOST_BYTES, cloud_event

RECORD = {"kind": "boundary", "time": 1700000000.25, "entry_id": "17-0", "boundary": 1}


def test_an_event_is_a_cloud_event_that_the_library_reads_back() -> None:
    body = cloud_event("my.model", "17-20000", RECORD)
    event = from_structured_event(HTTPMessage({"content-type": CONTENT_TYPE}, body))
    assert event.get_id() == "17-20000"
    assert event.get_source() == "/gmr/models/my.model"
    assert event.get_type() == "gmr.boundary"
    assert event.get_time() == datetime.fromtimestamp(1700000000.25, UTC)
    assert event.get_data() == RECORD
    assert json.loads(body)["specversion"] == "1.0"


def test_a_record_that_is_too_large_is_told_in_short() -> None:
    body = cloud_event("m", "17-0", {**RECORD, "explanation": {"words": "x" * MOST_BYTES}})
    assert len(body) <= MOST_BYTES
    assert json.loads(body)["data"] == {**RECORD, "shortened": True}
