"""POST /outliers: how typical is each sample of what has been learned?"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from core.errors import InvalidRequest
from service.api import answers
from service.api.admission import check_shape
from service.api.bodies import read_batch, to_tensor
from service.api.errors import OutOfRange
from service.api.false_positive_rates import RATE, rate_of
from service.api.flags import flag_of
from service.api.given_twice import one_value
from service.api.negotiation import JSON, SAFETENSORS, choose
from service.api.openapi import forms, problems, samples_body
from service.api.parts import parts_of, snapshot_of
from service.api.query import StrictRoute

router = APIRouter(tags=["model"], route_class=StrictRoute)

LARGEST_C = 100.0


class Scored(BaseModel):
    """Typicality of N samples."""

    model_version: int = Field(description="Version of the model that answered.")
    log_likelihoods: list[float] = Field(description="In nats, one per sample; lower is stranger.")
    inliers: list[bool] = Field(description="Whether its score is not below the threshold.")
    threshold: float = Field(
        description="Of `score`. Of the log-likelihood: running mean minus c standard deviations. "
        "Of p-values: the asked false-positive rate, at or below which a sample is an outlier; "
        "a rate below every p-value there can be is kept by extrapolation."
    )
    score: Literal["log_likelihood", "p_value"] = Field(description="What decides on inliers.")
    p_values: list[float] | None = Field(
        description="Share of inliers that are at least as strange, above 0 and at most 1: "
        "comparable across versions and models; null while `calibration` is 0."
    )
    typicality: list[float] | None = Field(
        description="What p-values rank: log of a tail probability; goes on falling where p-values "
        "have reached their least; null while `calibration` is 0."
    )
    scales: list[float] | None = Field(
        description="For each sample the share of the mixture from which it is strangest: "
        "1 for all of it, or a share nearest to the sample, which is far from one that has few "
        "others about it; null while `calibration` is 0."
    )
    calibration: int = Field(
        description="Held-out scores behind the p-values. 0: too few so far; there are no "
        "p-values, and `score` is the log-likelihood."
    )
    components: list[int] | None = Field(
        None,
        description="The component that is most responsible for each sample; null unless "
        "`components` asked for it.",
    )
    responsibilities: list[float] | None = Field(
        None, description="The probability of that component given the sample; null likewise."
    )


@router.post(
    "/outliers",
    operation_id="outliers",
    summary="Score how typical each sample is",
    response_model=Scored,
    responses={
        200: {"content": forms(SAFETENSORS)},
        **problems(403, 406, 409, 413, 415, 422, 503),
    },
    openapi_extra=samples_body(
        {"features": [[0.0, 0.5], [9.0, 9.0]], "c": 2.0},
        {
            "c": {
                "type": "number",
                "minimum": 0,
                "maximum": LARGEST_C,
                "description": "Standard deviations of the log-likelihood below its mean at which "
                "an outlier begins, instead of a rate.",
            },
            "false_positive_rate": RATE
            | {
                "description": "Instead of `c`: share of inliers, above 0 and below 1, that may be "
                "called outliers; the service's own without it."
            },
            "components": {
                "type": "boolean",
                "default": False,
                "description": "Whether to say which component is most responsible for each.",
            },
        },
    ),
)
async def outliers(
    request: Request,
    c: Annotated[float | None, Query(description="The same as `c` in the body.")] = None,
    false_positive_rate: Annotated[
        float | None, Query(description="The same as `false_positive_rate` in the body.")
    ] = None,
    components: Annotated[bool, Query(description="The same as `components` in the body.")] = False,
) -> Response:
    """Works as soon as anything was learned; labels are not needed."""
    parts = parts_of(request)
    form = choose(request.headers.get("accept"), (JSON, SAFETENSORS))
    allowed = ("c", "false_positive_rate", "components")
    batch = await read_batch(request, parts.settings, allowed=allowed)
    deviations = one_value("c", batch, request, _deviations, c)
    rate = one_value("false_positive_rate", batch, request, rate_of, false_positive_rate)
    with_components = one_value("components", batch, request, flag_of, components)
    snapshot = await snapshot_of(parts)
    check_shape(parts, batch)
    x = to_tensor(batch)
    scores = await parts.micro_batches.ask(
        snapshot,
        x,
        ("outliers", deviations, rate, with_components),
        lambda x: snapshot.outliers(x, deviations, rate, components=with_components),
    )

    arrays = {
        "log_likelihoods": answers.numpy(scores.log_likelihoods),
        "inliers": answers.numpy(scores.inliers),
    }
    calibrated = {
        name: None if values is None else answers.numpy(values)
        for name, values in (
            ("p_values", scores.p_values),
            ("typicality", scores.typicality),
            ("scales", scores.scales),
            ("components", scores.components),
            ("responsibilities", scores.responsibilities),
        )
    }
    version = snapshot.version
    if form == SAFETENSORS:
        metadata = {
            "threshold": repr(scores.threshold),
            "score": scores.score,
            "calibration": str(scores.calibration),
        }
        known = {name: values for name, values in calibrated.items() if values is not None}
        return answers.safetensors({**arrays, **known}, metadata, version=version)
    document = {
        "model_version": version,
        "threshold": scores.threshold,
        "score": scores.score,
        "calibration": scores.calibration,
        **arrays,
        **calibrated,
    }
    return answers.json(document, version=version)


def _deviations(name: str, c: object) -> float | None:
    """The wanted c as a number, from JSON, metadata or query; None for the service's own."""
    if c is None:
        return None
    try:
        if isinstance(c, bool) or not isinstance(c, (int, float, str)):
            raise ValueError
        number = float(c)
    except ValueError:
        raise InvalidRequest(
            f"`{name}` is no number. Expected standard deviations, like 2.0. Correct it.",
            parameter=name,
        ) from None
    if math.isnan(number) or not 0 <= number <= LARGEST_C:
        raise OutOfRange.of(name, got=number, low=0, high=LARGEST_C)
    return number
