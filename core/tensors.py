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

from core.errors import InvalidCheckpoint, OtherRelease

_KEY = "gmr"
"""The one key of the file's metadata: with several, safetensors would shuffle them, and the
same content would not always be the same bytes."""

_BLANK = "0" * 10
"""Stands where the checksum will be, in decimal, while it is computed."""

_MARK = b'\\"crc32\\": \\"'
"""What comes before the checksum in the file: JSON within JSON, and its first key."""


ALIGNMENT = 64
"""Bytes: where torch's own memory on the CPU begins, a multiple of it."""

MAX_HEADER_BYTES = 100_000_000
"""Of a file; safetensors reads no larger one."""


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
    offset = data.index(_MARK) + len(_MARK)
    checksum = f"{zlib.crc32(data):010d}".encode()
    return b"".join((memoryview(data)[:offset], checksum, memoryview(data)[offset + len(_BLANK) :]))


def unpack(
    format: str, data: bytes, device: torch.device | str = "cpu"
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The inverse of `pack`.

    Returns:
        Tensors in memory of torch's own, which on the CPU begin at a multiple of `ALIGNMENT`; and
        the text.

    Raises:
        OtherRelease: Whole, and of a later or earlier format of that name.
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
        raise _of_another_format(format, found, whole=_checksum(data) in (checksum, -1))
    if checksum != _checksum(data):
        raise InvalidCheckpoint(
            "The file's checksum does not match its content: it is damaged. Use another copy."
        )
    # Copied, also where they stay: the bytes of a file begin anywhere, torch's own memory at a
    # multiple of ALIGNMENT, and MKL promises the same bits only where numbers begin alike.
    return {name: tensor.to(device, copy=True) for name, tensor in tensors.items()}, text


class Verifier:
    """Checks the bytes of a file while they come, holding no more of them than its header.

    What `finish` lets pass, `unpack` can read, but for tensors that are no tensors.

    Arguments:
        format: As for `unpack`.

    Attributes:
        text: The text of the file, once its header has come; not to be trusted before `finish`.
        shapes: Name of each tensor -> its shape, likewise.

    Example:
        >>> data = pack("toy-1", {"x": torch.zeros(3)}, {})
        >>> verifier = Verifier("toy-1")
        >>> for start in range(0, len(data), 10):
        ...     verifier.feed(data[start : start + 10])
        >>> verifier.finish()
        >>> verifier.shapes
        {'x': (3,)}
    """

    def __init__(self, format: str) -> None:
        self._format = format
        self._start = bytearray()
        self._whole = -1  # bytes of the file, once its header is known
        self._expected = 0
        self._crc = 0
        self._size = 0
        self.text: Mapping[str, str] = {}
        self.shapes: Mapping[str, tuple[int, ...]] = {}

    def feed(self, piece: bytes) -> None:
        """The next bytes.

        Raises:
            InvalidCheckpoint: They cannot be of such a file.
        """
        self._size += len(piece)
        if self._whole >= 0:
            self._crc = zlib.crc32(piece, self._crc)
            return
        self._start += piece
        if len(self._start) < 8:
            return
        end = 8 + int.from_bytes(self._start[:8], "little")
        if end > MAX_HEADER_BYTES:
            raise self._refused("its header would be too large")
        if len(self._start) >= end:
            self._read_header(end)

    def finish(self) -> None:
        """That was all.

        Raises:
            InvalidCheckpoint: Truncated, altered, or too long.
        """
        if self._whole < 0 or self._size != self._whole:
            whole = "a whole header" if self._whole < 0 else f"{self._whole} bytes"
            raise self._refused(f"it should have {whole}")
        if self._crc != self._expected:
            raise InvalidCheckpoint(
                "The file's checksum does not match its content: it is damaged. Use another copy."
            )

    def _read_header(self, end: int) -> None:
        try:
            header = json.loads(self._start[8:end])
            head = json.loads(header.pop("__metadata__")[_KEY])
            found, self._expected = head["format"], int(head["crc32"])
            self.text = dict(head["text"])
            self.shapes = {name: tuple(one["shape"]) for name, one in header.items()}
            self._whole = end + max((one["data_offsets"][1] for one in header.values()), default=0)
        except (
            ValueError,
            KeyError,
            TypeError,
            AttributeError,
            IndexError,
            RecursionError,
        ) as error:
            raise self._refused(f"{type(error).__name__}: {error}") from error
        if found != self._format:
            raise _of_another_format(self._format, found, whole=True)
        self._crc = _checksum(bytes(self._start))
        if self._crc < 0:
            raise self._refused("it has no checksum")
        self._start.clear()

    def _refused(self, why: str) -> InvalidCheckpoint:
        return InvalidCheckpoint(
            f"The {self._size} bytes are not a file of this service ({why}). Use one that this "
            f"service wrote."
        )


def _of_another_format(expected: str, got: object, *, whole: bool) -> InvalidCheckpoint:
    """The error for a file of another format.

    Arguments:
        expected: Name and number.
        got: What the file says.
        whole: Whether it is as it was written, as far as can be known.
    """
    name, _, number = str(got).rpartition("-")
    ours = name == expected.rpartition("-")[0] and number.isdecimal()
    kind = OtherRelease if ours and whole else InvalidCheckpoint
    return kind(
        f"The file is of format {got!r}; expected {expected!r}. "
        f"Use a file that this release wrote.",
        expected=expected,
        got=got,
    )


def _checksum(data: bytes) -> int:
    """CRC-32 of the file with its own checksum blanked out; -1 where it has none."""
    offset = data.find(_MARK) + len(_MARK)
    if offset < len(_MARK):
        return -1
    view = memoryview(data)
    total = zlib.crc32(view[:offset])
    total = zlib.crc32(_BLANK.encode(), total)
    return zlib.crc32(view[offset + len(_BLANK) :], total)
