"""The contract as pure functions: arguments -> request, reply -> answer or error.

Rules of this module:

1. No I/O, no clock, no waiting: `client.py` sends, whichever way it likes, and both
   its classes share every line here. How replies are read stands in `replies.py`.
2. Samples travel as safetensors in the sender's type (uint8 costs a quarter of
   float32), answers come as safetensors where the service offers it.
3. A call says whether it may be sent again when nobody knows if it arrived. Every
   batch carries an id made before the first try, so ingesting may.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import orjson
from numpy.typing import ArrayLike, NDArray

from clients.http import answers, replies
from clients.http.errors import UnexpectedAnswer
from clients.http.replies import Reply
from service.wire import MEDIA_TYPE, RawBatch, RawLabels, RawName, new_batch_id

T = TypeVar("T")

JSON = "application/json"
BINARY_PREFERRED = f"{MEDIA_TYPE}, {JSON};q=0.9"


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and how its reply is read.

    Attributes:
        method: HTTP method.
        path: Below the service's address.
        read: Reply -> answer, for statuses below 400 and those in `expected`.
        query: Parameters, in order.
        headers: Beside those of every request.
        body: Bytes to send.
        repeatable: Sending it twice does what sending it once does.
        patient: Try again at all; False for a question about this very moment.
        expected: Statuses from 400 on that are answers, not errors.
    """

    method: str
    path: str
    read: Callable[[Reply], T]
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = True
    patient: bool = True
    expected: frozenset[int] = frozenset()

    def answer(self, reply: Reply) -> T:
        """What the reply means.

        Raises:
            ServiceError: the service refused or failed.
            UnexpectedAnswer: the reply is not what the contract says.
        """
        if reply.status >= 400 and reply.status not in self.expected:
            raise replies.service_error(reply)
        if reply.status >= 300 and reply.status not in self.expected:
            raise UnexpectedAnswer(
                f"The service answered {self.method} {self.path} with HTTP {reply.status} and "
                f"points to {reply.headers.get('location', 'nowhere')!r}; expected the answer "
                f"itself. Use that address."
            )
        try:
            return self.read(reply)
        except (LookupError, TypeError, ValueError) as error:
            raise UnexpectedAnswer(
                f"The answer to {self.method} {self.path} cannot be read "
                f"({type(error).__name__}: {error}). Use client and service of one version."
            ) from error


# Samples ----------------------------------------------------------------------


def ingest(
    features: ArrayLike,
    labels: Sequence[Any] | NDArray[Any] | None,
    batch_id: str | None,
    sample_ids: Sequence[Any] | NDArray[Any] | None = None,
) -> Call[answers.Ingested]:
    """POST /ingest."""
    batch = RawBatch.of(features, labels, batch_id or new_batch_id(), sample_ids)
    return Call(
        "POST",
        "/ingest",
        lambda reply: answers.build(answers.Ingested, replies.json(reply)),
        headers={"content-type": MEDIA_TYPE, "accept": JSON},
        body=batch.to_safetensors(),
    )


def label(
    sample_ids: Sequence[Any] | NDArray[Any],
    labels: Sequence[Any] | NDArray[Any],
    batch_id: str | None,
) -> Call[answers.Labelled]:
    """POST /labels, for samples."""
    return _labels(RawLabels.of(sample_ids, labels, batch_id or new_batch_id()))


def name_proposal(
    proposal: int, label: answers.Label | None, batch_id: str | None
) -> Call[answers.Labelled]:
    """POST /labels, for a proposed class."""
    return _labels(RawName.of(proposal, label, batch_id or new_batch_id()))


def classify(
    features: ArrayLike, unknown_rate: float | None, p_values: bool
) -> Call[answers.Classification]:
    """POST /classify."""
    query = _numbers(unknown_rate=unknown_rate)
    if p_values:
        query = (*query, ("p_values", "true"))
    return _ask_about("/classify", features, replies.classification, query)


def outliers(
    features: ArrayLike, c: float | None, false_positive_rate: float | None
) -> Call[answers.OutlierScores]:
    """POST /outliers."""
    query = _numbers(c=c, false_positive_rate=false_positive_rate)
    return _ask_about("/outliers", features, replies.outlier_scores, query)


def sample(
    n: int,
    classes: Sequence[answers.Label] | None,
    seed: int | None,
    min_probability: float | None,
    noise: bool,
) -> Call[answers.Samples]:
    """GET /sample."""
    return Call(
        "GET",
        "/sample",
        replies.samples,
        query=_sample_query(n, classes, seed, min_probability, noise),
        headers={"accept": BINARY_PREFERRED},
    )


