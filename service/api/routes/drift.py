"""GET /drift and its companions: where the stream changes, and what the detector sees."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from core.errors import InvalidRequest
from service.api import answers
from service.api.admission import check_boundary
from service.api.bodies import read_model
from service.api.errors import OutOfRange, Unavailable
from service.api.explanation import Explanation
from service.api.gate import GateState
from service.api.openapi import json_body, problems
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.api.who import asker
from service.broker.keys import QUARANTINE_LENGTH
from service.broker.notes import Notes, told
from service.broker.records import Record
from service.wire import MOST_BY, MOST_NOTE, Control

router = APIRouter(prefix="/drift", tags=["drift"], route_class=StrictRoute)


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
    reference_samples: int = Field(description="Of the sub-task before it, without its first 500.")
    classes: list[ClassShare] = Field(
        description="Those with most samples, at most GMR_CLASS_SERIES."
    )
    other: OtherClasses | None = Field(
        description="All others together; null where there are none."
    )
    drifting: list[int | str] = Field(description="Classes that are not as they were.")


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
        description="Share of the newest batch found typical; null while the detector has no "
        "reference to tell that by."
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
    set_aside_batches: int = Field(description="Batches held while a change is suspected.")
    time: float = Field(description="When the trainer said so, Unix seconds.")


class Note(BaseModel):
    """A note."""

    text: str = Field(description="In words.", examples=["The lens was cleaned."])
    by: str | None = Field(description="Who says it; null where nobody knows.")
    time: float = Field(description="When, Unix seconds.")


class Boundary(Report):
    """The end of one sub-task and the beginning of the next."""

    id: str = Field(description="Id of this report; give it as `since` to ask for later ones.")
    time: float = Field(description="When it was found, Unix seconds.")
    entry_id: str = Field(description="Entry of the stream at which it was found.")
    boundary: int = Field(description="1 for the first; no number is given twice.")
    dropped: bool = Field(
        description="Whether a rollback or an upload has taken it out of the model's past."
    )
    sub_task: int = Field(description="The one that begins.")
    batch_index: int = Field(description="Batch at which it was found; the first is 0.")
    sample_index: int = Field(description="First sample of that batch; the first is 0.")
    estimated_start_batch: int = Field(description="Where the change probably began.")
    estimated_start_sample: int = Field(description="Where the change probably began.")
    estimated_start_entry_id: str | None = Field(
        None, description="Entry of the stream that holds that sample; null where it is not known."
    )
    detector: str = Field(description="The rule that spoke; `declared` for a person.")
    signal: str = Field("", description="Signal of the detector that contributed most.")
    recurrence_of: int | None = Field(
        None, description="The earlier sub-task that has come back; null for a new one."
    )
    mixed_samples: int = Field(
        0, description="Samples set aside that were learned as the end of the sub-task before."
    )
    evidence: dict[str, float] = Field(description="Statistic, threshold, rates, likelihoods.")
    version_before: int = Field(description="Model version before it.")
    version_after: int = Field(description="Model version after it.")
    severity: float | None = Field(
        None,
        description="Least share of the new samples that are other than before, 0 to 1, estimated; "
        "null where there were no new samples.",
    )
    severity_view: str | None = Field(
        None,
        description="What shows it: `likelihood`, `components`, `features` or `labels`; null "
        "likewise.",
    )
    notes: list[Note] = Field(
        default_factory=list, description="What people say about it, oldest first."
    )
    explanation: Explanation = Field(
        default_factory=lambda: Explanation.model_validate({}),
        description="What changed. The list has it without `prototypes` and `contributions`.",
    )


class Boundaries(BaseModel):
    """Boundaries in the order in which they were found."""

    boundaries: list[Boundary]


class Proposal(Report):
    """Samples without a label that are unknown and lie together: perhaps a class."""

    proposal: int = Field(description="Its number; name it by POST /labels.", examples=[1])
    origin: str = Field(
        description="`unknown` samples among known ones, or what a sub-task began with at a "
        "`boundary`."
    )
    samples: int = Field(description="That it stands for by now.")
    first_sample: int = Field(description="Where the first of them is in the stream, from 0.")
    last_sample: int = Field(description="Where the last of them is.")
    prototype: list[float] = Field(
        description="Mean of the samples that it was found by, D numbers; empty where D is over "
        "4,096."
    )
    nearest_classes: list[int | str] = Field(description="That the prototype looks like most.")
    nearest_probabilities: list[float] = Field(description="That the model gives each of them.")


class Proposals(BaseModel):
    """Proposals that nobody has decided about, oldest first."""

    proposals: list[Proposal]


class HistoryRow(Report):
    """One batch of the stream, tested before it was learned."""

    id: str = Field(description="Id of this report.")
    kind: str = Field(description="`batch_learned`, or `batch_set_aside` while in doubt.")
    time: float = Field(description="When it was read, Unix seconds.")
    entry_id: str = Field(description="Entry of the stream.")
    batch_index: int = Field(description="The first batch of the stream is 0.")
    sample_index: int = Field(description="First sample of the batch; the first is 0.")
    samples: int = Field(description="Samples of the batch.")
    inlier_rate: float | None = Field(
        description="Share of the batch found typical; null while the detector has no reference."
    )
    armed: bool = Field(False, description="Whether the detector could have spoken.")
    armed_in: int | None = Field(
        None,
        description="Samples after the batch until it may speak; null where that cannot be known.",
    )
    log_likelihood_mean: float | None = Field(description="Nats per sample.")
    prequential_accuracy: float | None = Field(description="Of the batch; null without labels.")
    estimated_accuracy: float | None = Field(
        None, description="Expected of the newest samples, labels or not; null while not known."
    )


class History(BaseModel):
    """Batches in stream order."""

    history: list[HistoryRow]


class Outlier(Report):
    """A sample of a burst: neither learned nor lost."""

    id: str = Field(description="Id of this record.")
    time: float = Field(description="When the burst was over, Unix seconds.")
    entry_id: str = Field(description="Entry of the stream by which it was over.")
    features: list[float] = Field(description="As they were sent.")
    label: int | str | None = Field(description="As it was sent; null without one.")


class Quarantine(BaseModel):
    """The newest outliers of bursts, oldest first."""

    outliers: list[Outlier]


class Declaration(BaseModel):
    """What is said with a boundary that a person declares."""

    model_config = ConfigDict(extra="forbid")

    note: str | None = Field(
        None, min_length=1, max_length=MOST_NOTE, description="Becomes the boundary's first note."
    )
    by: str | None = Field(
        None,
        max_length=MOST_BY,
        description="Who says so, where no keys are required; otherwise it is the name of the key.",
    )


class Declared(BaseModel):
    """A boundary that a person declares."""

    entry_id: str = Field(description="Entry of the stream that carries it.")


STATE_FIELDS = tuple(DriftState.model_fields)


@router.get(
    "",
    operation_id="drift",
    summary="State of the detector",
    response_model=DriftState,
    responses=problems(503),
)
async def drift(request: Request) -> Response:
    """What the trainer last reported; it reports at least once a second."""
    status = await parts_of(request).stream.reports.status()
    if status is None:
        raise Unavailable(
            "No trainer has reported yet. Expected one to be running. Ask again in a moment; if "
            "this lasts, start it by `gmr trainer`."
        )
    document = {name: status.get(name) for name in STATE_FIELDS}
    return answers.json(document, version=status.get("model_version"))


@router.get(
    "/boundaries",
    operation_id="boundaries",
    summary="Every boundary found",
    response_model=Boundaries,
    responses=problems(422, 503),
)
async def boundaries(
    request: Request,
    since: Annotated[
        str | None,
        Query(
            description="`id` of a boundary, for later ones only; or Unix seconds, for those found "
            "then or later. Without it: all."
        ),
    ] = None,
) -> Response:
    """Oldest first."""
    stream = parts_of(request).stream
    records = await stream.reports.boundaries(start_of(since))
    branch = await stream.reports.branch()
    notes = await Notes(stream).all()
    rows = [
        {
            **_row(record),
            "dropped": branch.drops(record.data["entry_id"]),
            "notes": told(record, notes.get(record.id, ())),
        }
        for record in records
    ]
    return answers.json({"boundaries": rows})


@router.get(
    "/proposals",
    operation_id="proposals",
    summary="Classes that may be new",
    response_model=Proposals,
    responses=problems(503),
)
async def proposals(request: Request) -> Response:
    """Unlabelled samples that the model finds unknown and that keep coming together. `POST /labels`
    with `proposal` and `label` names one; its samples are learned with that name.
    """
    return answers.json({"proposals": await parts_of(request).stream.reports.proposals()})


@router.get(
    "/history",
    operation_id="history",
    summary="The newest batches, one row each",
    response_model=History,
    responses=problems(422, 503),
)
async def history(
    request: Request,
    last: Annotated[int, Query(description="Batches to report, at most.")] = 1000,
) -> Response:
    """In stream order, the newest last."""
    parts = parts_of(request)
    most = parts.settings.history_length
    if not 1 <= last <= most:
        raise OutOfRange.of("last", got=last, low=1, high=most)
    records = await parts.stream.reports.history(last)
    return answers.json({"history": [_row(record) for record in records]})


@router.get(
    "/quarantine",
    operation_id="quarantine",
    summary="Samples of outlier bursts",
    response_model=Quarantine,
    responses=problems(422, 503),
)
async def quarantine(
    request: Request,
    last: Annotated[int, Query(description="Samples to return, at most.")] = 25,
) -> Response:
    """An alarm that goes away was a burst of outliers. The newest thousand are kept."""
    if not 1 <= last <= QUARANTINE_LENGTH:
        raise OutOfRange.of("last", got=last, low=1, high=QUARANTINE_LENGTH)
    records = await parts_of(request).stream.reports.quarantine(last)
    return answers.json({"outliers": [_row(record) for record in records]})


@router.post(
    "/boundary",
    operation_id="declare_boundary",
    summary="Declare a boundary by hand",
    status_code=202,
    response_model=Declared,
    responses={
        202: {"description": "In the stream, after all that was accepted before."},
        **problems(403, 409, 413, 415, 422, 429, 503),
    },
    openapi_extra=json_body(Declaration, required=False),
)
async def declare_boundary(request: Request) -> Response:
    """Takes its place in the stream, after what was accepted before it.

    409 where no sample has come since the last boundary. Where that cannot be known yet, because
    entries wait to be learned, it is accepted, and ends among the dead letters if it is so then.
    """
    parts = parts_of(request)
    said = Declaration(note=None, by=None)
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        said = await read_model(request, parts.settings, Declaration)
    await check_boundary(parts)
    control = Control("boundary", by=asker(request, said.by), note=said.note)
    appended = await parts.stream.append_control(control, entries_applied=parts.entries_applied)
    return answers.json({"entry_id": appended.entry_id}, status=202)


def _row(record: Record) -> dict[str, Any]:
    return {"id": record.id, **record.data}


def start_of(since: str | None) -> str:
    """Where a range of records begins, in Redis' words.

    Example:
        >>> start_of(None), start_of("1700000000000-20003"), start_of("1700000000.25")
        ('-', '(1700000000000-20003', '1700000000250')
    """
    if since is None:
        return "-"
    if re.fullmatch(r"[0-9]{1,15}-[0-9]{1,18}", since):
        return f"({since}"
    try:
        seconds = float(since)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < 1e12:
        raise InvalidRequest(
            "`since` is neither the id of a boundary nor a time. Expected an id like "
            "1700000000000-20003 or Unix seconds. Correct it.",
            parameter="since",
        )
    return str(int(seconds * 1000))
