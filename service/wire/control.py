"""Entries that ask for something other than learning a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import orjson

from service.wire.fields import ControlKind, begin, checksum
from service.wire.labels import Label


@dataclass(frozen=True)
class Upload:
    """An uploaded checkpoint, which lies beside the stream in pieces.

    Arguments:
        id: Names the pieces.
        pieces: How many there are.
        size: Bytes of all of them.
        sha256: Digest of all of them, in hexadecimal.
    """

    id: str
    pieces: int
    size: int
    sha256: str


@dataclass(frozen=True)
class Control:
    """An entry that asks for something other than learning a batch.

    Arguments:
        kind: `boundary` (declared by hand), `settle` (the stream is quiet), `join` (small
            batches before it are learned as one), `aim` (at a run
            time of `samples` between false alarms, or 0: as set), `mode` (what becomes of
            batches from now on), `settings` (in force from now on), `rename` (a class), `merge`
            (two classes become one), `expire` (the wait for labels of samples before `samples` is
            over), `check` (whether the gate lets the model pass), `release` (what the gate holds
            back), `rollback` (to `version`) or `restore` (from `checkpoint`, or from `upload`).
        version: The kept model version to go back to.
        checkpoint: A checkpoint's bytes.
        upload: Where they are otherwise.
        samples: Of `aim`, at least 2, or 0; of `expire`, those of the stream before a place in it.
        mode: `learn`, `detect_only` or `frozen`.
        settings: Values by name; None: what the settings say.
        labels: Of `rename`: the class's label, and that from now on; of `merge`: that of the class
            that is no more, and that of the other.
        by: Who asks, if a person does.
        note: What the person says about it.

    Example:
        >>> from service.wire import read_entry
        >>> read_entry(Control("rollback", version=7).to_entry())
        Control(kind='rollback', version=7)
    """

    kind: ControlKind
    version: int | None = None
    checkpoint: bytes | None = field(default=None, repr=False)
    samples: int | None = field(default=None, repr=False)
    upload: Upload | None = field(default=None, repr=False)
    mode: str | None = field(default=None, repr=False)
    settings: Mapping[str, float | int | None] | None = field(default=None, repr=False)
    labels: tuple[Label, Label] | None = field(default=None, repr=False)
    by: str | None = field(default=None, repr=False)
    note: str | None = field(default=None, repr=False)

    def to_entry(self) -> dict[str, bytes | memoryview]:
        """The fields of a stream entry."""
        entry = begin(self.kind)
        if self.version is not None:
            entry["version"] = b"%d" % self.version
        if self.samples is not None:
            entry["samples"] = b"%d" % self.samples
        for name, text in (("mode", self.mode), ("by", self.by), ("note", self.note)):
            if text is not None:
                entry[name] = text.encode()
        if self.settings is not None:
            entry["settings"] = orjson.dumps(dict(self.settings))
        if self.labels is not None:
            entry["labels"] = orjson.dumps(self.labels)
        if self.checkpoint is not None:
            entry["x"] = self.checkpoint
            entry["crc"] = checksum(self.checkpoint)
        if self.upload is not None:
            entry["upload"] = self.upload.id.encode()
            entry["pieces"] = b"%d" % self.upload.pieces
            entry["bytes"] = b"%d" % self.upload.size
            entry["sha256"] = self.upload.sha256.encode()
        return entry
