"""The fields of an entry of the input stream, so that any program may add one.

docs/redis.md says the same for those who do, with a producer.

| field | content |
|---|---|
| `v` | `1`, the version of this table |
| `kind` | `batch`, `labels`, `name`, `boundary`, `settle`, `join`, `aim`, `expire`, `mode`, |
|  | `settings`, `rename`, `merge`, `check`, `release`, `rollback` or `restore` |
| `x` | batch: features, row by row, as raw bytes; restore: a checkpoint, if it is no upload |
| `upload`, `pieces` | restore: id of an uploaded checkpoint, and how many pieces it lies in; |
| `bytes`, `sha256` | and how large it is, with its digest |
| `dtype` | batch: `f4`, `f2` or `u1` |
| `shape` | batch: `N,D`, or of images `N,H,W` or `N,H,W,C` |
| `y` | batch, optional: N codes, int64 |
| `labels` | batch, with `y`: JSON list of the labels that the codes index; labels: JSON list |
|  | of labels; name: JSON list with the one label, or null; rename: JSON list of the |
|  | class's label and of that from now on; merge: likewise, of the other class |
| `ids` | batch, optional: JSON list of N sample ids or nulls; labels: of the samples meant |
| `proposal` | name: number of a proposed class |
| `id` | optional: batch id |
| `crc` | optional: crc32 over `x`, `y`, `labels`, `ids` (batch), `ids`, `labels` (labels) or |
|  | `proposal`, `labels` (name), in decimal |
| `t` | optional: when it was sent, Unix milliseconds |
| `version` | rollback: the model version to go back to |
| `samples` | expire: those before which the wait for labels is over; aim: the run time, 0 for |
|  | that of the settings |
| `mode` | mode: `learn`, `detect_only` or `frozen` |
| `settings` | settings: JSON object, values by name; null: what the settings say |
| `by` | batch, optional: name of the key that sent it; others: who asks; aim: a person, whom no |
|  | setting overrules |
| `note` | mode, settings, rename, merge, boundary, release, optional: why |
| `requeued_from` | optional: the entry that this one repeats, a dead letter sent again |
"""

from __future__ import annotations

import hashlib
import time
import zlib
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

from core.errors import InvalidBatch

Fields = Mapping[bytes, Any] | Mapping[str, Any]
"""An entry as Redis returns it, or as it was made."""

VERSION: Final = b"1"
REQUEUED_FROM: Final = "requeued_from"
MOST_BY: Final = 100
"""Characters of the name of who sends or asks, at most."""

ControlKind = Literal[
    "boundary",
    "settle",
    "join",
    "aim",
    "expire",
    "mode",
    "settings",
    "rename",
    "merge",
    "check",
    "release",
    "rollback",
    "restore",
]
Kind = Literal["batch", "labels", "name"] | ControlKind
CONTROL_KINDS: Final[tuple[ControlKind, ...]] = get_args(ControlKind)
_OF_ALL: Final = frozenset({"v", "kind", "t", REQUEUED_FROM})
_OF_CONTROLS: Final = frozenset(
    {
        "x",
        "crc",
        "upload",
        "pieces",
        "bytes",
        "sha256",
        "version",
        "samples",
        "mode",
        "settings",
        "labels",
        "by",
        "note",
    }
)
KNOWN: Final[Mapping[str, frozenset[str]]] = {
    "batch": _OF_ALL | {"x", "dtype", "shape", "y", "labels", "ids", "id", "crc", "by"},
    "labels": _OF_ALL | {"ids", "labels", "id", "crc"},
    "name": _OF_ALL | {"proposal", "labels", "id", "crc"},
    **dict.fromkeys(CONTROL_KINDS, _OF_ALL | _OF_CONTROLS),
}
"""Fields that an entry of a kind may have; of the others, those that any of them may have."""


def begin(kind: Kind) -> dict[str, bytes | memoryview]:
    """The fields that every entry has, sent now."""
    sent = time.time_ns() // 1_000_000
    return {"v": VERSION, "kind": kind.encode(), "t": b"%d" % sent}