def sample_image(
    n: int,
    classes: Sequence[answers.Label] | None,
    seed: int | None,
    shape: tuple[int, ...] | None,
    min_probability: float | None,
    noise: bool,
) -> Call[bytes]:
    """GET /sample as a picture."""
    query = _sample_query(n, classes, seed, min_probability, noise)
    if shape is not None:
        query += (("shape", ",".join(map(str, shape))),)
    return Call(
        "GET", "/sample", lambda reply: reply.body, query=query, headers={"accept": "image/png"}
    )


# Dead letters -----------------------------------------------------------------


def dead_letters(
    since: str | int | float | None, limit: int, batch_id: str | None
) -> Call[answers.DeadLetters]:
    """GET /deadletters."""
    query = () if since is None else (("since", str(since)),)
    named = () if batch_id is None else (("batch_id", batch_id),)
    return _get("/deadletters", replies.dead_letters, (*query, ("limit", str(limit)), *named))


def dead_letter(id: str) -> Call[answers.DeadLetter]:
    """GET /deadletters/{id}."""
    return _get(f"/deadletters/{quote(id, safe='')}", replies.dead_letter)


def dead_letter_batch(id: str) -> Call[bytes]:
    """GET /deadletters/{id} as the body of a request."""
    return Call(
        "GET",
        f"/deadletters/{quote(id, safe='')}",
        lambda reply: reply.body,
        headers={"accept": MEDIA_TYPE},
    )


def requeue_dead_letter(id: str) -> Call[answers.Requeued]:
    """POST /deadletters/{id}. Not repeatable: the second time is refused."""
    return Call(
        "POST",
        f"/deadletters/{quote(id, safe='')}",
        lambda reply: answers.build(answers.Requeued, replies.json(reply)),
        headers={"accept": JSON},
        repeatable=False,
    )


def drop_dead_letters(id: str | None) -> Call[int]:
    """DELETE /deadletters/{id}, or of all. Not repeatable: what came since would go, too."""
    return Call(
        "DELETE",
        "/deadletters" if id is None else f"/deadletters/{quote(id, safe='')}",
        lambda reply: int(replies.field_of(replies.json(reply), "dropped")),
        headers={"accept": JSON},
        repeatable=False,
    )


# Keys -------------------------------------------------------------------------


def api_keys() -> Call[tuple[answers.ApiKey, ...]]:
    """GET /keys."""
    return _get("/keys", replies.api_keys)


def key_shares() -> Call[answers.KeyShares]:
    """GET /keys/shares."""
    return _get("/keys/shares", replies.key_shares)


def make_api_key(name: str, roles: Sequence[str]) -> Call[answers.NewApiKey]:
    """POST /keys. Not repeatable: there would be two, and nobody would have one of them."""
    return Call(
        "POST",
        "/keys",
        lambda reply: replies.new_api_key(replies.json(reply)),
        headers={"accept": JSON, "content-type": JSON},
        body=orjson.dumps({"name": name, "roles": list(roles)}),
        repeatable=False,
    )


def revoke_api_key(id: str) -> Call[None]:
    """DELETE /keys/{id}. Not repeatable: the second time there is none."""
    return Call(
        "DELETE",
        f"/keys/{quote(id, safe='')}",
        lambda reply: None,
        headers={"accept": JSON},
        repeatable=False,
    )


# Named models -----------------------------------------------------------------


def models() -> Call[tuple[answers.NamedModel, ...]]:
    """GET /models."""
    return _get("/models", replies.named_models)


def named_model(name: str) -> Call[answers.NamedModelSummary]:
    """GET /models/{name}."""
    return _get(
        f"/models/{quote(name, safe='')}",
        lambda document: answers.build(answers.NamedModelSummary, document),
    )


def make_model(name: str, settings: Mapping[str, Any]) -> Call[answers.NamedModel]:
    """PUT /models/{name}."""
    return Call(
        "PUT",
        f"/models/{quote(name, safe='')}",
        lambda reply: answers.build(answers.NamedModel, replies.json(reply)),
        headers={"accept": JSON, "content-type": JSON},
        body=orjson.dumps({"settings": dict(settings)}),
    )


