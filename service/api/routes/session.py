"""/session: a browser's key. A page cannot add a header to what the browser asks by itself.

The key travels in a cookie that scripts cannot read and that the browser sends to this site only.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from service.api.access import COOKIE, key_of
from service.api.openapi import problems
from service.api.query import StrictRoute

router = APIRouter(prefix="/session", tags=["operations"], route_class=StrictRoute)

LASTS_S: Final = 12 * 3600


@router.post("", operation_id="begin_session", status_code=204, responses=problems(401, 403, 421))
async def begin(request: Request) -> Response:
    """Remember the key of this request in a cookie for twelve hours."""
    response = Response(status_code=204)
    key = key_of(request)
    if key is not None:
        response.set_cookie(
            COOKIE,
            key,
            max_age=LASTS_S,
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
    return response


@router.delete("", operation_id="end_session", status_code=204, responses=problems(403, 421))
async def end(request: Request) -> Response:
    """Forget the key."""
    response = Response(status_code=204)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response
