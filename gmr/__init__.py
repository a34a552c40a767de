"""A model that learns from a stream while it serves, and notices when the world changes.

    from gmr import GMRClient                      # speaks to a running service
    from gmr import Batch, Engine, EngineConfig    # the method itself, as a library
    from gmr import GMRClassifier                  # the method as an estimator of scikit-learn
    from gmr import GMROutlierDetector             # and as one that finds outliers

Names are imported when they are first used, so that whoever wants the client alone needs no
torch. Where a name needs more than is installed, `MissingExtra` says what to install.
`gmr.events` and `gmr.checkpoint` are modules.

Example:
    >>> import gmr
    >>> gmr.EngineConfig().preset
    'mfa'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from clients.extras import naming_the_extra

if TYPE_CHECKING:
    from clients.data.encoding import TableEncoding
    from clients.extras import MissingExtra
    from clients.http.async_client import AsyncGMRClient
    from clients.http.client import GMRClient
    from clients.http.errors import (
        ClientError,
        HasLearned,
        InputError,
        NotAuthorised,
        NotLearnedYet,
        RequestConflict,
        RequestRefused,
        ServiceBusy,
        ServiceError,
        ServiceFailed,
        ServiceUnavailable,
        ServiceUnreachable,
        UnexpectedAnswer,
        WaitTimeout,
    )
    from clients.http.retry import RetryPolicy
    from clients.sending.messages import Message, hand_on
    from core.batch import Batch
    from core.config import EngineConfig
    from core.engine.engine import Engine
    from core.engine.state import EngineState
    from core.errors import (
        ClassExists,
        EmptySubTask,
        GMRError,
        InvalidBatch,
        InvalidCheckpoint,
        InvalidLabels,
        InvalidRequest,
        InvalidSettings,
        ModelAtRest,
        ModelNotReady,
        NonFiniteFeature,
        OtherRelease,
        ShapeMismatch,
        UnknownClass,
        UnknownProposal,
        UnknownVersion,
    )
    from core.precision import PrecisionLost
    from core.snapshot import Snapshot
    from gmr import checkpoint, events
    from gmr.estimator import GMRClassifier
    from gmr.outlier_detector import GMROutlierDetector

_MODULES = ("checkpoint", "events")

_FROM = {
    "AsyncGMRClient": "clients.http.async_client",
    "Batch": "core.batch",
    "ClassExists": "core.errors",
    "ClientError": "clients.http.errors",
    "EmptySubTask": "core.errors",
    "Engine": "core.engine.engine",
    "EngineConfig": "core.config",
    "EngineState": "core.engine.state",
    "GMRClassifier": "gmr.estimator",
    "GMRClient": "clients.http.client",
    "GMRError": "core.errors",
    "GMROutlierDetector": "gmr.outlier_detector",
    "HasLearned": "clients.http.errors",
    "InputError": "clients.http.errors",
    "InvalidBatch": "core.errors",
    "InvalidCheckpoint": "core.errors",
    "InvalidLabels": "core.errors",
    "InvalidRequest": "core.errors",
    "InvalidSettings": "core.errors",
    "ModelAtRest": "core.errors",
    "Message": "clients.sending.messages",
    "MissingExtra": "clients.extras",
    "ModelNotReady": "core.errors",
    "NonFiniteFeature": "core.errors",
    "NotAuthorised": "clients.http.errors",
    "NotLearnedYet": "clients.http.errors",
    "OtherRelease": "core.errors",
    "PrecisionLost": "core.precision",
    "RequestConflict": "clients.http.errors",
    "RequestRefused": "clients.http.errors",
    "RetryPolicy": "clients.http.retry",
    "ServiceBusy": "clients.http.errors",
    "ServiceError": "clients.http.errors",
    "ServiceFailed": "clients.http.errors",
    "ServiceUnavailable": "clients.http.errors",
    "ServiceUnreachable": "clients.http.errors",
    "ShapeMismatch": "core.errors",
    "Snapshot": "core.snapshot",
    "TableEncoding": "clients.data.encoding",
    "UnexpectedAnswer": "clients.http.errors",
    "UnknownClass": "core.errors",
    "UnknownProposal": "core.errors",
    "UnknownVersion": "core.errors",
    "WaitTimeout": "clients.http.errors",
    "hand_on": "clients.sending.messages",
}

__all__ = [
    "AsyncGMRClient",
    "Batch",
    "ClassExists",
    "ClientError",
    "EmptySubTask",
    "Engine",
    "EngineConfig",
    "EngineState",
    "GMRClassifier",
    "GMRClient",
    "GMRError",
    "GMROutlierDetector",
    "HasLearned",
    "InputError",
    "InvalidBatch",
    "InvalidCheckpoint",
    "InvalidLabels",
    "InvalidRequest",
    "InvalidSettings",
    "Message",
    "MissingExtra",
    "ModelAtRest",
    "ModelNotReady",
    "NonFiniteFeature",
    "NotAuthorised",
    "NotLearnedYet",
    "OtherRelease",
    "PrecisionLost",
    "RequestConflict",
    "RequestRefused",
    "RetryPolicy",
    "ServiceBusy",
    "ServiceError",
    "ServiceFailed",
    "ServiceUnavailable",
    "ServiceUnreachable",
    "ShapeMismatch",
    "Snapshot",
    "TableEncoding",
    "UnexpectedAnswer",
    "UnknownClass",
    "UnknownProposal",
    "UnknownVersion",
    "WaitTimeout",
    "checkpoint",
    "events",
    "hand_on",
]

# Hidden from type checkers: to them, a module with such a function has every name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """A public name, at its first use (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        with naming_the_extra(f"gmr.{name}", "engine"):
            if name in _MODULES:
                value = import_module(f"gmr.{name}")
            else:
                value = getattr(import_module(_FROM[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
