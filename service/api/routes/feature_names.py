"""/model/feature-names: what people call the features."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, FailFast, Field

from core.counted import counted
from core.errors import InvalidRequest
from service.api import answers
from service.api.bodies import read_model
from service.api.errors import FeaturesUnknown
from service.api.openapi import json_body, problems
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.broker.feature_names import FeatureNames
from service.wire import fault_of_names

router = APIRouter(prefix="/model/feature-names", tags=["model"], route_class=StrictRoute)


MOST_BYTES: Final = 5 * 1024 * 1024
"""Of a body: room for as many characters as names may have together."""


class Names(BaseModel):
    """Names of features, in their order."""

    model_config = ConfigDict(extra="forbid")

    feature_names: Annotated[list[str], FailFast()] = Field(
        min_length=1,
        description="D names, each of 1 to 200 characters that can be printed. They need not "
        "differ.",
        examples=[["temperature", "pressure"]],
    )


class NamesKept(BaseModel):
    """The names that are kept."""

    feature_names: list[str] | None = Field(
        description="D names, in the order of the features; null where there are none."
    )
    features: int | None = Field(description="D; null while it is not known.")


@router.get(
    "",
    operation_id="feature_names",
    summary="What people call the features",
    response_model=NamesKept,
    responses=problems(503),
)
async def feature_names(request: Request) -> Response:
    """Boundaries tell the names of the features that have changed."""
    stream = parts_of(request).stream
    kept = await FeatureNames(stream).kept()
    return answers.json({"feature_names": kept, "features": await stream.n_features()})


@router.put(
    "",
    operation_id="name_features",
    summary="Name the features",
    response_model=NamesKept,
    responses=problems(403, 409, 413, 415, 422, 503),
    openapi_extra=json_body(Names),
)
async def name_features(request: Request) -> Response:
    """The names are there at once, also for boundaries that were found before. They take the place
    of those that are kept. 409 while it is not known how many features there are."""
    parts = parts_of(request)
    wanted = await read_model(request, parts.settings, Names, MOST_BYTES)
    names = wanted.feature_names
    if fault := fault_of_names(names):
        raise InvalidRequest(fault)
    n_features = await parts.stream.n_features()
    if n_features is None:
        raise FeaturesUnknown.yet(len(names))
    if len(names) != n_features:
        raise InvalidRequest(
            f"A sample has {counted(n_features, 'feature')}, but {counted(len(names), 'name')} "
            f"came; nothing was kept. Send one name for each, in their order.",
            expected=n_features,
            got=len(names),
        )
    await FeatureNames(parts.stream).keep(names)
    return answers.json({"feature_names": names, "features": n_features})


@router.delete(
    "",
    operation_id="forget_feature_names",
    summary="Let the features have numbers only",
    status_code=204,
    responses=problems(403, 503),
)
async def forget_feature_names(request: Request) -> None:
    """Nothing else changes."""
    await FeatureNames(parts_of(request).stream).forget()
