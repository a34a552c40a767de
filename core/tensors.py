"""Named tensors and text, as bytes that can be trusted: safetensors with a checksum.

safetensors stores numbers and text only, so that loading bytes from anywhere runs no
code. The checksum covers the tensors and the text: a truncated or altered file is
refused instead of loaded.
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


def pack(format: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Bytes that hold the tensors (copied to the CPU) and the text; same content, same bytes.

    Arguments:
        format: Name and number of the layout; `unpack` wants the same.
    """
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    # Tensors that share memory are refused by safetensors; a clone is cheap and rare.
    seen: set[int] = set()
    for name, tensor in plain.items():
        if tensor.numel() and tensor.data_ptr() in seen:
            plain[name] = tensor.clone()
        seen.add(plain[name].data_ptr())
    text = dict(metadata)
    head = {"format": format, "text": text, "crc32": _checksum(plain, format, text)}
    return save(plain, {_KEY: json.dumps(head, sort_keys=True)})


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
        found, text, checksum = head["format"], head["text"], head["crc32"]
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
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
    if checksum != _checksum(tensors, format, text):
        raise InvalidCheckpoint(
            "The file's checksum does not match its content: it is damaged. Use another copy."
        )
    return {name: tensor.to(device) for name, tensor in tensors.items()}, text


def _checksum(tensors: Mapping[str, Tensor], format: str, text: Mapping[str, str]) -> int:
    total = zlib.crc32(json.dumps([format, text], sort_keys=True).encode())
    for name in sorted(tensors):
        total = zlib.crc32(name.encode(), total)
        if tensors[name].numel():
            total = zlib.crc32(tensors[name].reshape(-1).view(torch.uint8).numpy().data, total)
    return total
