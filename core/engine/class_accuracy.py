"""How well each class was named before it was learned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

import torch
from torch import Tensor

from core.batch import Label

MOST_CLASSES = 64
"""That are told of one batch: those of which it has most samples."""


class ClassAccuracy(TypedDict):
    """One class of a batch."""

    label: Label
    samples: int  # labelled so
    accuracy: float  # share of them that were named so, 0 to 1


def by_class(codes: Tensor, hits: Tensor, names: Sequence[Label]) -> list[ClassAccuracy]:
    """The classes of some labelled samples, the most frequent first.

    Arguments:
        codes: Of the labels, with shape (N,), each a position in `names`.
        hits: Whether that is what they were called, with shape (N,), bool.
        names: Of the classes.

    Example:
        >>> codes, hits = torch.tensor([1, 1, 0]), torch.tensor([True, False, True])
        >>> by_class(codes, hits, ["a", "b"])[0]
        {'label': 'b', 'samples': 2, 'accuracy': 0.5}
    """
    seen = torch.bincount(codes, minlength=len(names))
    right = torch.bincount(codes[hits], minlength=len(names))
    order = seen.argsort(descending=True, stable=True)[:MOST_CLASSES].tolist()
    counts, good = seen.tolist(), right.tolist()
    return [
        {"label": names[code], "samples": counts[code], "accuracy": good[code] / counts[code]}
        for code in order
        if counts[code]
    ]
