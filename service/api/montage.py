"""Samples drawn side by side as one PNG.

Rules of this module:

1. Pictures are only guessed where a guess cannot mislead: the client, the settings or the
   samples as they came say the shape, or D must be a square number.
2. Samples of one class share a row when classes are known; the label stands beside it.
3. Values are shown as they are when they look like intensities in [0, 1]; other
   scales are stretched between their 1st and 99th percentile, the same for all tiles.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from core.batch import plain_shape
from core.snapshot import ModelInfo, Snapshot
from service.api.errors import InvalidShape, NotAcceptable

Shape = tuple[int, ...]
"""Height, width and, for colour, 3 channels."""

TILE = 56  # pixels that the longer side of a tile has at least
GAP = 2
LABEL_CHARACTERS = 12
BACKGROUND = (24, 26, 32)
INK = (200, 204, 212)


def parse_shape(text: str) -> Shape:
    """The shape that `28,28` or `32,32,3` names.

    Raises:
        InvalidShape: anything else.

    Example:
        >>> parse_shape("28,28")
        (28, 28)
    """
    # No sample has so many features that a side would be longer.
    if not re.fullmatch(r"\s*[0-9]{1,9}\s*(,\s*[0-9]{1,9}\s*){1,2}", text):
        raise InvalidShape.unreadable(text)
    sizes = tuple(int(part) for part in text.split(","))
    if len(sizes) not in (2, 3) or min(sizes) < 1 or (len(sizes) == 3 and sizes[2] != 3):
        raise InvalidShape.unreadable(text)
    return sizes


def known_shape(info: ModelInfo, declared: str | None) -> Shape | None:
    """The shape of a model's samples, as the settings declare it or as they came; None without.

    Arguments:
        info: Of the model.
        declared: By the settings.
    """
    shape = info.image_shape if declared is None else tuple(map(int, declared.split(",")))
    # One channel that came first is no height; one that came last says what the samples are.
    shape = plain_shape(shape) if shape[:1] == (1,) else shape
    return shape if shape and math.prod(shape) == info.features else None


def sample_shape(snapshot: Snapshot, declared: str | None) -> list[int] | None:
    """Shape of one sample: as it is set, as it came, or a square; None where they are no images.

    Arguments:
        snapshot: Of the model.
        declared: By the settings.
    """
    known = known_shape(snapshot.info, declared)
    if known is not None:
        return [*known]
    features, side = snapshot.info.features, math.isqrt(snapshot.info.features)
    is_square = snapshot.standardiser.identity and side * side == features
    return [side, side] if is_square else None


def image_shape(n_features: int, wanted: Shape | None, known: Shape | None = None) -> Shape:
    """The shape in which a sample of `n_features` numbers is drawn.

    Arguments:
        n_features: D.
        wanted: By the client.
        known: Of `known_shape`.

    Raises:
        InvalidShape: the wanted shape holds another number of pixels.
        NotAcceptable: no shape was named, and none is known that can be drawn, nor is
            `n_features` a square.
    """
    if wanted is not None:
        if math.prod(wanted) != n_features:
            raise InvalidShape.mismatch(wanted, n_features)
        return wanted
    side = math.isqrt(n_features)
    shape = (side, side) if known is None else plain_shape(known)
    if known is not None and shape[2:] not in ((), (3,)):
        raise NotAcceptable.no_picture_of(known)
    if math.prod(shape) != n_features:
        raise NotAcceptable.no_picture(n_features)
    return shape


def draw(
    features: NDArray[np.float32], shape: Shape, labels: Sequence[int | str] | None = None
) -> bytes:
    """The montage as PNG.

    Arguments:
        features: Samples, with shape (N, D), where D is the product of `shape`.
        shape: Height, width and perhaps 3 channels of one sample.
        labels: The class of each sample; samples of a class then share a row.

    Returns:
        The bytes of a PNG file.
    """
    rows = _rows(len(features), labels)
    tiles = _tiles(features, shape)
    _, height, width = tiles.shape[:3]

    font = ImageFont.load_default()
    captions = [caption for caption, _ in rows if caption]
    margin = max((math.ceil(font.getlength(text)) for text in captions), default=-2 * GAP) + 2 * GAP
    columns = max(len(indices) for _, indices in rows)

    size = (
        margin + GAP + columns * (width + GAP),
        GAP + len(rows) * (height + GAP),
    )
    canvas = Image.new("RGB", size, BACKGROUND)
    pen = ImageDraw.Draw(canvas)
    for line, (caption, indices) in enumerate(rows):
        top = GAP + line * (height + GAP)
        if caption:
            pen.text((GAP, top + height // 2), caption, fill=INK, font=font, anchor="lm")
        for column, index in enumerate(indices):
            left = margin + GAP + column * (width + GAP)
            canvas.paste(Image.fromarray(tiles[index]), (left, top))

    buffer = io.BytesIO()
    canvas.save(buffer, "PNG")
    return buffer.getvalue()


def _rows(n: int, labels: Sequence[int | str] | None) -> list[tuple[str, list[int]]]:
    """Caption and sample indices of each row of the montage."""
    if labels is None:
        columns = math.ceil(math.sqrt(n))
        return [("", list(range(start, min(start + columns, n)))) for start in range(0, n, columns)]
    by_class: dict[int | str, list[int]] = {}
    for index, label in enumerate(labels):
        by_class.setdefault(label, []).append(index)
    return [(str(label)[:LABEL_CHARACTERS], indices) for label, indices in by_class.items()]


def _tiles(features: NDArray[np.float32], shape: Shape) -> NDArray[np.uint8]:
    """Samples as colour tiles (N, height, width, 3), small ones enlarged by whole factors."""
    low, high = _range(features)
    scaled = np.clip((features - low) / (high - low), 0.0, 1.0) * 255.0
    images = scaled.round().astype(np.uint8).reshape(len(features), *shape)
    if images.ndim == 3:
        images = np.repeat(images[..., None], 3, axis=-1)
    factor = max(1, TILE // max(shape[:2]))
    return np.ascontiguousarray(images.repeat(factor, axis=1).repeat(factor, axis=2))


def _range(features: NDArray[np.float32]) -> tuple[float, float]:
    """The values that are drawn black and white."""
    low, high = (float(value) for value in np.percentile(features, (1, 99)))
    # A model of intensities draws a little beyond [0, 1]; that is no other scale.
    if low >= -0.5 and high <= 1.5:
        return 0.0, 1.0
    return (low, high) if high > low else (low, low + 1.0)
