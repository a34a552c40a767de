"""Exponential fading: a third is left after a horizon of samples.

Throughout: H horizons, N samples, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.experts.opinions import mark_known

FEWEST = 3.0
"""Samples of a class whose sums are kept beyond its sub-task: fewer are no more than a sample."""


def ageing(horizons: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """What is left of earlier samples, with shape (H,), and what N newer ones count, (H, N).

    The same however a stream is cut into batches.

    Arguments:
        horizons: With shape (H,), float64; infinite for what never fades.
        n: N.
    """
    ages = torch.arange(n - 1, -1, -1, dtype=torch.float64)
    return (-n / horizons).exp(), (-ages / horizons[:, None]).exp()


def known(mass: Tensor, horizons: Tensor) -> Tensor:
    """Which classes an expert of each horizon can tell, with shape (H, C), bool.

    Whoever forgets nothing knows every class that came. Others leave those of which little came
    lately to the rest, who remember more of them.

    Arguments:
        mass: Faded samples of each class, with shape (H, C).
        horizons: With shape (H,), float64.
    """
    found = torch.empty(mass.shape, dtype=torch.bool)
    mark_known(mass.numpy(), horizons.isinf().numpy(), found.numpy())
    return found


def few(samples: Tensor) -> Tensor:
    """Classes of which too few samples came within each horizon to be kept for long, bool.

    Arguments:
        samples: How many sums are of, with shape (H, C): faded ones, or `effective` ones.
    """
    return samples < FEWEST


def effective(mass: Tensor, squares: Tensor) -> Tensor:
    """The effective number of samples in faded sums (Kish 1965), with shape (H, C).

    At most the number of samples, and at least their mass. Of a stream that goes on it is twice
    the mass.

    Arguments:
        mass: Sums of weights, with shape (H, C).
        squares: Sums of squared weights.
    """
    return mass.square() / squares.clamp_min(torch.finfo(squares.dtype).tiny)


def columns_of(sums: Tensor, columns: Tensor, dim: int) -> Tensor:
    """Sums of other classes, or of the same in another order.

    Arguments:
        sums: Of C classes, along `dim`.
        columns: For each class wanted, which one of the C it is, int64. Others, -1 or C and above,
            are new, and begin with nothing.
        dim: Of classes.
    """
    n = sums.shape[dim]
    known = (columns >= 0) & (columns < n)
    nothing = sums.new_zeros((*sums.shape[:dim], 1, *sums.shape[dim + 1 :]))
    places = torch.where(known, columns, n)
    return torch.cat([sums, nothing], dim).index_select(dim, places)
