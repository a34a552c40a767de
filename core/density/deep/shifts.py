"""Images a few pixels away from where they were: where a thing lies says nothing of what it is.

A shift moves all pixels by the same rows and columns. What leaves the image is lost, and what
comes in repeats the pixels at the edge, so that the background goes on, whatever its value.

Throughout: N samples, D features; an image lies row by row in its sample, channels last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from core.density.deep.layout import Image, image_of

DIRECTIONS = ((0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (1, -1), (-1, 1), (-1, -1))
"""Rows and columns of one pixel's step: straight ones first."""

KEPT = 64
"""Ways from one image to another that are not made again: those of two models at most."""


@dataclass(frozen=True)
class Shifts:
    """All shifts of images by at most some pixels, in eight directions.

    Arguments:
        pixels: Of the furthest; 0: there are none, and samples need not be images.
        image: Height, width and channels; None takes a square with one channel.
    """

    pixels: int = 0
    image: Image | None = None

    def __len__(self) -> int:
        """How many there are; standing still is none of them."""
        return self.pixels * len(DIRECTIONS)

    def check(self, n_features: int) -> None:
        """Raise `ShapeMismatch` if samples of D features cannot be shifted."""
        if self.pixels:
            image_of(n_features, self.image)

    def of_samples(self, x: Tensor) -> Iterator[Tensor]:
        """Samples (N, D) under every shift, one after the other, nearest ones first.

        Raises:
            ShapeMismatch: They are no such images.

        Example:
            >>> right, *_ = Shifts(1).of_samples(torch.tensor([[1, 2, 3, 4]]))
            >>> right.tolist()
            [[1, 1, 3, 3]]
        """
        for pixels in range(1, self.pixels + 1):
            image = image_of(x.shape[1], self.image)
            for down, right in DIRECTIONS:
                yield x[:, _sources(image, pixels * down, pixels * right).to(x.device)]


NO_SHIFTS = Shifts()


@lru_cache(maxsize=KEPT)
def _sources(image: Image, down: int, right: int) -> Tensor:
    """Where each feature of a shifted image comes from, with shape (D,), int64."""
    height, width, channels = image
    index = torch.arange(height * width * channels).reshape(image)
    rows = (torch.arange(height) - down).clamp(0, height - 1)
    columns = (torch.arange(width) - right).clamp(0, width - 1)
    return index[rows][:, columns].flatten()
