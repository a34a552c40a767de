"""The distance of a sample to the nearest share of a mixture: a distance to a measure.

Outliers that come in groups get components of their own and look dense. But such a group is a
small share of all that was learned: whoever must be near a fifth of it has to look beyond the
group, and finds nothing. So components are ordered by how likely they find the sample, and their
masses added up until a share m is reached:

    at m:    log N_k(x) of the component by which it is reached
    up to m: 1/m int_0^m (the same at u) du

The second is the distance to a measure (Chazal, Cohen-Steiner and Merigot 2011, section 3), with
-log N_k(x) in the place of a squared distance. With m -> 0 both are the log density of the
likeliest component, with m = 1 the second is the mean over all.

Throughout: N samples, K components.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

SHARES = (0.05, 0.1, 0.2)
"""m of each of the numbers that are made here ..."""

AVERAGED = (False, True, False)
"""... and whether it is an average up to m, or the value at m (docs/notebook.md says how these
were chosen)."""

FARTHEST = 1e30
"""Largest log density in absolute value that is told from others."""

SPARE = 1.5
"""So many times as many components are looked at as would hold the largest share if all had the
same mass; where that does not do, all are."""

INDEX_BITS = 28
"""Bits of a double that a number with single precision leaves empty, but for one: what is written
there does not change the number that it is rounded to."""


def reaches(log_densities: Tensor, masses: Tensor) -> Tensor:
    """Log densities of what is near, one number for each of `SHARES`, with shape (N, 3).

    Arguments:
        log_densities: log N_k(x), with shape (N, K).
        masses: What each component stands for, with shape (K,), positive, with a sum of one or
            more.

    Example:
        >>> reaches(torch.tensor([[0.0, -2.0]]), torch.tensor([0.05, 0.95]))
        tensor([[ 0.0000, -1.0000, -2.0000]])
    """
    k = len(masses)
    nearest, which = _ordered(log_densities)
    own = masses.take(which[:, : 1 + math.ceil(SPARE * max(SHARES) * k)])
    if bool((own.sum(1) < max(SHARES)).any()):
        own = masses.take(which)
    nearest, held = nearest[:, : own.shape[1]], own.cumsum(1)
    columns = []
    for share, averaged in zip(SHARES, AVERAGED, strict=True):
        if averaged:
            part = (share - held + own).clamp_min(0).minimum(own)
            columns.append((part * nearest).sum(1) / part.sum(1))
        else:
            last = (held < share).sum(1, keepdim=True).clamp_max(held.shape[1] - 1)
            columns.append(nearest.gather(1, last)[:, 0])
    return torch.stack(columns, 1)


def _ordered(values: Tensor) -> tuple[Tensor, Tensor]:
    """Each row in descending order, and where each number was, with shape (N, K)."""
    if values.device.type != "cpu" or values.dtype != torch.float32:
        return values.sort(1, descending=True)
    # Numbers that carry their place are ordered several times as fast as pairs of both.
    keys = values.neg().clamp_(-FARTHEST, FARTHEST).double()
    bits = keys.view(torch.int64)
    bits |= torch.arange(values.shape[1])
    keys.numpy().sort(1)
    return keys.float().neg_(), bits & ((1 << INDEX_BITS) - 1)
