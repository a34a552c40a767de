"""GET /metrics: this process's metrics, and the trainer's, as Prometheus text."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST

from core.errors import GMRError
from service.api.models import state_of
from service.api.parts import Parts, parts_of
from service.api.routes.health import faults_of_trainer, heartbeat_age
from service.api.services import Services, services_of
from service.broker.dead_letters import DeadLetters

router = APIRouter(tags=["operations"])

PATIENCE_S: Final = 2.0
"""Less than Prometheus waits: the process's own metrics matter most when Redis is away."""


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """docs/operations.md says what each means."""
    parts, services = parts_of(request), services_of(request)
    try:
        async with asyncio.timeout(PATIENCE_S):
            accepted, trainers, status, trainer, dead_letters, ids_age = await asyncio.gather(
                parts.stream.accepted(),
                _trainers(parts, services),
                parts.stream.reports.status(),
                parts.stream.reports.trainer_metrics(),
                DeadLetters(parts.stream).size(),
                parts.stream.ids.seconds(),
            )
            _, models = await asyncio.gather(parts.count(), _models(services))
    except (GMRError, TimeoutError):
        trainer = None
        parts.metrics.redis_away()
    else:
        parts.metrics.redis_answered(
            backlog=max(0, accepted - parts.entries_applied),
            heartbeat_age=trainers.heartbeat_age,
            trainer_works=trainers.works,
            buckets=trainers.buckets,
            dead_letters=dead_letters,
            models=models,
            ids_age=ids_age,
            checkpoint_since=_checkpoint_since(status),
        )
    return Response(parts.metrics.text(trainer), media_type=CONTENT_TYPE_LATEST)


def _checkpoint_since(status: dict[str, Any] | None) -> float | None:
    """When the newest checkpoint was written, or without one the first entry came, Unix seconds.

    None where nothing was learned.
    """
    reported = status or {}
    return reported.get("checkpoint_time") or reported.get("unsaved_since")


async def _models(services: Services | None) -> dict[str, int]:
    """How many named models are in which state; nothing where there is none."""
    if services is None:
        return {}
    return Counter(
        state_of(model, states)
        for register, states in await services.listed()
        for model in register.values()
    )


@dataclass(frozen=True)
class _Trainers:
    """What the trainers of a service, or of a cluster, say of themselves.

    Arguments:
        heartbeat_age: Seconds since that one reported which has been silent for longest; None where
            none has.
        works: Whether `/health/ready` finds no fault in the trainer of the service; None of a
            cluster, which has one for each bucket.
        buckets: The same of each bucket of a cluster, by its `GMR_MODEL`.
    """

    heartbeat_age: float | None
    works: bool | None
    buckets: dict[str, bool] = field(default_factory=dict)


async def _trainers(parts: Parts, services: Services | None) -> _Trainers:
    streams = {parts.settings.model: parts.of_service}
    if services is not None:
        streams = {one.settings.model: one.stream for one in await services.all()}
    statuses = await asyncio.gather(*(one.reports.status() for one in streams.values()))
    ages = [heartbeat_age(status) for status in statuses]
    age = max((age for age in ages if age is not None), default=None)
    works = [not faults_of_trainer(one, parts.settings.stall_s) for one in statuses]
    if services is not None and services.are_buckets:
        return _Trainers(age, None, dict(zip(streams, works, strict=True)))
    return _Trainers(age, all(works))
