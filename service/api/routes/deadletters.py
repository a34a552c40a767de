"""/deadletters: entries that were accepted and could not be used."""

from __future__ import annotations

import base64
import math
import re
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field

from core.errors import GMRError
from service.api import answers
from service.api.admission import check
from service.api.errors import NotAcceptable, OutOfRange
from service.api.negotiation import JSON, SAFETENSORS, choose
from service.api.openapi import forms, problems
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.api.since import start_of
from service.broker.dead_letters import PAGE, DeadLetter, DeadLetters
from service.broker.stream_errors import LetterConflict, UnknownLetter
from service.wire import REQUEUED_FROM, Control, RawBatch, RawLabels, RawName, read_entry

router = APIRouter(prefix="/deadletters", tags=["stream"], route_class=StrictRoute)

EXAMPLE: Final = "1700000000000-20000"

Id = Annotated[str, Path(description="Id of the letter, from the list.", examples=[EXAMPLE])]


class Letter(BaseModel):
    """One entry that could not be used."""

    id: str = Field(description="Id of the letter, and of its event `entry_rejected`.")
    entry_id: str = Field(description="Id of the entry in the stream.")
    time: float = Field(description="When it was rejected, Unix seconds.")
    reason: str = Field(description="Why, in a word: as in `gmr_batches_rejected_total`.")
    detail: str = Field(description="Why, in full.")
    kind: str | None = Field(description="`batch`, `labels`, `name`, or what a control is.")
    batch_id: str | None = Field(description="The sender's, or one made for the batch.")
    samples: int | None = Field(description="Samples or labels in it; null for none.")
    size: int = Field(description="Size of the entry, in bytes.")
    whole: bool = Field(description="Whether it was kept whole, so that it can be sent again.")
    requeued_from: str | None = Field(
        description="The entry that this one repeated: a dead letter sent again."
    )
    requeued_as: str | None = Field(
        description="The entry that this one was sent again as; null where it was not."
    )


class Letters(BaseModel):
    """Letters in the order of their entries."""

    deadletters: list[Letter]
    next: str | None = Field(description="Give it as `since` for the next page; null at the end.")
    total: int = Field(description="Letters kept that were not sent again.")
    bytes: int = Field(description="Bytes of their entries.")
    dropped: int | None = Field(
        description="Letters that made room for newer ones, ever; null while no trainer reports."
    )


class WholeLetter(Letter):
    """A letter and what it holds; only the fields that its kind has."""

    features: list[list[float]] | None = Field(None, description="N rows of D numbers.")
    labels: list[int | str | None] | None = Field(None, description="As they were sent.")
    sample_ids: list[int | str | None] | None = Field(None, description="As they were sent.")
    proposal: int | None = Field(None, description="The proposed class that was named.")
    version: int | None = Field(None, description="The model version that was asked for.")
    fields: dict[str, str] | None = Field(
        None, description="Fields of an entry that cannot be read, as base64."
    )


class Requeued(BaseModel):
    """A letter that was sent again."""

    entry_id: str = Field(description="Id of the new entry in the stream.")
    batch_id: str = Field(description="As before.")
    samples: int = Field(description="Samples or labels in it.")
    backlog: int = Field(description="Entries accepted and not yet learned, this one included.")
    deadletter: str = Field(description="The letter.")
    requeued_from: str = Field(description="The entry that could not be used.")


class Dropped(BaseModel):
    """Letters that are no more."""

    dropped: int = Field(description="How many.")


@router.get(
    "",
    operation_id="dead_letters",
    summary="Entries that could not be used",
    response_model=Letters,
    responses=problems(422, 503),
)
async def dead_letters(
    request: Request,
    since: Annotated[
        str | None,
        Query(description="`id` of a letter, for later ones only; or Unix seconds."),
    ] = None,
    limit: Annotated[int, Query(description="Letters in one answer, at most.")] = 100,
    batch_id: Annotated[str | None, Query(description="Only those of this batch.")] = None,
) -> Response:
    """What was answered with 202 and could not be learned when its turn came. Oldest first."""
    if not 1 <= limit <= PAGE:
        raise OutOfRange.of("limit", got=limit, low=1, high=PAGE)
    stream = parts_of(request).stream
    letters = DeadLetters(stream)
    found = await letters.page(start_of(since), limit, batch_id)
    total, nbytes = await letters.size()
    status = await stream.reports.status()
    return answers.json(
        {
            "deadletters": [letter.to_dict() for letter in found],
            "next": found[-1].id if len(found) == limit else None,
            "total": total,
            "bytes": nbytes,
            "dropped": None if status is None else status.get("dead_letters_dropped"),
        }
    )