_NOT_CONTENT: Final = frozenset({"v", "t", "id", "crc", "by", REQUEUED_FROM})


def identity(fields: Mapping[str, bytes | memoryview]) -> bytes:
    """What tells content from any other: a digest of 128 bits of kind, types, shapes and bytes.

    Example:
        >>> identity({"kind": b"batch", "x": b"12", "shape": b"1,2"}) == identity(
        ...     {"kind": b"batch", "x": b"12", "shape": b"2,1"}
        ... )
        False
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(fields.keys() - _NOT_CONTENT):
        value = fields[name]
        size = value.nbytes if isinstance(value, memoryview) else len(value)
        digest.update(f"{name} {size} ".encode())
        digest.update(value)
    return digest.hexdigest().encode()


def by_name(entry: Fields) -> dict[str, bytes]:
    """The fields under their names as text, in which every later step wants them."""
    return {
        key.decode("ascii", "replace") if isinstance(key, bytes) else key: value
        for key, value in entry.items()
    }


def check_version(fields: Mapping[str, bytes]) -> None:
    """Raise `InvalidBatch` for an entry of another format than ours."""
    if fields.get("v") != VERSION:
        raise InvalidBatch(
            f"The entry's field v is {_shown(fields.get('v'))}; expected 1, the only version of "
            f"the entry format there is. See docs/redis.md for the fields of an entry."
        )


def kind_of(fields: Mapping[str, bytes]) -> Kind:
    """What the entry asks for."""
    kind = fields.get("kind", b"").decode("ascii", "replace")
    if kind in ("batch", "labels", "name") or kind in CONTROL_KINDS:
        return kind  # type: ignore[return-value]  # just checked
    raise InvalidBatch(
        f"The entry's kind is {kind[:40]!r}; expected batch, labels, name, "
        f"{', '.join(CONTROL_KINDS)}."
    )


def shape_of(fields: Mapping[str, bytes]) -> tuple[int, ...]:
    """N and D, or N, H, W and perhaps C of images; not compared with anything yet."""
    text = bytes(fields.get("shape", b""))
    sides = text.split(b",")
    if len(sides) not in (2, 3, 4):
        raise InvalidBatch(
            f"The entry's shape is {_shown(text)}; expected `N,D`, like 100,784, or of images "
            f"`N,H,W`, like 100,28,28, or `N,H,W,C`."
        )
    return tuple(_number(side, "shape") for side in sides)


def number_of(fields: Mapping[str, bytes], name: str) -> int:
    """A field that holds a whole number."""
    return _number(fields.get(name, b""), name)


def text_of(fields: Mapping[str, bytes], name: str) -> str | None:
    """A field that holds text; None where there is no such field."""
    if name not in fields:
        return None
    try:
        return fields[name].decode()
    except UnicodeDecodeError:
        raise InvalidBatch(f"The entry's field {name} is no UTF-8 text.") from None


def checksum(*parts: bytes | memoryview) -> bytes:
    """What belongs into the field `crc` of an entry with these parts."""
    return b"%d" % _crc(parts)


def check_checksum(fields: Mapping[str, bytes], *parts: bytes | memoryview) -> None:
    """Raise `InvalidBatch` where there is a field `crc` that its parts do not give."""
    if "crc" not in fields:
        return
    crc = _crc(parts)
    if number_of(fields, "crc") != crc:
        raise InvalidBatch(
            f"The entry's checksum is {_shown(fields['crc'])}, but its bytes give {crc}: it was "
            f"damaged, or written by a program that computes crc32 otherwise. Send it again.",
            crc=crc,
        )


def _crc(parts: tuple[bytes | memoryview, ...]) -> int:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


def _number(text: bytes, name: str) -> int:
    # bytes.isdigit accepts ASCII digits only, unlike str's; int() would accept "_" too.
    if not text.isdigit() or len(text) > 18:
        raise InvalidBatch(
            f"The entry's field {name} is {_shown(text)}; expected a whole number, not negative."
        )
    return int(text)


def _shown(value: bytes | None) -> str:
    return "missing" if value is None else repr(value[:40].decode("ascii", "replace"))
