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

import numpy as np
import torch
from torch import Tensor

from core.compiled.loops import Array, compiled
from core.density.blocks import one_by_one

SHARES = (0.05, 0.1, 0.2)
"""m of each of the numbers that are made here ..."""

AVERAGED = (False, True, False)
"""... and whether it is an average up to m, or the value at m (docs/notebook.md says how these
were chosen)."""

FARTHEST = 1e30
"""Largest log density in absolute value that is told from others."""

INDEX_BITS = 28
"""Bits of a double that a number with single precision leaves empty, but for one: what is written
there does not change the number that it is rounded to."""

PLACE = (1 << INDEX_BITS) - 1
"""These bits."""


def reaches(log_densities: Tensor, masses: Tensor) -> Tensor:
    """Log densities of what is near, one number for each of `SHARES`, with shape (N, 3).

    Arguments:
        log_densities: log N_k(x), with shape (N, K).
        masses: What each component stands for, with shape (K,), positive, with a sum of one or
            more.

    Example:
        >>> reaches(torch.tensor([[0.0, -2.0]]), torch.tensor([0.05, 0.95]))
        tensor([[ 0., -1., -2.]])
    """
    if log_densities.dtype == torch.float32 and one_by_one(log_densities):
        keys = np.empty(log_densities.shape)
        _write_keys(log_densities.contiguous().numpy(), keys, keys.view(np.int64))
        keys.sort(1)
        found = np.empty((len(keys), len(SHARES)), np.float32)
        _reach(keys, keys.view(np.int64), masses.contiguous().numpy(), found)
        return torch.from_numpy(found)
    nearest, which = log_densities.sort(1, descending=True)
    own = masses.take(which)
    cumulative = own.cumsum(1)
    columns = []
    for share, averaged in zip(SHARES, AVERAGED, strict=True):
        if averaged:
            part = (share - cumulative + own).clamp_min(0).minimum(own)
            columns.append((part * nearest).sum(1) / part.sum(1))
        else:
            last = (cumulative < share).sum(1, keepdim=True).clamp_max(cumulative.shape[1] - 1)
            columns.append(nearest.gather(1, last)[:, 0])
    return torch.stack(columns, 1)


@compiled
def _write_keys(values: Array, keys: Array, bits: Array) -> None:
    """Numbers that are the larger the farther away a component is, and that carry its place.

    They are ordered several times as fast as pairs of both.

    Arguments:
        values: Log densities, with shape (N, K), float32.
        keys: With shape (N, K), float64: what is found.
        bits: The same memory as int64.
    """
    for i in range(values.shape[0]):
        for k in range(values.shape[1]):
            keys[i, k] = np.float32(min(max(-values[i, k], -FARTHEST), FARTHEST))
            bits[i, k] |= k


@compiled
def _reach(keys: Array, bits: Array, masses: Array, found: Array) -> None:
    """Add up masses of components, the nearest first, until each of `SHARES` is reached.

    Arguments:
        keys: Of components, in ascending order, with shape (N, K), float64.
        bits: The same memory as int64.
        masses: With shape (K,).
        found: With shape (N, 3), float32.
    """
    for i in range(keys.shape[0]):
        for column in range(len(SHARES)):
            share, cumulative, total, value = SHARES[column], 0.0, 0.0, np.float32(0)
            for k in range(keys.shape[1]):
                own = masses[bits[i, k] & PLACE]
                value = np.float32(-keys[i, k])
                part = min(own, share - cumulative)
                total += part * value
                cumulative += part
                if own > part or cumulative >= share:
                    break
            found[i, column] = total / cumulative if AVERAGED[column] else value
