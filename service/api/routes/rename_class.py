"""POST /model/rename-class: call a class otherwise from now on."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr

from service.api.admission import check
from service.api.bodies import read_model
from service.api.control import apply, asking_for_control
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.api.who import By, asker
from service.wire import MOST_NOTE, Control, check_label

router = APIRouter(prefix="/model", tags=["model"], route_class=StrictRoute)


class Renaming(BaseModel):
    """Another name of a class."""

    model_config = ConfigDict(extra="forbid")

    label: StrictInt | StrictStr = Field(
        description="Of the class, as its samples were labelled.", examples=["proposal-3"]
    )
    to: StrictInt | StrictStr = Field(
        description="Its label from now on; no class has it yet.", examples=["worn bearing"]
    )
    reason: str | None = Field(
        None, max_length=MOST_NOTE, description="Why; told with the event `class_renamed`."
    )
    by: By = None


@router.post(
    "/rename-class",
    operation_id="rename_class",
    summary="Call a class otherwise",
    **asking_for_control(Renaming, 404, 409),
)
async def rename_class(request: Request) -> Response:
    """All that was learned of it stays. Takes its place in the stream; samples that come later with
    the old label are another class. A rollback behind it brings the old label back. A label that
    another class has is refused: `POST /model/merge-classes` makes one of two."""
    parts = parts_of(request)
    wanted = await read_model(request, parts.settings, Renaming)
    check_label(wanted.label, "The label", 0)
    check_label(wanted.to, "The label that it is to have", 1)
    control = Control(
        "rename",
        labels=(wanted.label, wanted.to),
        by=asker(request, wanted.by),
        note=wanted.reason,
    )
    await check(parts, control)
    return await apply(parts, control)
