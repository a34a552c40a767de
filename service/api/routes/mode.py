"""PUT /model/mode: freeze the model, let detectors go on alone, or learn again."""

from __future__ import annotations

from enum import StrEnum

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.api.bodies import read_model
from service.api.control import apply, asking_for_control
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.api.who import By, asker
from service.wire import MOST_NOTE, Control

router = APIRouter(prefix="/model", tags=["model"], route_class=StrictRoute)


class Mode(StrEnum):
    """What becomes of batches that come."""

    learn = "learn"
    detect_only = "detect_only"
    frozen = "frozen"


class Wanted(BaseModel):
    """The mode from now on."""

    model_config = ConfigDict(extra="forbid")

    mode: Mode = Field(
        description="`learn`; `detect_only`: changes are told, nothing is learned or crossed; "
        "`frozen`: batches are scored and counted only.",
        examples=["frozen"],
    )
    reason: str | None = Field(
        None, max_length=MOST_NOTE, description="Why; told with the event `mode_changed`."
    )
    by: By = None


@router.put(
    "/mode",
    operation_id="set_mode",
    summary="Freeze the model, let detectors go on alone, or learn again",
    **asking_for_control(Wanted),
)
async def set_mode(request: Request) -> Response:
    """Takes its place in the stream: what was accepted before is dealt with as before. A mode that
    is in force already changes nothing."""
    parts = parts_of(request)
    wanted = await read_model(request, parts.settings, Wanted)
    control = Control(
        "mode", mode=wanted.mode.value, by=asker(request, wanted.by), note=wanted.reason
    )
    return await apply(parts, control)
