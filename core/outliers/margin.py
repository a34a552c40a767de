"""Closeness where there are classes: a sample between two of them is strange, however near to both.

A new class is often made of what the known ones have, and lies where density is as high as
anywhere. What gives it away is that no class stands out. So the margin by which the likeliest
class stands above all others (`core.model.readout`) counts towards closeness, the conformity
score of which less is stranger (`core.density.conformity`), as nats of the likelihood do: up to a
point, for how far apart classes are says nothing of what is usual.

Throughout: N samples, K components, S conformity scores.
"""

from __future__ import annotations

import torch
from torch import Tensor

from core.density.conformity import SOFTNESS
from core.model.readout import Readout, margin_temperature

SURE = 1.5
"""Log odds of a class, at the temperature of margins, from which on it is as sure as any
(docs/notebook.md says how it was chosen). Without an end, odds fall whenever there is a class more,
and what inliers looked like before it says little of what they look like after."""


def with_class_margins(
    conformity: Tensor, readout: Readout, joint: Tensor, n_features: int
) -> Tensor:
    """Conformity scores whose closeness counts margins between classes, with shape (N, S).

    Arguments:
        conformity: Of a density, with shape (N, S).
        readout: Of the same model.
        joint: Log-joint values, with shape (N, K).
        n_features: D.
    """
    closeness = (
        conformity[:, 0] + class_margins(readout, joint, n_features).to(conformity) / SOFTNESS
    )
    return torch.cat([closeness[:, None], conformity[:, 1:]], 1)


def class_margins(readout: Readout, joint: Tensor, n_features: int) -> Tensor:
    """Nats by which the likeliest class stands above all others, up to `SURE`; shape (N,).

    Arguments:
        readout: Of a model.
        joint: Log-joint values, with shape (N, K).
        n_features: D.
    """
    temperature = margin_temperature(n_features)
    return readout.margins(joint, temperature).clamp_max(SURE * temperature)
