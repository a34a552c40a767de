"""The foldings of an image: the paper's 8/2 and 11/1 for 28 x 28, scaled for others."""

from __future__ import annotations

import math

from core.density.deep.folding import Folding
from core.errors import ShapeMismatch

REFERENCE_SIDE = 14
"""Pixels of the shorter side per pixel of stride: 28 have the paper's stride of 2."""

STRIDES_PER_FILTER = 4
"""The paper's filter of 8 at a stride of 2."""

Image = tuple[int, int, int]
"""Height, width, channels."""


def image_of(n_features: int, image: Image | None) -> Image:
    """The shape behind a row of features.

    Arguments:
        n_features: D.
        image: What the settings say; None takes a square with one channel.

    Raises:
        ShapeMismatch: It does not have D entries, or D is no square.

    Example:
        >>> image_of(784, None)
        (28, 28, 1)
    """
    if image is not None:
        if math.prod(image) != n_features:
            raise ShapeMismatch(
                f"Each sample has {n_features} features, but the setting image is "
                f"{','.join(map(str, image))}, which has {math.prod(image)}. Check that images "
                f"are flattened row by row, channels last, and that the setting is right.",
                expected=math.prod(image),
                got=n_features,
            )
        return image
    side = math.isqrt(n_features)
    if side * side != n_features:
        raise ShapeMismatch(
            f"Each sample has {n_features} features, which is no square, so that the shape of the "
            f"image cannot be told. Set image to HEIGHT,WIDTH or HEIGHT,WIDTH,CHANNELS, or, for "
            f"data that are no images, shift to 0 and preset to another one than dcgmm.",
            got=n_features,
        )
    return side, side, 1


def layout(image: Image, n_components: int) -> tuple[Folding, Folding]:
    """Two layers: patches of the image, then all of what the first layer says of them.

    The stride grows with the shorter side, one pixel in 14; a filter is four strides wide, at
    most half a side, and widened by what is needed to reach the last pixel. So there are at
    most about 17 x 17 positions, whatever the size.

    Arguments:
        n_components: Of the first layer: the channels of its map.

    Example:
        >>> patches, everything = layout((28, 28, 1), 81)
        >>> patches.filter_height, patches.stride, patches.positions, everything.patch_size
        (8, 2, 121, 9801)
        >>> layout((32, 32, 1), 81)[0].rows, layout((8, 8, 1), 81)[0].rows
        (13, 5)
    """
    height, width, channels = image
    stride = max(1, round(min(height, width) / REFERENCE_SIDE))
    patches = Folding(
        height, width, channels, _filter(height, stride), _filter(width, stride), stride
    )
    rows, columns = patches.rows, patches.columns
    return patches, Folding(rows, columns, n_components, rows, columns, 1)


def _filter(side: int, stride: int) -> int:
    size = max(1, min(STRIDES_PER_FILTER * stride, side // 2))
    return size + (side - size) % stride
