"""GET /: the dashboard, a page that shows the stream as it is learned; and its files."""

from __future__ import annotations

from html import escape

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from service.api.assets import Asset, read
from service.api.parts import parts_of

router = APIRouter(include_in_schema=False)

FILES = read("service.api", "static")
PAGE = FILES.pop("index.html").plain.decode("utf-8")
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}
"""Nothing from elsewhere, and no script or style that is written into the page."""


@router.get("/")
async def home(request: Request) -> Response:
    """The page; its scripts ask the other routes and follow GET /events."""
    name = escape(parts_of(request).settings.model)
    page = Asset.of("index.html", PAGE.replace("{model}", name).encode())
    return page.answer(request, HEADERS)


@router.get("/static/{path:path}")
async def static(request: Request, path: str) -> Response:
    """A script, a style sheet or a library of the page."""
    if path not in FILES:
        raise HTTPException(404)
    return FILES[path].answer(request)
