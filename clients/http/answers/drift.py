"""Answers about what the detector sees, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clients.http.answers.building import Floats, Label
from clients.http.answers.models import Gate


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
    heartbeat_time: float | None = None  # of the trainer's last sign of life, of whatever model
    loaded: bool | None = None  # False: a quiet named model that the trainer has let go
    phase: str = ""  # "learning", "armed" or "warning"
    recurrence_of: int | None = None  # the earlier sub-task that the current one is again
    bursts: int = 0  # of outliers, found so far
    quarantined: int = 0  # outliers of those bursts, not learned
    ert: float | None = None  # run time between false alarms asked for, in samples
    ert_achieved: float | None = None  # the same as it is kept, estimated
    ert_achieved_low: float | None = None  # ends of the 95 % interval of that
    ert_achieved_high: float | None = None
    armed_in: int | None = None  # samples until it may speak; None: not known, or never
    # "warm_up", "annealing", "dependence", "awaiting_labels", "cooldown" or "no_detector"; None:
    # it may speak, or it is not told
    unarmed_reason: str | None = None
    boundaries_dropped: int = 0  # found, and dropped by a rollback or an upload
    mode: str | None = None  # "learn", "detect_only" or "frozen"; None where it is not told
    passed_batches: int | None = None  # scored and never learned, because of that
    passed_samples: int | None = None
    labels_held: int | None = None  # labels by id that wait for the thaw
    labels_early: int | None = None  # labels by id whose sample has not come yet
    ert_asked: bool | None = None  # whether a person asked for `ert`
    labels_matched: int | None = None  # labels by id that met their sample
    labels_unmatched: Mapping[str, int] | None = None  # and those that met none, by reason
    awaiting: int | None = None  # samples held until their label comes
    gate: Gate | None = None  # None without one
    class_shares: Mapping[str, Any] | None = None  # of the newest samples, as GET /drift has it
    feature_drift: Mapping[str, Any] | None = None  # within the sub-task, as GET /drift has it
    prequential_accuracy_mean: float | None = None  # on labelled samples, before they were learned
    estimated_accuracy: float | None = None  # expected of the newest samples, labels or not
    estimated_accuracy_low: float | None = None  # ends of the 95 % interval of that
    estimated_accuracy_high: float | None = None
    estimated_unseen: float | None = None  # share of those samples that are of no known class
    detectors: tuple[DetectorRow, ...] = ()  # the deciding one first, then shadows
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
class Outlier:
    """A sample of a burst of outliers."""

    id: str
    entry_id: str  # by which the burst was over
    time: float  # Unix seconds
    features: tuple[float, ...]
    label: Label | None
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
    may_be_known: bool | None = None  # all known classes may have moved there; None: not known
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
