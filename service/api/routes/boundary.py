"""GET /drift/boundaries/{id}: all that is known of one boundary, a picture of it, and notes."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.api import answers, montage
from service.api.bodies import read_model
from service.api.boundaries import Boundary, Note
from service.api.errors import NotAcceptable, UnknownBoundary
from service.api.negotiation import JSON, PNG, choose
from service.api.openapi import forms, json_body, problems
from service.api.parts import Parts, parts_of
from service.api.query import StrictRoute
from service.api.who import asker
from service.broker.feature_names import FeatureNames
from service.broker.notes import Notes, told
from service.broker.records import Record
from service.wire import MOST_BY, MOST_NOTE

router = APIRouter(prefix="/drift", tags=["drift"], route_class=StrictRoute)

NAMED = 10
"""Ids that an answer for an unknown one lists."""

EXAMPLE = "1700000000000-20003"


class Wanted(BaseModel):
    """What is to be noted."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=MOST_NOTE, examples=["The lens was cleaned."])
    by: str | None = Field(
        None,
        max_length=MOST_BY,
        description="Who says so, where no keys are required; otherwise it is the name of the key.",
    )


@router.get(
    "/boundaries/{id}",
    operation_id="boundary",
    summary="One boundary, explained",
    response_model=Boundary,
    responses={200: {"content": forms(PNG)}, **problems(404, 406, 422, 503)},
)
async def boundary(
    request: Request,
    id: Annotated[
        str, Path(description="Id of the boundary, from the list of all.", examples=[EXAMPLE])
    ],
    shape: Annotated[
        str | None,
        Query(description="Shape of one sample in a picture: height,width or height,width,3."),
    ] = None,
) -> Response:
    """The record that the list has, with the whole explanation.

    As PNG: the prototypes of the new data in one row, and below them how much each feature
    contributes to the change.
    """
    parts = parts_of(request)
    form = choose(request.headers.get("accept"), (JSON, PNG))
    wanted_shape = None if shape is None else montage.parse_shape(shape)
    record = await _found(parts, id)
    branch = await parts.stream.reports.branch()
    version = record.data["version_after"]
    if form == JSON:
        dropped = branch.drops(record.data["entry_id"])
        notes = told(record, await Notes(parts.stream).of(id))
        [named] = await FeatureNames(parts.stream).in_records([record.data])
        document = {"id": record.id, **named, "dropped": dropped, "notes": notes}
        return answers.json(document, version=version)
    explanation = record.data["explanation"]
    if not explanation.get("prototypes"):
        raise NotAcceptable.no_prototypes(id)
    n_features, served = len(explanation["contributions"]), parts.follower.current
    known = None
    if served is not None and served.snapshot is not None:
        known = montage.known_shape(served.snapshot.info, parts.settings.image)
    picture = montage.image_shape(n_features, wanted_shape, known)
    content = await parts.workers.run(lambda: _drawn(explanation, picture), math.inf)
    return answers.png(content, version=version)


@router.post(
    "/boundaries/{id}/notes",
    operation_id="add_note",
    summary="Say something about a boundary",
    status_code=201,
    response_model=Note,
    responses=problems(403, 404, 409, 413, 415, 422, 503),
    openapi_extra=json_body(Wanted),
)
async def add_note(
    request: Request,
    id: Annotated[
        str, Path(description="Id of the boundary, from the list of all.", examples=[EXAMPLE])
    ],
) -> Response:
    """Fifty notes a boundary, of the newest thousand boundaries that have any."""
    parts = parts_of(request)
    wanted = await read_model(request, parts.settings, Wanted)
    await _found(parts, id)
    note = await Notes(parts.stream).add(id, wanted.text, asker(request, wanted.by))
    return answers.json(asdict(note), status=201)


async def _found(parts: Parts, id: str) -> Record:
    """The record of a boundary.

    Raises:
        UnknownBoundary: There is none.
    """
    is_id = re.fullmatch(r"[0-9]{1,15}-[0-9]{1,18}", id)
    record = await parts.stream.reports.boundary(id) if is_id else None
    if record is None:
        newest = await parts.stream.reports.newest_boundaries(NAMED)
        raise UnknownBoundary.among(id, [one.id for one in reversed(newest)])
    return record


def _drawn(explanation: dict[str, Any], shape: montage.Shape) -> bytes:
    """Prototypes in a row, and the contributions below them, on the same grey scale."""
    groups = np.array([group["features"] for group in explanation["prototypes"]], np.float32)
    shares = np.array(explanation["contributions"], np.float32)
    low, high = float(groups.min()), float(groups.max())
    # The tiles share one scale, so that the contributions are put on that of the prototypes.
    strength = low + (high - low) * shares / max(float(shares.max()), 1e-12)
    features = np.concatenate([groups, strength[None]])
    captions = ["new"] * len(groups) + ["where"]
    return montage.draw(features, shape, captions)
