"""GET /docs: the interactive documentation, with no file from anywhere else.

FastAPI's own page loads its scripts from a public network, so that it stays blank on
a machine without one; the same scripts come as a package.
"""

from __future__ import annotations

from importlib import resources
from typing import Final

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles

from service.api import openapi

ASSETS: Final = "/docs/assets"
CONTENT_SECURITY: Final = (
    "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def install(app: FastAPI) -> None:
    """Give `app` the page and what it loads."""
    directory = str(resources.files("fastapi_offline").joinpath("static"))
    app.mount(ASSETS, StaticFiles(directory=directory), name="docs-assets")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        # Relative addresses, so that a proxy may serve the page below any path.
        page = get_swagger_ui_html(
            openapi_url=f".{openapi.PATH}",
            title=app.title,
            swagger_js_url=f".{ASSETS}/swagger-ui-bundle.js",
            swagger_css_url=f".{ASSETS}/swagger-ui.css",
            swagger_favicon_url=f".{ASSETS}/favicon.png",
        )
        page.headers["Content-Security-Policy"] = CONTENT_SECURITY
        return page
