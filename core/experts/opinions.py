"""What experts say of classes, made whole: compiled loops.

There are eleven experts, some classes and often a single sample: an operation on a tensor takes
many times as long to begin as to do.

Throughout: E experts, the mixture first; H horizons, N samples, D features, C classes. Arrays are
float64 unless told, and those that are named as found are changed where they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from core.compiled.loops import Array, compiled

AT_HOME = 0.25
"""Part of an even share of what an expert remembers that makes a class one it knows."""


@compiled
def mark_known(mass: Array, lasting: Array, found: Array) -> None:
    """Mark classes that an expert can tell; see `core.experts.fading.known`.

    Arguments:
        mass: Faded samples of each class, with shape (H, C).
        lasting: Horizons that never fade, with shape (H,), bool.
        found: With shape (H, C), bool.
    """
    for h in range(mass.shape[0]):
        total, shown = 0.0, 0
        for c in range(mass.shape[1]):
            total += mass[h, c]
            shown += mass[h, c] > 0
        for c in range(mass.shape[1]):
            at_home = mass[h, c] * shown >= AT_HOME * total
            found[h, c] = mass[h, c] > 0 and (at_home or lasting[h])


@compiled
def _may_name(known: Array) -> Array:
    """Classes that an expert may name, with shape (C,), bool: all while it knows none."""
    return known | (not known.any())


@compiled
def share_out(votes: Array, known: Array, doubt: float) -> None:
    """Make votes probabilities of known classes; rows sum to one.

    Arguments:
        votes: With shape (H, N, C), at least 0 and above it somewhere; found.
        known: With shape (H, C), bool.
        doubt: A vote that is shared evenly.
    """
    for h in range(votes.shape[0]):
        asked = _may_name(known[h])
        even = doubt / max(asked.sum(), 1)
        for i in range(votes.shape[1]):
            total = 0.0
            for c in range(votes.shape[2]):
                votes[h, i, c] = votes[h, i, c] + even if asked[c] else 0.0
                total += votes[h, i, c]
            for c in range(votes.shape[2]):
                votes[h, i, c] /= total


@compiled
def share_odds(found: Array, known: Array) -> None:
    """Make log-odds probabilities of known classes; rows sum to one.

    Arguments:
        found: With shape (H, N, C).
        known: With shape (H, C), bool.
    """
    for h in range(found.shape[0]):
        asked = _may_name(known[h])
        for i in range(found.shape[1]):
            best = -np.inf
            for c in range(found.shape[2]):
                if asked[c]:
                    best = max(best, found[h, i, c])
            total = 0.0
            for c in range(found.shape[2]):
                found[h, i, c] = math.exp(found[h, i, c] - best) if asked[c] else 0.0
                total += found[h, i, c]
            for c in range(found.shape[2]):
                found[h, i, c] /= total


@compiled
def weigh_distances(
    turned: Array, homes: Array, heights: Array, known: Array, found: Array
) -> None:
    """Posterior probabilities of known classes by one Gaussian each; rows sum to one.

    Arguments:
        turned: Whitened samples, with shape (N, H, C, D), or (N, H, 1, D) by a shared covariance.
        homes: Whitened means, with shape (H, C, D).
        heights: Log of prior and normaliser, up to a constant, with shape (H, C).
        known: With shape (H, C), bool.
        found: With shape (H, N, C).
    """
    shared = turned.shape[2] != homes.shape[1]
    for h in range(homes.shape[0]):
        asked = _may_name(known[h])
        for i in range(len(turned)):
            for c in range(homes.shape[1]):
                if not asked[c]:
                    continue
                own, home = turned[i, h, 0 if shared else c], homes[h, c]
                distance = 0.0
                for d in range(len(home)):
                    distance += (own[d] - home[d]) ** 2
                found[h, i, c] = heights[h, c] - 0.5 * distance
    share_odds(found, known)


@compiled
def _foresee(opinions: Array, weights: Array, lasting: Array, n_learned: int, base: Array) -> None:
    """Let whom nothing fades of say how likely classes are that the mixture does not know.

    Arguments:
        opinions: Of the other experts, with shape (E - 1, N, C); rows sum to one.
        weights: Of all experts, with shape (E,).
        lasting: With shape (E - 1,), bool.
        n_learned: How many classes the mixture knows, the first ones.
        base: What the mixture says, with shape (N, C); found.
    """
    total = weights[1:][lasting].sum()
    for i in range(len(base)):
        new = 0.0
        for c in range(n_learned, base.shape[1]):
            for e in range(len(opinions)):
                if lasting[e]:
                    base[i, c] += weights[1 + e] / total * opinions[e, i, c]
            new += base[i, c]
        for c in range(n_learned):
            base[i, c] *= 1 - new


@compiled
def _complete(opinion: Array, known: Array, base: Array, found: Array) -> None:
    """An opinion on all classes, with shape (C,), from one on known ones.

    Arguments:
        opinion: Probabilities of known classes, with shape (C,).
        known: With shape (C,), bool.
        base: What others say of all classes, with shape (C,).
        found: With shape (C,).
    """
    # Where others find a class likeliest that an expert does not know, it has nothing to say:
    # shared out, what they give to many classes together could outdo it.
    if not known[base.argmax()]:
        found[:] = base
        return
    given = 0.0
    for c in range(len(base)):
        given += base[c] if known[c] else 0.0
    for c in range(len(base)):
        found[c] = opinion[c] * given + (0.0 if known[c] else base[c])


@compiled
def _rename(names: Array, replaces: Array, found: Array) -> None:
    """Say of new names what is said of the classes that go by them, where it is.

    Of several new names of a class each gets as large a part as it has been given beside it.

    Arguments:
        names: Classes that are new names, with shape (M,), int64.
        replaces: Of each class the one that it replaces, with shape (C,), int64; -1 of none.
        found: What one expert says of one sample, with shape (C,).
    """
    # A new name may have got another one since: it takes as many rounds as there are in a row.
    for _ in range(len(names)):
        again = False
        for name in names:
            given, others, beside = found[replaces[name]], 0, 0.0
            if given <= 0:
                continue
            for other in names:
                if replaces[other] == replaces[name]:
                    others += 1
                    beside += found[other]
            for other in names:
                if replaces[other] == replaces[name]:
                    found[other] += given * (found[other] / beside if beside > 0 else 1 / others)
            found[replaces[name]], again = 0.0, True
        if not again:
            return


@compiled
def complete(
    opinions: Array,
    knows: Array,
    weights: Array,
    lasting: Array,
    replaces: Array,
    found: Array,
    called: Array,
) -> None:
    """Opinions of all experts on all classes; see `core.experts.panel.Rules.advice`.

    Arguments:
        opinions: Of all but the mixture, with shape (E - 1, N, C).
        knows: Which classes these know, with shape (E - 1, C), bool.
        weights: Of all experts, with shape (E,).
        lasting: Of whom nothing fades, with shape (E - 1,), bool.
        replaces: Of each class the one that it replaces, with shape (C,), int64; -1 of none.
        found: With shape (E, N, C); what the mixture says is there already.
        called: What the mixture and those of whom nothing fades call each sample, whatever goes by
            another name, with shape (N,), int64; found.
    """
    n_classes, names = found.shape[2], np.flatnonzero(replaces >= 0)
    total = weights[0] + weights[1:][lasting].sum()
    together, mixture = np.empty(n_classes), np.empty(n_classes)
    for i in range(found.shape[1]):
        mixture[:] = found[0, i]
        for c in range(n_classes):
            together[c] = weights[0] / total * mixture[c]
        _rename(names, replaces, found[0, i])
        for e in range(len(opinions)):
            if lasting[e]:
                _complete(opinions[e, i], knows[e], mixture, found[1 + e, i])
                for c in range(n_classes):
                    together[c] += weights[1 + e] / total * found[1 + e, i, c]
                _rename(names, replaces, found[1 + e, i])
        called[i] = together.argmax()
        _rename(names, replaces, together)
        for e in range(len(opinions)):
            if not lasting[e]:
                _complete(opinions[e, i], knows[e], together, found[1 + e, i])
                _rename(names, replaces, found[1 + e, i])


def completed(
    parts: Sequence[tuple[Tensor, Tensor]],
    mixture: Tensor,
    weights: Tensor,
    lasting: Tensor,
    n_classes: int,
    replaces: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Opinions of all experts on all classes, and two things whatever goes by another name.

    Arguments:
        parts: What experts say, with shape (H, N, C), and which classes they know, (H, C), bool.
            They may know of fewer classes, or of more: of the first ones.
        mixture: Probabilities of classes by the mixture, of the first ones; rows sum to one.
        weights: Of all experts, with shape (E,).
        lasting: Of whom nothing fades, with shape (E - 1,), bool.
        n_classes: C.
        replaces: Of each of the first classes the one that it replaces, int64; -1 of none.

    Returns:
        Opinions, with shape (E, N, C), float64; what the mixture says, with shape (N, C); and the
        class that it and those of whom nothing fades find likeliest, with shape (N,), int64.
    """
    n_samples, n_learned = mixture.shape
    of_experts = np.zeros((len(lasting), n_samples, n_classes))
    knows, begin = np.zeros((len(lasting), n_classes), np.bool_), 0
    for opinions, heard in parts:
        own, c = slice(begin, begin + len(heard)), min(heard.shape[1], n_classes)
        of_experts[own, :, :c], knows[own, :c] = opinions.numpy()[..., :c], heard.numpy()[:, :c]
        begin = own.stop
    found = np.zeros((len(weights), n_samples, n_classes))
    found[0, :, :n_learned] = mixture.numpy()
    believed, fades_never = weights.numpy(), lasting.numpy()
    if n_classes > n_learned:
        _foresee(of_experts, believed, fades_never, n_learned, found[0])
    of_mixture, called = found[0].copy(), np.zeros(n_samples, np.int64)
    names = np.full(n_classes, -1)
    names[: len(replaces)] = replaces.numpy()[:n_classes]
    complete(of_experts, knows, believed, fades_never, names, found, called)
    return torch.from_numpy(found), torch.from_numpy(of_mixture), torch.from_numpy(called)
