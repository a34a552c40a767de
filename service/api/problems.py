"""The one table from error to HTTP status, and the answers made from it.

Rules of this module:

1. Errors are raised where they are noticed, in core, service or a route; they
   become a status here and nowhere else.
2. Every error answer is a problem document (RFC 9457): `type`, `title`, `status`,
   `detail`, `instance`, and the numbers that the error carries as `context`. Below `/v2` it
   is `{"error": detail}`, as that protocol wants.
3. An answer never shows what is inside the service: what nobody expected is
   logged, not told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from core import errors as core_errors
from service.api import errors as edge_errors
from service.api.head import answers_head, is_head
from service.broker import stream_errors
from service.broker.connection import StreamUnavailable
from service.broker.ledger import UnknownBatch
from service.broker.notes import TooManyNotes

PROBLEM_JSON = "application/problem+json"
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH")
RETRY_AFTER_S = 1.0  # where the error itself does not say
OF_A_PATH = "/:@!$&'()*+,;=~"  # what a URI's path has as it is (RFC 3986, 3.3)


@dataclass(frozen=True)
class Problem:
    """One row of the table: a kind of error as clients see it.

    Arguments:
        name: Last part of `type`; stable, for programs to switch on.
        status: HTTP status.
        title: The same for every occurrence.
        advice: What a client does about it.
    """

    name: str
    status: int
    title: str
    advice: str

    @property
    def type(self) -> str:
        """URI of the kind. The service itself answers it, with this row."""
        return f"/problems/{self.name}"


PROBLEMS: Mapping[type[Exception], Problem] = {
    core_errors.InvalidBatch: Problem(
        "invalid-batch",
        422,
        "The batch cannot be used",
        "Change the batch; sending the same again will not help.",
    ),
    core_errors.ShapeMismatch: Problem(
        "shape-mismatch",
        422,
        "The samples have the wrong shape",
        "Send N rows of the D numbers that GET /model names as features, or images of the shape "
        "that it names as image_shape.",
    ),
    core_errors.NonFiniteFeature: Problem(
        "non-finite-feature",
        422,
        "A feature is NaN or infinite",
        "Replace or drop missing values; row and column name the first.",
    ),
    core_errors.InvalidLabels: Problem(
        "invalid-labels",
        422,
        "The labels cannot be used",
        "Send one integer, string or null per sample.",
    ),
    core_errors.InvalidRequest: Problem(
        "invalid-request",
        422,
        "The request cannot be answered as it was put",
        "Correct what detail or errors names.",
    ),
    core_errors.InvalidCheckpoint: Problem(
        "invalid-checkpoint",
        422,
        "The bytes are no checkpoint of this service",
        "Upload a whole file that GET /model/checkpoint gave.",
    ),
    core_errors.OtherRelease: Problem(
        "other-release",
        422,
        "Another release wrote the checkpoint",
        "Upload it to a service of the release that wrote it.",
    ),
    edge_errors.OutOfRange: Problem(
        "out-of-range",
        422,
        "A parameter is beyond its limit",
        "Choose a value between low and high.",
    ),
    edge_errors.InvalidShape: Problem(
        "invalid-shape",
        422,
        "The shape does not fit the samples",
        "Name height,width whose product is the number of features.",
    ),
    edge_errors.CrossSite: Problem(
        "cross-site-request",
        403,
        "A request on behalf of another site",
        "Send it from a program or from the service's own pages.",
    ),
    edge_errors.UntrustedHost: Problem(
        "untrusted-host",
        421,
        "A request that is meant for another host",
        "Ask by the name under which the service listens, or allow the name.",
    ),
    edge_errors.Unauthorized: Problem(
        "unauthorized",
        401,
        "A key is needed",
        "Bring a key that counts in the header Authorization.",
    ),
    edge_errors.Forbidden: Problem(
        "forbidden",
        403,
        "The key may not do this",
        "Use a key that has the role that the route needs, and counts for the model.",
    ),
    edge_errors.RateLimited: Problem(
        "rate-limited",
        429,
        "The key asks or sends more than it may",
        "Ask again after Retry-After seconds, and more slowly from then on.",
    ),
    edge_errors.UnknownKey: Problem(
        "unknown-key",
        404,
        "No key has this id",
        "Choose one of GET /keys.",
    ),
    edge_errors.TooManyKeys: Problem(
        "too-many-keys",
        409,
        "There are as many keys as there may be",
        "Revoke a key that is no longer used.",
    ),
    TooManyNotes: Problem(
        "too-many-notes",
        409,
        "The boundary has as many notes as it may have",
        "Write it down elsewhere.",
    ),
    edge_errors.UnknownModel: Problem(
        "unknown-model",
        404,
        "No model has this name",
        "Choose one of GET /models, or make it.",
    ),
    edge_errors.ModelConflict: Problem(
        "model-conflict",
        409,
        "A model of this name has other settings",
        "Choose another name.",
    ),
    edge_errors.ModelLeaving: Problem(
        "model-leaving",
        409,
        "The model is being taken down",
        "Wait until GET /models does not list it.",
    ),
    edge_errors.TooManyModels: Problem(
        "too-many-models",
        409,
        "There are as many models as there may be",
        "Take a model down that is no longer used.",
    ),
    core_errors.UnknownClass: Problem(
        "unknown-class",
        404,
        "The class is not known",
        "Choose from known; classes appear as their first labels are learned.",
    ),
    core_errors.ClassExists: Problem(
        "class-exists",
        409,
        "Another class has this name",
        "Choose a name that no class has, or let the two become one: POST /model/merge-classes.",
    ),
    core_errors.UnknownVersion: Problem(
        "unknown-version",
        404,
        "The version is not kept",
        "Choose from known, the versions of GET /model/versions.",
    ),
    edge_errors.VersionNotServed: Problem(
        "version-not-served",
        404,
        "The version is not served",
        "Leave the version out.",
    ),
    edge_errors.UnknownBoundary: Problem(
        "unknown-boundary",
        404,
        "No boundary has this id",
        "Choose from known, the newest ones, or from GET /drift/boundaries.",
    ),
    core_errors.UnknownProposal: Problem(
        "unknown-proposal",
        404,
        "The proposal is not open",
        "Choose from known, the proposals of GET /drift/proposals.",
    ),
    UnknownBatch: Problem(
        "unknown-batch",
        404,
        "No batch with this id is remembered",
        "Look at the id; one that was accepted long ago is forgotten.",
    ),
    stream_errors.UnknownLetter: Problem(
        "unknown-dead-letter",
        404,
        "No dead letter has this id",
        "Choose one of GET /deadletters.",
    ),
    edge_errors.FeaturesUnknown: Problem(
        "features-unknown",
        409,
        "It is not known yet how many features there are",
        "Send a first batch, or set GMR_N_FEATURES; then name the features.",
    ),
    edge_errors.NotAcceptable: Problem(
        "not-acceptable",
        406,
        "No acceptable form of answer",
        "Ask for a form that the route offers.",
    ),
    core_errors.ModelNotReady: Problem(
        "model-not-ready",
        409,
        "The model has not learned enough to answer",
        "Ingest samples (labelled ones for classes), wait until backlog is 0, ask again.",
    ),
    stream_errors.BatchConflict: Problem(
        "batch-conflict",
        409,
        "The batch_id was used for another batch",
        "Give every batch an id of its own, for example a UUID.",
    ),
    stream_errors.LetterConflict: Problem(
        "dead-letter-conflict",
        409,
        "The dead letter cannot be sent again",
        "Look at requeued_as and whole of the letter; a letter is sent again once.",
    ),
    core_errors.EmptySubTask: Problem(
        "empty-sub-task",
        409,
        "No sample has come since the last boundary",
        "Send samples first; a sub-task without any cannot end.",
    ),
    core_errors.ModelAtRest: Problem(
        "model-at-rest",
        409,
        "The model is frozen, or only detects",
        "Ask for the mode learn by PUT /model/mode, then send this again.",
    ),
    edge_errors.BodyTooLarge: Problem(
        "body-too-large",
        413,
        "The body is too large",
        "Send fewer samples at a time, or uint8 instead of JSON; for a checkpoint raise the limit.",
    ),
    edge_errors.UnsupportedMedia: Problem(
        "unsupported-media-type",
        415,
        "The body has a form that is not read here",
        "Send one of supported.",
    ),
    stream_errors.BacklogFull: Problem(
        "backlog-full",
        429,
        "Too many batches wait to be learned",
        "Send again after Retry-After seconds, and more slowly from then on.",
    ),
    stream_errors.RestorePending: Problem(
        "restore-pending",
        503,
        "A rollback or an upload is not done yet",
        "Send the same batch again after Retry-After seconds.",
    ),
    edge_errors.Unavailable: Problem(
        "unavailable",
        503,
        "The service cannot answer at the moment",
        "Ask again after Retry-After seconds; give a batch the same batch_id.",
    ),
    edge_errors.TooManyBodies: Problem(
        "too-many-bodies",
        503,
        "Other requests fill the memory for bodies",
        "Send the same again after Retry-After seconds, or smaller batches.",
    ),
    StreamUnavailable: Problem(
        "stream-unavailable",
        503,
        "Redis is away or full",
        "Ask again after Retry-After seconds; give a batch the same batch_id.",
    ),
    Exception: Problem(
        "internal-error",
        500,
        "Something unexpected went wrong",
        "Look at the service's log; it holds the trace.",
    ),
}

FRAMEWORK: Mapping[int, Problem] = {
    404: Problem("not-found", 404, "No such path", "Use one of the routes that GET /docs lists."),
    405: Problem(
        "method-not-allowed", 405, "No such method", "Use a method that the header Allow names."
    ),
}
"""What the router refuses by itself."""


def install(app: FastAPI) -> None:
    """Answer every error of `app`, the framework's own included, with a problem document."""
    app.add_exception_handler(HTTPException, _from_framework)
    app.add_exception_handler(RequestValidationError, _from_validation)
    app.add_exception_handler(ClientDisconnect, _from_silence)
    app.add_exception_handler(Exception, _from_bug)
    for error in PROBLEMS:
        if error is not Exception:
            app.add_exception_handler(error, _from_table)


