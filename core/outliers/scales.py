"""The conformity scores behind p-values of tables: how well a sample fits, near by and further
away.

Outliers that come in groups get components of their own, and are as likely as inliers. From
further away they are not, so they are asked for their distance to shares of the whole mixture
(`core.density.reach`), too. These stand after the first conformity score, the log-likelihood,

    likelihood, reaches (3), size, rest (where there are factors)

to which margins between classes are added (`core.outliers.margin`), in nats as well. All of these
but the last two have a usual lower end; the last two have a usual range
(`core.outliers.p_values`). A class that labels name is no group of outliers however few its
samples are: its components have masses within the class.

Images are asked by the conformity scores of `core.density.conformity` alone, because what is
strange of a picture lies in its details.

Throughout: N samples, K components, S conformity scores.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.density.reach import SHARES, reaches
from core.model.readout import Readout
from core.outliers.margin import class_margins, with_class_margins

N_SCALES = len(SHARES)
"""Conformity scores after the first that say the same from further away."""

WHOLE = 1.0
"""The scale of what is asked of the whole mixture."""


def of_inliers(
    conformity: Tensor,
    readout: Readout,
    joint: Tensor,
    log_weights: Tensor | None,
    log_volume: float,
    n_features: int,
    *,
    table: bool,
) -> tuple[Tensor, int]:
    """Conformity scores that p-values are made from, with shape (N, S'), and how many are of
    scales.

    Arguments:
        conformity: Of a density, with shape (N, S).
        readout: Of the same model.
        joint: Log-joint values, with shape (N, K).
        log_weights: Of the components, with shape (K,); None where these are not of features.
        log_volume: Of the standardiser: what densities lose in the sender's units. The
            log-likelihood among the conformity scores has lost it already.
        n_features: D.
        table: Whether samples are rows of a table, not images.
    """
    if log_weights is None or not table:
        return with_class_margins(conformity, readout, joint, n_features), 0
    first = conformity[:, 1] + class_margins(readout, joint, n_features).to(conformity)
    found = reaches(joint - log_weights, masses(log_weights, readout)) - log_volume
    # Of size, stretch and rest. The factors' stretch moves as components are added.
    return torch.cat([first[:, None], found.to(conformity), conformity[:, 2::2]], 1), N_SCALES


def masses(log_weights: Tensor, readout: Readout) -> Tensor:
    """What each component stands for among all, or, as far as labels name it, in its class, (K,).

    Arguments:
        log_weights: With shape (K,); their exponentials sum to one.
    """
    weights = log_weights.exp()
    kinds = readout.kinds if readout.n_classes > 1 else None
    if kinds is None:
        return weights
    *named, unnamed = (weights[:, None] * kinds).T
    of_classes = torch.stack(named)
    totals = of_classes.sum(1, keepdim=True)
    # A class that no component stands for (yet) gives none a share.
    shares = of_classes / totals.clamp_min(torch.finfo(totals.dtype).tiny)
    found: Tensor = shares.sum(0) + unnamed
    return found


def scales_of(which: Tensor, n_scales: int) -> Tensor:
    """Shares of the mixture that ways to be strange look at, with shape (N,), float64.

    Arguments:
        which: Ways, of `Typicality.strangest`, with shape (N,), int64.
        n_scales: `N_SCALES`, or 0 where there are none.
    """
    between = SHARES if n_scales else ()
    return torch.tensor([WHOLE, *between, WHOLE], dtype=torch.float64)[which]
