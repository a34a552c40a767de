"""Answers about the model, its versions, and named models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from clients.http.answers.building import Label


@dataclass(frozen=True)
class NamedModel:
    """A named model of a service, beside its own."""

    name: str
    settings: Mapping[str, Any]  # its own; the rest is the service's
    made: float  # Unix seconds
    made_by: str  # name of the key that made it; "anybody" without keys
    state: str  # "loaded", "unloaded", "failing" or "leaving"
    error: str | None  # of the last attempt to work on it


@dataclass(frozen=True)
class NewestBoundary:
    """The boundary that a model has found last."""

    id: str
    time: float  # when it was found, Unix seconds
    severity: float | None  # least share of the new samples that are others, 0 to 1
    feature: int | None  # that has changed most; None where none has, beyond chance
    feature_name: str | None
    dropped: bool  # taken out of the model's past by a rollback or an upload


@dataclass(frozen=True)
class ModelDetail:
    """What the trainer last said of a model; None is what nobody knows, as before any sample."""

    phase: str | None  # "learning", "armed" or "warning"
    samples_seen: int | None
    newest_sample_time: float | None  # Unix seconds
    boundaries: int | None  # in the past of the model
    boundary: NewestBoundary | None  # the newest


@dataclass(frozen=True)
class ListedModel(NamedModel):
    """A named model as it stands in the list of all."""

    detail: ModelDetail | None = None  # None where it was not asked for, or is not known


@dataclass(frozen=True)
class NamedModelSummary(NamedModel):
    """A named model, and where it stands."""

    model_version: int  # 0: nothing learned yet
    samples_seen: int
    sub_task: int
    classes: int
    backlog: int
    checkpoint_error: str | None = None  # why the newest checkpoint was not written


@dataclass(frozen=True)
class Setting:
    """A setting of a model that can be changed while it runs."""

    value: float | int | None  # in force; None: none
    asked: bool  # whether it was asked for while the model ran


@dataclass(frozen=True)
class IngestState:
    """What a sender has to know of the service."""

    features: int | None  # D; None before the first batch
    last_entry_id: str | None  # newest entry that the model holds
    backlog: int  # entries accepted that it does not hold yet
    image_shape: Sequence[int] | None = None  # height, width and perhaps channels of an image
    restored_entry_id: str | None = None  # of the newest rollback or upload


@dataclass(frozen=True)
class ClassCount:
    """A class and how many labelled samples of it were learned."""

    label: Label
    count: float


@dataclass(frozen=True)
class ClassHeld:
    """The retention of one class of a past sub-task."""

    label: Label
    samples: int  # generated ones that the model is asked about
    accuracy_then: float  # when the sub-task ended, 0 to 1
    accuracy_now: float
    probability_then: float  # mean that the model gives the class, 0 to 1
    probability_now: float
    log_likelihood_then: float  # mean, nats
    log_likelihood_now: float | None  # None where what drew those samples has changed since


@dataclass(frozen=True)
class SubTaskHeld:
    """The retention of a past sub-task, by samples that the model drew when it ended."""

    sub_task: int  # as the service counts, 0 for the first
    samples: int
    classes: tuple[ClassHeld, ...]  # that it showed; empty where nothing was labelled
    accuracy_then: float | None  # 0 to 1; None where nothing was labelled
    accuracy_now: float | None
    probability_then: float | None  # mean that the model gives the right class, likewise
    probability_now: float | None
    log_likelihood_then: float  # mean, nats
    log_likelihood_now: float | None  # None where what drew those samples has changed since
    model_version: int  # that "now" is about


@dataclass(frozen=True)
class Gate:
    """Whether what is learned is served: not where it has forgotten more than is allowed."""

    max_forgetting: float  # allowed fall of the accuracy on a past sub-task, 0 to 1
    held: bool  # an earlier version answers
    forgetting: float | None  # largest fall found; None without a past sub-task that had labels
    past_sub_task: int | None  # on which
    accuracy_before: float | None  # there, 0 to 1
    accuracy_now: float | None
    checked_version: int | None  # that this is about
    served_version: int | None  # that answers during a hold
    held_version: int | None  # the first that was held back
    held_entry_id: str | None  # when
    rollback: bool = False  # whether the trainer goes back by itself


@dataclass(frozen=True)
class CoarseFeature:
    """A feature that lies too far from zero for what varies in it: float32 is coarse there."""

    feature: int  # its place, the first is 0
    mean: float
    deviation: float  # as float32 show it; 0 where nothing varies in these
    spacing: float  # of float32 at the mean
    name: str | None = None


@dataclass(frozen=True)
class ModelInfo:
    """The model that is served, and how far it is behind the stream."""

    model_version: int  # 0: nothing was learned yet
    samples_seen: int
    batches_seen: int
    backlog: int  # entries accepted that it does not hold yet
    last_entry_id: str | None  # the newest that it holds
    features: int | None  # D; None before the first batch
    components: int
    classes: tuple[ClassCount, ...]
    sub_task: int = 0
    parameters: int = 0
    bytes: int = 0
    set_aside: int = 0  # samples held apart while a change is suspected
    waiting: int = 0  # samples learned that the model takes in once the stream is quiet
    awaiting: int = 0  # samples held because they await their label
    unknown: int = 0  # samples held because they may be a new class
    recent: int = 0  # the last samples learned without a label, held to find new classes
    heard: int = 0  # labelled samples that experts on classes hold
    preset: str = ""
    mode: str | None = None  # "learn", "detect_only" or "frozen"; None where it is not told
    gate: Gate | None = None  # None without one
    detector: str = ""
    device: str | None = None
    coarse_features: tuple[CoarseFeature, ...] | None = None  # None: not known
    held: tuple[SubTaskHeld, ...] = ()  # live forgetting, oldest sub-task first
    checkpoint_error: str | None = None  # why the newest checkpoint was not written
    archive_error: str | None = None  # why the archive has a gap
    restored_entry_id: str | None = None  # the newest rollback or upload on the way to it
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def labels(self) -> tuple[Label, ...]:
        """The classes that are known."""
        return tuple(known.label for known in self.classes)


@dataclass(frozen=True)
class ModelVersion:
    """A version that is kept and can be served again."""

    version: int
    parent: int | None = None  # the kept version that it came from
    origin: str = "learned"  # or "rollback", "checkpoint"
    time: float | None = None  # when it was kept, Unix seconds
    sub_task: int = 0
    samples_seen: int = 0
    batches_seen: int = 0
    classes: int = 0
    before_boundary: int | None = None  # the boundary that it was kept for, if any
    written_by: str | None = None  # code and processor; None where an earlier release did not say
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Restored:
    """The outcome of a request to replace the model."""

    entry_id: str  # of the stream's entry that carries the request
    applied: bool  # False: in the stream, and the trainer has yet to do it
    model_version: int  # served now
    warning: str | None = None  # what to mind