def problem_of(error: Exception) -> Problem:
    """The row of the nearest class in the table.

    Example:
        >>> problem_of(core_errors.UnknownClass("no such class")).status
        404
    """
    return next(PROBLEMS[cls] for cls in type(error).__mro__ if cls in PROBLEMS)


def answer(
    problem: Problem, request: Request, detail: str, numbers: Mapping[str, object] | None = None
) -> Response:
    """The problem document for one occurrence.

    Arguments:
        problem: Row of the table.
        request: What is answered; its path becomes `instance`.
        detail: What happened, what was expected, what to do.
        numbers: Further members of the document; `retry_after_s` also becomes the header.
    """
    numbers = dict(numbers or {})
    if problem.status in (429, 503):
        numbers.setdefault("retry_after_s", RETRY_AFTER_S)
    headers = {"Cache-Control": "no-store"}
    wait = numbers.get("retry_after_s")
    if isinstance(wait, (int, float)):
        headers["Retry-After"] = str(max(1, math.ceil(wait)))
    if _speaks_protocol(request):
        # The Open Inference Protocol has one form of error for all servers.
        content = orjson.dumps({"error": detail})
        return Response(content, problem.status, headers, media_type="application/json")
    standard = {
        # The same for every model (`service.api.of_model`).
        "type": request.scope.get("root_path", "").partition("/models/")[0] + problem.type,
        "title": problem.title,
        "status": problem.status,
        "detail": detail,
        "instance": quote(request.url.path, safe=OF_A_PATH),
    }
    # No number may hide a member of the standard, and none is longer than JSON readers take.
    document = {**standard, **{k: _short(v) for k, v in numbers.items() if k not in standard}}
    return Response(
        orjson.dumps(document, default=str, option=orjson.OPT_SERIALIZE_NUMPY),
        status_code=problem.status,
        headers=headers,
        media_type=PROBLEM_JSON,
    )


