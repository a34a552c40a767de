"""What components are called, and by whom: labels may change their meaning.

A component is of the class whose samples it was learned from. Where features stay as they are and
labels do not, that is no longer true, and its shape is still worth having: only its name is
wrong. Names are the shares of votes (`core.model.readout.class_shares`), and votes follow what
newer samples say, in two ways.

*Heard.* Every labelled sample votes, before it is learned, on the components on which it falls,
and a component remembers the last votes only. Two kinds of votes would make a class forgotten and
are not counted. Those on a class that does not come: it cannot defend itself, and samples of
another that fall at the edge of its components would take them over one by one. And those of a
class that is new, whose own components do not stand yet: its samples fall on others' for want
of better.

*Renamed.* At a boundary that labels brought (`core.drift.sequential.label_errors`), samples since
then say what each class that came before is called now. That holds for all of its components at
once, including those on which nothing has fallen yet, but lightly, so that the next votes can tell
where it holds in part.

Components of unlabelled samples belong to nobody, and take their names from the labelled samples
that fall on them. A few of those are *strays*: samples of a known class at the edge of another that
no label ever names. What votes there are is therefore compared with a baseline: the votes that a
class would have cast, had its samples fallen where the unlabelled ones did that came with them.

Throughout: N samples, K components, C classes.
"""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor

from core.density.grouping import Grouping
from core.density.owned import NO_CLASS
from core.model.readout import LEAST_VOTES, class_shares

F = TypeVar("F", float, Tensor)

STRAY = 0.5
"""Share of the votes of a class that would be expected, up to which those that came are strays: by
samples of another kind, at the edge of what they are like."""

LEAST_EXPECTED = 2.0
"""Votes that must be expected before that is said: by chance, none comes of two once in seven."""

FEW = 10.0
"""Unlabelled samples that come lately up to which they tell little of where samples fall."""

MEMORY = 20.0
"""Votes after which what a component remembers has faded to a third."""

MOST = 1 / (1 - math.exp(-1 / MEMORY))
"""Votes that it can remember: those of before it was first heard count as no more."""

RENAMED = 5.0
"""Votes that its new name counts as."""

PRIOR_SAMPLES = 2.0
"""Samples that the old name of a class counts as."""

LATELY = 400.0
"""Samples after which it has faded to a third how many of a class there were."""

COMING = 0.25
"""Part of an even share of them from which on a class counts as one that comes."""


def faded(recent: F, newer: F, n: int) -> F:
    """How many of the last samples are of some kind, with those among newer ones, spread evenly.

    Arguments:
        recent: The same before.
        newer: How many of the newer ones are.
        n: Newer samples, at least 1.
    """
    kept = math.exp(-n / LATELY)
    return recent * kept + newer * ((1 - kept) * LATELY / n)


def lately(recent: Tensor, codes: Tensor) -> Tensor:
    """Samples of each class among the last, faded, with shape (C,).

    Arguments:
        recent: The same before.
        codes: Classes of newer samples, spread evenly, with shape (N,), int64, N at least 1; -1
            for unlabelled.
    """
    # Not counted by `bincount`, for whose size a device would be waited for.
    counts = (codes[:, None] == torch.arange(len(recent), device=codes.device)).sum(0)
    return faded(recent, counts, len(codes))


def coming(recent: Tensor) -> Tensor:
    """Of which classes samples come, with shape (C,), bool, by `lately`."""
    shown = recent > 0
    return shown & (recent * int(shown.sum()) >= COMING * recent.sum())


def updated_baseline(
    vote_baseline: Tensor, falls: Tensor, said: Tensor, n: int, unlabelled: float
) -> Tensor:
    """The baseline of votes after newer samples, with shape (K, 1 + C).

    Arguments:
        vote_baseline: The same before: per component the last unlabelled samples that fell on it,
            and the votes of each class that would be expected.
        falls: Responsibilities of newer samples without a label, summed up, with shape (K,).
        said: Newer samples of each class that vote, with shape (C,).
        n: Newer samples, at least 1.
        unlabelled: Samples without a label among the last, these included: `faded`.
    """
    recent = faded(vote_baseline[:, :1], falls[:, None], n)
    return torch.cat([recent, vote_baseline[:, 1:] + recent / (unlabelled + FEW) * said], 1)


