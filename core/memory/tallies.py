"""What a batch of answers adds to sums in bins and per class: compiled loops.

There are some tens of numbers and a hundred samples. An operation on a tensor takes many times as
long to begin as to do.

Throughout: N samples, B bins of confidence, C classes. Arrays are changed where they are, so
whoever calls this has made copies.
"""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from core.compiled.loops import Array, compiled

LEAST = 1e-3
"""Share of a bin that is right, or wrong, at least, where an offset is looked for."""

MOST_STEPS = 50
"""Of Newton's method, each at most 1: an offset is some twenty at most."""

NEAR = 1e-9
"""Step that is no longer worth the next."""


def array(values: Tensor) -> Array:
    """Numbers on the CPU as the loops take them, in one piece."""
    return np.ascontiguousarray(values.numpy())


@compiled
def bin_of(confidence: float, edges: Array) -> int:
    """The bin of a confidence, 0 to B - 1, between edges with shape (B - 1,)."""
    found = 0
    while found < len(edges) and confidence >= edges[found]:
        found += 1
    return found


@compiled
def add_answers(
    confidence: Array,
    edges: Array,
    codes: Array,
    unnamed: Array,
    labelled: Array,
    counted: Array,
    hits: Array,
    weight: float,
    kept: float,
    bins: Array,
    answers: Array,
) -> None:
    """Add N answers, given as in `core.memory.reliability.Answered`.

    Arguments:
        edges: Of bins.
        kept: What stays of the labelled answers of a class with each that comes, 0 to 1.
        bins: Samples, those that count, and of these the hits, with shape (3, B).
        answers: Samples without a label, how far they lie on unnamed components, and how many they
            ever were; those with one, and how far these lie there; per class, weighed, with shape
            (C, 5).
    """
    for i in range(len(codes)):
        place, code = bin_of(confidence[i], edges), codes[i]
        bins[0, place] += 1
        if counted[i]:
            bins[1, place] += 1
            bins[2, place] += hits[i]
        if labelled[i]:
            answers[code, 3] = answers[code, 3] * kept + weight
            answers[code, 4] = answers[code, 4] * kept + weight * unnamed[i]
        else:
            answers[code, 0] += weight
            answers[code, 1] += weight * unnamed[i]
            answers[code, 2] += weight


@compiled
def shares_of(counts: Array, hits: Array, prior: float, offset: float) -> Array:
    """How often answers of each bin are right, with shape (B,).

    Arguments:
        counts: Labelled samples per bin, with shape (B,).
        hits: Of those, the ones that were named rightly.
        prior: Samples of the mean accuracy that each bin begins with.
        offset: What is added to the log-odds.
    """
    mean = hits.sum() / max(counts.sum(), 1e-12)
    shares: Array = (hits + prior * mean) / (counts + prior)
    odds = shares * math.exp(offset)
    shares = odds / (odds + 1 - shares)
    return shares


@compiled
def mean_shares(counts: Array, hits: Array, prior: float, offsets: Array) -> Array:
    """The same, as the mean over offsets by their weights, given as for `follow`."""
    shares = np.zeros(len(counts))
    for i in range(len(offsets)):
        shares += offsets[i, 2] * shares_of(counts, hits, prior, offsets[i, 0])
    # Weights sum to one but for rounding.
    return np.minimum(shares, 1.0)


@compiled
def follow(
    came: Array,
    right: Array,
    counts: Array,
    hits: Array,
    prior: float,
    offsets: Array,
    variances: Array,
    kept: float,
    staying: float,
) -> None:
    """Correct offsets by what labels say, and weigh the filters by how well they foretold it.

    Each offset becomes the most probable one (posterior mode filtering, Fahrmeir 1992), which
    Newton's method finds: the posterior has one peak.

    Arguments:
        came: New labelled samples per bin, with shape (B,).
        right: Of those, the ones that were named rightly.
        counts: Labelled samples per bin before them, as for `shares_of`.
        hits: Likewise.
        prior: Likewise.
        offsets: Per filter the offset, its variance and the weight, with shape (F, 3); changed.
        variances: Of the offset where no label has told of it, with shape (F,), above 0.
        kept: Share of an offset that is not forgotten.
        staying: Share of the weights that stays where it is.
    """
    # No offset moves a share of 0 or 1, and nothing that was always right must stay so.
    shares = np.minimum(np.maximum(shares_of(counts, hits, prior, 0.0), LEAST), 1 - LEAST)
    log_odds = np.log(shares / (1 - shares))
    best = -np.inf
    for i in range(len(offsets)):
        before = offset = offsets[i, 0] * kept
        spread = offsets[i, 1] * kept**2 + variances[i] * (1 - kept**2)
        shares = 1 / (1 + np.exp(-log_odds - offset))
        told = (right * np.log(shares) + (came - right) * np.log(1 - shares)).sum()
        for _ in range(MOST_STEPS):
            slope = (right - came * shares).sum() - (offset - before) / spread
            curve = (came * shares * (1 - shares)).sum() + 1 / spread
            step = min(max(slope / curve, -1.0), 1.0)
            offset += step
            shares = 1 / (1 + np.exp(-log_odds - offset))
            if abs(step) < NEAR:
                break
        offsets[i, 0] = offset
        offsets[i, 1] = 1 / ((came * shares * (1 - shares)).sum() + 1 / spread)
        offsets[i, 2] = np.log(offsets[i, 2]) + told
        best = max(best, offsets[i, 2])
    offsets[:, 2] = np.exp(offsets[:, 2] - best)
    offsets[:, 2] *= staying / offsets[:, 2].sum()
    offsets[:, 2] += (1 - staying) / len(offsets)


