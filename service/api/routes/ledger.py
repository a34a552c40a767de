"""GET /ledger and GET /batches/{batch_id}: what became of what was accepted."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field

from service.api import answers
from service.api.openapi import problems
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.broker.ledger import LedgerBook, State

router = APIRouter(tags=["stream"], route_class=StrictRoute)

NOT_KNOWN = "null where that cannot be known."


class LedgerCounts(BaseModel):
    """Samples accepted since `since`, by what became of them, at one position of the stream.

    `accepted` is the sum of `waiting` to `lost`.
    """

    accepted: int | None = Field(description=f"Samples of all batches accepted; {NOT_KNOWN}")
    waiting: int | None = Field(
        description="In the stream, not applied yet; null while entries wait that did not come "
        "through this API."
    )
    learned: int | None = Field(description="In the model.")
    set_aside: int | None = Field(description="Held while a change is suspected.")
    awaiting: int | None = Field(description="Held until their label comes.")
    unknown: int | None = Field(description="Held as unknown, or in a proposal of a new class.")
    quarantined: int | None = Field(description="Outliers of bursts, neither learned nor lost.")
    passed: int | None = Field(
        description="Scored and told while the model was at rest, and never learned."
    )
    rejected: int | None = Field(description="Of dead letters.")
    dropped: int | None = Field(description="Left out of the model by a rollback or an upload.")
    lost: int | None = Field(description=f"Of entries that no checkpoint held; {NOT_KNOWN}")
    unaccounted: int | None = Field(
        description="What is accepted and in none of these: 0. Null where `accepted` or `lost` is."
    )
    waiting_entries: int = Field(description="Entries in the stream that are not applied yet.")
    entries_applied: int = Field(description="Entries applied at this position, ever.")
    last_entry_id: str | None = Field(description="The last of them; null for none.")
    since: str | None = Field(
        description="The last entry that is not counted; null where all are, ever."
    )


class BatchCounts(BaseModel):
    """Samples of one batch by what became of them."""

    learned: int
    set_aside: int
    awaiting: int
    unknown: int
    quarantined: int
    passed: int
    dropped: int


class BatchFate(BaseModel):
    """What became of one batch, as it was accepted last."""

    batch_id: str
    entry_id: str = Field(description="Id of its entry in the stream.")
    kind: str = Field(description="`batch` or `labels`.")
    state: State = Field(
        description="`split` where its samples are in several states; `applied` for labels, and "
        "where it is part of the model but how it was split is not known (any more)."
    )
    samples: int = Field(description="Samples that it holds, or labels.")
    counts: BatchCounts | None = Field(
        description="Of its samples; null unless it is applied and that is known."
    )
    reason: str | None = Field(description="Why it was rejected, in a word.")
    detail: str | None = Field(description="Why, in full; null once its dead letter is gone.")
    deadletter: str | None = Field(description="Id of the letter; null once it is gone.")
    accepted: int = Field(description="Times that this id was accepted, of the last few.")
    last_entry_id: str | None = Field(description="The last entry that the trainer had applied.")


@router.get(
    "/ledger",
    operation_id="ledger",
    summary="What became of all samples",
    response_model=LedgerCounts,
    responses=problems(503),
)
async def ledger(request: Request) -> Response:
    """Counts of one moment, which add up: nothing that was accepted is missing."""
    return answers.json(await LedgerBook(parts_of(request).stream).counts())


@router.get(
    # Any id, also one with slashes.
    "/batches/{batch_id:path}",
    operation_id="batch",
    summary="What became of one batch",
    response_model=BatchFate,
    responses=problems(404, 422, 503),
)
async def batch(
    request: Request,
    batch_id: Annotated[str, Path(description="As it was sent, or answered.", max_length=200)],
) -> Response:
    """For as long as its id is remembered: `GMR_DEDUPE_TTL_S`, or ten minutes for ids made here."""
    return answers.json(asdict(await LedgerBook(parts_of(request).stream).fate(batch_id)))
