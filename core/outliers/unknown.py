"""Unknown samples: far less likely than the samples that the model has learned."""

from __future__ import annotations

import math

from torch import Tensor

from core.running import Running

UNKNOWN_DEVIATIONS = 2.326
"""Deviations below the mean log-likelihood that one in a hundred samples of a normal law passes."""

READY_SAMPLES = 500
"""Samples behind the statistics of the log-likelihood, below which nothing is unknown."""


def least_known(known: Running) -> float:
    """Log-likelihood below which a sample is unknown; minus infinity while too little is known.

    Arguments:
        known: Of what was learned.
    """
    if known.weight < READY_SAMPLES:
        return -math.inf
    return known.mean - UNKNOWN_DEVIATIONS * known.deviation


def is_unknown(log_likelihoods: Tensor, known: Running) -> Tensor:
    """Which samples the model finds unknown, with shape (N,), bool.

    Arguments:
        log_likelihoods: With shape (N,), nats in the sender's units.
        known: Of what was learned.
    """
    return log_likelihoods.double() < least_known(known)
