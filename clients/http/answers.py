"""The answers of the service, as frozen values with numpy arrays.

Rules of this module:

1. Every value is made from one reply; nothing here knows how the reply came.
2. Arrays read from a binary body are read-only views of it.
3. A field that a newer service adds is ignored by the named ones and stands in
   `raw`; a field that is missing is an `UnexpectedAnswer`.

Throughout: N samples, D features, C classes. Log-likelihoods are in nats.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from clients.http import notebook
from clients.http.errors import UnexpectedAnswer

Label = int | str
Floats = NDArray[np.floating[Any]]
Labels = NDArray[Any]
"""Labels, with shape (N,): int64 where all are integers, otherwise Python values."""

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Ingested:
    """A batch is durable in the stream."""

    entry_id: str  # of the first, if it came twice
    batch_id: str
    samples: int
    backlog: int  # entries accepted and not yet learned
    duplicate: bool = False  # it was there before; nothing was added
    rejected: str | None = None  # of a duplicate that could not be used: the reason
    deadletter: str | None = None  # likewise: its dead letter, where it is kept


@dataclass(frozen=True)
class Labelled:
    """Labels are durable in the stream."""

    entry_id: str  # of the first, if they came twice
    batch_id: str
    labels: int
    backlog: int  # entries accepted and not yet learned
    duplicate: bool = False  # they were there before; nothing was added
    rejected: str | None = None  # of a duplicate that could not be used: the reason
    deadletter: str | None = None  # likewise: its dead letter, where it is kept


@dataclass(frozen=True)
class DeadLetter:
    """An entry that was accepted and could not be used."""

    id: str
    entry_id: str
    time: float  # when it was rejected, Unix seconds
    reason: str  # in a word
    detail: str
    kind: str | None  # "batch", "labels", "name", or what a control is
    batch_id: str | None
    samples: int | None  # or labels
    size: int  # bytes
    whole: bool  # kept whole, so that it can be sent again
    requeued_from: str | None = None  # the entry that this one repeated
    requeued_as: str | None = None  # the entry that it was sent again as
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class ApiKey:
    """A key by which somebody may ask, without its secret."""

    id: str  # by which it is revoked
    name: str  # whose it is
    roles: tuple[str, ...]  # of ingest, read, admin
    made: float  # Unix seconds


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


@dataclass(frozen=True)
class NewApiKey(ApiKey):
    """A key just made; the service shows it this once."""

    key: str = field(repr=False)


@dataclass(frozen=True)
class NamedModel:
    """A named model of a service, beside its own."""

    name: str
    settings: Mapping[str, Any]  # its own; the rest is the service's
    made: float  # Unix seconds
    made_by: str  # name of the key that made it; empty without keys
    state: str  # "loaded", "unloaded", "failing" or "leaving"
    error: str | None  # of the last attempt to work on it


@dataclass(frozen=True)
class NamedModelSummary(NamedModel):
    """A named model, and where it stands."""

    model_version: int  # 0: nothing learned yet
    samples_seen: int
    sub_task: int
    classes: int
    backlog: int


@dataclass(frozen=True)
class DeadLetters:
    """Some dead letters, oldest first."""

    letters: tuple[DeadLetter, ...]
    next: str | None  # give it as `since` for the next page; None at the end
    total: int  # kept and not sent again
    bytes: int  # of their entries
    dropped: int | None  # that made room for newer ones, ever; None where that is not known


@dataclass(frozen=True)
class Requeued:
    """A dead letter was sent again."""

    entry_id: str  # the new one
    batch_id: str
    samples: int
    backlog: int  # entries accepted and not yet learned
    deadletter: str
    requeued_from: str


@dataclass(frozen=True, eq=False)
class Classification:
    """The most probable class of each sample."""

    model_version: int
    labels: Labels  # (N,) None where the sample is unknown
    codes: NDArray[np.int64]  # (N,) position of the label in `classes`; -1 where unknown
    probabilities: Floats  # (N, C) in the order of `classes`
    classes: tuple[Label, ...]
    log_likelihoods: Floats  # (N,)
    inliers: NDArray[np.bool_]  # (N,) by `score`
    p_values: Floats | None  # (N,) share of inliers that are at least as strange, if asked for
    unknown: NDArray[np.bool_] | None  # (N,) p-value at or below `unknown_rate`, if there was one
    score: str = "log_likelihood"  # what decides on inliers: that, or "p_value"
    calibration: int = 0  # held-out scores behind the p-values; 0: too few, and there are none

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook.classification(self)


@dataclass(frozen=True, eq=False)
class OutlierScores:
    """The typicality of each sample."""

    model_version: int
    log_likelihoods: Floats  # (N,)
    inliers: NDArray[np.bool_]  # (N,) by `score` and `threshold`
    threshold: float  # of the log-likelihood, in nats, or the asked false-positive rate
    p_values: Floats | None  # (N,) share of inliers that are at least as strange
    typicality: Floats | None  # (N,) what the p-values rank; goes on falling beyond their least
    score: str  # what decides on inliers: "log_likelihood" or "p_value"
    calibration: int  # held-out scores behind the p-values; 0: too few, and there are none
    scales: Floats | None = None  # (N,) share of the mixture from which each is strangest

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook.outlier_scores(self)


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples drawn from the model."""

    model_version: int
    features: Floats  # (N, D)
    labels: Labels  # (N,) None where no class is known
    log_likelihoods: Floats  # (N,)
    probabilities: Floats  # (N,) that the model gives each label; 1 while no class is known
    short: NDArray[np.bool_]  # (N,) less probable than was asked for: the best that came
    seed: int | None = None  # of the draw; None from a service that does not say

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook.samples(self)


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
    held: tuple[SubTaskHeld, ...] = ()  # live forgetting, oldest sub-task first
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
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Restored:
    """The outcome of a request to replace the model."""

    entry_id: str  # of the stream's entry that carries the request
    applied: bool  # False: in the stream, and the trainer has yet to do it
    model_version: int  # served now
    warning: str | None = None  # what to mind


