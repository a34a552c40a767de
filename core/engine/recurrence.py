"""Recurrence: do the samples after a change belong to an earlier sub-task?

Labels decide where there are any: samples of the classes that one earlier sub-task showed,
nearly all of these, may be that sub-task again, unless most of them are less likely than its
data were: the same classes under new conditions are something new. Without labels the model
is asked, and asked much: nearly all of the new samples must be as likely as that sub-task's
data were, and must fall on the components of samples that were drawn for it.

Either way every single feature must be distributed as it was, by what is remembered of the data
themselves (`core.memory.marginals`). One sensor of many that is off hardly moves a likelihood.

Throughout: N samples, D features, K components.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from core.batch import UNLABELLED
from core.memory.marginals import Moved
from core.memory.retention import RetentionSet
from core.model.model import Model
from core.standardiser import Standardiser

LEAST_LABELLED = 0.5
"""Share of the samples whose labels speak for all."""

MOST_OTHERS = 0.02
"""Share of the labels that may be of other classes, mistakes included."""

LEAST_BACK = 0.8
"""Share of a sub-task's classes that must be back: a part of them is another mixture."""

LEAST_LIKELY = 0.9
"""Share of the samples that must be as likely as the sub-task's own ..."""

LEAST_LIKELY_LABELLED = 0.5
"""The same where labels say that they are of its classes."""

LEAST_SHARED = 0.8
"""... and that must fall on components that its own samples fall on, of those that these can show
(there may be few of them, and many components)."""

LEAST_SHARED_KNOWN = 0.5
"""The same where features are known to be distributed as they were: samples of a sub-task that
comes back differing in one feature from another fall on components of either."""

FAR = 3.0
"""Standard deviations of a sub-task's log-likelihoods that are not as likely any more."""

NEAR = 0.5
"""Standard deviations, beside those of chance, by which their mean may lie elsewhere: a model has
learned a little more by the end of a sub-task than it knew on the way."""


def recurring(
    sets: Sequence[RetentionSet],
    model: Model,
    standardiser: Standardiser,
    x: Tensor,
    codes: Tensor,
    newest: int,
) -> int | None:
    """The earlier sub-task that samples belong to, or None: something new.

    Arguments:
        sets: What is kept of earlier sub-tasks, the one that has just ended left out.
        model: As it stands, before it learns the samples.
        standardiser: Of the same moment.
        x: The samples, with shape (N, D), in the sender's units.
        codes: Their classes, with shape (N,), int64; `UNLABELLED` where unknown, and
            the number of classes or above where the class is new.
        newest: How many of the last samples are sure to be of what came after the change, at
            least 1; those before may be of what came before it.
    """
    labelled = mostly_labelled(codes)
    if labelled:
        # Labels are compared at once, likelihoods of many earlier sub-tasks are not.
        sets = _of_classes(sets, codes[codes != UNLABELLED])
    if not sets:
        return None
    new = Newcomers.of(model, standardiser, x, codes, newest)
    found, best = None, 0.0
    for one in sets:
        kin = Kinship.of(one, model, standardiser, new)
        share = float(kin.likely.double().mean())
        if share < (LEAST_LIKELY_LABELLED if labelled else LEAST_LIKELY) or not kin.alike:
            continue
        least = LEAST_SHARED_KNOWN if one.marginals.samples else LEAST_SHARED
        if not labelled and kin.shared < max(best, least * kin.coverage):
            continue
        if _differ(one, standardiser, new, kin.likely, labelled):
            continue
        found, best = one.sub_task, kin.shared
        if labelled:
            break
    return found


class Newcomers(NamedTuple):
    """A model's scores of samples that came after a change."""

    x: Tensor  # (N, D) in the sender's units, extreme values cut off
    codes: Tensor  # (N,) int64
    winners: Tensor  # (N,) int64, the component on which each falls
    log_likelihood: Tensor  # (N,) float64, nats in the sender's units
    first: int  # place of the first that is sure to have come after the change

    @classmethod
    def of(
        cls, model: Model, standardiser: Standardiser, x: Tensor, codes: Tensor, newest: int
    ) -> Newcomers:
        """Ask the model; arguments as of `recurring`."""
        scaled = standardiser.apply(x)
        joint, log_likelihood = model.density.score(scaled)
        clipped = standardiser.invert(standardiser.clipped(scaled))
        log_likelihood = log_likelihood.double() - standardiser.log_volume
        first = max(0, len(x) - max(1, newest))
        return cls(clipped, codes.to(x.device), joint.argmax(-1), log_likelihood, first)

    def since(self, chosen: Tensor) -> Tensor:
        """Places, with shape (n,), of chosen samples that are sure to have come after the change.

        Arguments:
            chosen: With shape (N,), bool.
        """
        places = chosen.nonzero()[:, 0]
        return places[places >= self.first]


