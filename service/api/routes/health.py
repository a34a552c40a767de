"""GET /health/live, /health/startup and /health/ready: is it there, has it begun, may it be asked?

Rules of this module:

1. Liveness asks nothing of anyone: a process is not restarted because Redis is away.
2. A process has begun once, whatever happens later: that is for the other two to say.
3. A service that has learned nothing yet is ready: it is ready to be taught.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from core.errors import GMRError
from service.api import answers
from service.api.errors import Unavailable
from service.api.openapi import problems
from service.api.parts import Parts, parts_of
from service.api.problems import PROBLEMS, answer
from service.api.query import StrictRoute
from service.api.services import Services, services_of
from service.broker.keys import Keys
from service.trainer.activity import stall_of
from service.trainer.starts import MANY

router = APIRouter(prefix="/health", tags=["operations"], route_class=StrictRoute)

PATIENCE_S: Final = 1.0
"""For Redis to answer: a probe should not wait as long as a request."""

HEARTBEAT_S: Final = 30.0
"""Age beyond which the trainer counts as gone; it reports every few seconds, busy or not."""


class Healthy(BaseModel):
    """All is well."""

    status: str = Field(examples=["ready"])


class Ready(Healthy):
    """Requests are welcome."""

    held: str | None = Field(
        None,
        description="Why an earlier version answers in place of what is learned, which is no "
        "reason against requests; absent where that is not so.",
    )


@router.get("/live", operation_id="live", summary="Is the process there?", response_model=Healthy)
async def live() -> Response:
    """Answers as long as the process can answer anything."""
    return answers.json({"status": "live"})


@router.get(
    "/startup",
    operation_id="startup",
    summary="Has the process begun?",
    response_model=Healthy,
    responses=problems(503),
)
async def startup(request: Request) -> Response:
    """503 until Redis has answered once, and the model that was published last, if any, is loaded.
    200 from then on, whatever happens."""
    parts = parts_of(request)
    if not parts.started:
        reason = await _not_begun(parts)
        if reason is not None:
            detail = f"{reason} Expected that to pass within seconds. See docs/operations.md."
            return answer(PROBLEMS[Unavailable], request, detail, {"reasons": [reason]})
        parts.started = True
    return answers.json({"status": "started"})


async def _not_begun(parts: Parts) -> str | None:
    try:
        published = await asyncio.wait_for(parts.stream.reports.last_notice(), PATIENCE_S)
    except (GMRError, TimeoutError) as error:
        return str(getattr(error, "context", {}).get("reason") or "Redis does not answer.")
    if published is not None and parts.follower.current is None:
        return parts.follower.unread or "The model that was published last is not loaded yet."
    return None


@router.get(
    "/ready",
    operation_id="ready",
    summary="Should requests be sent here?",
    response_model=Ready,
    responses=problems(503),
)
async def ready(request: Request) -> Response:
    """503 names every reason: Redis away, no trainer, or shutting down. Of a process that answers
    for a cluster trainers are asked for below `/models/NAME` only."""
    parts = parts_of(request)
    reasons = await reasons_against(parts, services_of(request))
    if reasons:
        detail = f"{' '.join(reasons)} Expected none of this. See docs/operations.md."
        return answer(PROBLEMS[Unavailable], request, detail, {"reasons": reasons})
    held = await _held(parts)
    return answers.json({"status": "ready"} if held is None else {"status": "ready", "held": held})


async def _held(parts: Parts) -> str | None:
    """Why an earlier version answers."""
    if parts.follower.unread is not None:
        return parts.follower.unread
    try:
        status = await asyncio.wait_for(parts.stream.reports.status(), PATIENCE_S)
    except (GMRError, TimeoutError):
        return None
    gate = None if status is None else status.get("gate")
    if not gate or not gate["held"]:
        return None
    return (
        f"Version {gate['served_version']} answers. Version {gate['checked_version']} is held "
        f"back: its accuracy on sub-task {gate['past_sub_task']} is {gate['accuracy_now']:.3f} of "
        f"{gate['accuracy_before']:.3f}, and {gate['max_forgetting']:g} may be lost."
    )


async def reasons_against(parts: Parts, services: Services | None) -> list[str]:
    """Why no requests should be sent here; empty when they should."""
    reasons = ["The service is shutting down."] if parts.draining else []
    if parts.follower.unread is not None and parts.follower.current is None:
        reasons.append(parts.follower.unread)
    try:
        status = await asyncio.wait_for(parts.of_service.reports.status(), PATIENCE_S)
    except (GMRError, TimeoutError) as error:
        known = getattr(error, "context", {}).get("reason")
        return [*reasons, str(known or "Redis does not answer.")]
    if services is not None and services.are_buckets:
        return reasons  # while one bucket is led by nobody, all others answer
    reasons += faults_of_trainer(status, parts.settings.stall_s)
    if status is None:
        reasons += await _cluster_instead(parts)
    elif leads(status):
        reasons += await _fault_of_model(parts)
    return reasons


async def _cluster_instead(parts: Parts) -> list[str]:
    """What a service without a trainer may be meant to be, by its name: a cluster."""
    stream, model = parts.of_service, parts.settings.model.partition("/")[0]
    try:
        reading = stream.read(lambda: stream.client.exists(Keys(model).cluster))
        found = await asyncio.wait_for(reading, PATIENCE_S)
    except (GMRError, TimeoutError):
        return []  # Redis has answered a moment ago
    if not found:
        return []
    return [f"{model!r} is a cluster: start API processes with --cluster true (GMR_CLUSTER)."]


async def _fault_of_model(parts: Parts) -> list[str]:
    """Why the trainer cannot work on the named model that is asked; nothing for any other."""
    if parts.stream is parts.of_service:
        return []
    try:
        states = await asyncio.wait_for(parts.of_service.reports.model_states(), PATIENCE_S)
    except (GMRError, TimeoutError) as error:
        known = getattr(error, "context", {}).get("reason")
        return [str(known or "Redis does not answer.")]
    name = parts.settings.model.rpartition("/")[2]
    state = states.get(name, {})
    if state.get("state") != "failing":
        return []
    return [f"The trainer fails at model {name!r}, and tries again: {state.get('error')}"]


def faults_of_trainer(status: dict[str, Any] | None, stall_s: float) -> list[str]:
    """Why the trainer learns nothing; empty where it works.

    Arguments:
        status: What it reported last; None where none ever has.
        stall_s: `GMR_STALL_S`.
    """
    age = heartbeat_age(status)
    if status is None or age is None:
        return ["No trainer has reported yet."]
    if status.get("state") == "refused":
        return [f"The trainer does not start: {status.get('error')}"]
    if age > HEARTBEAT_S:
        return [f"The trainer last reported {age:.0f} seconds ago."]
    reasons = []
    if stall := stall_of(status, stall_s):
        reasons.append(stall)
    starts = status.get("starts", 0)
    if starts >= MANY:
        reasons.append(
            f"The trainer has begun {starts} times in a row without getting further than entry "
            f"{status['last_entry_id']}; its log says why it ended."
        )
    return reasons


def leads(status: dict[str, Any]) -> bool:
    """Whether a trainer reports, and works."""
    age = heartbeat_age(status)
    return age is not None and age <= HEARTBEAT_S and status.get("state") != "refused"


def heartbeat_age(status: dict[str, Any] | None) -> float | None:
    """Seconds since the trainer last reported; None when it never has."""
    return None if status is None else max(0.0, time.time() - float(status["time"]))
