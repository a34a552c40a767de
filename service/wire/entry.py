"""An entry of the input stream, read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import orjson

from core.errors import InvalidBatch
from service.wire.batch import RawBatch
from service.wire.control import Control, Upload
from service.wire.fields import (
    KNOWN,
    MOST_BY,
    ControlKind,
    Fields,
    by_name,
    check_checksum,
    check_version,
    kind_of,
    number_of,
    text_of,
)
from service.wire.labels import Label, encode_labels
from service.wire.later_labels import RawLabels, RawName
from service.wire.limits import NO_LIMITS, Limits
from service.wire.unknown import refuse_unknown

MAX_PIECES: Final = 1_000_000
MODES: Final = ("learn", "detect_only", "frozen")
MOST_SETTINGS: Final = 100
MOST_NOTE: Final = 2000
"""Characters of a note, at most."""


def read_entry(
    entry: Fields, limits: Limits = NO_LIMITS
) -> RawBatch | RawLabels | RawName | Control:
    """What an entry of the input stream asks for.

    Arguments:
        entry: Field name to bytes, as Redis returns it.
        limits: Refuse a larger batch, as the API would have done.

    Raises:
        InvalidBatch: The entry is not of our format, or is damaged.
    """
    fields = by_name(entry)
    check_version(fields)
    kind = kind_of(fields)
    refuse_unknown("field", fields, KNOWN[kind], f"entry ({kind})")
    if kind == "batch":
        return RawBatch.from_entry(fields, limits)
    if kind == "labels":
        return RawLabels.from_entry(fields, limits)
    if kind == "name":
        return RawName.from_entry(fields)
    if kind == "expire":
        return Control("expire", samples=number_of(fields, "samples"))
    if kind == "rollback":
        return Control("rollback", version=number_of(fields, "version"), by=_noted(fields)[0])
    if kind == "aim":
        return Control("aim", samples=number_of(fields, "samples"), by=_noted(fields)[0])
    if kind == "settings":
        by, note = _noted(fields)
        return Control("settings", settings=_settings(fields), by=by, note=note)
    if kind in ("rename", "merge"):
        by, note = _noted(fields)
        return Control(kind, labels=_two_labels(fields), by=by, note=note)
    if kind in ("mode", "boundary", "release"):
        return _said(kind, fields)
    if kind == "restore" and "upload" in fields:
        return Control("restore", upload=_upload(fields))
    if kind == "restore":
        checkpoint = fields.get("x", b"")
        check_checksum(fields, checkpoint)
        return Control("restore", checkpoint=checkpoint)
    return Control(kind)


def _noted(fields: Mapping[str, bytes]) -> tuple[str | None, str | None]:
    """Who asked for something, and the note with it."""
    by, note = text_of(fields, "by"), text_of(fields, "note")
    if len(by or "") > MOST_BY or len(note or "") > MOST_NOTE:
        raise InvalidBatch(
            f"The entry's note has {len(note or '')} characters, and its author {len(by or '')}; "
            f"expected at most {MOST_NOTE} and {MOST_BY}. Shorten them."
        )
    return by, note


def _said(kind: ControlKind, fields: Mapping[str, bytes]) -> Control:
    by, note = _noted(fields)
    if kind in ("boundary", "release"):
        return Control(kind, by=by, note=note)
    mode = text_of(fields, "mode")
    if mode not in MODES:
        raise InvalidBatch(
            f"The entry's mode is {(mode or '')[:40]!r}; expected one of {', '.join(MODES)}."
        )
    return Control(kind, mode=mode, by=by, note=note)


def _settings(fields: Mapping[str, bytes]) -> dict[str, float | int | None]:
    try:
        values = orjson.loads(fields.get("settings", b""))
    except orjson.JSONDecodeError:
        values = None
    numbers = (int, float, type(None))
    if (
        not isinstance(values, dict)
        or len(values) > MOST_SETTINGS
        or any(isinstance(one, bool) or not isinstance(one, numbers) for one in values.values())
    ):
        raise InvalidBatch(
            f"The entry's settings are {fields.get('settings', b'')[:80]!r}; expected a JSON "
            f"object of at most {MOST_SETTINGS} numbers or nulls by name."
        )
    return values


def _two_labels(fields: Mapping[str, bytes]) -> tuple[Label, Label]:
    try:
        labels = orjson.loads(fields.get("labels", b""))
    except orjson.JSONDecodeError:
        labels = None
    if not isinstance(labels, list) or len(labels) != 2 or None in labels:
        raise InvalidBatch(
            f"The entry's labels are {fields.get('labels', b'')[:80]!r}; expected a JSON list of "
            f"two: the label of the class, and the one from now on, or that of the other class."
        )
    encode_labels(labels, 2)
    return labels[0], labels[1]


def _upload(fields: Mapping[str, bytes]) -> Upload:
    upload = Upload(
        text_of(fields, "upload") or "",
        number_of(fields, "pieces"),
        number_of(fields, "bytes"),
        text_of(fields, "sha256") or "",
    )
    if not upload.id.isalnum() or upload.pieces > MAX_PIECES:
        raise InvalidBatch(
            f"The entry names no upload: its id is {upload.id[:40]!r}, of {upload.pieces} pieces. "
            f"Expected what PUT /model/checkpoint writes; send the checkpoint there."
        )
    return upload
