"""GET /problems: every kind of error, which is what the `type` of an error answer refers to."""

from __future__ import annotations

from fastapi import APIRouter, Response
from starlette.exceptions import HTTPException

from service.api import answers
from service.api.problems import FRAMEWORK, PROBLEMS, Problem

router = APIRouter(prefix="/problems", include_in_schema=False)

ROWS: dict[str, Problem] = {row.name: row for row in (*PROBLEMS.values(), *FRAMEWORK.values())}


@router.get("")
async def problems() -> Response:
    """All of them."""
    return answers.json({"problems": [_document(row) for row in ROWS.values()]})


@router.get("/{name}")
async def problem(name: str) -> Response:
    """One of them."""
    if name not in ROWS:
        raise HTTPException(404)
    return answers.json(_document(ROWS[name]))


def _document(row: Problem) -> dict[str, object]:
    return {"type": row.type, "title": row.title, "status": row.status, "advice": row.advice}
