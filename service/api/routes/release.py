"""POST /model/release: let what was learned be served although it has forgotten."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from core.errors import InvalidRequest
from service.api.bodies import read_model
from service.api.control import apply, asking_for_control
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.api.who import By, asker
from service.wire import MOST_NOTE, Control

router = APIRouter(prefix="/model", tags=["model"], route_class=StrictRoute)


class Release(BaseModel):
    """Who releases what is held back, and why."""

    model_config = ConfigDict(extra="forbid")

    reason: str | None = Field(
        None, max_length=MOST_NOTE, description="Why; told with the event `hold_ended`."
    )
    by: By = None


@router.post(
    "/release",
    operation_id="release",
    summary="Serve what is learned although it has forgotten",
    **asking_for_control(Release),
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
