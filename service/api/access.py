"""Who may do what: one table from requests to roles, and the check in front of every route.

A key may count for some models only (`models_asked` says which a request concerns); of these it may
do what its roles say, and of nothing else.

Rules of this module:

1. A route that has no row is for `admin`: what is new is closed until somebody decides. A test
   wants a row for every route.
2. The check reads method, path and headers, before any of the body, and before anything is looked
   up of a model.
3. Where keys are not required, nothing is checked: see `Settings.requires_keys`.
4. A refusal never says whether a key exists, nor whether a model does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Final, Literal

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.api.errors import Forbidden, RateLimited, Unauthorized
from service.api.key_ring import Caller
from service.api.of_model import models_asked, path_within
from service.api.parts import Parts
from service.api.problems import answer, problem_of
from service.broker.api_keys import Role
from service.broker.connection import StreamUnavailable
from service.settings import Settings

Needed = Role | Literal["any"]

OPEN: Final[Needed | None] = None
"""Of a route: it needs no key."""

ANY_KEY: Final = "any"
"""Of a route: it needs a key, whatever its role."""

ACCESS: Final[Mapping[tuple[str, str], Needed | None]] = {
    ("GET", "/"): OPEN,
    ("GET", "/static/{path}"): OPEN,
    ("GET", "/docs"): OPEN,
    ("GET", "/docs/assets/{path}"): OPEN,
    ("GET", "/openapi.json"): OPEN,
    ("GET", "/problems"): OPEN,
    ("GET", "/problems/{name}"): OPEN,
    ("GET", "/health/live"): OPEN,
    ("GET", "/health/startup"): OPEN,
    ("GET", "/health/ready"): OPEN,
    ("POST", "/ingest"): "ingest",
    # A sender that is resumed, or has a table with names, would send wrong samples without these.
    ("GET", "/ingest"): ANY_KEY,
    ("POST", "/labels"): "ingest",
    ("POST", "/classify"): "read",
    ("POST", "/outliers"): "read",
    ("GET", "/sample"): "read",
    ("GET", "/v2"): "read",
    ("GET", "/v2/health/live"): OPEN,
    ("GET", "/v2/health/ready"): OPEN,
    ("GET", "/v2/models/{name}"): "read",
    ("GET", "/v2/models/{name}/ready"): "read",
    ("GET", "/v2/models/{name}/versions/{version}"): "read",
    ("GET", "/v2/models/{name}/versions/{version}/ready"): "read",
    ("POST", "/v2/models/{name}/infer"): "read",
    ("POST", "/v2/models/{name}/versions/{version}/infer"): "read",
    ("GET", "/drift"): "read",
    ("GET", "/drift/boundaries"): "read",
    ("GET", "/drift/boundaries/{id}"): "read",
    ("GET", "/drift/proposals"): "read",
    ("GET", "/drift/history"): "read",
    ("GET", "/drift/curve"): "read",
    ("GET", "/events"): "read",
    ("GET", "/model"): "read",
    ("GET", "/model/feature-names"): ANY_KEY,
    # Who sends samples knows what their features are.
    ("PUT", "/model/feature-names"): "ingest",
    ("DELETE", "/model/feature-names"): "ingest",
    ("GET", "/model/settings"): "read",
    ("GET", "/model/versions"): "read",
    ("GET", "/metrics"): "read",
    ("GET", "/ledger"): "read",
    ("GET", "/batches/{batch_id}"): "read",
    ("GET", "/deadletters"): "read",
    ("POST", "/session"): "read",
    ("DELETE", "/session"): OPEN,
    ("GET", "/models"): "read",
    ("GET", "/models/{name}"): "read",
    ("PUT", "/models/{name}"): "admin",
    ("DELETE", "/models/{name}"): "admin",
    # Raw samples of others, or another model.
    ("GET", "/drift/quarantine"): "admin",
    ("GET", "/deadletters/{id}"): "admin",
    ("POST", "/deadletters/{id}"): "admin",
    ("DELETE", "/deadletters/{id}"): "admin",
    ("DELETE", "/deadletters"): "admin",
    ("POST", "/drift/boundary"): "admin",
    ("POST", "/drift/boundaries/{id}/notes"): "admin",
    ("PUT", "/drift/ert"): "admin",
    ("PUT", "/model/mode"): "admin",
    ("PATCH", "/model/settings"): "admin",
    # Who sends samples names classes that are new. This one is called otherwise for all who ask.
    ("POST", "/model/rename-class"): "admin",
    ("POST", "/model/merge-classes"): "admin",
    ("POST", "/model/release"): "admin",
    ("POST", "/model/rollback"): "admin",
    ("GET", "/model/checkpoint"): "admin",
    ("PUT", "/model/checkpoint"): "admin",
    ("GET", "/audit"): "admin",
    ("GET", "/keys"): "admin",
    ("GET", "/keys/shares"): "admin",
    ("POST", "/keys"): "admin",
    ("DELETE", "/keys/{id}"): "admin",
}

TAKEN_AWAY: Final = ("/model/checkpoint",)
"""Questions whose answers are the model itself."""

COOKIE: Final = "gmr_key"
"""In which a browser brings its key: see `routes/session.py`."""

CHALLENGE: Final = 'Bearer realm="gmr"'
"""How a client that brings no key is told to bring one."""

ANYBODY: Final = Caller("anybody", ("admin",))
"""Who asks where keys are not required."""

STRANGER: Final = Caller("anybody", (), models=())
"""Who asks on a route that needs no key, where others do: is told of no models."""


def role_for(method: str, path: str) -> Needed | None:
    """The role that a request needs; `OPEN` for no key, `ANY_KEY` for one of any role.

    Example:
        >>> role_for("GET", "/drift/boundaries/1-1"), role_for("HEAD", "/"), role_for("GET", "/new")
        ('read', None, 'admin')
    """
    method = "GET" if method == "HEAD" else method
    for (wanted, pattern), role in _PATTERNS:
        if wanted == method and pattern.fullmatch(path):
            return role
    return "admin"


def is_audited(method: str, path: str) -> bool:
    """Whether a request belongs into the audit trail: what only an administrator may change or
    take away.

    Example:
        >>> is_audited("POST", "/drift/boundary"), is_audited("GET", "/keys")
        (True, False)
        >>> is_audited("GET", "/model/checkpoint"), is_audited("POST", "/nonsense")
        (True, False)
    """
    asks = method in ("GET", "HEAD")
    if asks and path not in TAKEN_AWAY:
        return False
    return role_for(method, path) == "admin" and any(
        wanted == method and pattern.fullmatch(path) for (wanted, pattern), _ in _PATTERNS
    )


def _pattern(template: str) -> re.Pattern[str]:
    parts = re.split(r"\{\w+\}", template)
    return re.compile(".+".join(map(re.escape, parts)))


_PATTERNS: Final = [((method, _pattern(path)), role) for (method, path), role in ACCESS.items()]


class Admitted:
    """Lets a request through to its route if whoever asks may do that."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self._required = settings.requires_keys
        self._own = settings.model

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        role = role_for(scope["method"], path_within(scope))
        if not self._required or role is None:
            scope.setdefault("state", {})["caller"] = STRANGER if self._required else ANYBODY
            return await self.app(scope, receive, send)
        request = Request(scope)
        parts: Parts = scope["app"].state.parts
        key = key_of(request)
        try:
            caller = None if key is None else await parts.keys.caller(key)
        except StreamUnavailable as error:
            refusal = answer(problem_of(error), request, str(error))
            return await refusal(scope, receive, send)
        if caller is None:
            nobody = Unauthorized.without(key)
            refusal = answer(problem_of(nobody), request, str(nobody))
            refusal.headers["WWW-Authenticate"] = CHALLENGE
            return await refusal(scope, receive, send)
        scope.setdefault("state", {})["caller"] = caller
        less = self._less(caller, role, scope)
        if less is not None:
            refusal = answer(problem_of(less), request, str(less), less.context)
            return await refusal(scope, receive, send)
        try:
            if caller.id:  # the operator's own key has no limit
                parts.rates.admit(caller.id)
        except RateLimited as error:
            refusal = answer(problem_of(error), request, str(error), error.context)
            return await refusal(scope, receive, send)
        return await self.app(scope, receive, send)

    def _less(self, caller: Caller, role: Needed, scope: Scope) -> Forbidden | None:
        """Why the key is not enough; None where it is."""
        # First: of other models and of the service the words are the same for every route.
        if caller.models is not None and not caller.counts_for(models_asked(scope, self._own)):
            return Forbidden.beyond(caller.models)
        if role != ANY_KEY and not caller.may(role):
            return Forbidden.of(role, caller.roles)
        return None


def key_of(request: Request) -> str | None:
    """The key that a request brings: as a bearer token, or in the cookie of a session."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    try:
        cookies = SimpleCookie(request.headers.get("cookie", ""))
    except CookieError:
        return None
    return cookies[COOKIE].value if COOKIE in cookies else None
