"""Named arrays and text as one file in the safetensors format, and back.

Written here and not taken from the safetensors library, which copies every tensor
twice when it reads and leaves the checks of types and sizes to its caller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, TypeGuard

import numpy as np
import orjson

from core.errors import InvalidBatch
from service.wire.arrays import Array, buffer

MEDIA_TYPE: Final = "application/vnd.safetensors"
"""Media type of a binary body."""

MAX_HEADER_BYTES: Final = 1024 * 1024

# The names of the safetensors format, as far as numpy has the type.
TENSOR_TYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "BOOL": np.dtype("bool"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
}
TENSOR_NAMES: Final = {dtype: name for name, dtype in TENSOR_TYPES.items()}


def pack(tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> bytes:
    """Named arrays and text as one safetensors file, readable by every such library.

    Example:
        >>> tensors, metadata = unpack(pack({"a": np.arange(3)}, {"b": "c"}))
        >>> tensors["a"].tolist(), metadata
        ([0, 1, 2], {'b': 'c'})
    """
    header: dict[str, object] = {}
    if metadata:
        header["__metadata__"] = dict(metadata)
    buffers: list[bytes | memoryview] = []
    end = 0
    # Widest type first, so that every tensor is aligned to its type.
    for name, array in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        begin, end = end, end + little.nbytes
        header[name] = {
            "dtype": TENSOR_NAMES[little.dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
        buffers.append(buffer(little))
    text = orjson.dumps(header)
    text += b" " * (-len(text) % 8)  # the format's own way of aligning the data
    return b"".join([len(text).to_bytes(8, "little"), text, *buffers])


def unpack(body: bytes | bytearray | memoryview) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays and the text of a safetensors file; the arrays are read-only views of it.

    Raises:
        InvalidBatch: The bytes are no safetensors file, or hold a type unknown to numpy.
    """
    view = memoryview(body).toreadonly()
    if len(view) < 8:
        raise _malformed(f"it has {len(view)} bytes, and the length of the header alone takes 8")
    length = int.from_bytes(view[:8], "little")
    if length > min(len(view) - 8, MAX_HEADER_BYTES):
        raise _malformed(f"its header claims {length} bytes of the {len(view) - 8} that follow")
    try:
        header = orjson.loads(view[8 : 8 + length])
    except orjson.JSONDecodeError as error:
        raise _malformed(f"its header is no JSON ({error})") from None
    if not isinstance(header, dict):
        raise _malformed("its header is no JSON object")
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _malformed("its __metadata__ does not map names to text")

    data = view[8 + length :]
    tensors: dict[str, Array] = {}
    spans: list[tuple[int, int]] = []
    for name, entry in header.items():
        dtype, shape, begin, end = _parse_tensor_header(name, entry)
        count = 1
        for size in shape:
            count *= size
        if not 0 <= begin <= end <= len(data) or end - begin != count * dtype.itemsize:
            raise _malformed(
                f"tensor {name[:40]!r} of shape {shape[:8]} claims bytes {begin} to {end} of "
                f"{len(data)}"
            )
        spans.append((begin, end))
        array = np.frombuffer(data[begin:end], dtype).reshape(shape)
        # Some writers do not align; numpy copes, slowly, and torch does not.
        tensors[name] = array if array.flags.aligned else array.copy()
    _check_no_gaps(spans, len(data))
    return tensors, metadata


def _parse_tensor_header(name: str, entry: object) -> tuple[np.dtype[Any], list[int], int, int]:
    if not isinstance(entry, dict):
        raise _malformed(f"the header of tensor {name[:40]!r} is no object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in TENSOR_TYPES:
        raise InvalidBatch(
            f"Tensor {name[:40]!r} has the type {str(dtype)[:20]!r}; expected one of "
            f"{', '.join(TENSOR_TYPES)}. Convert it before sending."
        )
    # numpy counts bytes in 63 bits, also those of an array that has none.
    if not _all_counts(shape) or len(shape) > 8 or math.prod(max(1, n) for n in shape) >= 2**59:
        raise _malformed(f"the shape of tensor {name[:40]!r} is no list of up to 8 sizes")
    if not _all_counts(offsets) or len(offsets) != 2:
        raise _malformed(f"the data_offsets of tensor {name[:40]!r} are no pair of positions")
    return TENSOR_TYPES[dtype], shape, offsets[0], offsets[1]


def _all_counts(values: object) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_no_gaps(spans: list[tuple[int, int]], size: int) -> None:
    """The format wants each byte of the data in exactly one tensor."""
    position = 0
    for begin, end in sorted(spans):
        if begin != position:
            raise _malformed(
                f"byte {min(begin, position)} of its data belongs to no or two tensors"
            )
        position = end
    if position != size:
        raise _malformed(f"{size - position} bytes follow its last tensor")


def _malformed(what: str) -> InvalidBatch:
    return InvalidBatch(
        f"The body is no safetensors file: {what}. Write it with a safetensors library and send it "
        f"whole."
    )
