"""PUT /drift/ert: ask for another run time between false alarms."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from core.config import too_short
from service.api.bodies import read_model
from service.api.control import apply, asking_for_control
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.api.who import ANONYMOUS, By, asker
from service.wire import Control

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
    by: By = None


@router.put(
    "/ert",
    operation_id="set_ert",
    summary="Ask for another run time between false alarms",
    **asking_for_control(Wanted),
)
async def set_ert(request: Request) -> Response:
    """Takes its place in the stream, and holds until somebody asks again: no setting overrules it,
    after a restart neither."""
    parts = parts_of(request)
    wanted = await read_model(request, parts.settings, Wanted)
    by = asker(request, wanted.by) or ANONYMOUS
    control = Control("aim", samples=wanted.ert or 0, by=by)
    warning = None if wanted.ert is None else too_short(wanted.ert)
    return await apply(parts, control, warning=warning)
