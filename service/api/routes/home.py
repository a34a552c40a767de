"""GET /: a page that says what this is, how it does, and where everything is."""

from __future__ import annotations

from html import escape
from importlib import resources

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from service.api.parts import parts_of

router = APIRouter(include_in_schema=False)

PAGE = resources.files("service.api").joinpath("home.html").read_text("utf-8")
CONTENT_SECURITY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)


@router.get("/")
async def home(request: Request) -> HTMLResponse:
    """The page; it reads GET /model by itself and follows GET /events."""
    page = PAGE.replace("{model}", escape(parts_of(request).settings.model))
    return HTMLResponse(page, headers={"Content-Security-Policy": CONTENT_SECURITY})
