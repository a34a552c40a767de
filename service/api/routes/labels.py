"""POST /labels: labels for samples that were sent without, and names for proposed classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from core.errors import GMRError
from service.api.admission import check
from service.api.bodies import beside, charge, media_type, read_body
from service.api.naming import ID, ID_PARAMETERS, ID_SCHEMA, one_name
from service.api.negotiation import JSON
from service.api.openapi import LABEL, SAMPLE_ID, problems
from service.api.parts import parts_of
from service.api.problems import problem_of
from service.api.query import StrictRoute
from service.api.receipt import receipt
from service.wire import Limits, parse_labels

router = APIRouter(tags=["stream"], route_class=StrictRoute)

BY_ID: Final[dict[str, Any]] = {
    "type": "object",
    "title": "LabelsOfSamples",
    "required": ["sample_ids", "labels"],
    "additionalProperties": False,
    "properties": {
        "sample_ids": {
            "type": "array",
            "description": "Samples by the ids that they were or will be sent with, each once.",
            "minItems": 1,
            "items": SAMPLE_ID,
        },
        "labels": {"type": "array", "description": "The label of each.", "items": LABEL},
        ID: ID_SCHEMA,
    },
}
BY_PROPOSAL: Final[dict[str, Any]] = {
    "type": "object",
    "title": "NameOfAProposal",
    "required": ["proposal", "label"],
    "additionalProperties": False,
    "properties": {
        "proposal": {"type": "integer", "description": "One of GET /drift/proposals."},
        "label": {
            "anyOf": [*LABEL["anyOf"], {"type": "null"}],
            "description": "What its samples are; null learns them without a label.",
        },
        ID: ID_SCHEMA,
    },
}
EXAMPLES: Final = {
    "labels": {
        "summary": "Labels for samples",
        "value": {"sample_ids": ["s-1", "s-2"], "labels": ["a", "b"], "batch_id": "l-1"},
    },
    "proposal": {
        "summary": "A name for a proposed class",
        "value": {"proposal": 1, "label": "c"},
    },
}


class Labelled(BaseModel):
    """What became of labels."""

    entry_id: str = Field(
        description="Id of the entry in the stream; of the first for a duplicate."
    )
    batch_id: str = Field(description="The sender's, or one made for this request.")
    labels: int = Field(description="Labels of the request.")
    backlog: int = Field(description="Entries accepted and not yet learned, this one included.")
    duplicate: bool = Field(description="Whether it was there before; nothing was added then.")
    rejected: str | None = Field(
        description="Reason why a duplicate could not be used. It was not matched."
    )
    deadletter: str | None = Field(
        description="Likewise, where it is kept: send it again by POST /deadletters/{id}."
    )


@router.post(
    "/labels",
    operation_id="label",
    summary="Send labels for samples that came without",
    status_code=202,
    response_model=Labelled,
    responses={
        202: {"description": "The labels are durable in the stream and will be matched."},
        200: {"model": Labelled, "description": "They were accepted before; nothing added."},
        **problems(403, 404, 409, 413, 415, 422, 429, 503),
    },
    openapi_extra={
        "parameters": ID_PARAMETERS,
        "requestBody": {
            "required": True,
            "content": {JSON: {"schema": {"anyOf": [BY_ID, BY_PROPOSAL]}, "examples": EXAMPLES}},
        },
    },
)
async def label(request: Request) -> Response:
    """Takes its place in the stream. Samples and labels find each other by id, whichever comes
    first; the event `labels_matched` tells what became of them.
    """
    parts = parts_of(request)
    settings, applied = parts.settings, parts.entries_applied
    try:
        media_type(request, (JSON,))
        body = await read_body(request, settings.max_body_bytes)
        limits = Limits(settings.max_samples, settings.max_features)
        labels = await beside(request, body, lambda: parse_labels(body, limits))
        charge(request, "samples", len(labels))
        labels = replace(labels, batch_id=one_name(labels.batch_id, request))
        await check(parts, labels)
        appended = await parts.stream.append_labels(labels, entries_applied=applied)
    except GMRError as error:
        parts.metrics.rejected(problem_of(error).name.replace("-", "_"))
        raise
    return receipt(appended, applied, labels=len(labels))
