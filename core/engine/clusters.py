"""Clusters among components: which of them are one group of samples, by what samples say.

Components are merged while they overlap (Hennig 2010, "Methods for merging Gaussian mixture
components": directly estimated misclassification probabilities). Overlap is asked of two components
at a time, so that it does not shrink where many share a cluster, and of two groups it is the mean
over their pairs (average linkage, Sokal & Michener 1958), so that it does not grow with what a
group has taken in. It is asked at a temperature: components that were fitted to few samples
describe just these, and a sample of one is next to never torn between it and another by Bayes'
rule, however close these are.

Throughout: N samples, M components, D features.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

DEGREES = 2.5
"""The temperature of overlaps is this times the root of D, as the deviation of a log-likelihood of
D features is half the root of 2 D nats (docs/notebook.md: how it was chosen)."""

LEAST_OVERLAP = 0.05
"""Mean overlap from which on two groups of components are one."""

LEAST_SHARE = 0.05
"""Share of the samples below which a group is part of its likeliest neighbour."""


def clusters(joint: Tensor, n_features: int, least: int) -> Tensor:
    """Which cluster each component is of, with shape (M,), int64, from 0; -1: of none.

    The two groups that overlap most are merged until none overlap by `LEAST_OVERLAP`. The overlap
    of two components is the mean probability of the other one for the samples of both, where there
    is no third; that of two groups the mean over pairs, by samples. Groups of too few samples then
    join the group that finds their samples likeliest. Components without a sample are of no
    cluster.

    Arguments:
        joint: Log-joint values of samples that belong to these components, with shape (N, M).
        n_features: D.
        least: Fewest samples that are a cluster, at least 1.

    Example:
        >>> one, other = [0.0, -1.0, -50.0, -50.0], [-1.0, 0.0, -50.0, -50.0]
        >>> joint = torch.tensor([one, other, [-50.0, -50.0, 0.0, -9.0]]).repeat(9, 1)
        >>> clusters(joint, 8, least=5).tolist()
        [0, 0, 1, -1]
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
    log_likelihood = torch.stack([joint[:, group == one].logsumexp(1) for one in large.tolist()], 1)
    cluster = none
    for one in range(m):
        mine = group == one
        if one in large:
            cluster[mine] = int((large == one).nonzero()[0, 0])
        elif int(counts[one]):
            cluster[mine] = int(log_likelihood[fallen == one].mean(0).argmax())
    return cluster


def _merged(joint: Tensor, temperature: float) -> Tensor:
    """The group of each component, named by one of its components, with shape (M,).

    Arguments:
        joint: Log-joint values, with shape (N, M), float64.
    """
    m = joint.shape[1]
    group, own = torch.arange(m), joint.argmax(1)
    likely = joint / temperature
    others = torch.sigmoid(likely - likely.gather(1, own[:, None]))
    sums = likely.new_zeros(m, m).index_add_(0, own, others)
    counts = torch.bincount(own, minlength=m).double()
    overlap = (sums + sums.T) / (counts[:, None] + counts).clamp_min(1)
    alive = counts > 0
    while int(alive.sum()) > 1:
        apart = ~(alive[:, None] & alive) | torch.eye(m, dtype=torch.bool)
        keep, gone = divmod(int(overlap.masked_fill(apart, -1).argmax()), m)
        if float(overlap[keep, gone]) < LEAST_OVERLAP:
            break
        both = counts[keep] + counts[gone]
        mean = (counts[keep] * overlap[keep] + counts[gone] * overlap[gone]) / both
        overlap[keep], overlap[:, keep] = mean, mean
        counts[keep], alive[gone] = both, False
        group[group == gone] = keep
    return group
