"""One layer's gradient steps on what one batch holds.

The last layer has thousands of features and minibatches of a few samples, so that a step
that touches every number of it costs more than all it has to say. Three shortcuts change
nothing but the cost: the natural form follows the parameters instead of being made anew;
what depends on precisions that do not move is worked out once for a batch; and once
annealing is over, only the components that won a sample are touched.

Throughout: N samples, P positions, K components, d entries of a patch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from core.density.deep.folding import Folding
from core.density.deep.layer import layer_scored
from core.density.diagonal.annealing import neighbourhood
from core.density.diagonal.gradient import Parameters, Rates, ascend, gradient, winners
from core.density.mixture import NaturalForm, log_joint, natural_form
from core.learners.sgd.dcgmm.settings import LayerSettings
from core.learners.sgd.dcgmm.state import LayerState

Limits = tuple[float, Tensor]
"""Where the roots of the precisions are kept: least, and most with shape (d,)."""


class Climbed(NamedTuple):
    """A layer after a batch, and what it said of every sample before it learned that one."""

    layer: LayerState
    joints: tuple[Tensor, ...]  # per minibatch, (n * P, K)
    responsibilities: Tensor  # (N, P * K) the map for the layer above
    log_likelihood: Tensor  # (N, P) nats


class _Mixture(NamedTuple):
    """Parameters with their natural form."""

    parameters: Parameters
    form: NaturalForm

    def clone(self) -> _Mixture:
        """A copy with memory of its own, to be edited."""
        return _Mixture(
            Parameters(*(value.clone() for value in self.parameters)),
            NaturalForm(*(value.clone() for value in self.form)),
        )


def climb_batch(
    layer: LayerState,
    folding: Folding,
    x: Tensor,
    settings: LayerSettings,
    least_precision_root: float,
) -> Climbed:
    """Gradient steps on minibatches, in order.

    Arguments:
        layer: As it stands.
        folding: Cuts x; its patches are of the layer's kind, however they overlap.
        x: Maps, with shape (N, map size), shuffled.
        settings: Of this layer.
        least_precision_root: Where the roots of the precisions stop falling.
    """
    pieces = max(1, round(len(x) / settings.minibatch))
    annealing, rates = layer.annealing, settings.rates
    limits = (least_precision_root, layer.precision_limit)
    mixture = _Mixture(layer.parameters, natural_form(layer.parameters.mixture))
    ours = False  # the layer that was given stays as it is
    joints, maps, log_likelihoods = [], [], []
    squares = None if rates.precision_root else _squares(folding, mixture.form, x)
    rows = torch.arange(len(x), device=x.device)
    for part in rows.tensor_split(pieces):
        patches = folding.patches(x[part])
        if squares is None:
            joint = log_joint(mixture.form, patches)
        else:
            constant, linear, _ = mixture.form
            joint = torch.addmm(constant, patches, linear.T)
            joint += squares[part].reshape(joint.shape)
        scored = layer_scored(folding, patches, joint)
        # All positions count alike: they are samples of the one mixture.
        if annealing.hard:
            if not ours:
                mixture, ours = mixture.clone(), True
            objective, winner = winners(scored.joint, None)
            mixture = _step_of_winners(
                mixture, scored.patches, winner, rates, annealing.rate, limits
            )
        else:
            near = neighbourhood(scored.joint.shape[1], annealing.radius).to(scored.joint)
            objective, winner = winners(scored.joint, near)
            mixture = _step_of_all(
                mixture, scored.patches, winner, near, rates, annealing.rate, limits
            )
        annealing = settings.schedule.update(annealing, float(objective.mean()))
        joints.append(scored.joint)
        maps.append(scored.responsibilities)
        log_likelihoods.append(scored.log_likelihood)
    return Climbed(
        replace(layer, parameters=mixture.parameters, annealing=annealing),
        tuple(joints),
        torch.cat(maps),
        torch.cat(log_likelihoods),
    )


def _squares(folding: Folding, form: NaturalForm, x: Tensor) -> Tensor:
    """The quadratic part of log-joint values, with shape (N, P, K)."""
    parts = folding.patches(x).square() @ form.quadratic.T
    return parts.reshape(len(x), folding.positions, parts.shape[1])


def _step_of_all(
    mixture: _Mixture,
    x: Tensor,
    winner: Tensor,
    near: Tensor,
    rates: Rates,
    rate: float,
    limits: Limits,
) -> _Mixture:
    """One step while neighbours learn together: every component moves."""
    before, form = mixture
    adapts = rates.precision_root > 0
    derivative = gradient(before, x, winner, near, precisions=adapts)
    after = ascend(before, derivative, rates, rate, limits)
    if adapts:
        return _Mixture(after, natural_form(after.mixture))
    # Logarithms and squares of the precisions are most of what a form costs.
    linear = (after.means * form.quadratic).mul_(-2)
    by_mean = (after.means * linear).sum(-1) - (before.means * form.linear).sum(-1)
    by_weight = after.mixture.log_weights - before.mixture.log_weights
    constant = form.constant + by_weight - 0.5 * by_mean
    return _Mixture(after, NaturalForm(constant, linear, form.quadratic))


def _step_of_winners(
    mixture: _Mixture,
    x: Tensor,
    winner: Tensor,
    rates: Rates,
    rate: float,
    limits: Limits,
) -> _Mixture:
    """One step once annealing is over, in place: the others' derivatives are zero.

    All but those of the weights, which share what there is.
    """
    (logits, means, precision_root), (constant, linear, quadratic) = mixture
    rows, inverse = torch.unique(winner, return_inverse=True)
    own = Parameters(logits[rows], means[rows], precision_root[rows])
    derivative = gradient(own, x, inverse, None, precisions=rates.precision_root > 0)
    moved = ascend(own, derivative, rates._replace(logits=0.0), rate, limits)

    share = winner.bincount(minlength=len(logits)) / len(winner)
    before = logits.log_softmax(-1)
    logits += rate * rates.logits * (share - before.exp())
    after = logits.log_softmax(-1)
    constant += after - before

    form = natural_form(moved.mixture._replace(log_weights=after[rows]))
    means[rows], precision_root[rows] = moved.means, moved.precision_root
    constant[rows], linear[rows], quadratic[rows] = form
    return mixture