@dataclass(frozen=True)
class DetectorRow:
    """A detector beside what the deciding one found."""

    detector: str
    decides: bool  # the others are shadows
    boundaries: int  # that the deciding one found while this one ran
    alarms: int
    matched: int  # boundaries at which it spoke, too
    missed: int
    extra: int  # alarms that belong to no boundary, so far
    delay_samples_median: float | None  # from the estimated start; None without a match
    ratio: float | None  # statistic over threshold, newest batch; None where unknown


@dataclass(frozen=True)
class DriftState:
    """State of the boundary detector after the newest batch that the trainer has read."""

    sub_task: int
    boundaries: int  # found on the way to this model
    armed: bool
    detector: str
    inlier_rate: float | None
    inlier_rate_mean: float | None
    statistic: float | None
    threshold: float | None
    samples_since_boundary: int
    batches_since_boundary: int
    set_aside_batches: int = 0
    time: float | None = None  # when the trainer said so, Unix seconds
    phase: str = ""  # "learning", "armed" or "warning"
    recurrence_of: int | None = None  # the earlier sub-task that the current one is again
    bursts: int = 0  # of outliers, found so far
    quarantined: int = 0  # outliers of those bursts, not learned
    ert: float | None = None  # run time between false alarms asked for, in samples
    ert_achieved: float | None = None  # the same as it is kept, estimated
    ert_achieved_low: float | None = None  # ends of the 95 % interval of that
    ert_achieved_high: float | None = None
    armed_in: int | None = None  # samples until it may speak; None: not known, or never
    boundaries_dropped: int = 0  # found, and dropped by a rollback or an upload
    mode: str | None = None  # "learn", "detect_only" or "frozen"; None where it is not told
    passed_batches: int | None = None  # scored and never learned, because of that
    passed_samples: int | None = None
    labels_held: int | None = None  # labels by id that wait for the thaw
    ert_asked: bool | None = None  # whether a person asked for `ert`
    gate: Gate | None = None  # None without one
    class_shares: Mapping[str, Any] | None = None  # of the newest samples, as GET /drift has it
    prequential_accuracy_mean: float | None = None  # on labelled samples, before they were learned
    estimated_accuracy: float | None = None  # expected of the newest samples, labels or not
    estimated_accuracy_low: float | None = None  # ends of the 95 % interval of that
    estimated_accuracy_high: float | None = None
    estimated_unseen: float | None = None  # share of those samples that are of no known class
    detectors: tuple[DetectorRow, ...] = ()  # the deciding one first, then shadows
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class FeatureChange:
    """A feature that takes part in a change."""

    feature: int  # its place in a sample, 0 for the first
    share: float  # of what all features together add to the change, 0 to 1
    mean: float  # of the new samples, in the units that were sent
    expected: float  # by the components that the samples fell on


