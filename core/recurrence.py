"""Whether what comes after a change was there before: a sub-task that returns.

Labels decide where there are any: samples of the classes that one earlier sub-task showed,
nearly all of these, are that sub-task again, unless most of them are less likely than its data
were: the same classes under new conditions are something new. Without labels the model is
asked, and asked much: nearly all of the new samples must be as likely as that sub-task's data
were at its end, and must fall on the components of samples that were drawn for it.

Throughout: N samples, K components.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from core.batch import UNLABELLED
from core.held import HeldSet
from core.model import Model
from core.standardiser import Standardiser

LEAST_LABELLED = 0.5
"""Share of the samples whose labels speak for all."""

STRAY = 0.02
"""Share of the labels that may be of other classes, mistakes included."""

LEAST_BACK = 0.8
"""Share of a sub-task's classes that must be back: a part of them is another mixture."""

LEAST_LIKELY = 0.9
"""Share of the samples that must be as likely as the sub-task's own ..."""

LEAST_LIKELY_LABELLED = 0.5
"""The same where labels say that they are of its classes."""

LEAST_SHARED = 0.8
"""... and that must fall on components that its own samples fall on."""

FAR = 3.0
"""Standard deviations of a sub-task's log-likelihoods that are not as likely any more."""


def recurring(
    sets: Sequence[HeldSet], model: Model, standardiser: Standardiser, x: Tensor, codes: Tensor
) -> int | None:
    """The earlier sub-task that samples belong to, or None: something new.

    Arguments:
        sets: What is kept of earlier sub-tasks, the one that has just ended left out.
        model: As it stands, before it learns the samples.
        standardiser: Of the same moment.
        x: The samples, with shape (N, D), in the sender's units.
        codes: Their classes, with shape (N,), int64; `UNLABELLED` where unknown, and
            the number of classes or above where the class is new.
    """
    labelled = mostly_labelled(codes)
    if labelled:
        # Labels are compared at once, likelihoods of many earlier sub-tasks are not.
        sets = _of_classes(sets, codes[codes != UNLABELLED])
    if not sets:
        return None
    joint, likelihood = model.density.score(standardiser.apply(x))
    likelihood = likelihood.double() - standardiser.log_volume
    if not labelled:
        return _by_likelihood(sets, model, standardiser, joint, likelihood)
    for one in sets:
        if _as_likely(one, model, standardiser, likelihood)[0] >= LEAST_LIKELY_LABELLED:
            return one.sub_task
    return None


def mostly_labelled(codes: Tensor) -> bool:
    """Whether labels speak for all samples.

    Arguments:
        codes: Their classes, with shape (N,), int64; `UNLABELLED` where unknown.
    """
    return int((codes != UNLABELLED).sum()) >= LEAST_LABELLED * max(1, len(codes))


def _of_classes(sets: Sequence[HeldSet], codes: Tensor) -> list[HeldSet]:
    """Those whose classes these samples are of: of the fewest classes first, then the latest."""
    fitting = []
    for one in sets:
        known = torch.unique(one.codes[one.codes != UNLABELLED]).to(codes.device)
        back = float(torch.isin(known, torch.unique(codes)).double().mean()) if len(known) else 0
        if float(torch.isin(codes, known).double().mean()) >= 1 - STRAY and back >= LEAST_BACK:
            fitting.append((len(known), one))
    return [one for _, one in sorted(fitting, key=lambda each: (each[0], -each[1].sub_task))]


def _by_likelihood(
    sets: Sequence[HeldSet],
    model: Model,
    standardiser: Standardiser,
    joint: Tensor,
    likelihood: Tensor,
) -> int | None:
    winners = joint.argmax(-1)
    best, found = LEAST_SHARED, None
    for one in sets:
        likely, own_joint = _as_likely(one, model, standardiser, likelihood)
        shared = torch.isin(winners, torch.unique(own_joint.argmax(-1)))
        share = float(shared.double().mean())
        if share >= best and likely >= LEAST_LIKELY:
            best, found = share, one.sub_task
    return found


def _as_likely(
    one: HeldSet, model: Model, standardiser: Standardiser, likelihood: Tensor
) -> tuple[float, Tensor]:
    """Share of samples that are as likely as a sub-task's were, and its own log-joint values.

    Arguments:
        likelihood: Of the samples, with shape (N,), float64, in the sender's units.
    """
    own_joint, own = model.density.score(standardiser.apply(one.features.float()))
    # What is learned later takes its share of the mixture, and moves all likelihoods alike.
    moved = (own - standardiser.log_volume - one.then.log_likelihood).double().mean()
    away = (likelihood - one.level.mean - moved).abs()
    return float((away <= FAR * one.level.deviation).double().mean()), own_joint