@compiled
def expected_hits(
    recent: Array, counts: Array, shares: Array, prior: float, offsets: Array
) -> tuple[float, float, float]:
    """The expected accuracy of recent samples, and its variance.

    Arguments:
        recent: Samples per bin, with shape (B,); there are some.
        counts: Labelled samples per bin.
        shares: How often answers of each are right, as `mean_shares` says.
        prior: As for `shares_of`.
        offsets: As for `follow`.

    Returns:
        The accuracy; its variance by what bins and offsets are known by; and that of one sample,
        by chance.
    """
    n = recent.sum()
    accuracy, known, chance = 0.0, 0.0, 0.0
    for place in range(len(recent)):
        share = shares[place]
        weight, of_one = recent[place] / n, share * (1 - share)
        accuracy += weight * share
        known += weight * weight * of_one / (counts[place] + prior)
        chance += weight * of_one
    mean = (offsets[:, 2] * offsets[:, 0]).sum()
    unsure = (offsets[:, 2] * (offsets[:, 1] + (offsets[:, 0] - mean) ** 2)).sum()
    # A small offset of log-odds moves the accuracy by the mean variance of an answer.
    return min(accuracy, 1.0), known + chance**2 * unsure, chance


@compiled
def _excess(of_class: Array, learned: float, prior: float) -> float:
    """Share of a class's unlabelled answers on unnamed components that nothing explains, up to 1.

    Arguments:
        of_class: As for `add_answers`, with shape (5,).
        learned: Labelled samples learned of it.
        prior: As for `unseen_shares`.
    """
    n, lies, alone, labelled, labelled_lies = of_class
    # Where labels come, samples with one lie there as often as others of their class.
    explained = alone / max(alone + learned, 1.0)
    expected = (labelled_lies + prior * explained) / (labelled + prior)
    if n <= 0 or expected >= 1:
        return 0.0
    excess: float = (lies / n - expected) / (1 - expected)
    return excess


@compiled
def unseen_shares(
    answers: Array, learned: Array, total: float, most: float, prior: float, sure: float
) -> tuple[float, float]:
    """Share of the newest samples that must be of no known class, and that may well be.

    Arguments:
        answers: As for `add_answers`, with shape (C, 5).
        learned: Labelled samples learned of each class, with shape (C,).
        total: The newest samples, with a label or without.
        most: Excess up to which a class counts as whole.
        prior: Labelled samples that what the numbers of samples explain counts as.
        sure: Part of `most` that holds where there are many labelled samples, 0 to 1.
    """
    least, may = 0.0, 0.0
    for code in range(len(answers)):
        n, lies, _, labelled, _ = answers[code]
        excess = _excess(answers[code], learned[code], prior)
        if excess <= 0:
            continue
        found = lies / n
        # Labelled samples tell more surely how many are to be expected than numbers of samples.
        if excess > most * (prior + labelled * sure) / (prior + labelled):
            least += n / total * min(excess, 1.0)
            may += n / total * min(found, 1.0)
    return least, may


@compiled
def as_before(
    answers: Array, usual: Array, learned: Array, prior: float, part: float, errors: float
) -> tuple[bool, bool, float]:
    """Whether known classes may have moved together to components without a name.

    Then the newest unlabelled samples are called by each class as often as labelled ones were. A
    class that is new is called by one class, or a few, and these come more often than before. The
    distance of shares is that of total variation.

    Arguments:
        answers: As for `add_answers`, with shape (C, 5).
        usual: The newest labelled samples that were called by each class, with shape (C,).
        learned: Labelled samples learned of each class, with shape (C,).
        prior: As for `unseen_shares`.
        part: Of the distance that samples of a single class would make, up to which shares are
            those of before, 0 to 1.
        errors: By how many times the distance that chance makes it may be more.

    Returns:
        Whether all answers are shared among the classes as before; whether those that lie there
        beyond what is to be expected are; and the distance of all beyond that by chance, 0 to 1:
        where classes come as often as before, as many answers are wrong at least.
    """
    before, now = usual.sum(), answers[:, 0].sum()
    if len(answers) < 2 or before <= 0 or now <= 0:
        return False, False, 0.0
    shares = usual / before
    chance = np.sqrt(shares * (1 - shares) / (2 * math.pi) * (1 / before + 1 / now)).sum()
    beyond = np.zeros(len(answers))
    for code in range(len(answers)):
        beyond[code] = answers[code, 0] * max(0.0, _excess(answers[code], learned[code], prior))
    lie = beyond.sum()
    if lie <= 0:
        return False, False, 0.0
    far = part * (1 - shares.max())
    moved = 0.5 * np.abs(answers[:, 0] / now - shares).sum()
    spread = 0.5 * np.abs(beyond / lie - shares).sum()
    possible = moved <= far * lie / now + errors * chance
    return possible, spread <= far, max(0.0, moved - chance)


@compiled
def add_class_sums(codes: Array, truths: Array, values: Array, last: int, sums: Array) -> None:
    """Add N answers to sums of classes, with shape (C, 4), as `core.memory.class_shares` has them.

    Arguments:
        codes: Classes that were named, with shape (N,), int64; those beyond `last` are that one.
        truths: Classes by their labels, likewise; below 0 without one.
        values: Log-likelihoods, with shape (N,).
        last: Of the classes that are told apart.
    """
    for i in range(len(codes)):
        code, truth, value = min(codes[i], last), min(truths[i], last), values[i]
        sums[code, 0] += 1
        if truth >= 0:
            sums[truth, 1] += 1
        sums[code, 2] += value
        sums[code, 3] += value * value