def _speaks_protocol(request: Request) -> bool:
    path = str(request.scope["path"]).removeprefix(request.scope.get("root_path", ""))
    return path == "/v2" or path.startswith("/v2/")


def _short(value: object) -> object:
    """A value as the document can hold it: a number beyond 64 bits as text.

    Example:
        >>> _short([1, 2**64])
        [1, '18446744073709551616']
    """
    if isinstance(value, list | tuple):
        return [_short(part) for part in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value) if abs(value) < 2**256 else "beyond all limits"
    return value


async def _from_table(request: Request, error: Exception) -> Response:
    return answer(problem_of(error), request, str(error), getattr(error, "context", None))


async def _from_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    problem = FRAMEWORK.get(error.status_code)
    if problem is None:
        phrase = HTTPStatus(error.status_code).phrase
        problem = Problem(phrase.lower().replace(" ", "-"), error.status_code, phrase, "")
    method = "HEAD" if is_head(request) else request.method
    slash = request.url.path.endswith("/")
    details = {
        404: "No route has this path, which ends with a slash. Expected one of those that GET "
        "/docs lists. Leave the slash out."
        if slash
        else "No route has this path. Expected one of those that GET /docs lists. Check it.",
        405: f"{method} is no method of this path. Expected one of those in the header Allow. "
        f"GET /docs says which route does what.",
    }
    response = answer(problem, request, details.get(error.status_code, str(error.detail)))
    response.headers.update(error.headers or {})
    if error.status_code == 405:
        response.headers["Allow"] = ", ".join(_allowed(request))
    return response


def _allowed(request: Request) -> list[str]:
    """The methods that the path of a request has, over all routes that share it."""
    allowed = [
        method
        for method in METHODS
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for route in request.app.routes
        )
    ]
    return [*allowed, "HEAD"] if "GET" in allowed and answers_head(request) else allowed


async def _from_validation(request: Request, error: Exception) -> Response:
    """Parameters that FastAPI checks: say which, and never repeat what was sent."""
    assert isinstance(error, RequestValidationError)
    wrong = [
        {"where": ".".join(map(str, item["loc"])), "what": item["msg"]} for item in error.errors()
    ]
    first = wrong[0]
    detail = (
        f"{first['where']}: {first['what']}. Expected what GET /docs says of this route. "
        f"Correct it and ask again."
    )
    problem = PROBLEMS[core_errors.InvalidRequest]
    return answer(problem, request, detail, {"errors": wrong})


async def _from_silence(request: Request, error: Exception) -> Response:
    """The client hung up before it had sent its body: nobody reads this, but it is counted."""
    return Response(status_code=400)


async def _from_bug(request: Request, error: Exception) -> Response:
    """Nobody expected this: the server logs the trace when it is raised again."""
    return answer(
        PROBLEMS[Exception],
        request,
        "The service met an error that it does not know. This is a fault of the service, not of "
        "the request. Look at its log and report what you find there.",
    )
