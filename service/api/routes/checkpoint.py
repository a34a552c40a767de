"""GET and PUT /model/checkpoint: take the whole state away, or start from one."""

from __future__ import annotations

import hashlib
import uuid
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from core.engine.checkpoint import features_of, verifier
from core.errors import InvalidCheckpoint, ShapeMismatch, UnknownVersion
from service.api.bodies import chunks_of_body, media_type
from service.api.control import Restored, apply
from service.api.errors import BodyTooLarge, Unavailable
from service.api.negotiation import OCTETS, SAFETENSORS
from service.api.openapi import binary_body, forms, problems
from service.api.parts import Parts, parts_of
from service.api.query import StrictRoute
from service.broker.feature_names import FeatureNames
from service.broker.names_in_checkpoint import names_in
from service.broker.pieces import PIECE_BYTES
from service.broker.records import Refusal
from service.broker.stream_errors import BacklogFull
from service.wire import Control, Upload

router = APIRouter(prefix="/model", tags=["model"], route_class=StrictRoute)

ANSWER_TIMEOUT_S: Final = 10.0
APPLY_TIMEOUT_S: Final = 30.0
"""A large model takes the trainer some seconds to read and to publish."""

MOST_UPLOADS: Final = 2
"""That may come or wait at a time: Redis holds them."""


@router.get(
    "/checkpoint",
    operation_id="download_checkpoint",
    summary="Download the whole state",
    response_class=Response,
    responses={
        200: {"description": "The state as a safetensors file.", "content": forms(SAFETENSORS)},
        **problems(404, 422, 503),
    },
)
async def download(
    request: Request,
    version: Annotated[
        int | None,
        Query(ge=0, description="One of GET /model/versions; none: the state of now."),
    ] = None,
) -> Response:
    """Everything: the model, the detector, the random state, the raw samples of the current
    sub-task's window, and what people call the features. A kept version of a sub-task that has
    ended has no raw samples any more."""
    parts = parts_of(request)
    answer = await parts.stream.transfers.request_checkpoint(ANSWER_TIMEOUT_S, version)
    if isinstance(answer, Refusal):
        if answer.known is None:
            raise Unavailable(answer.detail)
        raise UnknownVersion(answer.detail, unknown=version, known=answer.known)
    if answer is None:
        raise Unavailable(
            f"The trainer has not answered for {ANSWER_TIMEOUT_S:.0f} seconds. Expected one to be "
            f"running. Look at GET /health/ready, then ask again."
        )
    # That of a named model has a slash, which no file name may have.
    kept = "" if version is None else f"-{version}"
    name = f"gmr-{parts.settings.model.replace('/', '-')}{kept}.safetensors"
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Content-Length": str(answer.size),
    }
    content = parts.stream.transfers.pieces(answer)
    return StreamingResponse(content, headers=headers, media_type=SAFETENSORS)


@router.put(
    "/checkpoint",
    operation_id="upload_checkpoint",
    summary="Go on from an uploaded state",
    response_model=Restored,
    responses={
        202: {"model": Restored, "description": "In the stream; the trainer has yet to do it."},
        **problems(403, 413, 415, 422, 429, 503),
    },
    openapi_extra=binary_body("A file from GET /model/checkpoint.", SAFETENSORS, OCTETS),
)
async def upload(request: Request) -> Response:
    """Takes its place in the stream, after what was accepted before it. It may have
    GMR_MAX_CHECKPOINT_BYTES. Names of features that it has take the place of those that are
    kept."""
    parts = parts_of(request)
    media_type(request, (SAFETENSORS, OCTETS))
    waiting = await parts.stream.transfers.uploads()
    if waiting + parts.uploading >= MOST_UPLOADS:
        raise BacklogFull(
            f"{MOST_UPLOADS} uploaded checkpoints come, or wait to be taken over, which is the "
            f"limit; nothing was added. Send this one again in a moment.",
            uploads=MOST_UPLOADS,
        )
    parts.uploading += 1
    try:
        received, n_features, names = await _receive(request, parts)
    finally:
        parts.uploading -= 1
    try:
        return await apply(
            parts,
            Control("restore", upload=received),
            APPLY_TIMEOUT_S,
            n_features=n_features,
            warning=await _other_names(parts, names),
        )
    except ShapeMismatch as error:
        await parts.stream.transfers.drop_upload(received.id)
        expected = int(str(error.context["expected"]))
        raise InvalidCheckpoint.features(expected=expected, got=n_features) from None


async def _other_names(parts: Parts, names: tuple[str, ...] | None) -> str | None:
    """What to tell of names that come with a checkpoint; None where they are no news."""
    kept = None if names is None else await FeatureNames(parts.stream).kept()
    if kept in (None, names):
        return None
    return (
        "The names of features in the checkpoint take the place of others that were kept. PUT "
        "/model/feature-names names them otherwise."
    )


async def _receive(
    request: Request, parts: Parts
) -> tuple[Upload, int | None, tuple[str, ...] | None]:
    """Put the body into Redis piece by piece, and check it on the way.

    A wrong file is refused before any entry of the stream names it.

    Returns:
        Where it lies, its D, as far as its header tells, and the names of its features.

    Raises:
        BodyTooLarge: There is more of it than may be.
        InvalidCheckpoint: The bytes are no checkpoint, or a damaged one, or names of features in it
            will not do.
    """
    id, limit = uuid.uuid4().hex, parts.settings.max_checkpoint_bytes
    check, digest = verifier(), hashlib.sha256()
    waiting, n_pieces, size = bytearray(), 0, 0
    try:
        async for chunk in chunks_of_body(request, limit, BodyTooLarge.checkpoint):
            check.feed(chunk)
            digest.update(chunk)
            waiting += chunk
            size += len(chunk)
            while len(waiting) >= PIECE_BYTES:
                await parts.stream.transfers.put_piece(id, n_pieces, bytes(waiting[:PIECE_BYTES]))
                del waiting[:PIECE_BYTES]
                n_pieces += 1
        check.finish()
        n_features = features_of(check)
        names = names_in(check.text, n_features)
        if waiting:
            await parts.stream.transfers.put_piece(id, n_pieces, bytes(waiting))
            n_pieces += 1
    except BaseException:
        if n_pieces:
            await parts.stream.transfers.drop_upload(id)
        raise
    return Upload(id, n_pieces, size, digest.hexdigest()), n_features, names
