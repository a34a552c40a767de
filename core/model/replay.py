"""Generative replay: typical samples of what was known at the last boundary.

The model of before a boundary is frozen and becomes the *generator*. Beside every
minibatch of the new sub-task it draws samples (`core.model.sampling`), which are learned like
real ones. They get their labels from the generator's own read-out, and those that the
generator itself finds atypical are drawn again: an outlier that is replayed would be
learned, replayed from the next generator, and so grow.

Rules of this module: nothing here learns or draws; it says from what, and how much.

Throughout: N samples, D features, K components, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.density.diagonal.density import DiagonalDensity
from core.density.mixture import Mixture
from core.model.model import Model
from core.model.readout import LinearReadout


@dataclass(frozen=True, eq=False)
class FrozenGenerator:
    """The frozen generator of the last boundary.

    Arguments:
        mixture: For scoring, with floored variances.
        deviations: For drawing, with shape (K, D).
        readout: Names the classes of what is drawn.
        threshold: In nats; a sample below it is atypical. Minus infinity accepts all.
    """

    mixture: Mixture
    deviations: Tensor
    readout: LinearReadout
    threshold: float

    def with_merged_classes(self, merge: ClassMerge) -> Self:
        """The same, for which two classes are one."""
        return replace(self, readout=self.readout.with_merged_classes(merge))

    @property
    def model(self) -> Model:
        """The same as a model."""
        return Model(DiagonalDensity(self.mixture, self.deviations), self.readout)


def typical_threshold(mean: float, deviation: float, c: float) -> float:
    """Log-likelihood below which a sample is atypical: mean - c * deviation, in nats.

    The paper's outlier rule, turned on what the model draws (docs/method-paper.md). "Loss" in the
    paper is a log-likelihood, so that an outlier is a sample whose value is *low*.
    """
    return mean - c * deviation


def constant_amount(n: int, factor: float) -> float:
    """xi(t) = kappa * nu(t): a fixed number of generated samples per new one.

    Arguments:
        n: New samples.
        factor: kappa.
    """
    return factor * n


def proportional_amount(n: int, earlier: int, sub_tasks: int, current: int) -> float:
    """xi(t) = nu(1) + ... + nu(t - 1), spread over a sub-task whose length is not known.

    The paper knows nu(t) and so how many generated samples go with each new one. In a
    stream the sub-task is expected to be as long as those before it were on average, and,
    once it is longer, as long as it has been up to now. The amount grows with the number
    of sub-tasks, and so does the cost of a batch; the constant one does not.

    Arguments:
        n: New samples.
        earlier: Samples of all earlier sub-tasks.
        sub_tasks: How many these were, at least 1.
        current: Samples of the present sub-task up to now, the new ones included.

    Example:
        >>> proportional_amount(100, earlier=3000, sub_tasks=3, current=500)
        300.0
        >>> proportional_amount(100, earlier=3000, sub_tasks=3, current=6000)
        50.0
    """
    return n * earlier / max(current, earlier / sub_tasks)


def replay_amount(
    mode: str, factor: float, n: int, *, earlier: int, sub_tasks: int, current: int
) -> float:
    """Generated samples for `n` new ones, by `constant_amount` or `proportional_amount`.

    Arguments:
        mode: "constant" or "proportional".
        factor: kappa, of the constant amount.
    """
    if mode == "constant":
        return constant_amount(n, factor)
    return proportional_amount(n, earlier, sub_tasks, current)


def whole_amount(amount: float, generator: torch.Generator) -> int:
    """`amount` rounded to a neighbouring integer at random, so that it is right on average.

    Rounding to the nearest would replay nothing, ever, for one sample at kappa = 0.4.
    """
    whole = math.floor(amount)
    if whole == amount:
        return whole
    return whole + int(torch.rand((), generator=generator).item() < amount - whole)
