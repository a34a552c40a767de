"""Tests for the service.logs module."""

from __future__ import annotations

import json
import logging

from service.logs import JsonFormatter, TextFormatter


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


def test_what_people_say_ends_no_line() -> None:
    said = "worn\n00:00:00 INFO    trainer: all is well\x1b[2J\u2028\x85\t"
    record = logging.LogRecord("x", logging.INFO, "", 1, "mode frozen: %s", (said,), None)
    line = TextFormatter("trainer").format(record)
    assert len(line.splitlines()) == 1
    told = r"mode frozen: worn\n00:00:00 INFO    trainer: all is well\x1b[2J\u2028\x85\t"
    assert line.endswith(told)
