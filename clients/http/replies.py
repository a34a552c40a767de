"""Replies -> answers, or the error that a reply stands for.

Pure functions; whether an answer came as JSON or as safetensors makes no difference to
what is made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from clients.http import answers
from clients.http.errors import (
    NotAuthorised,
    NotLearnedYet,
    RequestConflict,
    RequestRefused,
    ServiceBusy,
    ServiceError,
    ServiceFailed,
    ServiceUnavailable,
    UnexpectedAnswer,
)
from core.errors import InvalidBatch
from service.wire import MEDIA_TYPE, unpack

T = TypeVar("T")


@dataclass(frozen=True)
class Reply:
    """A reply: status, header (names in lower case) and the whole body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


# Errors -----------------------------------------------------------------------

_BY_STATUS: Mapping[int, type[ServiceError]] = {
    401: NotAuthorised,
    403: NotAuthorised,
    409: RequestConflict,
    429: ServiceBusy,
    502: ServiceUnavailable,
    503: ServiceUnavailable,
    504: ServiceUnavailable,
}
_BY_KIND: Mapping[str, type[ServiceError]] = {"model-not-ready": NotLearnedYet}
_NO_ROUTE = ("not-found", "method-not-allowed")
"""Kinds of problem by which a service says that it does not have what is asked."""

_STANDARD = ("type", "title", "status", "detail", "instance")


def service_error(reply: Reply) -> ServiceError:
    """The error that a reply of status 400 or more stands for."""
    problem: Mapping[str, Any] = {}
    try:
        document = orjson.loads(reply.body)
        if isinstance(document, dict):
            problem = document
    except orjson.JSONDecodeError:
        pass  # a proxy's page, or nothing
    kind = str(problem.get("type", "about:blank"))
    fallback = ServiceFailed if reply.status >= 500 else RequestRefused
    cls = _BY_KIND.get(kind.rsplit("/", 1)[-1]) or _BY_STATUS.get(reply.status, fallback)
    detail = str(problem.get("detail", ""))
    if not problem:
        detail = _foreign(reply)
    elif kind.rsplit("/", 1)[-1] in _NO_ROUTE:
        detail += (
            " This client has asked for what the service does not have: either the address is not "
            "that of a service, or the service is of an earlier release. Upgrade it, or use a "
            "client of its release."
        )
    return cls(
        status=reply.status,
        title=str(problem.get("title", f"HTTP {reply.status}")),
        detail=detail,
        type=kind,
        instance=problem.get("instance"),
        retry_after=_retry_after(problem, reply.headers),
        context={key: value for key, value in problem.items() if key not in _STANDARD},
    )


def _foreign(reply: Reply) -> str:
    """What to say of an error that the service did not write."""
    text = reply.body[:200].decode("utf-8", "replace").strip()
    found = f"The answer is no problem document but {text!r}."
    if _BY_STATUS.get(reply.status) is ServiceUnavailable:
        return (
            f"{found} A proxy in between says so where it reaches no process of the service. "
            f"Look whether `gmr api` runs there, and at the log of the proxy."
        )
    return f"{found} Check that the address is that of the service and not of something in between."


def _retry_after(problem: Mapping[str, Any], headers: Mapping[str, str]) -> float | None:
    """Seconds, from the body where they are finer, else from the header (in seconds only)."""
    for value in (problem.get("retry_after_s"), headers.get("retry-after")):
        try:
            seconds = float(value)  # type: ignore[arg-type]  # None and dates are refused below
        except (TypeError, ValueError):
            continue
        if seconds >= 0:
            return seconds
    return None


# Answers ----------------------------------------------------------------------


def json(reply: Reply) -> Any:
    """The body of a JSON answer."""
    try:
        return orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        text = reply.body[:100].decode("utf-8", "replace")
        raise UnexpectedAnswer(
            f"The answer is no JSON but {text!r}. Check that the address is that of the service."
        ) from None


def _is_binary(reply: Reply) -> bool:
    return reply.headers.get("content-type", "").partition(";")[0].strip() == MEDIA_TYPE


def _tensors(reply: Reply) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    try:
        return unpack(reply.body)
    except InvalidBatch as error:
        raise UnexpectedAnswer(f"The binary answer cannot be read: {error}") from error


def field_of(fields: Mapping[str, Any], name: str) -> Any:
    """A field that the contract says is there."""
    try:
        return fields[name]
    except KeyError:
        raise UnexpectedAnswer(
            f"The service's answer has no {name!r}; it has {', '.join(fields)}. Use client and "
            f"service of one version."
        ) from None


