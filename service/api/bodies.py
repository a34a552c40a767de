"""Request bodies: bytes off the wire, counted while they come, then read by `service.wire`.

Rules of this module:

1. No body grows beyond its limit in memory: what declares itself larger is refused
   before the first byte, what turns out larger as soon as it does.
2. All bodies together have one budget, and a large one is read beside the loop.
3. Samples never pass through pydantic: a list of lists of floats costs it twenty
   times what the model needs to score them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import Final, TypeVar

import torch
from fastapi import Request
from pydantic import BaseModel, ValidationError

from core.errors import InvalidRequest
from service.api.errors import BodyTooLarge, UnsupportedMedia
from service.api.key_rates import Kind
from service.api.key_ring import Caller
from service.api.negotiation import JSON, SAFETENSORS
from service.api.parts import parts_of
from service.settings import Settings
from service.wire import Limits, RawBatch, parse_json, parse_safetensors

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")

FIELDS_BYTES: Final = 1024 * 1024
"""Of a body of a few fields, at most, where the route says nothing else."""

MOST_FAULTS: Final = 100
"""Of a body of which one is told; to describe all takes much more time and room than to find them.
"""

INLINE_BYTES: Final = 64 * 1024
"""Of a body that is read at once: about a millisecond. A hop to a thread costs a tenth of that."""


async def read_batch(
    request: Request, settings: Settings, allowed: Collection[str] = ()
) -> RawBatch:
    """The samples of a request, whichever of the two forms they come in.

    Arguments:
        request: Its body is read here, once.
        settings: Holds the limits.
        allowed: Further fields (JSON) or metadata (safetensors) that the route knows.

    Raises:
        UnsupportedMedia, BodyTooLarge: The body was not read.
        InvalidBatch: The body was read and cannot be used.
    """
    form = media_type(request, (JSON, SAFETENSORS))
    body = await read_body(request, settings.max_body_bytes)
    limits = Limits(settings.max_samples, settings.max_features)
    parse = parse_json if form == JSON else parse_safetensors
    batch = await beside(request, body, lambda: parse(body, limits, allowed))
    charge(request, "samples", len(batch))
    return batch


def charge(request: Request, kind: Kind, n: int) -> None:
    """Count what a request has used against the key that it came with."""
    caller: Caller = request.state.caller
    if caller.id:
        parts_of(request).rates.charge(caller.id, kind, n)


async def beside(request: Request, body: bytearray, parse: Callable[[], Result]) -> Result:
    """What `parse` makes of a body: at once, or where it is large on a thread beside the loop."""
    if len(body) <= INLINE_BYTES:
        return parse()
    return await parts_of(request).workers.parse(parse)


async def read_model(
    request: Request, settings: Settings, model: type[Model], most_bytes: int = FIELDS_BYTES
) -> Model:
    """A small JSON body as a checked value.

    Arguments:
        request: Its body is read here, once.
        settings: Holds the limit of any body.
        model: What the body should be.
        most_bytes: Of this body: every wrong field of it costs many times its own bytes.

    Raises:
        UnsupportedMedia, BodyTooLarge: The body was not read.
        InvalidRequest: A field is missing, unknown or of a wrong type.
    """
    media_type(request, (JSON,))
    if most_bytes < settings.max_body_bytes:
        body = await read_body(request, most_bytes, BodyTooLarge.of_fields)
    else:
        body = await read_body(request, settings.max_body_bytes)
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        if error.error_count() > MOST_FAULTS:
            raise InvalidRequest(
                f"The body has {error.error_count()} faults. Expected a JSON object with "
                f"{', '.join(model.model_fields)}. Correct it and ask again."
            ) from None
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "body"
        raise InvalidRequest(
            f"{where}: {first['msg']}. Expected a JSON object with "
            f"{', '.join(model.model_fields)}. Correct it and ask again.",
            field=where,
        ) from None


def media_type(request: Request, supported: Collection[str]) -> str:
    """The media type of the body, without parameters.

    Raises:
        UnsupportedMedia: It is not among `supported`, or the body is compressed.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise UnsupportedMedia.encoding(encoding)
    form = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if form not in supported:
        raise UnsupportedMedia.type(form, tuple(supported))
    return form


async def read_body(
    request: Request,
    limit: int,
    too_large: Callable[[int, int | None], BodyTooLarge] = BodyTooLarge.beyond,
) -> bytearray:
    """The whole body, at most `limit` bytes of it; arguments as of `chunks_of_body`.

    Raises:
        BodyTooLarge: It is larger, or says that it is.
        TooManyBodies: There is no room for it beside those of other requests.
    """
    budget, body = parts_of(request).bodies, bytearray()
    async for chunk in chunks_of_body(request, limit, too_large):
        budget.hold(request, len(chunk))
        body += chunk
    return body


async def chunks_of_body(
    request: Request, limit: int, too_large: Callable[[int, int | None], BodyTooLarge]
) -> AsyncIterator[bytes]:
    """The body as it comes, at most `limit` bytes of it.

    Arguments:
        request: Its body is read here, once.
        limit: In bytes.
        too_large: Makes the error of the limit, and of the size where that is known.

    Raises:
        BodyTooLarge: It is larger, or says that it is.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large(limit, int(declared))
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        charge(request, "bytes", len(chunk))
        if size > limit:
            raise too_large(limit, None)
        yield chunk


def to_tensor(batch: RawBatch) -> torch.Tensor:
    """The samples of a body as float32, with shape (N, D)."""
    features = batch.to_float32()
    # torch refuses memory that it may not write; float32 bodies are views of the body.
    return torch.from_numpy(features if features.flags.writeable else features.copy())
