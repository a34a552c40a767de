"""Small pictures for a terminal: half blocks, two pixels in each character cell.

Rules: pure functions from numbers to rich text; with colour, grey levels; without,
ink where a pixel is darker than the middle, so that a log file or a terminal
without colours still shows the shape.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from rich.color import Color
from rich.style import Style
from rich.text import Text

SIDE = 8
"""Pixels of a thumbnail in either direction: 8 columns and 4 rows of characters."""

_PAPER, _INK = 24, 250  # grey levels, dark ground: readable on dark and on light terminals


def thumbnail(image: ArrayLike, image_shape: tuple[int, int]) -> NDArray[np.float64]:
    """Shrink an image to `SIDE` x `SIDE` by averaging, margins cut to fit.

    Arguments:
        image: Features of one sample, with shape (D,).
        image_shape: (H, W), whose product is D; both at least `SIDE`.

    Example:
        >>> thumbnail(np.ones(28 * 28), (28, 28)).shape
        (8, 8)
    """
    pixels = np.asarray(image, dtype=np.float64).reshape(image_shape)
    blocks = [size // SIDE for size in image_shape]
    margins = [(size - block * SIDE) // 2 for size, block in zip(image_shape, blocks, strict=True)]
    (rows, columns), (top, left) = blocks, margins
    middle = pixels[top : top + rows * SIDE, left : left + columns * SIDE]
    return np.asarray(middle.reshape(SIDE, rows, SIDE, columns).mean(axis=(1, 3)))


def draw(pixels: ArrayLike, *, colour: bool = True) -> list[Text]:
    """Draw an image as lines of half blocks.

    Arguments:
        pixels: Grey levels, 0 for paper to 1 for ink, with shape (H, W), H even.
        colour: False draws ink where a level is above one half, and nothing else.

    Returns:
        H / 2 lines of W characters.

    Example:
        >>> [line.plain for line in draw([[1, 1, 0], [1, 0, 1]], colour=False)]
        ['█▀▄']
    """
    levels = np.clip(np.asarray(pixels, dtype=np.float64), 0.0, 1.0)
    lines = []
    for upper, lower in zip(levels[::2], levels[1::2], strict=True):
        line = Text()
        for top, bottom in zip(upper.tolist(), lower.tolist(), strict=True):
            if colour:
                line.append("▀", Style(color=_grey(top), bgcolor=_grey(bottom)))
            else:
                line.append(" ▄▀█"[2 * (top > 0.5) + (bottom > 0.5)])
        lines.append(line)
    return lines


def side_by_side(pictures: Sequence[tuple[str, Sequence[Text]]], gap: int = 1) -> list[Text]:
    """Put pictures of the same height beside each other, each under its caption.

    Example:
        >>> lines = side_by_side([("a", [Text("##")]), ("b", [Text("##")])])
        >>> [line.plain for line in lines]
        ['a  b', '## ##']
    """
    if not pictures:
        return []
    widths = [len(lines[0].plain) for _, lines in pictures]
    captions = [
        caption.center(width)[:width] for (caption, _), width in zip(pictures, widths, strict=True)
    ]
    rows = [Text((" " * gap).join(captions).rstrip(), style="bold")]
    spacer = Text(" " * gap)
    rows += [
        spacer.join([lines[row] for _, lines in pictures]) for row in range(len(pictures[0][1]))
    ]
    return rows


def _grey(level: float) -> Color:
    value = round(_PAPER + level * (_INK - _PAPER))
    return Color.from_rgb(value, value, value)