@router.get(
    "/{id}",
    operation_id="dead_letter",
    summary="One of them, whole",
    response_model=WholeLetter,
    responses={200: {"content": forms(SAFETENSORS)}, **problems(404, 406, 422, 503)},
)
async def dead_letter(request: Request, id: Id) -> Response:
    """With `Accept: application/vnd.safetensors` a batch comes as `POST /ingest` takes it."""
    parts = parts_of(request)
    form = choose(request.headers.get("accept"), (JSON, SAFETENSORS))
    letters = DeadLetters(parts.stream)
    letter = await letters.find(_checked(id))
    fields = await letters.payload(letter.id)
    if form == SAFETENSORS:
        content = await parts.workers.run(lambda: _as_body(letter, fields), math.inf)
        return Response(content, media_type=SAFETENSORS)
    return await parts.workers.run(
        lambda: answers.json({**letter.to_dict(), **_content(fields)}), math.inf
    )


@router.post(
    "/{id}",
    operation_id="requeue_dead_letter",
    summary="Send one again",
    status_code=202,
    response_model=Requeued,
    responses={
        202: {"description": "In the stream again, as a new entry."},
        **problems(403, 404, 409, 422, 429, 503),
    },
)
async def requeue(request: Request, id: Id) -> Response:
    """Once each: after what was wrong has been put right, for example a limit."""
    parts = parts_of(request)
    letters, applied = DeadLetters(parts.stream), parts.entries_applied
    letter = await letters.find(_checked(id))
    if letter.requeued_as is not None:
        raise LetterConflict.requeued(letter.id, letter.requeued_as)
    fields = await letters.payload(letter.id)
    if fields is None:
        raise LetterConflict.bare(letter.id)
    asked = read_entry(fields)
    await check(parts, asked)
    first = letter.facts["entry_id"]
    samples = 0 if isinstance(asked, Control) else len(asked)
    appended = await parts.stream.requeue(
        letter.id,
        {**fields, REQUEUED_FROM.encode(): first.encode()},
        samples=samples,
        d=asked.n_features if isinstance(asked, RawBatch) else None,
        entries_applied=applied,
    )
    document = {
        "entry_id": appended.entry_id,
        "batch_id": appended.batch_id,
        "samples": samples,
        "backlog": max(0, appended.accepted - applied),
        "deadletter": letter.id,
        "requeued_from": first,
    }
    return answers.json(document, status=202)


@router.delete(
    "/{id}",
    operation_id="drop_dead_letter",
    summary="Forget one",
    response_model=Dropped,
    responses=problems(403, 404, 422, 503),
)
async def drop(request: Request, id: Id) -> Response:
    """Its batch may then be sent again under its old `batch_id`."""
    await DeadLetters(parts_of(request).stream).drop(_checked(id))
    return answers.json({"dropped": 1})


@router.delete(
    "",
    operation_id="drop_dead_letters",
    summary="Forget all",
    response_model=Dropped,
    responses=problems(403, 503),
)
async def drop_all(request: Request) -> Response:
    """All that there are at this moment."""
    return answers.json({"dropped": await DeadLetters(parts_of(request).stream).drop_all()})


def _checked(id: str) -> str:
    """The id, if it may be one."""
    if not re.fullmatch(r"[0-9]{1,15}-[0-9]{1,18}", id):
        raise UnknownLetter.of(id)
    return id


def _content(fields: dict[bytes, bytes] | None) -> dict[str, Any]:
    """What an entry holds, JSON-ready."""
    if fields is None:
        return {}
    try:
        asked = read_entry(fields)
    except GMRError:
        raw = {
            name.decode("ascii", "replace"): base64.b64encode(value).decode()
            for name, value in fields.items()
        }
        return {"fields": raw}
    if isinstance(asked, RawBatch):
        return {
            "features": asked.to_float32(),
            "labels": asked.labels,
            "sample_ids": asked.sample_ids,
        }
    if isinstance(asked, RawLabels):
        return {"sample_ids": asked.sample_ids, "labels": asked.labels}
    if isinstance(asked, RawName):
        return {"proposal": asked.proposal, "labels": [asked.label]}
    if asked.labels is not None:
        return {"labels": asked.labels}
    return {} if asked.version is None else {"version": asked.version}


def _as_body(letter: DeadLetter, fields: dict[bytes, bytes] | None) -> bytes:
    """A batch as the body of a request.

    Raises:
        NotAcceptable: The letter holds no samples that can be read.
    """
    try:
        asked = None if fields is None else read_entry(fields)
    except GMRError:
        asked = None
    if not isinstance(asked, RawBatch):
        raise NotAcceptable.no_samples(letter.id)
    return asked.to_safetensors()
