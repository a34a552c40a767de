"""How the service's processes write their log: lines for people, or JSON for collectors."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import orjson

from service.settings import Settings

TEXT = "%(asctime)s %(levelname)-7s {process}: %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object per record, on one line."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON, traceback included."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()


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
        handler.setFormatter(logging.Formatter(TEXT.format(process=process), "%H:%M:%S"))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
