"""Events, by which the engine reports: plain frozen values of numbers and text only.

Rules of this module:

1. An event says what happened, never what should be done about it.
2. Whatever is counted, drawn or logged anywhere is first an event here:
   metrics, the history, server-sent events and logs are made from these.
3. No event holds a tensor or a raw sample.

Positions: `batch_index` and `sample_index` count the batches and samples of the
stream before the batch in question, from 0, learned or not, in stream order.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import ClassVar


@dataclass(frozen=True)
class Event:
    """Base of all events. `kind` is the name on the wire (SSE `event:` field)."""

    kind: ClassVar[str] = "event"

    def to_dict(self) -> dict[str, object]:
        """The event as JSON-ready values, `kind` included."""
        return {"kind": self.kind, **asdict(self)}


@dataclass(frozen=True)
class BatchScored(Event):
    """The scores and the verdict on one batch before it was learned.

    Common part of `BatchLearned`, `BatchSetAside` and `BatchPassed`; one of the three is
    reported for every batch of the stream.
    """

    kind: ClassVar[str] = "batch_scored"

    batch_index: int
    sample_index: int
    samples: int
    labelled: int  # samples of the batch that carried a label
    sub_task: int
    inlier_rate: float | None  # share of inliers, 0 to 1; None before there is a reference
    inlier_rate_mean: float | None  # that of the reference; None likewise
    log_likelihood_mean: float | None  # nats per sample
    statistic: float  # of the detector that decides
    threshold: float
    statistics: dict[str, float]  # per signal or detector: name -> statistic
    thresholds: dict[str, float]
    armed: bool
    prequential_accuracy: float | None  # of this batch, 0 to 1; None without labels
    prequential_accuracy_mean: float | None  # running mean
    model_version: int  # after the batch
    # Asked of the detector's probe, in samples, 0 where it has none; and what it counted.
    probe_ert: float = field(default=0.0, kw_only=True)
    probe_samples: int = field(default=0, kw_only=True)
    probe_alarms: int = field(default=0, kw_only=True)
    awaiting: int = field(default=0, kw_only=True)  # of its samples, those that await a label
    unknown: int = field(default=0, kw_only=True)  # of its samples, those held back as unknown
    awaiting_samples: int = field(default=0, kw_only=True)  # that await one in all
    # Accuracy expected of the newest samples, labels or not, with the ends of its 95 % interval,
    # and the share of them that are taken to be of no known class; None: not known.
    estimated_accuracy: float | None = field(default=None, kw_only=True)
    estimated_accuracy_low: float | None = field(default=None, kw_only=True)
    estimated_accuracy_high: float | None = field(default=None, kw_only=True)
    estimated_unseen: float | None = field(default=None, kw_only=True)
    # Samples after the batch until the detector may speak, as expected; None: not known, or never.
    armed_in: int | None = field(default=None, kw_only=True)
    # Of the batch's labelled samples, by class: `label`, `samples`, `accuracy`; the most frequent.
    class_accuracies: list[dict[str, int | str | float]] = field(default_factory=list, kw_only=True)


@dataclass(frozen=True)
class BatchLearned(BatchScored):
    """A batch was tested, then learned."""

    kind: ClassVar[str] = "batch_learned"

    replayed: int  # generated (or expected) samples learned beside it
    quarantined: int = field(default=0, kw_only=True)  # outliers among them, not learned
    components: int
    classes: int


@dataclass(frozen=True)
class BatchSetAside(BatchScored):
    """A batch looked like a change and is kept apart, bounded, until that is decided."""

    kind: ClassVar[str] = "batch_set_aside"

    set_aside_batches: int  # held now, this one included
    set_aside_samples: int


@dataclass(frozen=True)
class BatchPassed(BatchScored):
    """A batch was scored and counted while the model was at rest: it is not learned, ever."""

    kind: ClassVar[str] = "batch_passed"

    mode: str  # "frozen" or "detect_only"


@dataclass(frozen=True)
class ModeChanged(Event):
    """Somebody asked for another mode: to freeze, to detect only, or to learn again."""

    kind: ClassVar[str] = "mode_changed"

    mode: str  # "learn", "detect_only" or "frozen"
    mode_before: str
    by: str | None  # who asked, as far as that is known
    reason: str | None  # as it was given
    passed_batches: int  # so far, in all
    passed_samples: int
    sub_task: int
    model_version: int


@dataclass(frozen=True)
class ChangeDetected(Event):
    """Detectors that go on alone found a change. Nothing is crossed: they start anew."""

    kind: ClassVar[str] = "change_detected"

    sub_task: int  # that the model at rest is in
    batch_index: int  # of the batch at which it is reported
    sample_index: int
    estimated_start_batch: int
    estimated_start_sample: int
    detector: str
    signal: str
    evidence: dict[str, float]  # as of a boundary
    model_version: int
    explanation: dict[str, object] = field(default_factory=dict)  # of the batch that decided it
    severity: float | None = field(default=None, kw_only=True)  # as of a boundary, of that batch
    severity_view: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class LabelsHeld(Event):
    """Labels by id came while the model was at rest: they are matched at the thaw."""

    kind: ClassVar[str] = "labels_held"

    labels: int
    held: int  # that wait for the thaw in all


@dataclass(frozen=True)
class SettingsChanged(Event):
    """Somebody asked for other settings while the model runs."""

    kind: ClassVar[str] = "settings_changed"

    settings: dict[str, float | int | None]  # that were asked for, as they are in force from now on
    settings_before: dict[str, float | int | None]  # the same, as they were
    by: str | None  # who asked, as far as that is known
    reason: str | None  # as it was given
    sub_task: int
    model_version: int


@dataclass(frozen=True)
class ClassRenamed(Event):
    """Somebody asked for another name of a class."""

    kind: ClassVar[str] = "class_renamed"

    label: int | str  # from now on
    label_before: int | str
    by: str | None  # who asked, as far as that is known
    reason: str | None  # as it was given
    sub_task: int
    model_version: int


@dataclass(frozen=True)
class ClassesMerged(Event):
    """Somebody asked that two classes become one."""

    kind: ClassVar[str] = "classes_merged"

    label: int | str  # of both, from now on
    label_before: int | str  # of the one that is no more
    by: str | None  # who asked, as far as that is known
    reason: str | None  # as it was given
    sub_task: int
    model_version: int


@dataclass(frozen=True)
class RunTimeChanged(Event):
    """Another run time between false alarms is asked for."""

    kind: ClassVar[str] = "ert_changed"

    ert: float  # samples
    ert_before: float
    asked: bool  # by a person; otherwise by the settings
    by: str | None  # who asked, as far as that is known


@dataclass(frozen=True)
class SetAsideReleased(Event):
    """A suspicion passed: the batches set aside were learned as the current sub-task."""

    kind: ClassVar[str] = "set_aside_released"

    batches: int
    samples: int
    sub_task: int
    model_version: int


@dataclass(frozen=True)
class WindowsSettled(Event):
    """The stream fell quiet: samples that waited in a window are in the model now."""

    kind: ClassVar[str] = "windows_settled"

    samples: int  # counted as learned when they came
    sub_task: int
    model_version: int


@dataclass(frozen=True)
class BoundaryDetected(Event):
    """A sub-task ended and the next began."""

    kind: ClassVar[str] = "boundary"

    boundary: int  # 1 for the first; a rollback lowers `sub_task`, never this
    sub_task: int  # the one that begins: 1 after the first boundary
    batch_index: int  # of the batch at which it is reported
    sample_index: int
    estimated_start_batch: int
    estimated_start_sample: int
    detector: str  # which rule spoke; "declared" when a person did
    signal: str  # of the detector, that contributed most; empty where there are none
    evidence: dict[str, float]  # statistic, threshold, inlier rates, log-likelihoods, ...
    set_aside_batches: int  # that become the first of the new sub-task
    set_aside_samples: int
    version_before: int
    version_after: int
    recurrence_of: int | None  # the earlier sub-task that has come back; None for a new one
    mixed_samples: int  # of those set aside, learned as the end of the old sub-task
    explanation: dict[str, object] = field(default_factory=dict)  # see `core.engine.explanation`
    # Least share of samples that are others, 0 to 1, and the view that shows it; None without new
    # samples: see `core.engine.severity`.
    severity: float | None = field(default=None, kw_only=True)
    severity_view: str | None = field(default=None, kw_only=True)
    by: str | None = field(default=None, kw_only=True)  # who declared it, as far as that is known
    note: str | None = field(default=None, kw_only=True)  # what they said of it


@dataclass(frozen=True)
class OutlierBurst(Event):
    """An alarm went away: there were outliers, which are neither learned nor lost."""

    kind: ClassVar[str] = "outlier_burst"

    sub_task: int
    batch_index: int  # of the batch by which it had gone away
    sample_index: int
    estimated_start_batch: int
    estimated_start_sample: int
    samples: int  # outliers, quarantined
    released: int  # samples set aside with them, learned
    set_aside_batches: int  # that these came in
    detector: str
    signal: str
    evidence: dict[str, float]
    model_version: int
    burst: int = field(default=0, kw_only=True)  # 1 for the stream's first
    burst_start_sample: int = field(default=0, kw_only=True)  # of all of it, estimated
    burst_samples: int = field(default=0, kw_only=True)  # outliers of all of it, so far


@dataclass(frozen=True)
class OutlierBurstContinued(OutlierBurst):
    """Outliers came again at once: more of a burst that has been reported already."""

    kind: ClassVar[str] = "outlier_burst_continued"


@dataclass(frozen=True)
class ShadowAlarm(Event):
    """A detector that runs beside the deciding one would have called this a boundary."""

    kind: ClassVar[str] = "shadow_alarm"

    detector: str
    batch_index: int  # of the batch at which it spoke
    sample_index: int
    statistic: float
    threshold: float


@dataclass(frozen=True)
class ChangeContinued(Event):
    """The change of the last boundary has gone on ever since and was found again: no boundary.

    The detector starts anew: the samples that follow become its reference.
    """

    kind: ClassVar[str] = "change_continued"

    sub_task: int  # that began with the change, and goes on
    batch_index: int  # of the batch at which it is reported
    sample_index: int
    boundary_sample: int  # where the change is estimated to have begun
    estimated_start_batch: int  # of what has been found again
    estimated_start_sample: int
    detector: str
    signal: str
    evidence: dict[str, float]  # as of a boundary, with p-values of a stream that stood still
    model_version: int


@dataclass(frozen=True)
class SamplesRepeated(Event):
    """The stream sends samples again that the sub-task has learned: no change.

    They are learned once more. While they come, a detector that has a whole reference, p-values and
    the estimated accuracy stay as they are.
    """

    kind: ClassVar[str] = "samples_repeated"

    sub_task: int  # that goes on
    batch_index: int  # of the batch at which it is reported
    sample_index: int
    estimated_start_batch: int  # of what comes again
    estimated_start_sample: int
    detector: str
    signal: str  # of a change that these samples were taken for; "" if they were not
    evidence: dict[str, float]  # as of a boundary; empty if they were not
    model_version: int


@dataclass(frozen=True)
class PriorShift(Event):
    """The shares of the sub-task's classes changed, and nothing else: no boundary.

    The detector stays armed and learns the new shares; a detector that watches the likelihood alone
    never reports this.
    """

    kind: ClassVar[str] = "prior_shift"

    sub_task: int
    batch_index: int  # of the batch at which it is reported
    sample_index: int
    estimated_start_batch: int
    estimated_start_sample: int
    detector: str
    signal: str
    evidence: dict[str, float]
    model_version: int


@dataclass(frozen=True)
class FeaturesDrifting(Event):
    """The means of features have crept since the sub-task began: no boundary tells of that.

    Each feature is told once in a sub-task, when it drifts at two looks in a row.
    """

    kind: ClassVar[str] = "features_drifting"

    sub_task: int  # that goes on
    batch_index: int  # of the batch at which it is reported
    sample_index: int
    # Those that are told first; see `core.memory.feature_drift`.
    features: list[dict[str, int | float | bool]]
    news: int  # how many are told first
    drifting: int  # how many drift by now
    samples: int  # the newest, whose means are compared
    reference_samples: int  # earlier ones of the sub-task
    model_version: int


@dataclass(frozen=True)
class Replayed(Event):
    """Earlier sub-tasks were replayed from the generator, the model frozen at a boundary."""

    kind: ClassVar[str] = "replay"

    sub_task: int
    mode: str  # "analytic", "constant" or "proportional"
    samples: int  # generated samples, or the samples that the atoms of analytic replay stand for
    components_before: int
    components_after: int
    reason: str  # "boundary", "budget", "batch"


@dataclass(frozen=True)
class ClassDiscovered(Event):
    """A label that was never seen before became a class."""

    kind: ClassVar[str] = "class_discovered"

    label: int | str
    sub_task: int
    batch_index: int


@dataclass(frozen=True)
class LabelsMatched(Event):
    """Labels came for samples that had awaited them, or cannot be matched with any."""

    kind: ClassVar[str] = "labels_matched"

    matched: int  # samples that have their label now
    unmatched: dict[str, int]  # labels by reason: "duplicate", "late" or "unknown"
    kept: int  # labels that came before their sample and wait for it
    samples_learned: int  # of those matched, at once; the others when a suspicion is decided
    prequential_accuracy: float | None  # of the classes named when the samples came, 0 to 1
    prequential_accuracy_mean: float | None  # running mean
    delay_samples_mean: float | None  # samples of the stream between a sample and its label
    delay_samples_max: int | None
    awaiting: int  # samples that still await their label
    sub_task: int
    model_version: int
    # As of a batch, of the classes named when the samples came.
    class_accuracies: list[dict[str, int | str | float]] = field(default_factory=list, kw_only=True)


@dataclass(frozen=True)
class LabelsMissed(Event):
    """The wait of some samples is over: they are learned without a label."""

    kind: ClassVar[str] = "labels_missed"

    samples: int
    reason: str  # "samples", "time", "limit" or "boundary"
    samples_learned: int  # at once; not those put off by a suspicion, or held back as unknown
    awaiting: int  # samples that still await their label
    sub_task: int
    model_version: int


@dataclass(frozen=True)
class ClassProposed(Event):
    """Unknown samples without a label lie together: they may be a class."""

    kind: ClassVar[str] = "class_proposed"

    proposal: int  # 1 for the first
    origin: str  # "unknown" samples among known ones, or a "boundary"
    samples: int  # found so far
    first_sample: int  # where the first and the last of them are in the stream
    last_sample: int
    prototype: list[float]  # their mean, D numbers; none where D is very large
    nearest_classes: list[int | str]  # that the prototype looks like most
    nearest_probabilities: list[float]  # that the model gives each
    sub_task: int
    model_version: int
    may_be_known: bool | None = None  # all known classes may have moved there; null: not known


@dataclass(frozen=True)
class ProposalClosed(Event):
    """A proposed class was decided about."""

    kind: ClassVar[str] = "proposal_closed"

    proposal: int
    label: int | str | None  # that it was named
    reason: str  # "named", "dismissed", "joined" (another one), "limit" or "boundary"
    samples: int
    samples_learned: int  # at once; others were before, or are when a suspicion is decided
    sub_task: int
    model_version: int


@dataclass(frozen=True)
class UnknownsLearned(Event):
    """Samples held back as unknown were learned without a label."""

    kind: ClassVar[str] = "unknowns_learned"

    samples: int
    samples_learned: int  # at once; the others when a suspicion is decided
    reason: str  # "limit" or "boundary"
    sub_task: int
    model_version: int


@dataclass(frozen=True)
class ModelPublished(Event):
    """A new snapshot is served. Reported by the service, which decides when to publish."""

    kind: ClassVar[str] = "model_published"

    model_version: int
    sub_task: int
    samples_seen: int
    components: int
    classes: int
    duration_seconds: float = field(default=0.0)


@dataclass(frozen=True)
class ModelRestored(Event):
    """An older version, or an uploaded checkpoint, took the place of the state."""

    kind: ClassVar[str] = "model_restored"

    model_version: int  # that is served now
    replaced_version: int
    source: str  # "rollback" or "checkpoint"


@dataclass(frozen=True)
class VersionHeld(Event):
    """A version is not served, because it has forgotten too much. Reported by the service."""

    kind: ClassVar[str] = "version_held"

    model_version: int  # that was asked
    served_version: int  # that goes on answering
    forgetting: float  # largest fall of the accuracy on a past sub-task, 0 to 1
    max_forgetting: float  # that is allowed
    past_sub_task: int  # that lost it
    accuracy_before: float  # on that sub-task, 0 to 1
    accuracy_now: float
    sub_task: int
    rollback: bool  # whether the served version takes the place of the state by itself


@dataclass(frozen=True)
class HoldEnded(Event):
    """What is learned is served again. Reported by the service."""

    kind: ClassVar[str] = "hold_ended"

    model_version: int  # that is served from now on
    served_version: int  # that answered during the hold
    reason: str  # "retained", "released", "rollback", "checkpoint" or "settings"
    forgetting: float | None  # as in `VersionHeld`, of the version served from now on
    sub_task: int
    by: str | None = None  # who released it
    note: str | None = None  # and why


@dataclass(frozen=True)
class EntryRejected(Event):
    """An entry of the stream could not be used: a dead letter. Reported by the service."""

    kind: ClassVar[str] = "entry_rejected"

    entry_id: str
    reason: str
    detail: str
    batch_id: str | None = None  # that the sender gave it, if any


@dataclass(frozen=True)
class DeadLettersDropped(Event):
    """The oldest dead letters made room for a newer one. Reported by the service."""

    kind: ClassVar[str] = "dead_letters_dropped"

    letters: int
    bytes: int  # of their payloads


@dataclass(frozen=True)
class EntriesLost(Event):
    """Entries were learned and let go, and no checkpoint holds them. Reported by the service."""

    kind: ClassVar[str] = "entries_lost"

    entries: int
    first_entry_id: str  # the least id that one of them may have
    last_entry_id: str  # the greatest


KINDS: tuple[str, ...] = tuple(
    sorted(
        value.kind
        for value in tuple(globals().values())
        if isinstance(value, type)
        and issubclass(value, Event)
        and value not in (Event, BatchScored)
    )
)
"""The name on the wire of every event that is reported."""
