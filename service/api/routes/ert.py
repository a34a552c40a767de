"""PUT /drift/ert: ask for another run time between false alarms."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.api.bodies import read_model
from service.api.openapi import problems
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.api.routes.model import Restored, apply
from service.api.who import ANONYMOUS, asker
from service.wire import MOST_BY, Control

router = APIRouter(prefix="/drift", tags=["drift"], route_class=StrictRoute)

MOST_ERT = 10**16


class Wanted(BaseModel):
    """The run time between false alarms from now on."""

    model_config = ConfigDict(extra="forbid")

    ert: int | None = Field(
        ge=2,
        le=MOST_ERT,
        description="In samples; null: what the settings say.",
        examples=[50_000],
    )
    by: str | None = Field(
        None,
        max_length=MOST_BY,
        description="Who asks, where no keys are required; otherwise it is the name of the key.",
    )


@router.put(
    "/ert",
    operation_id="set_ert",
    summary="Ask for another run time between false alarms",
    response_model=Restored,
    responses={
        202: {"model": Restored, "description": "In the stream; the trainer has yet to do it."},
        **problems(403, 413, 415, 422, 429, 503),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": Wanted.model_json_schema()}},
        }
    },
)
async def set_ert(request: Request) -> Response:
    """Takes its place in the stream, and holds until somebody asks again: no setting overrules it,
    after a restart neither."""
    parts = parts_of(request)
    wanted = await read_model(request, parts.settings, Wanted)
    by = asker(request, wanted.by) or ANONYMOUS
    return await apply(parts, Control("aim", samples=wanted.ert or 0, by=by))
