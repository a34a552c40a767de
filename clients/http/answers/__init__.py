"""The answers of the service, as frozen values with numpy arrays.

Rules of this module:

1. Every value is made from one reply; nothing here knows how the reply came.
2. Arrays read from a binary body are read-only views of it.
3. A field that a newer service adds is ignored by the named ones and stands in
   `raw`; a field that is missing is an `UnexpectedAnswer`.

Throughout: N samples, D features, C classes. Log-likelihoods are in nats.
"""

from clients.http.answers.boundaries import (
    Boundary,
    ClassChange,
    ComponentChange,
    Explanation,
    FeatureChange,
    LabelChange,
    Note,
    Prototype,
)
from clients.http.answers.building import Floats, Label, Labels, build, label_array
from clients.http.answers.dead_letters import DeadLetter, DeadLetters, Requeued
from clients.http.answers.drift import DetectorRow, DriftState, HistoryPoint, Outlier, Proposal
from clients.http.answers.keys import ApiKey, AuditedAction, KeyShare, KeyShares, NewApiKey
from clients.http.answers.models import (
    ClassCount,
    ClassHeld,
    CoarseFeature,
    Gate,
    IngestState,
    ListedModel,
    ModelDetail,
    ModelInfo,
    ModelVersion,
    NamedModel,
    NamedModelSummary,
    NewestBoundary,
    Restored,
    Setting,
    SubTaskHeld,
)
from clients.http.answers.samples import Classification, Ingested, Labelled, OutlierScores, Samples
from clients.http.answers.service import BatchFate, Ledger, Readiness, ServiceEvent

__all__ = [
    "ApiKey",
    "AuditedAction",
    "BatchFate",
    "Boundary",
    "ClassChange",
    "ClassCount",
    "ClassHeld",
    "Classification",
    "CoarseFeature",
    "ComponentChange",
    "DeadLetter",
    "DeadLetters",
    "DetectorRow",
    "DriftState",
    "Explanation",
    "FeatureChange",
    "Floats",
    "Gate",
    "HistoryPoint",
    "IngestState",
    "Ingested",
    "KeyShare",
    "KeyShares",
    "Label",
    "LabelChange",
    "Labelled",
    "Labels",
    "Ledger",
    "ListedModel",
    "ModelDetail",
    "ModelInfo",
    "ModelVersion",
    "NamedModel",
    "NamedModelSummary",
    "NewApiKey",
    "NewestBoundary",
    "Note",
    "Outlier",
    "OutlierScores",
    "Proposal",
    "Prototype",
    "Readiness",
    "Requeued",
    "Restored",
    "Samples",
    "ServiceEvent",
    "Setting",
    "SubTaskHeld",
    "build",
    "label_array",
]
