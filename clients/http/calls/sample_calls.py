"""Calls about samples: to send, label, classify, judge and draw them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import ArrayLike, NDArray

from clients.http import answers, replies
from clients.http.calls.call import BINARY_PREFERRED, JSON, Call, T, get
from clients.http.missing import Column, plain
from clients.http.replies import Reply
from core.errors import InvalidRequest
from service.wire import MEDIA_TYPE, RawBatch, RawLabels, RawName, new_batch_id


def ingest(
    features: ArrayLike,
    labels: Sequence[Any] | NDArray[Any] | Column | None,
    batch_id: str | None,
    sample_ids: Sequence[Any] | NDArray[Any] | Column | None = None,
) -> Call[answers.Ingested]:
    """POST /ingest."""
    batch = RawBatch.of(features, plain(labels), batch_id or new_batch_id(), plain(sample_ids))
    return Call(
        "POST",
        "/ingest",
        lambda reply: answers.build(answers.Ingested, replies.json(reply)),
        headers={"content-type": MEDIA_TYPE, "accept": JSON},
        body=batch.to_safetensors(),
    )


def ingest_state() -> Call[answers.IngestState]:
    """GET /ingest."""
    return get("/ingest", lambda document: answers.build(answers.IngestState, document))


def label(
    sample_ids: Sequence[Any] | NDArray[Any] | Column,
    labels: Sequence[Any] | NDArray[Any] | Column,
    batch_id: str | None,
) -> Call[answers.Labelled]:
    """POST /labels, for samples."""
    return _labels(RawLabels.of(plain(sample_ids), plain(labels), batch_id or new_batch_id()))


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
    n: int | None,
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
    n: int | None,
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


def _sample_query(
    n: int | None,
    classes: Sequence[answers.Label] | None,
    seed: int | None,
    min_probability: float | None,
    noise: bool,
) -> tuple[tuple[str, str], ...]:
    if classes is not None:
        InvalidRequest.check_list(classes)
    # One parameter per class, so that a comma in a name stays part of it.
    wanted = () if classes is None else tuple(("classes", str(label)) for label in classes)
    # What is not asked for is left to the service, whatever its release takes for usual.
    least = () if min_probability is None else (("min_probability", repr(float(min_probability))),)
    plain = () if noise else (("noise", "false"),)
    repeated = () if seed is None else (("seed", str(seed)),)
    many = () if n is None else (("n", str(n)),)
    return (*many, *repeated, *wanted, *least, *plain)
