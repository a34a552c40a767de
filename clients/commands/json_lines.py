"""JSON on standard output, for machines: one document, one line."""

from __future__ import annotations

from typing import Any

import orjson
import typer


def print_json(document: Any) -> None:
    """Print a document on a line of its own; numbers that are none become null."""
    options = orjson.OPT_SERIALIZE_NUMPY
    typer.echo(orjson.dumps(document, option=options).decode())
