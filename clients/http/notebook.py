"""HTML for notebooks: what `_repr_html_` of an answer is made of.

Samples whose number of features is a square are drawn as pictures, as the service's own
montage does; others as profiles, a bar per feature. Everything that a service said is escaped.
"""

from __future__ import annotations

import base64
import html
import math
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

MOST_ROWS: Final = 20
"""Of a table; more are counted."""

MOST_PICTURES: Final = 40
LEAST_PICTURE: Final = 16
"""Features from which a square number of them is taken for a picture."""

MOST_BARS: Final = 200


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A grey picture with shape (H, W) as a PNG file (ISO/IEC 15948).

    Example:
        >>> png(np.zeros((2, 3), np.uint8))[:8]
        b'\\x89PNG\\r\\n\\x1a\\n'
    """

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    height, width = pixels.shape
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)  # each row says: not filtered
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", head),
            chunk(b"IDAT", zlib.compress(rows)),
            chunk(b"IEND", b""),
        )
    )


def drawing(sample: ArrayLike, low: float, high: float, label: str) -> str:
    """One sample as an image element.

    Arguments:
        sample: Features, with shape (D,) or of an image (H, W).
        low: Drawn as paper.
        high: Drawn as ink.
        label: What a reader who does not see it is told.
    """
    values = np.asarray(sample, dtype=np.float64)
    share = np.clip((values - low) / ((high - low) or 1.0), 0.0, 1.0)
    side = math.isqrt(values.size)
    if values.ndim == 2 or (side * side == values.size >= LEAST_PICTURE):
        shape = values.shape if values.ndim == 2 else (side, side)
        grey = np.round(255 * (1.0 - share.reshape(shape))).astype(np.uint8)
        size = (56, 56 * shape[0] // shape[1])
    else:
        bars = share.ravel()[:MOST_BARS]
        heights = np.round(55 * bars).astype(int) + 1
        grey = np.where(np.arange(56)[::-1, None] < heights[None, :], 70, 255).astype(np.uint8)
        size = (max(56, 6 * len(bars)), 56)
    data = base64.b64encode(png(grey)).decode("ascii")
    return (
        f'<img alt="{html.escape(label, quote=True)}" width="{size[0]}" height="{size[1]}" '
        f'style="image-rendering: pixelated; display: inline-block; margin: 2px" '
        f'src="data:image/png;base64,{data}">'
    )


def drawings(samples: Sequence[ArrayLike], labels: Sequence[str]) -> str:
    """Samples beside each other, all to one scale, each with its name."""
    values = np.array([np.asarray(one, dtype=np.float64).ravel() for one in samples])
    low, high = (float(end) for end in np.quantile(values, [0.01, 0.99]))
    parts = []
    for sample, label in zip(samples[:MOST_PICTURES], labels, strict=False):
        picture = drawing(sample, low, high, f"a sample, {label}")
        parts.append(
            f'<figure style="display: inline-block; margin: 2px; text-align: center">{picture}'
            f"<figcaption>{html.escape(label)}</figcaption></figure>"
        )
    more = len(samples) - MOST_PICTURES
    return "".join(parts) + (f"<p>and {more:,} more</p>" if more > 0 else "")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], n_rows: int) -> str:
    """A table of at most `MOST_ROWS` rows out of `n_rows`."""
    told = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>"
        for row, _ in zip(rows, range(MOST_ROWS), strict=False)
    )
    more = f"<p>and {n_rows - MOST_ROWS:,} more</p>" if n_rows > MOST_ROWS else ""
    return f"<table><thead><tr>{told}</tr></thead><tbody>{body}</tbody></table>{more}"