def rows_of(document: Any, name: str) -> list[Any]:
    """The list that an answer holds under `name`."""
    rows = field_of(document, name)
    if not isinstance(rows, list):
        raise UnexpectedAnswer(
            f"The service's answer holds {rows!r} as {name}, expected a list. Use client and "
            f"service of one version."
        )
    return rows


def feature_names(document: Any) -> tuple[str, ...] | None:
    """The answer of GET /model/feature-names."""
    names = field_of(document, "feature_names")
    return None if names is None else tuple(names)


def classification(reply: Reply) -> answers.Classification:
    """The answer of POST /classify."""
    if _is_binary(reply):
        arrays, metadata = _tensors(reply)
        classes = tuple(orjson.loads(field_of(metadata, "vocabulary")))
        codes = field_of(arrays, "labels").astype(np.int64, copy=False)
        version, fields = int(field_of(metadata, "model_version")), arrays
        rule: Mapping[str, Any] = metadata
    else:
        rule = fields = json(reply)
        classes = tuple(field_of(fields, "classes"))
        position = {label: code for code, label in enumerate(classes)}
        codes = np.array(
            [-1 if label is None else position[label] for label in field_of(fields, "labels")],
            dtype=np.int64,
        )
        version = field_of(fields, "model_version")
    labels = answers.label_array(classes)[codes]
    if bool((codes < 0).any()):
        labels = labels.astype(object)
        labels[codes < 0] = None
    return answers.Classification(
        model_version=version,
        labels=labels,
        codes=codes,
        probabilities=np.asarray(field_of(fields, "probabilities"), dtype=np.float32),
        classes=classes,
        log_likelihoods=np.asarray(field_of(fields, "log_likelihoods")),
        inliers=np.asarray(field_of(fields, "inliers"), dtype=bool),
        p_values=_asked(fields, "p_values", np.float64),
        unknown=_asked(fields, "unknown", np.bool_),
        score=str(rule.get("score", "log_likelihood")),
        calibration=int(rule.get("calibration", 0)),
    )


def _asked(fields: Mapping[str, Any], name: str, dtype: type[np.generic]) -> Any:
    """An array that comes only when it was asked for, and is known; else None."""
    values = fields.get(name)
    return None if values is None else np.asarray(values, dtype=dtype)


def outlier_scores(reply: Reply) -> answers.OutlierScores:
    """The answer of POST /outliers."""
    if _is_binary(reply):
        arrays, metadata = _tensors(reply)
        fields: Mapping[str, Any] = {**metadata, **arrays}
    else:
        fields = json(reply)
    return answers.OutlierScores(
        model_version=int(field_of(fields, "model_version")),
        log_likelihoods=np.asarray(field_of(fields, "log_likelihoods")),
        inliers=np.asarray(field_of(fields, "inliers"), dtype=bool),
        threshold=float(field_of(fields, "threshold")),
        p_values=_asked(fields, "p_values", np.float64),
        typicality=_asked(fields, "typicality", np.float64),
        score=str(field_of(fields, "score")),
        calibration=int(field_of(fields, "calibration")),
        scales=_asked(fields, "scales", np.float64),
    )


def samples(reply: Reply) -> answers.Samples:
    """The answer of GET /sample."""
    if _is_binary(reply):
        arrays, metadata = _tensors(reply)
        known = orjson.loads(field_of(metadata, "vocabulary"))
        labels = [
            known[code] if code >= 0 else None for code in field_of(arrays, "labels").tolist()
        ]
        version, fields = int(field_of(metadata, "model_version")), arrays
        seed = metadata.get("seed")
    else:
        fields = json(reply)
        labels = field_of(fields, "labels")
        version = field_of(fields, "model_version")
        seed = fields.get("seed")
    return answers.Samples(
        model_version=version,
        features=np.asarray(field_of(fields, "features"), dtype=np.float32),
        labels=answers.label_array(labels),
        log_likelihoods=np.asarray(field_of(fields, "log_likelihoods")),
        probabilities=np.asarray(field_of(fields, "probabilities"), dtype=np.float32),
        short=np.asarray(field_of(fields, "short"), dtype=bool),
        seed=None if seed is None else int(seed),
    )


def model_info(document: Any) -> answers.ModelInfo:
    """The answer of GET /model."""
    rows = rows_of(document, "classes")
    coarse = document.get("coarse_features")
    if coarse is not None:
        coarse = tuple(answers.build(answers.CoarseFeature, row) for row in coarse)
    return answers.build(
        answers.ModelInfo,
        document,
        coarse_features=coarse,
        classes=tuple(answers.build(answers.ClassCount, row) for row in rows),
        held=tuple(_sub_task_held(row) for row in document.get("held", ())),
        gate=_gate(document),
    )


