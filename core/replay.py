"""Generative replay: typical samples of what was known at the last boundary.

The model of before a boundary is frozen and becomes the *generator*. Beside every
minibatch of the new sub-task it draws samples, which are learned like real ones. They
get their labels from the generator's own read-out, and those that the generator
itself finds untypical are drawn again: an outlier that is replayed would be learned,
replayed from the next generator, and so grow.

Rules of this module: nothing here learns; no randomness without a generator; no
sample is kept from one call to the next.

Throughout: N samples, D features, K components, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from core.batch import UNLABELLED
from core.density.diagonal import Mixture, log_joint, log_sum_exp
from core.model import Model
from core.readout import LinearReadout

MAX_DRAWS = 8
"""How often a sample may be drawn before the most typical of its draws is taken."""


@dataclass(frozen=True, eq=False)
class FrozenGenerator:
    """What was known at the last boundary.

    Arguments:
        mixture: For scoring, with floored variances.
        deviations: For drawing, with shape (K, D).
        readout: Names the classes of what is drawn.
        threshold: In nats; a sample below it is untypical. Minus infinity accepts all.
    """

    mixture: Mixture
    deviations: Tensor
    readout: LinearReadout
    threshold: float

    @property
    def model(self) -> Model:
        """The same as a model."""
        return Model(self.mixture, self.deviations, self.readout)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Samples from a generator.

    Arguments:
        x: With shape (N, D).
        codes: The class of each by the generator's read-out, with shape (N,), int64;
            `UNLABELLED` while it knows no class.
        log_likelihood: Under the generator, with shape (N,), nats.
        rejected: How many draws were untypical, a sample's last one included.
    """

    x: Tensor
    codes: Tensor
    log_likelihood: Tensor
    rejected: int


def typical_threshold(mean: float, deviation: float, c: float) -> float:
    """Log-likelihood below which a sample is untypical: mean - c * deviation, in nats.

    The paper's outlier rule, turned on what the model draws (docs/method-paper.md). "Loss" in the
    paper is a log-likelihood, so that an outlier is a sample whose value is *low*.
    """
    return mean - c * deviation


def draw(
    source: FrozenGenerator,
    n: int,
    generator: torch.Generator,
    codes: Tensor | None = None,
    max_draws: int = MAX_DRAWS,
) -> Drawn:
    """Draw typical samples.

    A rejected sample is drawn anew, component and all. After `max_draws` its most
    typical draw is taken, so that the cost is bounded whatever the threshold.

    Arguments:
        source: The generator.
        n: N, at least 0.
        generator: Source of randomness, on the CPU.
        codes: Wanted class per sample, with shape (N,), to draw by the read-out's control
            signal; None draws by the weights alone, as the paper does for replay.
        max_draws: At least 1.
    """
    model, form = source.model, source.model.natural_form()
    joint = source.mixture.means.new_empty(n, model.n_components)
    x = source.mixture.means.new_empty(n, source.mixture.means.shape[1])
    scores = x.new_full((n,), -math.inf)
    open_ = torch.arange(n)
    rejected = 0
    for _ in range(max_draws):
        if not len(open_):
            break
        wanted = None if codes is None else codes[open_].cpu()
        components = model.sample_components(wanted, len(open_), generator)
        tried = model.sample(components, generator)
        tried_joint = log_joint(form, tried)
        tried_scores = log_sum_exp(tried_joint)

        better = (tried_scores > scores[open_]).cpu()
        place, source_row = open_[better].to(x.device), better.nonzero()[:, 0].to(x.device)
        x[place], joint[place] = tried[source_row], tried_joint[source_row]
        scores[place] = tried_scores[source_row]

        open_ = open_[(tried_scores < source.threshold).cpu()]
        rejected += len(open_)

    if model.n_classes:
        named = model.readout.class_probabilities(joint).argmax(-1)
    else:
        named = torch.full((n,), UNLABELLED, dtype=torch.int64, device=x.device)
    return Drawn(x, named, scores, rejected)


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


def whole_amount(amount: float, generator: torch.Generator) -> int:
    """`amount` rounded to a neighbouring integer at random, so that it is right on average.

    Rounding to the nearest would replay nothing, ever, for one sample at kappa = 0.4.
    """
    whole = math.floor(amount)
    if whole == amount:
        return whole
    return whole + int(torch.rand((), generator=generator).item() < amount - whole)