def take_down_model(name: str) -> Call[None]:
    """DELETE /models/{name}. Not repeatable: the second time there may be none."""
    return Call(
        "DELETE",
        f"/models/{quote(name, safe='')}",
        lambda reply: None,
        headers={"accept": JSON},
        repeatable=False,
    )


def of_model(name: str | None, call: Call[T]) -> Call[T]:
    """The same call for a named model; None for the service's own."""
    if name is None:
        return call
    return replace(call, path=f"/models/{quote(name, safe='')}{call.path}")


# Drift ------------------------------------------------------------------------


def drift() -> Call[answers.DriftState]:
    """GET /drift."""
    return _get("/drift", replies.drift_state)


def boundaries(since: str | int | float | None) -> Call[tuple[answers.Boundary, ...]]:
    """GET /drift/boundaries."""
    query = () if since is None else (("since", str(since)),)
    return _get(
        "/drift/boundaries",
        lambda document: tuple(
            replies.boundary(row) for row in replies.rows_of(document, "boundaries")
        ),
        query,
    )


def boundary(id: str) -> Call[answers.Boundary]:
    """GET /drift/boundaries/{id}."""
    return _get(f"/drift/boundaries/{quote(id, safe='')}", replies.boundary)


def boundary_image(id: str, shape: tuple[int, ...] | None) -> Call[bytes]:
    """GET /drift/boundaries/{id} as a picture."""
    return Call(
        "GET",
        f"/drift/boundaries/{quote(id, safe='')}",
        lambda reply: reply.body,
        query=() if shape is None else (("shape", ",".join(map(str, shape))),),
        headers={"accept": "image/png"},
    )


def history(last: int) -> Call[tuple[answers.HistoryPoint, ...]]:
    """GET /drift/history."""
    return _get(
        "/drift/history",
        lambda document: tuple(
            answers.build(answers.HistoryPoint, row) for row in replies.rows_of(document, "history")
        ),
        (("last", str(last)),),
    )


def audit(last: int) -> Call[tuple[answers.AuditedAction, ...]]:
    """GET /audit."""
    return _get(
        "/audit",
        lambda document: tuple(
            answers.build(answers.AuditedAction, row)
            for row in replies.rows_of(document, "actions")
        ),
        (("last", str(last)),),
    )


def quarantine(last: int) -> Call[tuple[answers.Outlier, ...]]:
    """GET /drift/quarantine."""
    return _get(
        "/drift/quarantine",
        lambda document: tuple(
            answers.build(answers.Outlier, row, features=tuple(replies.field_of(row, "features")))
            for row in replies.rows_of(document, "outliers")
        ),
        (("last", str(last)),),
    )


def ledger() -> Call[answers.Ledger]:
    """GET /ledger."""
    return _get("/ledger", lambda document: answers.build(answers.Ledger, document))


def batch(batch_id: str) -> Call[answers.BatchFate]:
    """GET /batches/{batch_id}."""
    return _get(
        f"/batches/{quote(batch_id, safe='')}",
        lambda document: answers.build(answers.BatchFate, document),
    )


def proposals() -> Call[tuple[answers.Proposal, ...]]:
    """GET /drift/proposals."""
    return _get(
        "/drift/proposals",
        lambda document: tuple(map(replies.proposal, replies.rows_of(document, "proposals"))),
    )


def add_note(id: str, text: str, by: str | None) -> Call[answers.Note]:
    """POST /drift/boundaries/{id}/notes. Not repeatable: it would be there twice."""
    return Call(
        "POST",
        f"/drift/boundaries/{quote(id, safe='')}/notes",
        lambda reply: answers.build(answers.Note, replies.json(reply)),
        headers={"content-type": JSON, "accept": JSON},
        body=orjson.dumps({"text": text, "by": by}),
        repeatable=False,
    )


def declare_boundary(note: str | None, by: str | None) -> Call[str]:
    """POST /drift/boundary. Not repeatable: it would declare a second one."""
    return Call(
        "POST",
        "/drift/boundary",
        lambda reply: str(replies.field_of(replies.json(reply), "entry_id")),
        headers={"content-type": JSON, "accept": JSON},
        body=orjson.dumps({"note": note, "by": by}),
        repeatable=False,
    )


def set_ert(samples: int | None, by: str | None) -> Call[answers.Restored]:
    """PUT /drift/ert."""
    return _put("/drift/ert", {"ert": samples, "by": by})


# The model --------------------------------------------------------------------


def set_mode(mode: str, reason: str | None, by: str | None) -> Call[answers.Restored]:
    """PUT /model/mode."""
    return _put("/model/mode", {"mode": mode, "reason": reason, "by": by})


