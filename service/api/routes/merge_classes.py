"""POST /model/merge-classes: let two classes be one from now on."""

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


class Merging(BaseModel):
    """Two classes that become one."""

    model_config = ConfigDict(extra="forbid")

    label: StrictInt | StrictStr = Field(
        description="Of the class that becomes part of the other.", examples=["wron"]
    )
    into: StrictInt | StrictStr = Field(
        description="Label of the other class, and of both from now on.", examples=["worn"]
    )
    reason: str | None = Field(
        None, max_length=MOST_NOTE, description="Why; told with the event `classes_merged`."
    )
    by: By = None


@router.post(
    "/merge-classes",
    operation_id="merge_classes",
    summary="Let two classes be one",
    **asking_for_control(Merging, 404, 409),
)
async def merge_classes(request: Request) -> Response:
    """All that was learned of both is of the one. Takes its place in the stream; samples that come
    later with the label that is no more are another class. A rollback behind it brings both
    back."""
    parts = parts_of(request)
    wanted = await read_model(request, parts.settings, Merging)
    check_label(wanted.label, "The label", 0)
    check_label(wanted.into, "The label of the other class", 1)
    control = Control(
        "merge",
        labels=(wanted.label, wanted.into),
        by=asker(request, wanted.by),
        note=wanted.reason,
    )
    await check(parts, control)
    return await apply(parts, control)
