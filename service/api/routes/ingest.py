"""POST /ingest: put a batch into the stream. When the answer comes, the batch is durable.

GET /ingest: what a sender has to know first.
"""

from __future__ import annotations

from dataclasses import replace

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from core.errors import GMRError
from service.api import answers
from service.api.admission import check_classes, check_shape
from service.api.bodies import read_batch
from service.api.montage import sample_shape
from service.api.naming import ID, ID_PARAMETERS, ID_SCHEMA, one_name
from service.api.of_model import parts_made
from service.api.openapi import LABELS, SAMPLE_IDS, problems, samples_body
from service.api.parts import parts_of
from service.api.problems import problem_of
from service.api.query import StrictRoute
from service.api.receipt import receipt
from service.api.who import asker

router = APIRouter(tags=["stream"], route_class=StrictRoute)

EXAMPLE = {
    "features": [[0.0, 0.5], [1.0, 0.25]],
    "labels": [7, None],
    "sample_ids": [None, "s-1"],
    "batch_id": "a-1",
}


class Ingested(BaseModel):
    """What became of a batch."""

    entry_id: str = Field(
        description="Id of the entry in the stream; of the first for a duplicate."
    )
    batch_id: str = Field(description="The sender's, or one made for this batch.")
    samples: int = Field(description="Samples of the batch.")
    backlog: int = Field(description="Entries accepted and not yet learned, this one included.")
    duplicate: bool = Field(description="Whether it was there before; nothing was added then.")
    rejected: str | None = Field(
        description="Reason why a duplicate could not be used. It was not learned."
    )
    deadletter: str | None = Field(
        description="Likewise, where it is kept: send it again by POST /deadletters/{id}."
    )


class IngestState(BaseModel):
    """What a sender has to know."""

    features: int | None = Field(description="D; null until the first batch fixes it.")
    image_shape: list[int] | None = Field(
        description="Height, width and perhaps channels of a sample that is an image; null for a "
        "table, and where the shape is not known."
    )
    last_entry_id: str | None = Field(description="Newest entry that the model holds.")
    backlog: int = Field(description="Entries accepted that the model does not hold yet.")
    restored_entry_id: str | None = Field(
        description="Entry of the newest rollback or upload on the way to this model. What was "
        "sent before it may be no part of the model, and can be sent again."
    )


@router.get(
    "/ingest",
    operation_id="ingest_state",
    summary="What a sender has to know",
    response_model=IngestState,
    responses=problems(503),
)
async def ingest_state(request: Request) -> Response:
    """Where the model stands, as far as it concerns who sends. A key of any role may ask."""
    parts = parts_of(request)
    # The snapshot first: what is accepted in between can only make the backlog larger.
    served = parts.follower.current
    accepted = await parts.stream.accepted()
    branch = await parts.stream.reports.branch()
    snapshot = None if served is None else served.snapshot
    features = await parts.stream.n_features() if snapshot is None else snapshot.info.features
    shape = None if snapshot is None else sample_shape(snapshot, parts.settings.image)
    return answers.json(
        {
            "features": features,
            "image_shape": shape,
            "last_entry_id": None if served is None else served.last_entry_id,
            "backlog": max(0, accepted - (0 if served is None else served.entries_applied)),
            "restored_entry_id": branch.restored,
        },
        version=0 if snapshot is None else snapshot.version,
    )


@router.post(
    "/ingest",
    operation_id="ingest",
    summary="Send samples to learn from",
    status_code=202,
    response_model=Ingested,
    responses={
        202: {"description": "The batch is durable in the stream and will be learned."},
        200: {"model": Ingested, "description": "The batch was accepted before; nothing added."},
        **problems(403, 409, 413, 415, 422, 429, 503),
    },
    openapi_extra=samples_body(EXAMPLE, {"labels": LABELS, "sample_ids": SAMPLE_IDS, ID: ID_SCHEMA})
    | {"parameters": ID_PARAMETERS},
)
async def ingest(request: Request) -> Response:
    """Accepts N samples of D features, with or without labels. The first batch fixes D.

    Send the same `batch_id` again whenever an answer was lost: a batch is learned once. What
    could not be learned when its turn came is among the dead letters.
    """
    parts = parts_of(request)
    try:
        # Of the model served now; the append compares it with what was accepted, in one script.
        applied = parts.entries_applied
        batch = await read_batch(request, parts.settings)
        batch_id = one_name(batch.batch_id, request)
        batch = replace(batch, batch_id=batch_id, by=asker(request, None))
        made = await parts_made(request)
        if made is not parts:
            parts, applied = made, made.entries_applied
        check_shape(parts, batch)
        await check_classes(parts, batch.vocabulary)
        appended = await parts.stream.append(batch, entries_applied=applied)
    except GMRError as error:
        # As the trainer names its reasons.
        parts.metrics.rejected(problem_of(error).name.replace("-", "_"))
        raise
    return receipt(appended, applied, samples=len(batch))
