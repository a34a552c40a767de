"""An event's record as a CloudEvent 1.0, in structured JSON.

`source` and `id` together name an event for ever: the id is that of the record, which comes
from the entry that caused it, so that an event that is told twice has the same one twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from cloudevents.core.bindings.http import to_structured_event
from cloudevents.core.v1.event import CloudEvent

CONTENT_TYPE: Final = "application/cloudevents+json"
MOST_BYTES: Final = 64 * 1024
"""Of a body; a record that makes a larger one is told in short."""

SHORT: Final = ("kind", "entry_id", "time", "boundary", "batch_index", "sample_index")
"""What is told of a record that is too large."""


def cloud_event(model: str, record_id: str, record: Mapping[str, Any]) -> bytes:
    """The body of a message, at most `MOST_BYTES` long.

    Arguments:
        model: Name of the model.
        record_id: Of the record in the event stream.
        record: With `kind` and `time` (Unix seconds).
    """
    body = _written(model, record_id, record)
    if len(body) > MOST_BYTES:
        short = {name: record[name] for name in SHORT if name in record}
        body = _written(model, record_id, {**short, "shortened": True})
    return body


def _written(model: str, record_id: str, record: Mapping[str, Any]) -> bytes:
    event = CloudEvent(
        {
            "id": record_id,
            "source": f"/gmr/models/{quote(model)}",
            "type": f"gmr.{record['kind']}",
            "time": datetime.fromtimestamp(record["time"], UTC),
            "datacontenttype": "application/json",
        },
        dict(record),
    )
    return to_structured_event(event).body
