"""What the trainer reports of its detector, as a schema."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from core.drift.detector import UnarmedReason
from service.api.gate import GateState


class Report(BaseModel):
    """Base of what the trainer reports; further fields may come with later releases."""

    model_config = ConfigDict(extra="allow")


class ClassAccuracy(BaseModel):
    """How well a class was named before it was learned."""

    label: int | str
    samples: int = Field(description="Labelled so, since the newest rollback or upload.")
    accuracy: float = Field(description="Running mean of the share named so, 0 to 1.")


class DetectorRow(BaseModel):
    """A detector beside what the deciding one found."""

    detector: str
    decides: bool = Field(description="Whether it is the one that decides; the others are shadows.")
    boundaries: int = Field(
        description="Boundaries that the deciding detector found while this one ran, and changes "
        "that it told in mode `detect_only`; declared ones are left out."
    )
    alarms: int = Field(description="Alarms of this one.")
    matched: int = Field(
        description="Boundaries at which it spoke, too: between their estimated start and the "
        "batch that decided them."
    )
    missed: int = Field(description="Boundaries at which it did not, or not in time.")
    extra: int = Field(description="Alarms that belong to no boundary, so far.")
    delay_samples_median: float | None = Field(
        description="From the estimated start to the batch at which it spoke, in samples: median "
        "of the newest 101 matches; null without one."
    )
    ratio: float | None = Field(
        description="Its statistic over its threshold, in the newest batch; null where unknown."
    )


class ClassShare(BaseModel):
    """A class among the newest samples, by the model's own answers."""

    label: int | str
    samples: int = Field(description="Of the window, that were named so.")
    share: float | None = Field(description="Of the window, 0 to 1; null while it is empty.")
    labelled_share: float | None = Field(
        description="Of the window's labelled samples; null without any."
    )
    reference_share: float | None = Field(description="Of the reference; null while it is empty.")
    share_change: float | None = Field(
        description="Change of the share since the reference in standard errors; null while either "
        "has fewer than 200 samples."
    )
    share_p_value: float | None = Field(
        description="How often chance alone would change any class's share so much."
    )
    likelihood_change: float | None = Field(
        description="Change of its samples' log-likelihood beside other classes' in standard "
        "errors; null also while the class has fewer than 20 samples in either, or is alone."
    )
    likelihood_p_value: float | None = Field(description="Likewise.")
    drifts: bool = Field(description="Whether one of these p-values is below 0.001.")


class OtherClasses(BaseModel):
    """The classes that are not told by themselves."""

    classes: int
    samples: int
    share: float | None
    labelled_share: float | None
    reference_share: float | None


class ClassShares(BaseModel):
    """Classes in a window of the newest thousand samples, against the sub-task before them."""

    samples: int = Field(description="Of the window.")
    reference_samples: int = Field(
        description="Of the sub-task before it: what leaves the window from its 3,000th sample on."
    )
    classes: list[ClassShare] = Field(
        description="Those with most samples, at most GMR_CLASS_SERIES."
    )
    other: OtherClasses | None = Field(
        description="All others together; null where there are none."
    )
    drifting: list[int | str] = Field(description="Classes that are not as they were.")


class FeatureRow(BaseModel):
    """A feature whose mean may have moved within the sub-task."""

    feature: int = Field(description="Its place in a sample; the first is 0.")
    name: str | None = Field(
        None, description="What PUT /model/feature-names calls it; null without names."
    )
    mean: float = Field(description="Of the window, in the units that were sent.")
    reference_mean: float | None = Field(
        description="Of the reference; null while that has fewer than 200 samples."
    )
    reference_deviation: float | None = Field(
        description="Standard deviation of the reference's samples; null likewise."
    )
    change: float | None = Field(description="Of the mean, in these deviations; null likewise.")
    p_value: float | None = Field(
        description="How often chance alone would move any feature as far; null likewise."
    )
    drifts: bool = Field(
        description="Whether that is below 0.001 and the change 0.2 deviations or more."
    )
    course: list[float] = Field(
        description="Means since the sub-task began, or a change went on, at most 32, of as many "
        "samples each; the last may be of fewer, ten at least."
    )


