"""Which model a request is for: the one that its path names, or the service's own.

`/models/NAME/classify` is answered as `/classify` is, for the model NAME; the address before it is
the request's root (`root_path` of ASGI), so that routes, documents and problems need not know.

Rules of this module:

1. Who may do what, and of which models, is asked between the two steps here: whoever may not ask
   does not learn which models there are.
2. What concerns the whole service (keys, the audit trail, models themselves) is not asked of a
   model; the shares of keys in what a model learned are.
3. What `models_asked` calls a model and what answers go by the same path and the same name. What no
   row here speaks of is of the service's own model, so that a key for others may not ask it.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from core.errors import GMRError
from service.api.errors import UnknownModel
from service.api.parts import Parts, parts_of
from service.api.problems import answer, problem_of
from service.api.services import Services
from service.broker.registry import NAME

PATH: Final = re.compile(r"/models/([^/]+)(/.*)")
OF_THE_SERVICE: Final = ("/models", "/keys", "/audit")
SHARES: Final = "/keys/shares"
MODELS: Final = "/models"
PROTOCOL: Final = "/v2/models"
"""The Open Inference Protocol names a model in the rest of the path."""

OF_NO_MODEL: Final = (MODELS, "/v2", "/session")
"""Whole paths: the list is that of the models that a key counts for, the others tell of none."""

ALSO_OF_THE_SERVICE: Final = "/metrics"
"""Of the service's own model, tells of its process and of how many named models there are."""

WITHOUT_MODEL: Final = ("/static", "/docs", "/openapi.json", "/problems", "/health/live")
"""What is the same for every model, and asks nothing of one."""


def path_within(scope: Scope) -> str:
    """The path of a request, as seen from the model that it is for.

    Example:
        >>> path_within({"path": "/models/m/drift", "root_path": "/models/m"})
        '/drift'
    """
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def models_asked(scope: Scope, own: str) -> tuple[str, ...] | None:
    """The names of the models that a request concerns; None for the whole service.

    A name is as it stands in the path: whether a model has it, or can have it, is not asked.

    Arguments:
        scope: Of a request that `NamesModel` has seen.
        own: Name of the service's own model.

    Example:
        >>> [models_asked({"path": path}, "own") for path in ("/ingest", "/models/m", "/keys")]
        [('own',), ('m',), None]
    """
    within, named = path_within(scope), scope.get("state", {}).get("model")
    if named is None:
        if within in OF_NO_MODEL:
            return ()
        if within.startswith(f"{MODELS}/"):
            return (within.removeprefix(f"{MODELS}/"),)
        if within != SHARES and _starts(within, OF_THE_SERVICE):
            return None
    if named in (None, own) and within == ALSO_OF_THE_SERVICE:
        return None
    if not within.startswith(f"{PROTOCOL}/"):
        return (own if named is None else named,)
    by_protocol = within.removeprefix(f"{PROTOCOL}/").partition("/")[0]
    return (by_protocol,) if named is None else (named, by_protocol)


class NamesModel:
    """Reads the name of a model from the path, and lets the rest of the path be the path."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            within = path_within(scope)
            found = PATH.fullmatch(within)
            if found is not None and (found[2] == SHARES or not _starts(found[2], OF_THE_SERVICE)):
                scope["root_path"] = scope.get("root_path", "") + f"/models/{found[1]}"
                scope.setdefault("state", {})["model"] = unquote(found[1])
        return await self.app(scope, receive, send)


class OfModel:
    """Brings the parts of the model that was named."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = scope.get("state", {}).get("model") if scope["type"] == "http" else None
        if name is None or _starts(path_within(scope), WITHOUT_MODEL):
            return await self.app(scope, receive, send)
        parts: Parts = scope["app"].state.parts
        services: Services = scope["app"].state.services
        try:
            try:
                scope["state"]["parts"] = await services.parts(name, scope["state"]["caller"])
            except UnknownModel:
                if not _makes(scope) or not parts.settings.models_on_demand:
                    raise
                if not NAME.fullmatch(name):
                    raise
                # Once the body is found usable: a batch that is refused makes no model.
                scope["state"]["make"] = partial(_make, services, name, scope)
        except GMRError as error:
            refusal = answer(problem_of(error), Request(scope), str(error), error.context)
            return await refusal(scope, receive, send)
        return await self.app(scope, receive, send)


async def parts_made(request: Request) -> Parts:
    """The parts that answer a request, whose model is made now where the request is to make it."""
    make = getattr(request.state, "make", None)
    if make is not None:
        request.state.parts, request.state.make = await make(), None
    return parts_of(request)


async def _make(services: Services, name: str, scope: Scope) -> Parts:
    models = await services.of(name)
    await models.make(name, {}, scope["state"]["caller"].name)
    return await models.parts(name)


def _makes(scope: Scope) -> bool:
    """Whether a request may make the model that it is for, where that is allowed."""
    return scope["method"] == "POST" and path_within(scope) == "/ingest"


def _starts(path: str, with_one_of: tuple[str, ...]) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in with_one_of)