def naming(owner: Tensor, votes: Tensor, vote_baseline: Tensor) -> Tensor:
    """The votes that give components their names, with shape (K, C).

    Strays name none: on a component of nobody's the samples of some class must fall half as often
    as the unlabelled ones do that come with them. A class that few labels name is asked for as few.

    Arguments:
        owner: Of each component, with shape (K,), int64.
        votes: With shape (K, C).
        vote_baseline: By `updated_baseline`, with shape (K, 1 + C).
    """
    expected = vote_baseline[:, 1:]
    stray = (votes <= STRAY * expected).all(-1) & (expected.sum(-1) >= LEAST_EXPECTED)
    return votes.masked_fill(((owner == NO_CLASS) & stray)[:, None], 0.0)


def heard(
    votes: Tensor, owner: Tensor, shares: Tensor, classes: Tensor, listening: Tensor
) -> Tensor:
    """Votes with those of newer samples.

    One sample after the other: it does not matter how a stream is cut into batches.

    Arguments:
        votes: Samples per component and class so far, with shape (K, C).
        owner: Of each component, with shape (K,), int64.
        shares: Responsibilities of newer samples, in stream order, with shape (N, K).
        classes: One in the place of the class of each, with shape (N, C).
        listening: Classes whose components do, with shape (C,), bool.
    """
    mine = (listening[owner] & (owner != NO_CLASS))[:, None]
    so_far = shares.cumsum(0)
    remembered = MOST / votes.sum(-1, keepdim=True).clamp_min(MOST)
    kept = votes * remembered * (-so_far[-1:].T / MEMORY).exp()
    said = (shares * ((so_far - so_far[-1:]) / MEMORY).exp()).T @ classes
    return torch.where(mine, kept + said, votes)


def renamed(votes: Tensor, shares: Tensor, codes: Tensor, shown: Tensor) -> Tensor:
    """Votes after a change of what labels mean.

    Arguments:
        votes: Samples per component and class so far, with shape (K, C).
        shares: Responsibilities of samples since the change, with shape (N, K).
        codes: Their classes, with shape (N,), int64, below C.
        shown: Which classes may be called anything else, with shape (C,), bool.
    """
    names = class_shares(votes)
    classes = torch.nn.functional.one_hot(codes, votes.shape[1]).to(votes.dtype)
    same = torch.eye(votes.shape[1]).to(votes)
    meaning = (shares @ names).T @ classes + PRIOR_SAMPLES * same
    meaning = torch.where(shown[:, None], meaning / meaning.sum(-1, keepdim=True), same)
    total = votes.sum(-1, keepdim=True)
    asked = (names @ shown.to(names))[:, None] > 0.5
    return names @ meaning * torch.where(asked, total.clamp_max(RENAMED), total)


def by_nearest(votes: Tensor, owner: Tensor, means: Tensor, x: Tensor, said: Tensor) -> Tensor:
    """Votes of means of components without a class: each falls whole on the nearest of these.

    By distance, for a mean may well be likeliest under a broad neighbour; and whole, for a little
    of a vote would be all that some component ever hears, and give it the name.

    Arguments:
        votes: Samples per component and class so far, with shape (K, C).
        owner: Of each component, with shape (K,), int64.
        means: Of each, with shape (K, D).
        x: Means that vote, with shape (N, D).
        said: Samples that each stands for, in the place of its class, with shape (N, C).
    """
    nobody = (owner == NO_CLASS).nonzero()[:, 0]
    if not len(nobody) or not len(x):
        return votes
    nearest = nobody[torch.cdist(x, means[nobody]).argmin(1)]
    return Grouping(nearest, len(votes)).added(votes, said.to(votes))


def nameless(owner: Tensor, votes: Tensor) -> Tensor:
    """Which components are nobody's and have no votes, with shape (M,), int64, ascending.

    Arguments:
        owner: With shape (K,), int64.
        votes: That name them, with shape (K, C): `naming`.
    """
    return ((owner == NO_CLASS) & (votes.sum(-1) <= LEAST_VOTES)).nonzero()[:, 0]


def owners_by_name(votes: Tensor, owner: Tensor, pooled: Tensor) -> Tensor:
    """Whose components are, by what they are called: (K,), int64.

    Arguments:
        votes: With shape (K, C).
        owner: So far, with shape (K,), int64; those of nobody stay nobody's.
        pooled: Classes without components of their own, with shape (P,), int64.
    """
    if not votes.numel():
        return owner
    named = votes.argmax(-1)
    named = torch.where(torch.isin(named, pooled), NO_CLASS, named)
    return torch.where(owner == NO_CLASS, owner, named)
