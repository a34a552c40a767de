"""GET /audit: who did what as an administrator, and what became of it."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from service.api import answers
from service.api.errors import OutOfRange
from service.api.openapi import problems
from service.api.parts import parts_of
from service.api.query import StrictRoute
from service.broker.audit_trail import AuditTrail

router = APIRouter(prefix="/audit", tags=["operations"], route_class=StrictRoute)

MOST: Final = 1000


class AuditedAction(BaseModel):
    """One action."""

    model_config = ConfigDict(title="AuditedAction")

    id: str
    time: float = Field(description="When it was asked for, Unix seconds.")
    by: str = Field(
        description="Name of the key; `operator` for the service's own, `anybody` where keys are "
        "not required."
    )
    method: str
    path: str
    request_id: str = Field(description="As in the header X-Request-ID of the answer, and in logs.")
    status: int | None = Field(
        None, description="Of the answer; null where the process died before there was one."
    )
    asked: Any = Field(None, description="The body, where it is JSON of at most a kilobyte.")
    entry_id: str | None = Field(None, description="Entry of the stream that carries it, if any.")
    made: str | None = Field(None, description="Id of what was made, such as a key.")


class Audit(BaseModel):
    """Actions of administrators."""

    actions: list[AuditedAction] = Field(description="Oldest first.")


@router.get(
    "",
    operation_id="audit",
    summary="What administrators did",
    response_model=Audit,
    responses=problems(401, 403, 421, 422, 503),
)
async def audit(
    request: Request,
    last: Annotated[int, Query(description="Actions to return, at most.")] = 100,
) -> Response:
    """The newest ten thousand are kept, of all models together. Downloads of a checkpoint count;
    other questions do not."""
    if not 1 <= last <= MOST:
        raise OutOfRange.of("last", got=last, low=1, high=MOST)
    found = await AuditTrail(parts_of(request).stream).newest(last)
    return answers.json({"actions": [AuditedAction(**one).model_dump() for one in found]})
