"""POST /model/release: let what was learned be served although it has forgotten."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from core.errors import InvalidRequest
from service.api.bodies import read_model
from service.api.openapi import problems
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.api.routes.model import Restored, apply
from service.api.who import asker
from service.wire import MOST_BY, MOST_NOTE, Control

router = APIRouter(prefix="/model", tags=["model"], route_class=StrictRoute)


class Release(BaseModel):
    """Who releases what is held back, and why."""

    model_config = ConfigDict(extra="forbid")

    reason: str | None = Field(
        None, max_length=MOST_NOTE, description="Why; told with the event `hold_ended`."
    )
    by: str | None = Field(
        None,
        max_length=MOST_BY,
        description="Who asks, where no keys are required; otherwise it is the name of the key.",
    )


@router.post(
    "/release",
    operation_id="release",
    summary="Serve what is learned although it has forgotten",
    response_model=Restored,
    responses={
        202: {"model": Restored, "description": "In the stream; the trainer has yet to do it."},
        **problems(403, 413, 415, 422, 429, 503),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": Release.model_json_schema()}},
        }
    },
)
async def release(request: Request) -> Response:
    """Ends a hold. Takes its place in the stream, as everything does that decides what is served.
    What was lost counts as accepted: further losses are counted from there."""
    parts = parts_of(request)
    wanted = await read_model(request, parts.settings, Release)
    if parts.settings.gate_max_forgetting is None:
        raise InvalidRequest(
            "There is no gate, so that every version is served. Expected one: set "
            "GMR_GATE_MAX_FORGETTING, where versions that forget should be held back."
        )
    control = Control("release", by=asker(request, wanted.by), note=wanted.reason)
    return await apply(parts, control)