def model() -> Call[answers.ModelInfo]:
    """GET /model."""
    return _get("/model", replies.model_info)


def versions() -> Call[tuple[answers.ModelVersion, ...]]:
    """GET /model/versions."""
    return _get(
        "/model/versions",
        lambda document: tuple(
            answers.build(answers.ModelVersion, row)
            for row in replies.rows_of(document, "versions")
        ),
    )


def rollback(version: int) -> Call[answers.Restored]:
    """POST /model/rollback. Not repeatable: it would undo what was learned in between."""
    return Call(
        "POST",
        "/model/rollback",
        lambda reply: answers.build(answers.Restored, replies.json(reply)),
        headers={"content-type": JSON, "accept": JSON},
        body=orjson.dumps({"version": version}),
        repeatable=False,
    )


def release(reason: str | None, by: str | None) -> Call[answers.Restored]:
    """POST /model/release. Not repeatable: the second time nothing may be held back."""
    return Call(
        "POST",
        "/model/release",
        lambda reply: answers.build(answers.Restored, replies.json(reply)),
        headers={"content-type": JSON, "accept": JSON},
        body=orjson.dumps({"reason": reason, "by": by}),
        repeatable=False,
    )


def checkpoint() -> Call[bytes]:
    """GET /model/checkpoint."""
    return Call(
        "GET", "/model/checkpoint", lambda reply: reply.body, headers={"accept": MEDIA_TYPE}
    )


def restore(data: bytes) -> Call[answers.Restored]:
    """PUT /model/checkpoint. Not repeatable, as rolling back is not."""
    return Call(
        "PUT",
        "/model/checkpoint",
        lambda reply: answers.build(answers.Restored, replies.json(reply)),
        headers={"content-type": MEDIA_TYPE, "accept": JSON},
        body=data,
        repeatable=False,
    )


# Operations -------------------------------------------------------------------


def metrics() -> Call[str]:
    """GET /metrics."""
    return Call("GET", "/metrics", lambda reply: reply.body.decode())


def ready() -> Call[answers.Readiness]:
    """GET /health/ready."""
    return Call("GET", "/health/ready", replies.readiness, patient=False, expected=frozenset({503}))


# Requests ---------------------------------------------------------------------


def _put(path: str, body: dict[str, object]) -> Call[answers.Restored]:
    return Call(
        "PUT",
        path,
        lambda reply: answers.build(answers.Restored, replies.json(reply)),
        headers={"content-type": JSON, "accept": JSON},
        body=orjson.dumps(body),
    )


def _labels(request: RawLabels | RawName) -> Call[answers.Labelled]:
    return Call(
        "POST",
        "/labels",
        lambda reply: answers.build(answers.Labelled, replies.json(reply)),
        headers={"content-type": JSON, "accept": JSON},
        body=request.to_json(),
    )


def _numbers(**given: float | None) -> tuple[tuple[str, str], ...]:
    """The parameters that are set, as text that loses nothing."""
    return tuple((name, repr(float(value))) for name, value in given.items() if value is not None)


def _ask_about(
    path: str,
    features: ArrayLike,
    read: Callable[[Reply], T],
    query: tuple[tuple[str, str], ...] = (),
) -> Call[T]:
    return Call(
        "POST",
        path,
        read,
        query=query,
        headers={"content-type": MEDIA_TYPE, "accept": BINARY_PREFERRED},
        body=RawBatch.of(features).to_safetensors(),
    )


def _get(path: str, read: Callable[[Any], T], query: tuple[tuple[str, str], ...] = ()) -> Call[T]:
    return Call(
        "GET", path, lambda reply: read(replies.json(reply)), query=query, headers={"accept": JSON}
    )


def _sample_query(
    n: int,
    classes: Sequence[answers.Label] | None,
    seed: int | None,
    min_probability: float | None,
    noise: bool,
) -> tuple[tuple[str, str], ...]:
    # One parameter per class, so that a comma in a name stays part of it.
    wanted = () if classes is None else tuple(("classes", str(label)) for label in classes)
    # What is not asked for is left to the service, whatever its release takes for usual.
    least = () if min_probability is None else (("min_probability", repr(float(min_probability))),)
    plain = () if noise else (("noise", "false"),)
    repeated = () if seed is None else (("seed", str(seed)),)
    return (("n", str(n)), *repeated, *wanted, *least, *plain)
