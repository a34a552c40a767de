"""Answers in the forms that clients may ask for.

Rules of this module:

1. JSON never holds NaN or infinity: they become null.
2. Every answer that a model gave names its version, in the body and as a header.
3. Arrays go from the tensor's memory to the bytes of the answer without a list of
   Python numbers in between.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from fastapi import Response
from numpy.typing import NDArray
from torch import Tensor

from service.api.negotiation import JSON, NPY, PNG, SAFETENSORS
from service.wire import pack

VERSION_HEADER = "X-Model-Version"


def json(
    document: Mapping[str, object],
    *,
    status: int = 200,
    version: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The document as JSON; numpy arrays in it become lists."""
    content = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return Response(content, status, {**(_headers(version) or {}), **(headers or {})}, JSON)


def safetensors(
    arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str], *, version: int
) -> Response:
    """Named arrays and text as one binary body."""
    content = pack(arrays, {**metadata, "model_version": str(version)})
    return Response(content, 200, _headers(version), SAFETENSORS)


def npy(array: NDArray[Any], *, version: int, media_type: str = NPY) -> Response:
    """One array as a .npy file."""
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, allow_pickle=False)
    return Response(buffer.getvalue(), 200, _headers(version), media_type)


def png(content: bytes, *, version: int) -> Response:
    """A picture."""
    return Response(content, 200, _headers(version), PNG)


def numpy(tensor: Tensor) -> NDArray[Any]:
    """The tensor's numbers, from whichever device."""
    return np.ascontiguousarray(tensor.detach().cpu().numpy())


def _headers(version: int | None) -> dict[str, str] | None:
    return None if version is None else {VERSION_HEADER: str(version)}