@dataclass(frozen=True)
class ComponentChange:
    """A component that fills or drains."""

    component: int
    before: float  # share of samples expected of it, 0 to 1
    now: float  # share of the new samples, 0 to 1
    change: float  # signed root of its part of a chi-square; above 0: it fills


@dataclass(frozen=True)
class ClassChange:
    """A class that fills or drains."""

    label: Label
    before: float | None  # share of the sub-task's labels, 0 to 1; None where it had none
    now: float  # share that the model of before takes the new samples for


@dataclass(frozen=True)
class LabelChange:
    """Samples that are called something else now."""

    before: Label  # what the model of before calls them
    now: Label  # their label
    samples: int  # of those examined


@dataclass(frozen=True)
class Prototype:
    """The mean of a group of new samples."""

    samples: int  # of the group, ten at least
    features: tuple[float, ...]  # in the units that were sent, rounded


@dataclass(frozen=True)
class Explanation:
    """The explanation of a boundary. Fields that could not be told are None, or empty."""

    samples: int = 0  # that were new
    examined: int = 0  # of these
    log_likelihood_before: float | None = None  # running mean, nats
    log_likelihood_deviation: float | None = None  # of single samples
    log_likelihood_now: float | None = None
    effect: float | None = None  # the change in deviations; below 0: a drop
    inliers: float | None = None  # share of the new samples, 0 to 1
    p_value: float | None = None
    feature_drop: float | None = None  # nats; that of all features together
    features: tuple[FeatureChange, ...] = ()  # the strongest, at most ten; likewise:
    components: tuple[ComponentChange, ...] = ()
    classes: tuple[ClassChange, ...] = ()
    labels: tuple[LabelChange, ...] = ()  # where labels are what changed
    prototypes: tuple[Prototype, ...] = ()  # not in a list of boundaries; likewise:
    contributions: tuple[float, ...] = ()  # the share of every feature


@dataclass(frozen=True)
class Note:
    """What somebody says about a boundary."""

    text: str
    by: str | None  # who says it, as far as that is known
    time: float  # Unix seconds


@dataclass(frozen=True)
class Boundary:
    """A boundary between two sub-tasks, as it was reported.

    Positions count the stream's batches and samples before the one in question.
    """

    id: str  # give it as `since` to ask for later ones
    boundary: int  # 1 for the first; no number is given twice
    sub_task: int  # the one that begins
    time: float  # Unix seconds
    entry_id: str
    batch_index: int
    sample_index: int
    estimated_start_batch: int
    estimated_start_sample: int
    detector: str
    evidence: Mapping[str, float]
    version_before: int
    version_after: int
    signal: str = ""  # of the detector, that contributed most
    recurrence_of: int | None = None  # the earlier sub-task that has come back
    mixed_samples: int = 0  # of those set aside, learned as the end of the sub-task before
    estimated_start_entry_id: str | None = None  # None where it is not known
    explanation: Explanation = Explanation()
    dropped: bool = False  # a rollback or an upload has taken it out of the model's past
    severity: float | None = None  # least share of samples that are others, 0 to 1
    severity_view: str | None = None  # what shows it
    notes: tuple[Note, ...] = ()  # oldest first
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def _repr_html_(self) -> str:
        """What a notebook shows; with a picture where `GMRClient.boundary` gave it."""
        return notebook.boundary(self)


@dataclass(frozen=True)
class Outlier:
    """A sample of a burst of outliers."""

    id: str
    entry_id: str  # by which the burst was over
    time: float  # Unix seconds
    features: tuple[float, ...]
    label: Label | None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


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


