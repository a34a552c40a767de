"""A model that learns from a stream while it serves, and notices when the world changes.

    from gmr import GMRClient                  # speaks to a running service; needs no torch
    from gmr import Batch, Engine, EngineConfig    # the method itself, as a library

Names are imported when they are first used, so that whoever wants the client alone does not wait
for torch.

Example:
    >>> import gmr
    >>> gmr.EngineConfig().preset
    'mfa'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clients.http.client import AsyncGMRClient as AsyncGMRClient
    from clients.http.client import GMRClient as GMRClient
    from clients.http.errors import ClientError as ClientError
    from clients.http.retry import RetryPolicy as RetryPolicy
    from core.batch import Batch as Batch
    from core.config import EngineConfig as EngineConfig
    from core.engine.engine import Engine as Engine
    from core.engine.state import EngineState as EngineState
    from core.errors import GMRError as GMRError
    from core.snapshot import Snapshot as Snapshot

_FROM = {
    "AsyncGMRClient": "clients.http.client",
    "Batch": "core.batch",
    "ClientError": "clients.http.errors",
    "Engine": "core.engine.engine",
    "EngineConfig": "core.config",
    "EngineState": "core.engine.state",
    "GMRClient": "clients.http.client",
    "GMRError": "core.errors",
    "RetryPolicy": "clients.http.retry",
    "Snapshot": "core.snapshot",
}

__all__ = [
    "AsyncGMRClient",
    "Batch",
    "ClientError",
    "Engine",
    "EngineConfig",
    "EngineState",
    "GMRClient",
    "GMRError",
    "RetryPolicy",
    "Snapshot",
]


def __getattr__(name: str) -> Any:
    """A public name, at its first use (PEP 562)."""
    if name not in _FROM:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_FROM[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
