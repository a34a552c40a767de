"""Tests for the service.logs module."""

from __future__ import annotations

import json
import logging

from service.logs import JsonFormatter


def test_a_record_is_one_line_of_json_with_its_traceback() -> None:
    try:
        raise ValueError("no good")
    except ValueError as error:
        record = logging.LogRecord(
            "service.trainer", logging.ERROR, __file__, 1, "entry %s", ("5-0",), (
                type(error), error, error.__traceback__,
            ),
        )  # fmt: skip
    line = JsonFormatter("trainer").format(record)
    assert "\n" not in line
    written = json.loads(line)
    assert written["message"] == "entry 5-0"
    assert (written["level"], written["process"]) == ("error", "trainer")
    assert "ValueError: no good" in written["traceback"]
