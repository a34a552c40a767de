"""Features that lie so far from zero that float32 is coarse beside what varies in them.

All that a model knows of a sample is float32, whose neighbours lie apart by 1 part in 8 to 16
million: at Unix seconds 128. What varies less was lost before it could be learned, whoever made
float32 of it. The running moments still show it, however samples came: by how far apart numbers
lie at the mean, beside the deviation.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from core.standardiser import FEWEST_TOLD, Standardiser

FEWEST_STEPS = 20
"""Numbers that float32 should have within a deviation. The components of a feature are a few times
narrower than all of it, often ten times: a component of that kind still has two within its own
deviation, and no rounding shows in its variance."""

WHOLE = 2.0**24
"""Up to this every integer is a float32, so that what does not vary here did not vary before."""

MOST_TOLD = 100
"""Features in a report, at most."""


def coarse_features(
    standardiser: Standardiser | None, *, images: bool = False
) -> list[dict[str, Any]] | None:
    """The features that float32 is too coarse for, JSON-ready.

    Whole numbers up to `WHOLE` are told, too, where they vary little: float32 holds them, which
    their moments cannot tell.

    Arguments:
        standardiser: Of the model; None before its first batch.
        images: Whether samples are known to be images, whose features are never told.

    Returns:
        By place, the first `MOST_TOLD`: a feature's place `feature`, its `mean` and `deviation` in
        the sender's units, as they came to be float32, and the `spacing` of float32 at that mean.
        The deviation is 0 where nothing varies in float32, and the mean is beyond `WHOLE`: then
        nobody can tell whether anything did. None before there are `FEWEST_TOLD` samples.
    """
    if images or (standardiser is not None and standardiser.identity):
        return []
    if standardiser is None or standardiser.samples < FEWEST_TOLD:
        return None
    mean, deviation = standardiser.mean.cpu(), standardiser.deviation.cpu()
    spacing = spacing_at(mean)
    coarse = torch.where(deviation > 0, FEWEST_STEPS * spacing > deviation, mean.abs() > WHOLE)
    places: list[int] = coarse.nonzero()[:MOST_TOLD, 0].tolist()
    return [
        {
            "feature": place,
            "mean": float(mean[place]),
            "deviation": float(deviation[place]),
            "spacing": float(spacing[place]),
        }
        for place in places
    ]


def spacing_at(values: Tensor) -> Tensor:
    """How far float32 lie apart at numbers, float64 and of their shape."""
    # Half of the largest: the next one after that would be infinite.
    near = values.abs().clamp_max(torch.finfo(torch.float32).max / 2).float()
    return (torch.nextafter(near, near.new_tensor(torch.inf)) - near).double()