def drift_state(document: Any) -> answers.DriftState:
    """The answer of GET /drift."""
    rows = document.get("detectors") if isinstance(document, Mapping) else None
    detectors = tuple(answers.build(answers.DetectorRow, row) for row in rows or ())
    return answers.build(answers.DriftState, document, gate=_gate(document), detectors=detectors)


def _gate(document: Any) -> answers.Gate | None:
    told = document.get("gate") if isinstance(document, Mapping) else None
    return None if told is None else answers.build(answers.Gate, told)


def _sub_task_held(document: Any) -> answers.SubTaskHeld:
    classes = tuple(answers.build(answers.ClassHeld, row) for row in rows_of(document, "classes"))
    return answers.build(answers.SubTaskHeld, document, classes=classes)


def boundary(document: Any) -> answers.Boundary:
    """One boundary, from a list of them or by itself."""
    told = document.get("explanation") if isinstance(document, Mapping) else None
    said = document.get("notes", ()) if isinstance(document, Mapping) else ()
    notes = tuple(answers.build(answers.Note, row) for row in said)
    explanation = _explanation(told or {})
    return answers.build(answers.Boundary, document, explanation=explanation, notes=notes)


def _explanation(document: Mapping[str, Any]) -> answers.Explanation:
    def rows(cls: type[T], name: str) -> tuple[T, ...]:
        return tuple(answers.build(cls, row) for row in document.get(name, ()))

    prototypes = tuple(
        answers.build(answers.Prototype, row, features=tuple(field_of(row, "features")))
        for row in document.get("prototypes", ())
    )
    return answers.build(
        answers.Explanation,
        document,
        features=rows(answers.FeatureChange, "features"),
        components=rows(answers.ComponentChange, "components"),
        classes=rows(answers.ClassChange, "classes"),
        labels=rows(answers.LabelChange, "labels"),
        prototypes=prototypes,
        contributions=tuple(document.get("contributions", ())),
    )


def dead_letter(document: Any) -> answers.DeadLetter:
    """One dead letter, from a list of them or by itself."""
    return answers.build(answers.DeadLetter, document)


def dead_letters(document: Any) -> answers.DeadLetters:
    """The answer of GET /deadletters."""
    rows = rows_of(document, "deadletters")
    return answers.build(answers.DeadLetters, document, letters=tuple(map(dead_letter, rows)))


def api_keys(document: Any) -> tuple[answers.ApiKey, ...]:
    """The answer of GET /keys."""
    return tuple(
        answers.build(answers.ApiKey, row, **_limits(row)) for row in rows_of(document, "keys")
    )


def key_shares(document: Any) -> answers.KeyShares:
    """The answer of GET /keys/shares."""
    other = field_of(document, "other")
    return answers.build(
        answers.KeyShares,
        document,
        keys=tuple(answers.build(answers.KeyShare, row) for row in rows_of(document, "keys")),
        other=None if other is None else answers.build(answers.KeyShare, other, name="other"),
    )


def named_models(document: Any) -> tuple[answers.ListedModel, ...]:
    """The models of GET /models."""
    rows = field_of(document, "models")
    return tuple(
        answers.build(answers.ListedModel, row, detail=_detail(row.get("detail"))) for row in rows
    )


def _detail(row: Any) -> answers.ModelDetail | None:
    if row is None:
        return None
    found = row.get("boundary")
    newest = None if found is None else answers.build(answers.NewestBoundary, found)
    return answers.build(answers.ModelDetail, row, boundary=newest)


def new_api_key(document: Any) -> answers.NewApiKey:
    """The answer of POST /keys."""
    return answers.build(answers.NewApiKey, document, **_limits(document))


def _limits(row: Any) -> dict[str, tuple[str, ...] | None]:
    """What a key may do, and for which models; an older service knows of all models only."""
    roles, models = field_of(row, "roles"), row.get("models")
    return {"roles": tuple(roles), "models": None if models is None else tuple(models)}


def proposal(document: Any) -> answers.Proposal:
    """One row of GET /drift/proposals."""
    return answers.build(
        answers.Proposal,
        document,
        prototype=np.asarray(field_of(document, "prototype"), dtype=np.float32),
        nearest_classes=tuple(field_of(document, "nearest_classes")),
        nearest_probabilities=tuple(field_of(document, "nearest_probabilities")),
    )


def readiness(reply: Reply) -> answers.Readiness:
    """The answer of GET /health/ready, whichever it is."""
    if reply.status < 400:
        return answers.Readiness(True)
    reason = None
    with suppress(orjson.JSONDecodeError, AttributeError):
        document = orjson.loads(reply.body)
        reason = document.get("detail") or document.get("reason")
    return answers.Readiness(False, str(reason or _foreign(reply)))
