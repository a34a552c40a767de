"""/models: the named models of the service, beside its own.

Whatever is asked of the service's own model is asked of the model NAME below /models/NAME; see
`service.api.of_model`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.api import answers
from service.api.bodies import read_model
from service.api.key_ring import Caller
from service.api.models import State, state_of
from service.api.openapi import json_body, problems
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.api.services import Services, services_of
from service.broker.connection import StreamUnavailable
from service.broker.many_reports import ModelReport
from service.broker.registry import NamedModel

router = APIRouter(prefix="/models", tags=["models"], route_class=StrictRoute)


class ModelAsked(BaseModel):
    """A model to be made."""

    model_config = ConfigDict(extra="forbid")

    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="By their names in docs/operations.md; the rest is as for the service's own "
        "model.",
        examples=[{"preset": "flat", "n_components": 20}],
    )


class ModelListed(BaseModel):
    """A named model."""

    name: str
    settings: dict[str, Any] = Field(description="Its own; the rest is the service's.")
    made: float = Field(description="When, in seconds since 1970.")
    made_by: str = Field(description="Name of the key that made it; `anybody` without keys.")
    state: State = Field(
        description="How the trainer has it. `unloaded`: kept, and loaded when an entry comes. "
        "`failing`: it is tried again, and `error` says why it failed. `leaving`: it is being "
        "taken down."
    )
    error: str | None = Field(description="Of the last attempt to work on it.")


class ModelSummary(ModelListed):
    """A named model and where it stands."""

    model_version: int = Field(description="0: nothing learned yet.")
    samples_seen: int = Field(description="Samples learned.")
    sub_task: int = Field(description="0 for the first.")
    classes: int = Field(description="Classes known.")
    backlog: int = Field(description="Entries accepted that the model does not hold yet.")
    checkpoint_error: str | None = Field(
        description="Why the newest checkpoint was not written, as the trainer reported last; null "
        "where it was."
    )


class NewestBoundary(BaseModel):
    """The boundary that a model has found last."""

    id: str = Field(description="As GET /models/{name}/drift/boundaries tells it.")
    time: float = Field(description="When it was found, Unix seconds.")
    severity: float | None = Field(
        description="Least share of the new samples that are other than before, 0 to 1; null where "
        "there were no new samples."
    )
    feature: int | None = Field(
        description="That has changed most, the first is 0; null where none has, beyond chance."
    )
    feature_name: str | None = Field(description="What it is called; null without a name.")
    dropped: bool = Field(
        description="Whether a rollback or an upload has taken it out of the model's past."
    )


class ModelDetail(BaseModel):
    """What the trainer last said of a model; null is what nobody knows, as before any sample."""

    phase: str | None = Field(
        description="`learning` (not armed yet), `armed`, or `warning` (batches are set aside)."
    )
    samples_seen: int | None = Field(description="Samples learned.")
    newest_sample_time: float | None = Field(
        description="When the newest samples that were read came, Unix seconds."
    )
    boundaries: int | None = Field(description="Boundaries in the past of the model.")
    boundary: NewestBoundary | None = Field(description="The newest one; null without one.")


class ModelInList(ModelListed):
    """A named model, and perhaps what the trainer says of it."""

    detail: ModelDetail | None = Field(
        description="Null where it was not asked for, and while Redis does not tell."
    )


class ModelList(BaseModel):
    """All named models that the key counts for."""

    default: str | None = Field(
        description="Name of the service's own model; null where the key does not count for it."
    )
    most: int = Field(description="Named models that there may be.")
    models: list[ModelInList] = Field(description="That the key counts for, oldest first.")


BODY = json_body(ModelAsked, required=False)


@router.get("", operation_id="list_models", responses=problems(401, 403, 421, 422, 503))
async def list_models(
    request: Request,
    detail: Annotated[
        bool,
        Query(
            description="Whether to tell what the trainer says of each, too. It is read from Redis "
            "for a hundred models at a time."
        ),
    ] = False,
) -> ModelList:
    """The named models of the service, beside its own, as far as the key counts for them."""
    settings, services = parts_of(request).settings, _services(request)
    caller: Caller = request.state.caller
    listed = await services.listed()
    counted = [
        (model, states)
        for register, states in listed
        for model in register.values()
        if caller.counts_for([model.name])
    ]
    reports = {}
    if detail:
        # The list itself is wanted also where a node of a Redis Cluster is away.
        with suppress(StreamUnavailable):
            reports = await services.reports([model.name for model, _ in counted])
    models = [
        ModelInList(**vars(_listed(model, states)), detail=_detail(reports.get(model.name)))
        for model, states in counted
    ]
    return ModelList(
        default=settings.model if caller.counts_for([settings.model]) else None,
        most=settings.max_models * len(listed),
        models=sorted(models, key=lambda model: model.made),
    )


@router.get(
    "/{name}",
    operation_id="describe_model",
    response_model=ModelSummary,
    responses=problems(401, 403, 404, 421, 422, 503),
)
async def describe_model(request: Request, name: str) -> Response:
    """A named model and where it stands. `/models/{name}/model` says all of it."""
    models = await _services(request).of(name)
    named = await models.named(name)
    if name not in named:
        raise await _services(request).unknown(name, request.state.caller)
    listed = _listed(named[name], await models.states())
    if named[name].leaving:
        unknown = dict.fromkeys(("model_version", "samples_seen", "sub_task", "classes"), 0)
        nothing = {**unknown, "backlog": 0, "checkpoint_error": None}
        return answers.json({**listed.model_dump(), **nothing})
    own = await models.parts(name)
    accepted = await own.stream.accepted()
    status = await own.stream.reports.status()
    served = own.follower.current
    info = None if served is None or served.snapshot is None else served.snapshot.info
    return answers.json(
        {
            **listed.model_dump(),
            "model_version": own.model_version,
            "samples_seen": 0 if info is None else info.samples_seen,
            "sub_task": 0 if info is None else info.sub_task,
            "classes": 0 if info is None else len(info.classes),
            "backlog": max(0, accepted - own.entries_applied),
            "checkpoint_error": None if status is None else status.get("checkpoint_error"),
        }
    )


@router.put(
    "/{name}",
    operation_id="make_model",
    response_model=ModelListed,
    status_code=201,
    responses={200: {"model": ModelListed}, **problems(401, 403, 409, 413, 415, 421, 422, 503)},
    openapi_extra=BODY,
)
async def make_model(request: Request, name: str) -> Response:
    """Make a named model, with settings of its own. The same again changes nothing (200)."""
    parts = parts_of(request)
    asked = ModelAsked()
    if int(request.headers.get("content-length") or 0) or "transfer-encoding" in request.headers:
        asked = await read_model(request, parts.settings, ModelAsked)
    models = await _services(request).of(name)
    there = (await models.named(name)).get(name)
    made = await models.make(name, asked.settings, request.state.caller.name)
    listed = _listed(made, await models.states())
    return answers.json(listed.model_dump(), status=201 if there is None else 200)


@router.delete(
    "/{name}",
    operation_id="take_down_model",
    status_code=202,
    responses=problems(401, 403, 404, 421, 422, 503),
)
async def take_down_model(request: Request, name: str) -> Response:
    """Take a named model down, with all that is kept of it. The trainer does it within seconds."""
    await _services(request).take_down(name, request.state.caller)
    return answers.json({"name": name, "state": "leaving"}, status=202)


def _services(request: Request) -> Services:
    services = services_of(request)
    assert services is not None  # these paths name no model before
    return services


def _detail(report: ModelReport | None) -> ModelDetail | None:
    """What a report says; None where none was asked for."""
    if report is None:
        return None
    status: Mapping[str, Any] = report.status or {}
    boundary, newest = report.boundary, None
    if boundary is not None:
        features = (boundary.get("explanation") or {}).get("features") or [{}]
        newest = NewestBoundary(
            id=boundary["id"],
            time=boundary["time"],
            severity=boundary.get("severity"),
            feature=features[0].get("feature"),
            feature_name=features[0].get("name"),
            dropped=boundary["dropped"],
        )
    return ModelDetail(
        **{name: status.get(name) for name in ModelDetail.model_fields if name != "boundary"},
        boundary=newest,
    )


def _listed(model: NamedModel, states: dict[str, dict[str, Any]]) -> ModelListed:
    return ModelListed(
        name=model.name,
        settings=dict(model.settings),
        made=model.made,
        made_by=model.made_by,
        state=state_of(model, states),
        error=states.get(model.name, {}).get("error"),
    )
