"""The API process: reads requests, appends to the stream, answers from the latest snapshot.

It holds no state of its own. Any number of these processes may run beside each
other; what joins them to the trainer, and to each other, is Redis.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import AsyncIterator
from types import FrameType
from typing import Final

import torch
import uvicorn
from fastapi import FastAPI

from core.errors import InvalidSettings
from service.api import docs, openapi, problems
from service.api.access import Admitted
from service.api.audit import Audited
from service.api.body_budget import BodyBudget, Budgeted
from service.api.connection import BoundedConnection
from service.api.feed import EventFeed
from service.api.followed import FollowedModels
from service.api.head import HeadAsGet
from service.api.hosts import TrustedHosts
from service.api.key_rates import KeyRates, rates_of
from service.api.key_ring import KeyRing
from service.api.metrics import ApiMetrics
from service.api.micro_batches import MicroBatches
from service.api.middleware import Guarded, Measured
from service.api.of_model import NamesModel, OfModel
from service.api.parts import Parts
from service.api.routes import (
    audit,
    boundary,
    checkpoint,
    classify,
    curve,
    deadletters,
    drift,
    ert,
    events,
    feature_names,
    health,
    home,
    inference,
    ingest,
    keys,
    labels,
    ledger,
    merge_classes,
    metrics,
    mode,
    model,
    model_settings,
    models,
    outliers,
    release,
    rename_class,
    sample,
    session,
)
from service.api.routes import problems as problem_kinds
from service.api.services import Services
from service.api.work import Workers
from service.broker.api_keys import KeyStore
from service.broker.connection import StreamUnavailable
from service.broker.snapshots import SnapshotFollower
from service.broker.stream import Stream
from service.cluster.buckets import settings_of
from service.distribution import own_version
from service.logs import configure_logs
from service.settings import Settings
from service.trainer.device import choose_device

ROUTERS: Final = (
    ingest.router,
    labels.router,
    ledger.router,
    deadletters.router,
    classify.router,
    outliers.router,
    sample.router,
    inference.router,
    drift.router,
    curve.router,
    boundary.router,
    ert.router,
    events.router,
    model.router,
    feature_names.router,
    models.router,
    mode.router,
    model_settings.router,
    rename_class.router,
    merge_classes.router,
    release.router,
    checkpoint.router,
    metrics.router,
    health.router,
    keys.router,
    audit.router,
    session.router,
    home.router,
    problem_kinds.router,
)

DESCRIPTION: Final = """\
A density model that learns from a stream, finds by itself where the stream changes, and then
learns what it knew again from samples of its own, so that it keeps its knowledge, not the data.

Samples go in by `POST /ingest`; everything else asks the model that was published last. Bodies
come as JSON or, faster, as safetensors. Errors are problem documents (RFC 9457).
"""

FIRST_MODEL_S: Final = 5.0
KEEP_ALIVE_S: Final = 75  # longer than clients pause between two questions
DRAIN_S: Final = 10
"""Longest wait for requests that are being answered when the process is told to stop."""

logger = logging.getLogger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """The application. Redis is reached when it starts, not before.

    Raises:
        InvalidSettings: They cannot work: no Redis address, or no such device.

    Example:
        >>> app = create_app(Settings(redis_url="redis://127.0.0.1:1"))
        >>> "/ingest" in app.openapi()["paths"]
        True
    """

    cluster = settings if settings.cluster else None
    if cluster is not None:
        settings = settings_of(cluster, 0)
    stream = Stream.open(settings)
    device = choose_device(settings.device)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with stream, _put_together(settings, stream, device, cluster) as (parts, services):
            app.state.parts, app.state.services = parts, services
            yield

    app = FastAPI(
        title="gmr-stream",
        version=own_version(),
        summary="Gaussian mixture replay, live",
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,  # `openapi.install` has a route of its own, as `docs.install` has
        docs_url=None,
        redoc_url=None,
        # The address that a redirection would name is the sender's word, the header Host.
        redirect_slashes=False,
    )
    for router in ROUTERS:
        app.include_router(router)
    docs.install(app)
    openapi.install(app)
    problems.install(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(Audited)
    app.add_middleware(Budgeted)
    app.add_middleware(OfModel)
    app.add_middleware(Admitted, settings=settings)
    app.add_middleware(NamesModel)
    app.add_middleware(Guarded, hosts=TrustedHosts(settings))
    app.add_middleware(Measured, access_log=settings.access_log)
    return app


@contextlib.asynccontextmanager
async def _put_together(
    settings: Settings, stream: Stream, device: torch.device, cluster: Settings | None
) -> AsyncIterator[tuple[Parts, Services]]:
    """The parts of a process, put together and taken apart again."""
    workers = Workers(settings.api_threads)
    parts = Parts(
        settings=settings,
        stream=stream,
        follower=SnapshotFollower(stream, settings.data_dir, str(device), workers.learns),
        feed=EventFeed(stream),
        workers=workers,
        micro_batches=MicroBatches(workers, settings.micro_batch_rows),
        metrics=ApiMetrics(lambda: stream.redis_errors),
        keys=KeyRing(settings, KeyStore(stream)),
        bodies=BodyBudget(settings.bodies_bytes),
        rates=KeyRates(rates_of(settings)),
        of_service=stream,
    )
    services = Services(parts, FollowedModels(parts, str(device)), cluster)
    endless = (parts.follower.run(), parts.feed.run(), parts.count_on())
    tasks = [asyncio.create_task(one) for one in endless]
    try:
        await parts.first_model(FIRST_MODEL_S)
        yield parts, services
    finally:
        services.drain()
        await services.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(StreamUnavailable, TimeoutError):
            await parts.count()
        parts.workers.close()


class Server(uvicorn.Server):
    """A server that stops politely: answers what it has begun, then ends with status 0."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; asked twice, stop without waiting."""
        # The base class would raise the signal again afterwards, and end with its number.
        self.force_exit = self.should_exit
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say where the service listens, which with port 0 nobody knows before."""
        await super().startup(sockets)
        for server in self.servers:
            for listener in server.sockets:
                host, port, *_ = listener.getsockname()
                logger.info("listening on %s, port %d", host, port)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the endless answers first, or waiting for them would be endless."""
        services: Services | None = getattr(self._app.state, "services", None)
        if services is not None:
            services.drain()
        await super().shutdown(sockets)
        logger.info("stopped")


def server_config(app: FastAPI, settings: Settings) -> uvicorn.Config:
    """How the server listens, and what it bears of one connection."""
    return uvicorn.Config(
        app,
        http=BoundedConnection,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,  # GET /metrics counts requests
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=DRAIN_S,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
    )


def main(settings: Settings) -> int:
    """Serve until told to stop by SIGTERM or SIGINT; the exit status of the process.

    Returns:
        0 after an orderly end, 2 when the operator must change a setting. A port that
        is taken ends the process with uvicorn's own status, 3.
    """
    configure_logs(settings, "api")
    if settings.log_level == "info":
        # The server's own account of starting and stopping says the same in more lines.
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    try:
        settings.check_exposure()
        app = create_app(settings)
    except InvalidSettings as error:
        logger.error("%s", error)
        return 2
    # What is there by now stays, torch's many objects above all: a full collection that looks at
    # them again, which any large body of lists brings about, holds up everybody for 0.1 s.
    gc.collect()
    gc.freeze()
    Server(server_config(app, settings), app).run()
    return 0
