"""GET /drift and its companions: where the stream changes, and what the detector sees."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import BaseModel, Field

from service.api import answers
from service.api.admission import check_boundary
from service.api.bodies import read_model
from service.api.boundaries import Boundaries, Declaration, Declared
from service.api.drift_state import DriftState, Report
from service.api.entity_tag import is_known, tag_of_facts
from service.api.errors import OutOfRange, Unavailable
from service.api.not_begun import not_begun
from service.api.openapi import json_body, problems
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.api.routes.health import leads
from service.api.since import start_of
from service.api.who import asker
from service.broker.feature_names import FeatureNames, with_names
from service.broker.keys import QUARANTINE_LENGTH
from service.broker.notes import Notes, told
from service.broker.records import Record
from service.wire import Control

router = APIRouter(prefix="/drift", tags=["drift"], route_class=StrictRoute)


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
    may_be_known: bool | None = Field(
        None,
        description="Whether the samples may be of all known classes, which have moved together: "
        "then a name for them takes the names of these away. null: cannot be said.",
    )


class Proposals(BaseModel):
    """Proposals that nobody has decided about, oldest first."""

    proposals: list[Proposal]


class HistoryRow(Report):
    """One batch of the stream, tested before it was learned."""

    id: str = Field(description="Id of this report.")
    kind: str = Field(
        description="`batch_learned`, `batch_set_aside` while in doubt, or `batch_passed` while "
        "the model is at rest."
    )
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


STATE_FIELDS = tuple(DriftState.model_fields)


@router.get(
    "",
    operation_id="drift",
    summary="State of the detector",
    response_model=DriftState,
    responses=problems(503),
)
async def drift(request: Request) -> Response:
    """What the trainer last reported; it reports at least once a second.

    Of a named model for which nothing has come it reports nothing; it waits for samples then.
    """
    parts = parts_of(request)
    stream = parts.stream
    status = await stream.reports.status()
    # A trainer that has let a named model go says no more of it, and beats on for the service.
    of_trainer = None if stream is parts.of_service else await parts.of_service.reports.status()
    if status is None and of_trainer is not None and leads(of_trainer):
        # It opens a named model once something comes for it.
        told = not_begun(parts.settings, of_trainer["time"])
        return answers.json({**dict.fromkeys(STATE_FIELDS), **told}, version=0)
    if status is None:
        raise Unavailable(
            "No trainer has reported yet. Expected one to be running. Ask again in a moment; if "
            "this lasts, start it by `gmr trainer`."
        )
    document = {name: status.get(name) for name in STATE_FIELDS}
    document["loaded"] = status.get("state") != "unloaded"
    document["heartbeat_time"] = max(status["time"], (of_trainer or status)["time"])
    if drift := document["feature_drift"]:
        rows = await FeatureNames(stream).in_rows(drift["features"])
        document["feature_drift"] = {**drift, "features": rows}
    return answers.json(document, version=status.get("model_version"))


@router.get(
    "/boundaries",
    operation_id="boundaries",
    summary="Every boundary found",
    response_model=Boundaries,
    responses={
        304: {"description": "As it was when the answer with this entity tag came; no body."},
        **problems(422, 503),
    },
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
    if_none_match: Annotated[
        str | None,
        Header(description="`ETag` of an earlier answer, which is sent again if it has changed."),
    ] = None,
) -> Response:
    """Oldest first."""
    stream = parts_of(request).stream
    start = start_of(since)
    # What decides the answer is read first: few things, however many boundaries there are. None of
    # these ever changes, and what comes meanwhile is told to whoever asks again with this tag.
    newest = [record.id for record in await stream.reports.newest_boundaries(1)]
    branch = await stream.reports.branch()
    notes = await Notes(stream).all()
    names = await FeatureNames(stream).kept()
    release = request.app.version
    headers = {
        "ETag": tag_of_facts(release, stream.keys.model, start, newest, branch, notes, names)
    }
    if is_known(headers["ETag"], request):
        return Response(status_code=304, headers=headers)
    rows = [
        {
            "id": record.id,
            **with_names(record.data, names),
            "dropped": branch.drops(record.data["entry_id"]),
            "notes": told(record, notes.get(record.id, ())),
        }
        for record in await stream.reports.boundaries(start)
    ]
    return answers.json({"boundaries": rows}, headers=headers)


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
    if "last" not in request.query_params:
        last = min(last, most)
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
    declaration = Declaration(note=None, by=None)
    if request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers:
        declaration = await read_model(request, parts.settings, Declaration)
    await check_boundary(parts)
    control = Control("boundary", by=asker(request, declaration.by), note=declaration.note)
    appended = await parts.stream.append_control(control, entries_applied=parts.entries_applied)
    return answers.json({"entry_id": appended.entry_id}, status=202)


def _row(record: Record) -> dict[str, Any]:
    return {"id": record.id, **record.data}