@dataclass(frozen=True, eq=False)
class Proposal:
    """Samples that the model finds unknown and that lie together: perhaps a new class."""

    proposal: int  # its number, to name it by
    samples: int
    origin: str  # "unknown" samples among known ones, or a "boundary"
    first_sample: int  # where the first and the last of them are in the stream
    last_sample: int
    prototype: Floats  # (D,) mean of those that it was found by; empty where D is very large
    nearest_classes: tuple[Label, ...]  # that the prototype looks like most
    nearest_probabilities: tuple[float, ...]  # that the model gives each of them
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class Ledger:
    """Samples accepted, by what became of them; `accepted` is the sum of `waiting` to `lost`."""

    accepted: int | None  # None wherever a number cannot be known
    waiting: int | None  # in the stream, not applied yet
    learned: int | None  # in the model
    set_aside: int | None  # while a change is suspected
    awaiting: int | None  # until their label comes
    unknown: int | None  # held as unknown, or in a proposal
    quarantined: int | None  # outliers of bursts
    passed: int | None  # scored while the model was at rest, and never learned
    rejected: int | None  # of dead letters
    dropped: int | None  # by a rollback or an upload
    lost: int | None  # of entries that no checkpoint held
    unaccounted: int | None  # 0
    waiting_entries: int
    entries_applied: int
    last_entry_id: str | None  # the last entry applied
    since: str | None  # the last entry that is not counted; None where all are
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class BatchFate:
    """What became of one batch, as it was accepted last."""

    batch_id: str
    entry_id: str  # in the stream
    kind: str  # "batch" or "labels"
    state: str  # "waiting", "learned", "set_aside", ..., or "split"; "rejected", "dropped", "lost"
    samples: int  # that it holds, or labels
    counts: Mapping[str, int] | None  # of its samples by what became of them, where that is known
    reason: str | None  # why it was rejected, in a word
    detail: str | None  # why, in full
    deadletter: str | None  # id of the letter, while that is kept
    accepted: int  # times that the id was accepted, of the last few
    last_entry_id: str | None  # the last entry applied
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class HistoryPoint:
    """The verdict on one batch before it was learned."""

    id: str
    entry_id: str
    time: float  # Unix seconds
    batch_index: int
    sample_index: int
    samples: int
    sub_task: int
    inlier_rate: float | None
    log_likelihood_mean: float | None
    prequential_accuracy: float | None
    kind: str = "batch_learned"  # or "batch_set_aside"
    armed: bool = False  # whether the detector could have spoken
    armed_in: int | None = None  # samples after it until the detector may; None: not known
    estimated_accuracy: float | None = None  # expected of the newest samples, labels or not
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class ServiceEvent:
    """One of the events of `core/events.py`, as the service published it."""

    id: str  # resume after it with `last_event_id`
    kind: str  # "missed" where events were dropped before they could be read
    data: Mapping[str, Any]


@dataclass(frozen=True)
class Readiness:
    """Whether the service takes requests, and why not."""

    ready: bool
    reason: str = ""


def build(cls: type[Answer], document: object, **given: object) -> Answer:
    """An answer from a JSON object; `given` are fields that were made beforehand.

    Raises:
        UnexpectedAnswer: it is no object, or a field without a default is missing.
    """
    if not isinstance(document, Mapping):
        raise UnexpectedAnswer(
            f"The service answered with a JSON {type(document).__name__}, expected an object with "
            f"the fields of {cls.__name__}. Check that the address is that of the service."
        )
    values: dict[str, object] = {}
    for spec in dataclasses.fields(cls):  # type: ignore[arg-type]  # every caller names a dataclass
        if spec.name in given:
            values[spec.name] = given[spec.name]
        elif spec.name == "raw":
            values["raw"] = document
        elif spec.name in document:
            values[spec.name] = document[spec.name]
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            raise UnexpectedAnswer(
                f"The service's answer has no field {spec.name!r}; {cls.__name__} needs it. "
                f"It has {', '.join(map(str, document))}. Use client and service of one version."
            )
    return cls(**values)


def label_array(labels: Sequence[Label | None]) -> Labels:
    """Labels as an array (N,): int64 where all are integers, otherwise as they are."""
    if all(isinstance(label, int) for label in labels):
        return np.array(labels, dtype=np.int64)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array
