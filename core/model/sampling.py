"""Samples worth having: drawn from a model, and drawn again while it doubts them itself.

A mixture's tails give samples that its own density finds atypical, and a component that
several classes share gives samples of the wrong one. Both are cured by looking at what
was drawn: the model scores it, and what falls short is drawn anew, component and all.

Rules of this module: nothing here learns; no randomness without a generator; the cost is
bounded whatever is asked for.

Throughout: N samples, D features, K components, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from core.batch import UNLABELLED
from core.model.acceptance import acceptance
from core.model.model import Model
from core.model.readout import Readout

MAX_DRAWS = 8
"""How often a sample may be drawn before the best of its draws is taken."""


def noise_of_a_class(temperature: float) -> float:
    """Times the deviation of its noise that a component draws with for a wanted class, 0 to 1.

    Noise is drawn for each feature by itself, though features that repeat each other vary
    together: pixels become grain that no image has. A read-out at a temperature of T takes T
    features for one: a third of the variance stays, and of the rest one part in T.

    Arguments:
        temperature: Of the read-out, at least 1, where noise stays as it is.
    """
    return math.sqrt((1 + 2 / temperature) / 3)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Samples from a model.

    Arguments:
        x: With shape (N, D).
        codes: The class of each by the model's own read-out, with shape (N,), int64;
            `UNLABELLED` while it knows no class.
        log_likelihood: Under the model, with shape (N,), nats.
        probability: Of the wanted class, or of the most probable one, with shape (N,), 0 to 1;
            1 while no class is known.
        short: Which of them are not of a sure enough class: the best that came; shape (N,), bool.
        rejected: How many draws fell short, a sample's last one included.
    """

    x: Tensor
    codes: Tensor
    log_likelihood: Tensor
    probability: Tensor
    short: Tensor
    rejected: int


def draw(
    model: Model,
    n: int,
    generator: torch.Generator,
    codes: Tensor | None = None,
    *,
    threshold: float = -math.inf,
    least_probability: float = 0.0,
    doubt: float | None = None,
    noise: float = 1.0,
    max_draws: int = MAX_DRAWS,
) -> Drawn:
    """Draw samples that are typical, and of the class that was asked for.

    After `max_draws` the best draw of a sample is taken: one of a sure enough class before
    one that is not, then the surer, then the more typical.

    Arguments:
        model: What to draw from.
        n: N, at least 0.
        generator: Source of randomness, on the CPU.
        codes: Wanted class per sample, with shape (N,), to draw by the read-out's control
            signal; None draws by the weights alone.
        threshold: In nats; a draw below it is atypical. Minus infinity accepts all.
        least_probability: A draw to whose class (the wanted one, or else the most probable)
            the model gives less than this is drawn again; 0 accepts all.
        doubt: Temperature of a closer look at draws for a wanted class (`core.model.acceptance`),
        if the
            read-out's is lower; None takes the read-out's word.
        noise: See `Density.sample`.
        max_draws: At least 1.
    """
    device = model.density.device
    x = torch.zeros(n, model.density.n_features, device=device)
    named = torch.full((n,), UNLABELLED, dtype=torch.int64)
    log_likelihood, probability = torch.full((n,), -math.inf), torch.full((n,), -1.0)
    merit = torch.full((n, 2), -math.inf)
    open_ = torch.arange(n)
    rejected = 0
    readout = model.readout
    for _ in range(max_draws):
        if not len(open_):
            break
        wanted = None if codes is None else codes[open_].cpu()
        components = model.sample_components(wanted, len(open_), generator)
        tried = model.sample(components, generator, noise)
        joint, scores = model.density.score(tried)
        tried_scores = scores.cpu()
        guesses, served = _named(readout, joint, wanted)
        sure = served
        if wanted is not None and doubt is not None and readout.n_classes:
            temperature = max(doubt, readout.temperature)
            sure = acceptance(
                readout, joint, components, wanted, least_probability, temperature
            ).cpu()

        # Merit is compared in two stages: doubt of the class first, as far as it matters.
        first, second = sure.clamp(max=least_probability), tried_scores
        better = (first > merit[open_, 0]) | (
            (first == merit[open_, 0]) & (second > merit[open_, 1])
        )
        improved = open_[better]
        x[improved.to(device)] = tried[better.to(device)]
        named[improved], log_likelihood[improved] = guesses[better], tried_scores[better]
        probability[improved] = served[better]
        merit[improved] = torch.stack([first[better], second[better]], -1)

        open_ = open_[(tried_scores < threshold) | (sure < least_probability)]
        rejected += len(open_)
    short = merit[:, 0] < least_probability
    return Drawn(
        x,
        named.to(device),
        log_likelihood.to(device),
        probability.to(device),
        short.to(device),
        rejected,
    )


def _named(readout: Readout, joint: Tensor, wanted: Tensor | None) -> tuple[Tensor, Tensor]:
    """The most probable class of every draw, and the probability of the class that counts."""
    if not readout.n_classes:
        n = len(joint)
        return torch.full((n,), UNLABELLED, dtype=torch.int64), torch.ones(n)
    probabilities = readout.class_probabilities(joint).cpu()
    best = probabilities.max(-1)
    if wanted is None:
        return best.indices, best.values
    return best.indices, probabilities.gather(1, wanted[:, None])[:, 0]
