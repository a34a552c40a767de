"""POST /classify: which class is each sample?"""

from __future__ import annotations

from typing import Annotated, Literal

import orjson
import torch
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from core.batch import UNLABELLED
from service.api import answers
from service.api.admission import check_shape
from service.api.bodies import read_batch, to_tensor
from service.api.false_positive_rates import RATE, rate_of
from service.api.flags import flag_of
from service.api.given_twice import one_value
from service.api.negotiation import JSON, SAFETENSORS, choose
from service.api.openapi import forms, problems, samples_body
from service.api.parts import parts_of, snapshot_of
from service.api.query import StrictRoute

router = APIRouter(tags=["model"], route_class=StrictRoute)


class Classified(BaseModel):
    """Classes of N samples, out of C."""

    model_version: int = Field(description="Version of the model that answered.")
    labels: list[int | str | None] = Field(
        description="Most probable class of each sample; null where it is unknown."
    )
    probabilities: list[list[float]] = Field(description="N rows in the order of `classes`.")
    classes: list[int | str] = Field(
        description="Every class known, in order of discovery; then those whose first labels "
        "came with what may be a change, which are learned once that is decided."
    )
    log_likelihoods: list[float] = Field(description="In nats, one per sample.")
    inliers: list[bool] = Field(
        description="Whether the model finds the sample typical: whether its p-value is above "
        "`unknown_rate`, or above the service's own rate without one."
    )
    p_values: list[float] | None = Field(
        description="Share of inliers that are at least as strange, above 0 and at most 1; null "
        "unless `p_values` or `unknown_rate` asked for them, and while `calibration` is 0."
    )
    unknown: list[bool] | None = Field(
        description="Whether the p-value is at or below `unknown_rate`, or, of a rate below every "
        "p-value there can be, the sample is as far beyond all that was known as that takes: "
        "probably of no class known; the others are inliers. Null without a rate, and while "
        "`calibration` is 0."
    )
    score: Literal["log_likelihood", "p_value"] = Field(description="What decides on inliers.")
    calibration: int = Field(
        description="Held-out scores behind the p-values. 0: too few so far; there are no "
        "p-values, nothing is unknown, and `score` is the log-likelihood."
    )


@router.post(
    "/classify",
    operation_id="classify",
    summary="Name the class of each sample",
    response_model=Classified,
    responses={
        200: {"content": forms(SAFETENSORS)},
        **problems(403, 406, 409, 413, 415, 422, 503),
    },
    openapi_extra=samples_body(
        {"features": [[0.0, 0.5], [1.0, 0.25]], "unknown_rate": 0.01},
        {
            "unknown_rate": RATE
            | {
                "description": "Share of inliers, above 0 and below 1, that may be called unknown, "
                "and outliers; without it nothing is unknown."
            },
            "p_values": {
                "type": "boolean",
                "default": False,
                "description": "Whether to answer p-values; a rate does so, too.",
            },
        },
    ),
)
async def classify(
    request: Request,
    unknown_rate: Annotated[
        float | None, Query(description="The same as `unknown_rate` in the body.")
    ] = None,
    p_values: Annotated[bool, Query(description="The same as `p_values` in the body.")] = False,
) -> Response:
    """As safetensors the answer holds the same arrays; `labels` are then positions in the
    metadata `vocabulary`, which is also the order of the columns of `probabilities`; -1 where
    a sample is unknown. Arrays that are null in JSON are not there."""
    parts = parts_of(request)
    form = choose(request.headers.get("accept"), (JSON, SAFETENSORS))
    batch = await read_batch(request, parts.settings, allowed=("unknown_rate", "p_values"))
    rate = one_value("unknown_rate", batch, request, rate_of, unknown_rate)
    wanted = one_value("p_values", batch, request, flag_of, p_values)
    snapshot = await snapshot_of(parts)
    check_shape(parts, batch)
    x = to_tensor(batch)
    result = await parts.micro_batches.ask(
        snapshot,
        x,
        ("classify", rate, wanted),
        lambda x: snapshot.classify(x, rate, p_values=wanted),
    )

    codes = result.codes.cpu()
    if result.unknown is not None:
        codes = codes.masked_fill(result.unknown, UNLABELLED)
    named = answers.numpy(codes)
    arrays = {
        "probabilities": answers.numpy(result.probabilities.to(torch.float32)),
        "log_likelihoods": answers.numpy(result.log_likelihoods),
        "inliers": answers.numpy(result.inliers),
    }
    asked = {
        name: answers.numpy(values)
        for name, values in (("p_values", result.p_values), ("unknown", result.unknown))
        if values is not None
    }
    version = snapshot.version
    if form == SAFETENSORS:
        metadata = {
            "vocabulary": orjson.dumps(snapshot.answers).decode(),
            "score": result.score,
            "calibration": str(result.calibration),
        }
        return answers.safetensors({"labels": named, **arrays, **asked}, metadata, version=version)
    document = {
        "model_version": version,
        "labels": [None if code < 0 else snapshot.answers[code] for code in named.tolist()],
        "classes": snapshot.answers,
        **arrays,
        "p_values": asked.get("p_values"),
        "unknown": asked.get("unknown"),
        "score": result.score,
        "calibration": result.calibration,
    }
    return answers.json(document, version=version)
