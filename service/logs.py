"""How the service's processes write their log: lines for people, or JSON for collectors."""

from __future__ import annotations

import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final

import orjson

from service.settings import Settings

TEXT = "%(asctime)s %(levelname)-7s {process}: %(message)s"


HTTP: Final = ("httpx2", "httpcore2")
"""Loggers that write addresses of requests, which may hold passwords and tokens."""

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Of the request that is being answered; records of its log bear it."""


class JsonFormatter(logging.Formatter):
    """One JSON object per record, on one line."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON, traceback included."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (request_id := REQUEST_ID.get()) is not None:
            line["request_id"] = request_id
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


ONE_LINE: Final = {
    code: repr(chr(code))[1:-1] for code in (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)
}
"""What would end a line, or tell a terminal something, as Python writes it: what people say stands
in some records, such as the note with a change of the mode."""


class TextFormatter(logging.Formatter):
    """One line for people, with the id of the request that it belongs to."""

    def __init__(self, process: str) -> None:
        super().__init__(TEXT.format(process=process), "%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The first line of a record."""
        request_id = REQUEST_ID.get()
        line = super().formatMessage(record).translate(ONE_LINE)
        return line if request_id is None else f"{line} [{request_id}]"


def configure_logs(settings: Settings, process: str) -> None:
    """Send every log record of this process to standard error.

    Arguments:
        settings: Level and format.
        process: Named in each line: `serve`, `trainer` or `api`.
    """
    handler = logging.StreamHandler(sys.stderr)
    if settings.log_format == "json":
        handler.setFormatter(JsonFormatter(process))
    else:
        handler.setFormatter(TextFormatter(process))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
    least = max(logging.WARNING, logging.getLogger().level)
    for name in HTTP:
        logging.getLogger(name).setLevel(least)