class Kinship(NamedTuple):
    """The likeness of samples to an earlier sub-task, by the current model."""

    likely: Tensor  # (N,) bool, whether each is as likely as data of that sub-task
    alike: bool  # whether those that are as likely are so on average
    shared: float  # share that falls on components of that sub-task, 0 to 1
    coverage: float  # share of its own data that would, by what its drawn samples show

    @classmethod
    def of(
        cls, one: RetentionSet, model: Model, standardiser: Standardiser, new: Newcomers
    ) -> Kinship:
        """Ask about samples of the sub-task beside the new ones."""
        joint, own = model.density.score(standardiser.apply(one.features.float()))
        # What is learned later takes its share of the mixture, and moves all likelihoods alike.
        # Where components have changed since, samples that they drew have become less likely than
        # data have: the truth lies between that and no change.
        moved = float((own - standardiser.log_volume - one.then.log_likelihood).double().mean())
        lowest, highest = one.level.mean + min(0.0, moved), one.level.mean + max(0.0, moved)
        far, log_likelihood = FAR * one.level.deviation, new.log_likelihood
        likely = (log_likelihood >= lowest - far) & (log_likelihood <= highest + far)
        rows = new.since(likely)
        mean = float(log_likelihood[rows].mean()) if len(rows) else math.nan
        near = (NEAR + FAR / math.sqrt(max(1, len(rows)))) * one.level.deviation
        winners = joint.argmax(-1)
        hits = torch.bincount(winners, minlength=joint.shape[1])
        shared = float((hits[new.winners] > 0).double().mean())
        # What another sample like them would fall on is known but for a share of about as many
        # as are alone on their component (Good 1953).
        coverage = 1 - int((hits == 1).sum()) / len(winners)
        return cls(likely, lowest - near <= mean <= highest + near, shared, coverage)


def _differ(
    one: RetentionSet, standardiser: Standardiser, new: Newcomers, likely: Tensor, labelled: bool
) -> bool:
    """Whether features are distributed otherwise than in an earlier sub-task.

    Nothing is known of that where nothing was remembered: samples are too wide, or the sub-task
    is of an earlier release.
    """
    if not one.marginals.samples:
        return False
    rows = new.since(likely)  # a few may be outliers
    known = _moved(one, new.codes[rows]) if labelled else None
    return one.marginals.differ(new.x[rows], standardiser.scale, known)


def _moved(one: RetentionSet, codes: Tensor) -> Moved | None:
    """What shares of classes other than the sub-task's have moved, by its drawn samples.

    Arguments:
        codes: Classes of the new samples, with shape (n,), int64.
    """
    known = torch.unique(one.codes)
    members = (codes[:, None] == known.to(codes.device)).double().sum(0)  # (C,)
    # Of more classes than samples are kept those of the first codes are left.
    counts = one.class_counts[: len(known)]
    then = torch.tensor(counts, dtype=torch.float64, device=members.device)
    if not float(members.sum()) or not float(then.sum()):
        return None
    change = members / members.sum() - then / then.sum()
    places = torch.searchsorted(known, one.codes)
    return one.marginals.moved(one.features.double(), places, change)


def mostly_labelled(codes: Tensor) -> bool:
    """Whether labels speak for all samples.

    Arguments:
        codes: Their classes, with shape (N,), int64; `UNLABELLED` where unknown.
    """
    return int((codes != UNLABELLED).sum()) >= LEAST_LABELLED * max(1, len(codes))


def _of_classes(sets: Sequence[RetentionSet], codes: Tensor) -> list[RetentionSet]:
    """Past sub-tasks with the classes of these samples: fewest classes first, then the latest."""
    fitting = []
    for one in sets:
        known = torch.unique(one.codes[one.codes != UNLABELLED]).to(codes.device)
        back = float(torch.isin(known, torch.unique(codes)).double().mean()) if len(known) else 0
        if (
            float(torch.isin(codes, known).double().mean()) >= 1 - MOST_OTHERS
            and back >= LEAST_BACK
        ):
            fitting.append((len(known), one))
    return [one for _, one in sorted(fitting, key=lambda each: (each[0], -each[1].sub_task))]
