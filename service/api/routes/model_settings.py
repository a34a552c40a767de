"""GET and PATCH /model/settings: those that can be asked for while the model runs."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt

from core.engine.asked_settings import ADJUSTABLE, AskedSettings
from core.errors import InvalidRequest, InvalidSettings
from service.api import answers
from service.api.bodies import read_model
from service.api.control import apply, asking_for_control
from service.api.errors import Unavailable
from service.api.openapi import problems
from service.api.parts import Parts, parts_of
from service.api.query import StrictRoute
from service.api.settings_in_force import settings_in_force
from service.api.who import By, asker
from service.settings import Settings
from service.settings.names import suggestion
from service.wire import MOST_NOTE, Control

router = APIRouter(prefix="/model", tags=["model"], route_class=StrictRoute)


class Setting(BaseModel):
    """A setting."""

    value: float | int | None = Field(description="In force; null: none.")
    asked: bool = Field(
        description="Whether it was asked for while the model ran, so that no setting of the "
        "service overrules it."
    )


class SettingsInForce(BaseModel):
    """Settings of the model that can be changed while it runs."""

    settings: dict[str, Setting] = Field(description="By their names in docs/operations.md.")


class Wanted(BaseModel):
    """Settings from now on; those that are not named stay as they are."""

    model_config = ConfigDict(extra="forbid")

    settings: dict[str, StrictInt | StrictFloat | None] = Field(
        min_length=1,
        description="Values by name, as GET /model/settings has them; null: what the service's "
        "settings say.",
        examples=[{"outlier_false_positive_rate": 0.01, "max_classes": None}],
    )
    reason: str | None = Field(
        None, max_length=MOST_NOTE, description="Why; told with the event `settings_changed`."
    )
    by: By = None


@router.get(
    "/settings",
    operation_id="settings",
    summary="Settings that can be changed while the model runs",
    response_model=SettingsInForce,
    responses=problems(503),
)
async def settings_now(request: Request) -> Response:
    """As the trainer reported last."""
    parts = parts_of(request)
    status = await parts.stream.reports.status()
    if status is None and await parts.of_service.reports.status() is None:
        raise Unavailable(
            "No trainer has reported yet. Expected one to be running. Ask again in a moment; if "
            "this lasts, start it by `gmr trainer`."
        )
    version = None if status is None else status.get("model_version")
    return answers.json({"settings": settings_in_force(parts.settings, status)}, version=version)


@router.patch(
    "/settings",
    operation_id="change_settings",
    summary="Change settings while the model runs",
    **asking_for_control(Wanted),
)
async def change_settings(request: Request) -> Response:
    """Takes its place in the stream, and holds until somebody asks again: no setting overrules it,
    after a restart neither. Where nothing changes, nothing is told."""
    parts = parts_of(request)
    wanted = await read_model(request, parts.settings, Wanted)
    own: Parts = request.app.state.parts
    _check(own.settings, wanted)
    control = Control(
        "settings",
        settings=wanted.settings,
        by=asker(request, wanted.by),
        note=wanted.reason,
    )
    return await apply(parts, control)


def _check(settings: Settings, wanted: Wanted) -> None:
    """Raise `InvalidRequest` for what the trainer, or the settings of a model, would refuse."""
    for name in wanted.settings:
        if name not in ADJUSTABLE:
            raise InvalidRequest(
                f"{name[:80]!r} cannot be changed while the model runs. "
                f"{suggestion(name, set(ADJUSTABLE))} Expected {', '.join(ADJUSTABLE)}; others are "
                f"changed by a restart.",
                known=list(ADJUSTABLE),
            )
    asked = AskedSettings().with_changes(wanted.settings)
    try:
        settings.for_model("asked", asked.values)
    except InvalidSettings as error:
        raise InvalidRequest(str(error)) from error
