"""GET /model and its companions: which model answers, which are kept, going back to one."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from core.errors import UnknownVersion
from service.api import answers
from service.api.bodies import read_model
from service.api.control import apply, asking_for_control
from service.api.gate import GateState
from service.api.montage import sample_shape
from service.api.openapi import problems
from service.api.parts import Parts, parts_of
from service.api.query import StrictRoute
from service.broker.feature_names import FeatureNames
from service.wire import Control

router = APIRouter(prefix="/model", tags=["model"], route_class=StrictRoute)


class ClassCount(BaseModel):
    """One class."""

    label: int | str
    count: int = Field(description="Labelled samples learned.")


class ClassHeld(BaseModel):
    """How well one class of a past sub-task is still held."""

    label: int | str
    samples: int = Field(description="Generated samples of the class that the model is asked.")
    accuracy_then: float = Field(description="When the sub-task ended, 0 to 1.")
    accuracy_now: float
    probability_then: float = Field(description="Mean that the model gives the class, 0 to 1.")
    probability_now: float
    log_likelihood_then: float = Field(description="Mean, in nats.")
    log_likelihood_now: float | None = Field(
        description="Null where components that drew those samples have changed since."
    )


class SubTaskHeld(BaseModel):
    """How well a past sub-task is still held, by samples that the model drew when it ended."""

    sub_task: int = Field(description="0 for the first.")
    samples: int = Field(description="Generated samples that the model is asked.")
    classes: list[ClassHeld] = Field(description="That it showed; empty without labels.")
    accuracy_then: float | None = Field(
        description="When the sub-task ended, 0 to 1; null without labels."
    )
    accuracy_now: float | None = Field(description="Accuracy of a later model: `model_version`.")
    probability_then: float | None = Field(
        description="Mean that the model gives the right class, 0 to 1; falls before accuracy does."
    )
    probability_now: float | None
    log_likelihood_then: float = Field(description="Mean, in nats.")
    log_likelihood_now: float | None = Field(
        description="Null where components that drew those samples have changed since."
    )
    model_version: int = Field(
        description="That `now` is about; the model that answers, once the stream is quiet."
    )


class DurabilityState(BaseModel):
    """What Redis promises of what it has acknowledged."""

    promise: str = Field(
        description="`disk`: forced to disk before the answer; `replicas`: there, too; `weak`: "
        "less, which GMR_ACCEPT_WEAK_DURABILITY has accepted."
    )
    replicas: int = Field(description="That must have a batch before it is acknowledged.")
    lacks: list[str] = Field(description="What the Redis does not do; empty unless `weak`.")


class CoarseFeature(BaseModel):
    """A feature that lies too far from zero for what varies in it: float32 is coarse there."""

    feature: int = Field(description="Its place in a sample; the first is 0.")
    name: str | None = Field(
        None, description="What PUT /model/feature-names calls it; null without names."
    )
    mean: float = Field(description="In the units that were sent.")
    deviation: float = Field(
        description="As float32 show it; 0 where nothing varies in these, and the mean is beyond "
        "2^24."
    )
    spacing: float = Field(
        description="Of float32 at the mean; more than a twentieth of the deviation."
    )


class ModelState(BaseModel):
    """The model that answers at the moment."""

    model_config = ConfigDict(extra="allow")

    model_version: int = Field(description="Grows with every change; 0: nothing learned yet.")
    name: str = Field(description="Name of the model, a setting.")
    preset: str = Field(description="Kind of model.")
    device: str | None = Field(description="Where this process computes.")
    components: int = Field(description="Gaussians in use.")
    features: int | None = Field(description="D; null until the first batch fixes it.")
    image_shape: list[int] | None = Field(
        None,
        description="Height, width and perhaps channels of a sample that is an image; null for a "
        "table, and where the shape is not known.",
    )
    coarse_features: list[CoarseFeature] | None = Field(
        None,
        description="Features of which float32 loses what varies, by place, at most 100, as the "
        "trainer reported last; empty for images, null before 20 samples. Subtract an offset "
        "before sending, then reset.",
    )
    classes: list[ClassCount] = Field(description="In order of discovery.")
    samples_seen: int = Field(description="Samples learned.")
    batches_seen: int = Field(description="Batches learned.")
    sub_task: int = Field(description="0 for the first.")
    parameters: int = Field(description="Numbers that the model is made of.")
    bytes: int = Field(description="Their size.")
    mode: str | None = Field(
        None,
        description="`learn`, `detect_only` or `frozen`, as the trainer reported last; null where "
        "it does not say.",
    )
    gate: GateState | None = Field(
        None,
        description="Whether what is learned is served, as the trainer reported last; null without "
        "a gate (GMR_GATE_MAX_FORGETTING).",
    )
    detector: str = Field(description="What finds boundaries.")
    window: int = Field(description="Raw samples of the current sub-task held at the moment.")
    waiting: int = Field(
        description="Samples of `window` that the model takes in once the stream is quiet."
    )
    set_aside: int = Field(description="Raw samples held because they look like a change.")
    awaiting: int = Field(
        0, description="Raw samples held because they await their label (POST /labels)."
    )
    unknown: int = Field(
        0, description="Raw samples without a label held because they may be a new class."
    )
    recent: int = Field(
        0,
        description="The last raw samples that were learned without a label, held until the next "
        "boundary to find new classes.",
    )
    heard: int = Field(
        0,
        description="Raw labelled samples that the experts on what a sample is called hold, 2,079 "
        "at most.",
    )
    held: list[SubTaskHeld] = Field(
        description="Live forgetting: how well past sub-tasks are still held, oldest first, by "
        "samples that the model drew when each ended."
    )
    last_entry_id: str | None = Field(description="Newest entry that this model holds.")
    backlog: int = Field(description="Entries accepted that this model does not hold yet.")
    durability: DurabilityState = Field(
        description="What a 202 means on this Redis: docs/guarantees.md."
    )
    checkpoint_error: str | None = Field(
        None,
        description="Why the newest checkpoint was not written, as the trainer reported last; null "
        "where it was. Learning goes on, and entries stay in the stream until one is written.",
    )
    archive_error: str | None = Field(
        None,
        description="Why the archive has a gap, as the trainer reported last; null where it is "
        "written, or none is kept. Learning goes on, and the archive in a new part once it can.",
    )
    restored_entry_id: str | None = Field(
        None,
        description="Entry of the newest rollback or upload on the way to this model. What was "
        "sent before it may be no part of the model, and can be sent again.",
    )


class Version(BaseModel):
    """A kept version."""

    model_config = ConfigDict(extra="allow")

    version: int = Field(description="Give it to POST /model/rollback.")
    parent: int | None = Field(None, description="The kept version that it grew from.")
    origin: str = Field("learned", description="`learned`, `rollback` or `checkpoint`.")
    before_boundary: int | None = Field(None, description="The boundary that came right after.")
    entries_applied: int = Field(description="Entries of the stream that it contains.")
    time: float | None = Field(None, description="When it was kept, Unix seconds.")
    written_by: str | None = Field(
        None,
        description="The code that wrote its checkpoint: release, digest of its sources, libraries "
        "that compute; and the kind of processor. Null where an earlier release did not say.",
        examples=["0.1.0 58e4055ed2cb, torch 2.13.0, numpy 2.4.6, numba 0.68.1 on znver3"],
    )


class Versions(BaseModel):
    """Kept versions, newest first."""

    model_version: int = Field(description="Served at the moment.")
    versions: list[Version]


class Rollback(BaseModel):
    """Which version to go back to."""

    model_config = ConfigDict(extra="forbid")

    version: int = Field(ge=0, description="One of GET /model/versions.", examples=[12])


@router.get(
    "",
    operation_id="model",
    summary="The model that answers",
    response_model=ModelState,
    responses=problems(503),
)
async def model(request: Request) -> Response:
    """Poll until `backlog` is 0 to wait until everything accepted has been learned."""
    parts = parts_of(request)
    # The snapshot first: what is accepted in between can only make the backlog larger.
    served = parts.follower.current
    accepted = await parts.stream.accepted()
    applied = 0 if served is None else served.entries_applied
    branch = await parts.stream.reports.branch()
    status = await parts.stream.reports.status()
    coarse = None if status is None else status.get("coarse_features")
    if coarse is not None:
        coarse = await FeatureNames(parts.stream).in_rows(coarse)
    position = {
        "coarse_features": coarse,
        "mode": None if status is None else status.get("mode"),
        "gate": None if status is None else status.get("gate"),
        "checkpoint_error": None if status is None else status.get("checkpoint_error"),
        "archive_error": None if status is None else status.get("archive_error"),
        "last_entry_id": None if served is None else served.last_entry_id,
        "backlog": max(0, accepted - applied),
        "restored_entry_id": branch.restored,
        "durability": _durability(parts),
    }
    snapshot = None if served is None else served.snapshot
    if served is None or snapshot is None:
        awaiting = 0 if status is None else int(status.get("awaiting", 0))
        nothing = _nothing_learned(parts, await parts.stream.n_features(), awaiting)
        return answers.json({**nothing, **position}, version=0)
    facts = {
        **snapshot.info.to_dict(),
        "image_shape": sample_shape(snapshot, parts.settings.image),
        "held": served.held,
    }
    return answers.json(
        {"name": parts.settings.model, **facts, **position}, version=snapshot.version
    )


@router.get(
    "/versions",
    operation_id="model_versions",
    summary="The versions that are kept",
    response_model=Versions,
    responses=problems(503),
)
async def versions(request: Request) -> Response:
    """The newest few, and the one before each of the last boundaries."""
    parts = parts_of(request)
    kept = await parts.stream.reports.versions()
    rows = [Version.model_validate(version).model_dump() for version in kept]
    return answers.json({"model_version": parts.model_version, "versions": rows})


@router.post(
    "/rollback",
    operation_id="rollback",
    summary="Serve an older version again",
    **asking_for_control(Rollback, 404),
)
async def rollback(request: Request) -> Response:
    """Takes its place in the stream: what was accepted before is learned first, then dropped
    with everything else that came after the version."""
    parts = parts_of(request)
    wanted = await read_model(request, parts.settings, Rollback)
    kept = [version["version"] for version in await parts.stream.reports.versions()]
    if wanted.version not in kept:
        raise UnknownVersion.among(wanted.version, kept)
    return await apply(parts, Control("rollback", version=wanted.version))


def _durability(parts: Parts) -> dict[str, object]:
    """What the connection that was made last has found."""
    found = parts.stream.durability
    assert found is not None  # Redis has just answered
    return {"promise": found.promise, "replicas": found.replicas, "lacks": list(found.lacks)}


def _nothing_learned(parts: Parts, n_features: int | None, awaiting: int) -> dict[str, object]:
    settings = parts.settings
    return {
        "model_version": 0,
        "name": settings.model,
        "preset": settings.preset,
        "device": None,
        "components": 0,
        "features": n_features,
        "image_shape": None,
        "classes": [],
        "samples_seen": 0,
        "batches_seen": 0,
        "sub_task": 0,
        "parameters": 0,
        "bytes": 0,
        "detector": settings.detector,
        "window": 0,
        "waiting": 0,
        "set_aside": 0,
        "awaiting": awaiting,
        "unknown": 0,
        "recent": 0,
        "heard": 0,
        "held": [],
    }
