"""GET /drift/curve: the history of batches as few points, for charts."""

from __future__ import annotations

import math
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field

from core.errors import InvalidRequest
from service.api import answers
from service.api.curve import Curve
from service.api.errors import OutOfRange
from service.api.openapi import problems
from service.api.parts import parts_of
from service.api.query import StrictRoute

router = APIRouter(prefix="/drift", tags=["drift"], route_class=StrictRoute)

MOST_POINTS: Final = 2000
Number = float | None


class Columns(BaseModel):
    """One list for each quantity, with a value for each point; null where it is not known."""

    start_time: list[float] = Field(description="When its first batch was read, Unix seconds.")
    time: list[float] = Field(description="When its last batch was read.")
    batch_index: list[int] = Field(description="Of its first batch; the stream's first is 0.")
    sample_index: list[int] = Field(description="Of its first sample; the stream's first is 0.")
    batches: list[int] = Field(description="That it stands for.")
    samples: list[int] = Field(description="Of those batches.")
    labelled: list[float] = Field(description="Of those samples, the ones behind `accuracy`.")
    sub_task: list[int] = Field(description="Of its last batch.")
    set_aside: list[int] = Field(description="Of its batches, those kept apart.")
    armed: list[bool] = Field(description="Whether the detector could have spoken, at its end.")
    inlier_rate: list[Number] = Field(description="Mean, weighed by samples.")
    inlier_rate_low: list[Number] = Field(description="Of the batch with the lowest.")
    inlier_rate_mean: list[Number] = Field(description="That of the reference, at its end.")
    log_likelihood: list[Number] = Field(description="Mean, nats per sample.")
    accuracy: list[Number] = Field(description="Prequential, of its labelled samples.")
    accuracy_mean: list[Number] = Field(description="Running mean, at its end.")
    estimated_accuracy: list[Number] = Field(
        description="Expected of the samples that were newest, labels or not; mean."
    )
    ratio: list[Number] = Field(
        description="Highest statistic of the deciding detector over its threshold; a boundary, "
        "or a burst, is where it passes 1."
    )
    ratios: dict[str, list[Number]] = Field(
        description="The same for every signal of that detector, and for every shadow."
    )


class CurveOfHistory(BaseModel):
    """The kept history, oldest first."""

    last_id: str = Field(
        description="Of the newest batch's report: follow `GET /events?after=` from there. `0` "
        "where there is none."
    )
    batches_per_point: int = Field(description="All points but the last stand for so many.")
    points: Columns


@router.get(
    "/curve",
    operation_id="curve",
    summary="The history of batches, as few points",
    response_model=CurveOfHistory,
    responses=problems(422, 503),
)
async def curve(
    request: Request,
    points: Annotated[
        int,
        Query(
            description="Points to answer, at most; half of these at least where there are as "
            "many batches."
        ),
    ] = 500,
    since: Annotated[
        float | None, Query(description="Unix seconds: only batches accepted then or later.")
    ] = None,
) -> Response:
    """Whatever is kept for `GET /drift/history`, in a bounded number of points."""
    if not 10 <= points <= MOST_POINTS:
        raise OutOfRange.of("points", got=points, low=10, high=MOST_POINTS)
    if since is not None and not 0 <= since < 1e12:
        raise InvalidRequest(
            "`since` is no time. Expected Unix seconds, like 1700000000. Correct it.",
            parameter="since",
        )
    parts = parts_of(request)
    start = "-" if since is None else str(int(since * 1000))
    found, last_id = Curve(points), "0"
    async for page in parts.stream.reports.history_pages(start):
        # Beside the event loop: a long history takes a while to read.
        await parts.workers.run(lambda rows=page: found.add(rows), math.inf)  # type: ignore[misc]
        last_id = page[-1][0]
    document = {
        "last_id": last_id,
        "batches_per_point": found.batches_per_point,
        "points": found.columns(),
    }
    return answers.json(document)
