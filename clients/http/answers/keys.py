"""Answers about keys, and about what administrators did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ApiKey:
    """A key by which somebody may ask, without its secret."""

    id: str  # by which it is revoked
    name: str  # whose it is
    roles: tuple[str, ...]  # of ingest, read, admin
    made: float  # Unix seconds
    models: tuple[str, ...] | None = field(default=None, kw_only=True)  # it counts for; None: all


@dataclass(frozen=True)
class NewApiKey(ApiKey):
    """A key just made; the service shows it this once."""

    key: str = field(repr=False)


@dataclass(frozen=True)
class KeyShare:
    """What the keys of one name sent of the newest samples that were given to the model."""

    name: str | None  # None: what came without a key; "other" in `KeyShares.other`
    samples: int
    share: float | None  # of all samples of the window, 0 to 1
    outliers: int  # of its samples, as they were scored before they were learned
    outlier_share: float | None  # of all outliers, 0 to 1; None where there is none


@dataclass(frozen=True)
class KeyShares:
    """Shares of keys in the newest samples that were given to the model."""

    samples: int  # of the window
    outliers: int
    cap: float | None  # share that one key may have; None without
    keys: tuple[KeyShare, ...]  # largest first; at most 64
    other: KeyShare | None  # the rest together
    outlier_cap: float | None = None  # share of a key's samples that may be outliers


@dataclass(frozen=True)
class AuditedAction:
    """What an administrator did."""

    id: str
    time: float  # Unix seconds
    by: str  # name of the key
    method: str
    path: str
    request_id: str
    status: int | None  # of the answer; None where the process died before there was one
    asked: Any  # the body, where it was short JSON
    entry_id: str | None  # of the stream, that carries it
    made: str | None  # id of what was made, such as a key
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
