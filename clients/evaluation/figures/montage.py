"""Samples that were drawn from the model, as images."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from clients.evaluation.figures.style import PAGE_INCHES, STYLE, new_figure


@mpl.rc_context(STYLE)
def samples(drawn: Mapping[object, ArrayLike], image_shape: tuple[int, int]) -> Figure:
    """A montage: a column of drawn samples per class.

    Arguments:
        drawn: Per class, samples with shape (n, D).
        image_shape: (height, width), whose product is D.
    """
    columns = min(len(drawn), 12)
    blocks = math.ceil(len(drawn) / columns)
    n = max(len(np.asarray(images)) for images in drawn.values())
    cell = PAGE_INCHES / max(columns, 8)
    figure, axes = new_figure(max(columns, 4) * cell, blocks * (n * cell + 0.25) + 0.25)
    montage_axes(axes, drawn, image_shape)
    axes.set_title("Samples drawn from the model, per class", pad=20)
    return figure


def montage_axes(
    axes: Axes, drawn: Mapping[object, ArrayLike], image_shape: tuple[int, int], columns: int = 12
) -> None:
    height, width = image_shape
    groups = [(str(label), np.asarray(images)) for label, images in drawn.items()]
    columns = min(len(groups), columns)
    n = max(len(images) for _, images in groups)
    gap = max(1, round(0.07 * width))
    head = max(3, round(0.55 * height))  # room for the class names above each block
    blocks = math.ceil(len(groups) / columns)
    step_y, step_x = height + gap, width + gap
    block_height = n * step_y + head
    canvas = np.full((blocks * block_height - head, columns * step_x - gap), np.nan)
    low, high = _grey_range([images for _, images in groups])
    for place, (name, images) in enumerate(groups):
        top, left = (place // columns) * block_height, (place % columns) * step_x
        for row, image in enumerate(images):
            y = top + row * step_y
            grey = (image.reshape(height, width) - low) / (high - low)
            canvas[y : y + height, left : left + width] = np.clip(grey, 0.0, 1.0)
        axes.text(
            left + width / 2 - 0.5, top - 0.12 * height, name, ha="center", va="bottom", fontsize=9
        )
    # Ink on paper: large features are dark, and the gaps (NaN) stay white.
    axes.imshow(canvas, cmap="Greys", vmin=0.0, vmax=1.0, interpolation="none")
    axes.set_axis_off()


def _grey_range(groups: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """What is drawn as white and as black: robust, since samples of a density have tails."""
    values = np.concatenate([np.asarray(images, dtype=np.float64).ravel() for images in groups])
    low, high = np.quantile(values, [0.15, 0.995]).tolist()
    return (low, high) if high > low else (low, low + 1.0)
