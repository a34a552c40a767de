"""Clusters among components: which of them are one group of samples, by what samples say.

Components are merged while they overlap (Hennig 2010, "Methods for merging Gaussian mixture
components": directly estimated misclassification probabilities). Overlap is asked of samples, of
two groups at a time, so that it does not shrink where many components share a cluster. It is asked
at a temperature: components that were fitted to few samples describe just these, and a sample of
one is next to never torn between it and another by Bayes' rule, however close these are.

Throughout: N samples, M components, D features.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

DEGREES = 1.75
"""The temperature of overlaps is this times the root of D, as the deviation of a log-likelihood of
D features is half the root of 2 D nats (docs/method.md: how it was chosen)."""

LEAST_OVERLAP = 0.1
"""Overlap from which on two groups of components are one."""

LEAST_SHARE = 0.05
"""Share of the samples below which a group is part of its likeliest neighbour."""


def clusters(joint: Tensor, n_features: int, least: int) -> Tensor:
    """Which cluster each component is of, with shape (M,), int64, from 0; -1: of none.

    The two groups that overlap most are merged until none overlap by `LEAST_OVERLAP`. The overlap
    of two groups is the mean probability of the one for the samples of the other, where there is
    no third, and the larger of both. Groups of too few samples then join the group that finds
    their samples likeliest. Components without a sample are of no cluster.

    Arguments:
        joint: Log-joint values of samples that belong to these components, with shape (N, M).
        n_features: D.
        least: Fewest samples that are a cluster, at least 1.

    Example:
        >>> near, far = torch.tensor([[0.0, -1.0, -50.0]]), torch.tensor([[-50.0, -50.0, 0.0]])
        >>> clusters(torch.cat([near.repeat(9, 1), far.repeat(9, 1)]), 8, least=5).tolist()
        [0, 0, 1]
    """
    n, m = joint.shape
    none = torch.full((m,), -1, dtype=torch.int64)
    if not n or not m:
        return none
    joint = joint.double().cpu()
    group = _merged(joint, DEGREES * math.sqrt(n_features))
    fallen = group[joint.argmax(1)]
    counts = torch.bincount(fallen, minlength=m)
    large = (counts >= max(least, LEAST_SHARE * n)).nonzero()[:, 0]
    if not len(large):
        return none
    likelihood = torch.stack([joint[:, group == one].logsumexp(1) for one in large.tolist()], 1)
    cluster = none
    for one in range(m):
        mine = group == one
        if one in large:
            cluster[mine] = int((large == one).nonzero()[0, 0])
        elif int(counts[one]):
            cluster[mine] = int(likelihood[fallen == one].mean(0).argmax())
    return cluster


def _merged(joint: Tensor, temperature: float) -> Tensor:
    """The group of each component, named by one of its components, with shape (M,).

    Arguments:
        joint: Log-joint values, with shape (N, M), float64.
    """
    m = joint.shape[1]
    group, own = torch.arange(m), joint.argmax(1)
    likely = (joint / temperature).log_softmax(1)
    alive = torch.ones(m, dtype=torch.bool)
    # Row: whose samples; column: of which group their mean probability is.
    mean = torch.stack([_confused(likely[own == one], one) for one in range(m)])
    while int(alive.sum()) > 1:
        overlap = torch.maximum(mean, mean.T).fill_diagonal_(-1)
        overlap.masked_fill_(~(alive[:, None] & alive), -1)
        keep, gone = divmod(int(overlap.argmax()), m)
        if float(overlap[keep, gone]) < LEAST_OVERLAP:
            break
        likely[:, keep] = torch.logaddexp(likely[:, keep], likely[:, gone])
        alive[gone] = False
        group[group == gone] = keep
        own[own == gone] = keep
        mean[keep] = _confused(likely[own == keep], keep)
        mine = likely.gather(1, own[:, None])[:, 0]
        sums = torch.zeros(m, dtype=likely.dtype).index_add_(
            0, own, torch.sigmoid(likely[:, keep] - mine)
        )
        mean[:, keep] = sums / torch.bincount(own, minlength=m).clamp_min(1)
    return group


def _confused(likely: Tensor, one: int) -> Tensor:
    """Mean probability of each group for samples of one, of these two, with shape (M,)."""
    if not len(likely):
        return likely.new_zeros(likely.shape[1])
    return torch.sigmoid(likely - likely[:, one : one + 1]).mean(0)