class FeatureDrift(BaseModel):
    """Means of the newest samples learned, a window, against those of the sub-task before them."""

    samples: int = Field(description="Of the window: a thousand or more.")
    reference_samples: int = Field(description="Of the sub-task before it.")
    features: list[FeatureRow] = Field(
        description="The ten that have changed most, in standard errors."
    )
    drifting: int | None = Field(
        description="How many of all features drift; null while nothing can be compared."
    )


class Stretch(BaseModel):
    """A stretch of the stream."""

    first: int = Field(description="Its first sample; the first of all is 0.")
    end: int = Field(description="The first sample after it.")


class DriftState(Report):
    """What the detector sees, after the newest batch that the trainer has read."""

    model_version: int = Field(
        description="Version of the trainer's model; 0: nothing learned yet."
    )
    sub_task: int = Field(description="Sub-task being learned; 0 for the first.")
    boundaries: int = Field(
        description="Boundaries found on the way to this model: those that GET /drift/boundaries "
        "does not call dropped."
    )
    boundaries_dropped: int = Field(
        description="Boundaries found that a rollback or an upload has dropped."
    )
    mode: str | None = Field(
        description="`learn`; `detect_only` (changes are told; nothing is learned or crossed); or "
        "`frozen` (batches are scored and counted only). See PUT /model/mode."
    )
    passed_batches: int | None = Field(
        description="Batches scored and never learned, because of that."
    )
    passed_samples: int | None = Field(description="Samples of those.")
    labels_held: int | None = Field(
        description="Labels by id that came meanwhile, to be matched at the thaw."
    )
    labels_early: int | None = Field(
        None,
        description="Labels by id whose sample has not come yet; null where the trainer does not "
        "say.",
    )
    labels_matched: int | None = Field(
        description="Labels by id that met their sample; null where the trainer does not say."
    )
    labels_unmatched: dict[str, int] | None = Field(
        description="Labels by id that met no sample and were dropped, by reason: `duplicate`, "
        "`late` or `unknown` (POST /labels); null likewise."
    )
    awaiting: int | None = Field(
        description="Samples held until their label comes, or until a change that is suspected "
        "meanwhile is decided; null likewise."
    )
    gate: GateState | None = Field(
        description="Whether what is learned is served, and what the version asked last retains; "
        "null without a gate (GMR_GATE_MAX_FORGETTING)."
    )
    phase: str = Field(
        description="`learning` (not armed yet), `armed`, or `warning` (batches are set aside)."
    )
    recurrence_of: int | None = Field(
        description="The earlier sub-task that the current one is again; null for a new one."
    )
    bursts: int = Field(description="Outlier bursts found so far: alarms that went away.")
    quarantined: int = Field(
        description="Outliers of those bursts: read, and neither learned nor lost."
    )
    ert: float = Field(description="Run time between false alarms asked for, in samples.")
    ert_asked: bool | None = Field(
        description="Whether a person asked for that (PUT /drift/ert), so that no setting does."
    )
    ert_achieved: float | None = Field(
        description="The same as it is kept, estimated; null while too little is known."
    )
    ert_achieved_low: float | None = Field(
        description="Lower end of the 95 % confidence interval of that; null while too little is "
        "known."
    )
    ert_achieved_high: float | None = Field(
        description="Upper end of it; null before the first alarm of the probe."
    )
    probe_samples: int = Field(description="Samples behind that estimate.")
    probe_alarms: int = Field(description="Alarms of a much lower threshold among them.")
    armed: bool = Field(description="Whether the detector may speak; not while it warms up.")
    armed_in: int | None = Field(
        description="Samples until it may, as far as can be expected: 0 where it may, null where "
        "that cannot be known, or it never may."
    )
    unarmed_reason: UnarmedReason | None = Field(
        description="Why it may not: `warm_up` (the sub-task has too few samples), `annealing` "
        "(the model has yet to converge), `dependence` (samples depend on each other, so that more "
        "of them are needed), `awaiting_labels` (all samples so far wait for labels, and none is "
        "learned yet), `cooldown` (a pause after a boundary was asked for) or `no_detector` (it "
        "never may); null where it may."
    )
    detector: str = Field(description="The rule in use.")
    shadows: list[str] | None = Field(
        description="Rules that run beside it and decide nothing; null where the trainer does not "
        "say."
    )
    detectors: list[DetectorRow] | None = Field(
        description="Shadows compared with the detector that decides, which comes first; null "
        "where the trainer does not say."
    )
    inlier_rate: float | None = Field(
        description="Share of the newest batch whose log-likelihoods are above the mean of the "
        "detector's reference minus one deviation, which is not what POST /outliers asks; null "
        "while there is no reference to tell that by."
    )
    inlier_rate_mean: float | None = Field(description="What that is compared with; null likewise.")
    log_likelihood_mean: float | None = Field(description="Of the newest batch, nats per sample.")
    statistic: float | None = Field(
        description="What the detector compares with `threshold`; with `sequential` the evidence "
        "of all signals together."
    )
    threshold: float | None = Field(description="The detector alarms when `statistic` passes it.")
    statistics: dict[str, float] = Field(description="Statistic of each signal.")
    thresholds: dict[str, float] = Field(description="Threshold of each signal.")
    prequential_accuracy: float | None = Field(
        description="Of the newest batch, before it was learned; null without labels."
    )
    prequential_accuracy_mean: float | None = Field(description="Its running mean.")
    class_shares: ClassShares | None = Field(
        description="Shares of classes, and which drift; null where the trainer does not say."
    )
    feature_drift: FeatureDrift | None = Field(
        description="Features that creep within the sub-task; null where the trainer does not say, "
        "and for more than 4,096 features."
    )
    estimated_accuracy: float | None = Field(
        description="Accuracy expected of the newest thousand samples or so, whether they had "
        "labels or not; null before 100 labelled samples could be tested."
    )
    estimated_accuracy_low: float | None = Field(
        description="Lower end of its 95 % interval; null likewise."
    )
    estimated_accuracy_high: float | None = Field(description="Upper end; null likewise.")
    estimated_unseen: float | None = Field(
        description="Share of those samples taken to be of no known class, which count as wrong; "
        "null likewise."
    )
    class_accuracies: list[ClassAccuracy] | None = Field(
        description="The same for each class, in order of discovery; null where the trainer does "
        "not say."
    )
    samples_since_boundary: int = Field(description="Samples since the last boundary.")
    batches_since_boundary: int = Field(description="Batches since the last boundary.")
    stream_samples: int = Field(description="Samples read from the stream, learned or not.")
    stream_batches: int = Field(description="Batches read from the stream, learned or not.")
    dropped_stretches: list[Stretch] | None = Field(
        description="Stretches that are no past of the model, because a rollback or an upload has "
        "dropped them, the newest 64; null where the trainer does not say."
    )
    newest_sample_time: float | None = Field(
        description="When the newest samples that were read came, Unix seconds; null before the "
        "first, and where the trainer does not say."
    )
    set_aside_batches: int = Field(description="Batches held while a change is suspected.")
    time: float = Field(description="When the trainer said so, Unix seconds.")
    loaded: bool = Field(
        description="Whether the trainer has the model at hand. False for a named model that it "
        "has let go because nothing came (GMR_UNLOAD_AFTER_S): what is told holds, and is from "
        "then."
    )
    heartbeat_time: float = Field(
        description="When the trainer last gave a sign of life, whatever model it was about, Unix "
        "seconds."
    )
