"""The acceptance of draws for a class: a component does not judge its own draws.

A draw is nearly always explained best by the component that drew it, so that Bayes' rule is
sure of its class wherever that component lies: an odd nine that looks like a four is a nine,
because it was drawn as one. Two opinions are worth more:

* Bayes' rule at a high temperature, at which components of other classes are heard as well.
  It is sure only where they are far away, which few draws can say of digits or clothes.
* Where that is in doubt, what the *other* components say, the one that drew it left out. A
  class with no other component nearby has nobody to speak for it, and needs the first.

Rules of this module: nothing here learns, draws or knows of densities.

Throughout: N samples, K components, C classes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from core.model.readout import Readout

LEAST_SHARE = 0.6
"""Of what the others give the wanted class and its strongest rival together, what they must give
the wanted one: half as much again as to any other. More costs variety (docs/method.md)."""


def acceptance(
    readout: Readout,
    joint: Tensor,
    components: Tensor,
    wanted: Tensor,
    least: float,
    temperature: float,
) -> Tensor:
    """How sure it is that draws are of the wanted class, with shape (N,); `least` suffices.

    Plain Bayes must be as sure as `least` as well, so that in few dimensions, where nothing
    is tempered, its word counts alone.

    Arguments:
        readout: Of the model that drew.
        joint: Log-joint values of the draws, with shape (N, K).
        components: Which drew each, with shape (N,), int64.
        wanted: Class codes, with shape (N,), int64.
        least: Probability that suffices, 0 to 1.
        temperature: At least 1.
    """
    components, wanted = components.to(joint.device)[:, None], wanted.to(joint.device)[:, None]
    tempered = readout.at(temperature)

    def of_wanted(probabilities: Tensor) -> Tensor:
        return probabilities.gather(1, wanted)[:, 0]

    plain = of_wanted(readout.at(1.0).class_probabilities(joint))
    heard = of_wanted(tempered.class_probabilities(joint))
    if joint.shape[1] > 1:
        others = tempered.class_probabilities(joint.scatter(1, components, -math.inf))
        mine = of_wanted(others)
        rival = others.scatter(1, wanted, 0.0).amax(-1)
        heard = torch.maximum(heard, mine / (mine + rival) * (least / LEAST_SHARE))
    return torch.minimum(plain, heard)
