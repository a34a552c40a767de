"""GET and PUT /model/checkpoint: take the whole state away, or start from one."""

from __future__ import annotations

import math
from typing import Final

from fastapi import APIRouter, Request, Response

from core.checkpoint import load
from service.api.bodies import media_type, read_body
from service.api.errors import Unavailable
from service.api.negotiation import OCTETS, SAFETENSORS
from service.api.openapi import binary_body, forms, problems
from service.api.parts import parts_of
from service.api.routes.model import Restored, apply
from service.wire import Control

router = APIRouter(prefix="/model", tags=["model"])

ANSWER_TIMEOUT_S: Final = 10.0


@router.get(
    "/checkpoint",
    operation_id="download_checkpoint",
    summary="Download the whole state",
    response_class=Response,
    responses={
        200: {"description": "The state as a safetensors file.", "content": forms(SAFETENSORS)},
        **problems(503),
    },
)
async def download(request: Request) -> Response:
    """Everything: the model, the detector, the random state, the raw samples of the current
    sub-task's window. A model that goes on from it goes on bit for bit."""
    parts = parts_of(request)
    content = await parts.stream.request_checkpoint(ANSWER_TIMEOUT_S)
    if content is None:
        raise Unavailable(
            f"The trainer has not answered for {ANSWER_TIMEOUT_S:.0f} seconds. Expected one to be "
            f"running. Look at GET /health/ready, then ask again."
        )
    name = f"gmr-{parts.settings.model}.safetensors"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, headers=headers, media_type=SAFETENSORS)


@router.put(
    "/checkpoint",
    operation_id="upload_checkpoint",
    summary="Go on from an uploaded state",
    response_model=Restored,
    responses={
        202: {"model": Restored, "description": "In the stream; the trainer has yet to do it."},
        **problems(403, 413, 415, 422, 503),
    },
    openapi_extra=binary_body("A file from GET /model/checkpoint.", SAFETENSORS, OCTETS),
)
async def upload(request: Request) -> Response:
    """Takes its place in the stream, after what was accepted before it."""
    parts = parts_of(request)
    media_type(request, (SAFETENSORS, OCTETS))
    content = await read_body(request, parts.settings.max_body_bytes)
    # Read once here, so that a wrong file is refused before it is in the stream for ever.
    await parts.workers.run(lambda: load(content), math.inf)
    return await apply(parts, Control("restore", checkpoint=content))
