"""Named tensors and text, as bytes that can be trusted: safetensors with a checksum.

safetensors stores numbers and text only, so that loading bytes from anywhere runs no
code. The checksum covers every byte but its own: a truncated or altered file is refused
instead of loaded.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from core.errors import InvalidCheckpoint

_KEY = "gmr"
"""The one key of the file's metadata: with several, safetensors would shuffle them, and the
same content would not always be the same bytes."""

_BLANK = "0" * 10
"""Stands where the checksum will be, in decimal, while it is computed."""

_MARK = b'\\"crc32\\": \\"'
"""What comes before the checksum in the file: JSON within JSON, and its first key."""


def pack(format: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Bytes that hold the tensors (copied to the CPU) and the text; same content, same bytes.

    Arguments:
        format: Name and number of the layout; `unpack` wants the same.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # Tensors that share memory are refused by safetensors; a clone is cheap and rare.
    seen: set[int] = set()
    for name, tensor in plain.items():
        memory = tensor.untyped_storage().data_ptr()
        if memory in seen:
            plain[name] = tensor.clone()
        seen.add(memory)
    head = {"crc32": _BLANK, "format": format, "text": dict(metadata)}
    data = save(plain, {_KEY: json.dumps(head, sort_keys=True)})
    place = data.index(_MARK) + len(_MARK)
    checksum = f"{zlib.crc32(data):010d}".encode()
    return b"".join((memoryview(data)[:place], checksum, memoryview(data)[place + len(_BLANK) :]))


def unpack(
    format: str, data: bytes, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The inverse of `pack`.

    Raises:
        InvalidCheckpoint: Truncated, altered, not safetensors, or another format.
    """
    try:
        tensors = load(data)
        size = int.from_bytes(data[:8], "little")
        head = json.loads(json.loads(data[8 : 8 + size])["__metadata__"][_KEY])
        found, text, checksum = head["format"], head["text"], int(head["crc32"])
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidCheckpoint(
            f"The {len(data)} bytes are not a file of this service "
            f"({type(error).__name__}: {error}). Use one that this service wrote."
        ) from error
    if found != format:
        raise InvalidCheckpoint(
            f"The file is of format {found!r}; expected {format!r}. "
            f"Use a file that this release wrote.",
            expected=format,
            got=found,
        )
    if checksum != _checksum(data):
        raise InvalidCheckpoint(
            "The file's checksum does not match its content: it is damaged. Use another copy."
        )
    return {name: tensor.to(device) for name, tensor in tensors.items()}, text


def _checksum(data: bytes) -> int:
    """CRC-32 of the file with its own checksum blanked out; -1 where it has none."""
    place = data.find(_MARK) + len(_MARK)
    if place < len(_MARK):
        return -1
    view = memoryview(data)
    total = zlib.crc32(view[:place])
    total = zlib.crc32(_BLANK.encode(), total)
    return zlib.crc32(view[place + len(_BLANK) :], total)
