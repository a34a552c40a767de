"""The explanation of a boundary, by the model of before and the samples that are new to it.

Nothing of the sub-task before is needed but what the model itself holds of it: a component
knows what its own samples look like, the counts say which classes there were, and running
numbers say how likely data were.

Rules of this module:

1. Plain values only: what is returned is ready for JSON, and all of it is finite.
2. No raw sample gets out. A prototype is the mean of ten samples at least.
3. The cost is bounded, whatever the number of samples, features and components: at most
   `MOST_SAMPLES` are looked at, evenly taken from all that are new.
4. Randomness is its own: a model learns the same, bit for bit, whether or not it is explained.

Throughout: N samples, D features, K components, C classes; log-likelihoods in nats, and all
that is told of features, in the sender's units.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from core.batch import UNLABELLED, Batch
from core.density.diagonal.seeding import FEWEST_COPIES, k_means_plus_plus
from core.drift.detector import Cause, Verdict
from core.engine.inliers import Inliers
from core.engine.state import EngineState
from core.learners.learner import Scores
from core.memory.course import Course, critical
from core.model.model import Model
from core.running import Running
from core.standardiser import Standardiser

MOST_SAMPLES = 1000
"""Looked at. A mean over them is known to three hundredths of a deviation."""

MOST_ENTRIES = 2**18
"""Of features, looked at in one go: overlapping patches take some fifty times as much memory."""

MOST_FEATURES = 4096
"""Up to which prototypes and the contribution of every feature are told."""

MOST_NAMED = 10
"""Features, components and classes that are named, the strongest first."""

BY_CHANCE = 0.01
"""How often any feature at all may be named where none has changed."""

EVIDENT_SHARE = 0.1
"""Share of the evidence of a boundary that is enough to say that a feature has changed."""

LEAST_SHARE = 1e-12
"""Of the largest one, of whatever has changed: it is told, however much more another has."""

CLEAR_FALL = 5.0
"""Standard errors of the fall of the likelihood at which it counts as much as sizes of changes."""

MOST_ERRORS = 1e100
"""What a change counts as where the terms of a feature overflow."""

TERM_VARIANCE = 0.5
"""Of a feature's term among samples of its component, in squared nats: that of half a squared
standard normal. A few samples may happen to be alike, and show less."""

MOST_GROUPS = 4
ROUNDS = 10
DIGITS = 5

VALUE_DIGITS = 9
"""Of values of a feature: as many as samples have. Seconds of a clock differ in the last ones."""

HEAVY = ("prototypes", "contributions")
"""Parts that grow with D: whoever lists many boundaries leaves them out."""


def explain(
    model: Model | None,
    state: EngineState,
    batches: Sequence[Batch],
    verdict: Verdict | None,
    inliers: Inliers,
) -> dict[str, Any]:
    """What changed, as far as there are data to tell; nothing where there are none.

    Arguments:
        model: Before the change; None where nothing was learned.
        state: The engine's, before the boundary is crossed.
        batches: New samples: those set aside, and the one that decided it.
        verdict: Of the detector; None when a person declared the boundary.
        inliers: Say which samples are none of the outliers.

    Returns:
        `samples` (all that are new) and `examined`; the size of the change; `features`,
        `components` and `classes`, at most ten of each; and for D up to `MOST_FEATURES`
        `prototypes` and the `contributions` of all D features; where labels mean something
        else, `labels`. docs/detector.md has the meaning of each.
    """
    if model is None or not batches:
        return {}
    standardiser = state.standardiser
    raw = evenly([batch.features for batch in batches], MOST_SAMPLES)
    x = standardiser.apply(raw)
    joint, log_likelihoods = model.density.score(x)
    of_sub_task = state.sub_task.log_likelihood
    known = of_sub_task if of_sub_task.weight else state.past.log_likelihood
    among = inliers.among(state, Scores(x, None, joint, log_likelihoods))
    explanation: dict[str, Any] = {
        "samples": sum(map(len, batches)),
        "examined": len(x),
        **_size(log_likelihoods - standardiser.log_volume, known, among),
    }
    if verdict is not None and verdict.p_value is not None:
        explanation["p_value"] = verdict.p_value
    feature_shares = verdict.feature_shares if verdict is not None else ()
    explanation |= _features(model, standardiser, x, raw, feature_shares, state.sub_task.course)
    counts = _own_counts(state)
    explanation["components"] = _components(model, joint, counts, max(1, _own_samples(state)))
    explanation["classes"] = _classes(model, state, joint, counts)
    if verdict is not None and verdict.cause is Cause.LABELS:
        codes = evenly([state.model.codes_of(batch) for batch in batches], MOST_SAMPLES)
        explanation["labels"] = _labels(model, state, joint, codes)
    if x.shape[1] <= MOST_FEATURES:
        seed = zlib.crc32(f"explanation {state.sub_task.number}".encode())
        explanation["prototypes"] = prototypes(x, raw, torch.Generator().manual_seed(seed))
    return explanation


# The size of the change -------------------------------------------------------------------


def _size(log_likelihoods: Tensor, known: Running, inliers: Tensor) -> dict[str, float | None]:
    values = log_likelihoods.double()
    now, deviation = float(values.mean()), known.deviation
    if not known.weight:
        return {"log_likelihood_now": _rounded(now)}
    return {
        "log_likelihood_before": _rounded(known.mean),
        "log_likelihood_deviation": _rounded(deviation),
        "log_likelihood_now": _rounded(now),
        "effect": _rounded((now - known.mean) / deviation) if deviation else None,
        "inliers": _rounded(float(inliers.double().mean())),
    }


# Features ---------------------------------------------------------------------------------


def _features(
    model: Model,
    standardiser: Standardiser,
    x: Tensor,
    raw: Tensor,
    feature_shares: Sequence[float],
    course: Course,
) -> dict[str, Any]:
    """Find the features that have changed beyond their sampling error, and what the model expected.

    Likelihoods alone do not say that: a model that knows what has come back finds it as likely as
    ever, and a feature whose readings have come closer to their mean is likelier than before while
    others fall.

    Arguments:
        feature_shares: What the detector says of that, with D values, if it has looked at
            single features.
        course: What is known of features in the sub-task that ends.
    """
    n, d = x.shape
    change, squares, centres = x.new_zeros(3, d, dtype=torch.float64)
    of_samples = list[Tensor]()
    for part in torch.split(x, max(1, MOST_ENTRIES // d)):
        seen = model.density.feature_terms(part)
        missing = (seen.expected - seen.terms).double()
        change, squares = change + missing.sum(0), squares + missing.square().sum(0)
        of_samples.append(missing.sum(1))
        centres += seen.centres.double().sum(0)
    change, squares, centres = change / n, squares / n, centres / n
    sizes = course.changed(raw, BY_CHANCE)
    if sizes is None or (course.depends and not bool((sizes > 0).any())):
        # Little is known of the sub-task that ends but what the model expects; or features come
        # and go by the hour, so that a few samples in a row say nothing of one by itself.
        error = (squares - change.square()).clamp_min(TERM_VARIANCE).sqrt() / max(1, n - 1) ** 0.5
        sizes = (change.abs() / error).nan_to_num(posinf=MOST_ERRORS).cpu()
        sizes = torch.where(sizes > critical(BY_CHANCE / d, n - 1), sizes, 0)
    shares = with_likelihood(shares_of_change(sizes), change.cpu(), torch.cat(of_samples).cpu())
    shares = with_evidence(shares, feature_shares)
    strongest = shares.topk(min(MOST_NAMED, d)).indices
    expected = standardiser.invert(centres[None].to(x))[0]
    means, deviations = (
        raw.double().mean(0).cpu(),
        (raw - raw[0]).double().std(0, correction=0).cpu(),
    )
    usual = course.moments()
    explanation: dict[str, Any] = {
        "feature_drop": _rounded(float(change.sum())),
        "features": [
            {
                "feature": index,
                "share": _rounded(float(shares[index])),
                "mean": _rounded(float(means[index]), VALUE_DIGITS),
                "expected": _rounded(float(expected[index]), VALUE_DIGITS),
                "before": None if usual is None else _rounded(float(usual[0][index]), VALUE_DIGITS),
                "deviation_before": None if usual is None else _rounded(float(usual[1][index])),
                "deviation_now": _rounded(float(deviations[index])),
            }
            for index in strongest.tolist()
            if float(shares[index]) > 0
        ],
    }
    if d <= MOST_FEATURES:
        explanation["contributions"] = [_rounded(share) for share in shares.tolist()]
    return explanation


def shares_of_change(sizes: Tensor) -> Tensor:
    """Each feature's share of the change: parts of a chi-square, with shape (D,), float64.

    Arguments:
        sizes: Changes in sampling errors, with shape (D,); 0 where a feature may be as before.

    Returns:
        All of 1, or zeros where nothing has changed; above 0 for whatever has changed.

    Example:
        >>> shares_of_change(torch.tensor([0.0, 0.0, 4.0, 8.0]).double()).tolist()
        [0.0, 0.0, 0.2, 0.8]
    """
    largest = float(sizes.max()) or 1.0
    squares = (sizes / largest).square().clamp_min(LEAST_SHARE)
    return _normalised(torch.where(sizes > 0, squares, 0).double())


def with_evidence(shares: Tensor, evidence: Sequence[float]) -> Tensor:
    """Shares, with features that only the detector finds, with shape (D,), float64.

    A feature may have changed given the others and be by itself as before: where it has a tenth of
    the evidence or more, it has that share of the change, and the others the rest.

    Arguments:
        shares: Of the change, with shape (D,); 0 where a feature may be as before.
        evidence: Shares of features in the detector's evidence, D values, or none.

    Example:
        >>> with_evidence(torch.tensor([0.0, 1.0]).double(), (0.5, 0.5)).tolist()
        [0.5, 0.5]
    """
    if not evidence:
        return shares
    found = torch.tensor(evidence, dtype=torch.float64)
    only = torch.where((found >= EVIDENT_SHARE) & (shares <= 0), found, 0)
    return _normalised(only + (1 - only.sum()).clamp_min(LEAST_SHARE) * shares)


def with_likelihood(shares: Tensor, change: Tensor, of_samples: Tensor) -> Tensor:
    """Shares of features that have changed, by their likelihood where that is what has changed.

    Of samples that the model finds less likely than it should, the likelihood says which features
    make them so. Of samples that it knows it says nothing, and sizes of changes are all there is.
    In between both count.

    Arguments:
        shares: By the sizes of changes, with shape (D,); 0 where nothing has changed.
        change: Nats by which the term of each feature lies below what was expected, (D,).
        of_samples: The sum of this for each sample, with shape (N,).

    Example:
        >>> shares = torch.tensor([0.2, 0.8, 0.0]).double()
        >>> change = torch.tensor([9.0, -1.0, 5.0]).double()
        >>> with_likelihood(shares, change, torch.full((300,), 13.0)).tolist()  # all as far
        [0.9, 0.1, 0.0]
        >>> with_likelihood(shares, change, torch.full((300,), -13.0)) is shares
        True
    """
    n, fall = len(of_samples), float(of_samples.mean())
    variance = float(of_samples.var(correction=0)) / max(1, n - 1)
    terms = torch.where(shares > 0, change.abs(), 0)
    if fall <= 0 or not bool(terms.any()):
        return shares
    weight = fall**2 / (fall**2 + CLEAR_FALL**2 * variance)
    both = weight * _normalised(terms) + (1 - weight) * shares
    return _normalised(torch.where(shares > 0, both.clamp_min(LEAST_SHARE), 0))


def _normalised(values: Tensor) -> Tensor:
    return values / values.sum().clamp_min(torch.finfo(torch.float64).tiny)


# Components and classes -------------------------------------------------------------------


def _own_counts(state: EngineState) -> Tensor:
    """Labelled samples of the sub-task that ends, per class, with shape (C,), float64."""
    earlier = state.past.retention.class_counts
    padded = (*earlier, *(0 for _ in state.model.class_counts[len(earlier) :]))
    counts = [
        max(0, now - then) for now, then in zip(state.model.class_counts, padded, strict=True)
    ]
    return torch.tensor(counts, dtype=torch.float64)


def _own_samples(state: EngineState) -> int:
    return state.model.samples_seen - state.past.retention.samples_seen


def _components(
    model: Model, joint: Tensor, counts: Tensor, samples: int
) -> list[dict[str, int | float]]:
    """Which components fill and which drain: those that stand out most."""
    before = _shares(model, counts)
    k, n = len(before), len(joint)
    now = joint.argmax(-1).cpu().bincount(minlength=k).double()
    change = signed_roots(now, before * samples)
    order = change.abs().argsort(descending=True, stable=True)[:MOST_NAMED]
    return [
        {
            "component": index,
            "before": _rounded(float(before[index])),
            "now": _rounded(float(now[index]) / n),
            "change": _rounded(float(change[index])),
        }
        for index in order.tolist()
        if float(change[index])
    ]


def expected_shares(model: Model, state: EngineState) -> Tensor | None:
    """Shares of the sub-task's samples on each component, as expected, with shape (K,), float64.

    None where nobody knows which components were its own: no label came, and others came before.
    """
    counts = _own_counts(state)
    if state.sub_task.number and not float(counts.sum()):
        return None
    return _shares(model, counts)


def _shares(model: Model, counts: Tensor) -> Tensor:
    log_weights = model.density.log_weights
    before = log_weights.exp().double().cpu()
    if model.n_classes == len(counts) and float(counts.sum()) > 0:
        # Of all that is known, only some classes were shown lately.
        signal = model.readout.control_signal(log_weights).double().cpu()
        before = (counts / counts.sum()) @ signal
    return before / before.sum()


def signed_roots(now: Tensor, before: Tensor) -> Tensor:
    """Root of each cell's part of a two-sample chi-square, negative where it drains.

    Arguments:
        now: Counts of the new samples, with shape (K,).
        before: Counts, or expected counts, of those before, with shape (K,).

    Returns:
        With shape (K,); 0 where nothing was counted on either side.

    Example:
        >>> signed_roots(torch.tensor([30.0, 0.0, 0.0]), torch.tensor([15.0, 15.0, 0.0]))
        tensor([ 2.2361, -3.8730,  0.0000])
    """
    n, m = now.sum(), before.sum()
    apart = (m / n).sqrt() * now - (n / m).sqrt() * before
    both = now + before
    return torch.where(both > 0, apart / both.clamp_min(1e-12).sqrt(), 0)


def _classes(
    model: Model, state: EngineState, joint: Tensor, counts: Tensor
) -> list[dict[str, Any]]:
    """Which classes the model takes the new samples for, and which were shown before.

    Where no label came before, nobody knows which those were: the model may know none of them.
    """
    if not model.n_classes:
        return []
    now = model.readout.class_probabilities(joint).double().mean(0).cpu()
    labelled = float(counts.sum())
    before = counts / labelled if labelled else torch.zeros_like(now)
    order = (now - before).abs().argsort(descending=True, stable=True)[:MOST_NAMED]
    return [
        {
            "label": state.model.classes[code],
            "before": _rounded(float(before[code])) if labelled else None,
            "now": _rounded(float(now[code])),
        }
        for code in order.tolist()
    ]


def _labels(model: Model, state: EngineState, joint: Tensor, codes: Tensor) -> list[dict[str, Any]]:
    """What samples were called before, and are called now, where that differs.

    Arguments:
        codes: Of the samples, with shape (N,), int64, on the CPU.
    """
    if not model.n_classes:
        return []
    before = model.readout.class_probabilities(joint).argmax(-1).cpu()
    named = (codes != UNLABELLED) & (codes < model.n_classes)
    pairs = before[named] * model.n_classes + codes[named]
    counts = torch.bincount(pairs, minlength=model.n_classes**2).view(model.n_classes, -1)
    counts.fill_diagonal_(0)
    order = counts.flatten().argsort(descending=True, stable=True)[:MOST_NAMED]
    return [
        {
            "before": state.model.classes[pair // model.n_classes],
            "now": state.model.classes[pair % model.n_classes],
            "samples": int(counts.flatten()[pair]),
        }
        for pair in order.tolist()
        if counts.flatten()[pair] > 0
    ]


# Prototypes -------------------------------------------------------------------------------


def prototypes(x: Tensor, raw: Tensor, generator: torch.Generator) -> list[dict[str, Any]]:
    """What the new samples look like: the means of a few groups, the largest first.

    Groups come from k-means (Lloyd 1982) after a k-means++ start; one of fewer than ten
    samples is dissolved into the others, so that no mean gives a sample away. Fewer than ten
    samples in all have no prototype.

    Arguments:
        x: Samples as the model sees them, with shape (N, D).
        raw: The same in the sender's units.
        generator: On the CPU.

    Returns:
        `samples` and `features` (rounded) of at most four groups.
    """
    fewest = int(FEWEST_COPIES)
    k = min(MOST_GROUPS, len(x) // fewest)
    if k < 1:
        return []
    centres = x[k_means_plus_plus(x, k, generator)]
    for _ in range(ROUNDS):
        # As a matrix product, because adding rows up by index is in no fixed order on a GPU.
        members = torch.nn.functional.one_hot(_nearest(x, centres), len(centres)).to(x)
        sizes = members.sum(0)
        centres = ((members.T @ x) / sizes.clamp_min(1)[:, None])[sizes > 0]
    while True:
        groups = _nearest(x, centres)
        sizes = groups.bincount(minlength=len(centres))
        smallest = int(sizes.argmin())
        if int(sizes[smallest]) >= fewest:
            break
        # One group alone has all N, at least ten: this ends.
        centres = torch.cat([centres[:smallest], centres[smallest + 1 :]])
    order = sizes.argsort(descending=True, stable=True).tolist()
    return [
        {
            "samples": int(sizes[group]),
            "features": [
                _rounded(value) for value in raw[groups == group].double().mean(0).tolist()
            ],
        }
        for group in order
    ]


def _nearest(x: Tensor, centres: Tensor) -> Tensor:
    """Index of the nearest centre of each sample, with shape (N,), int64."""
    return torch.addmm(centres.square().sum(-1), x, centres.T, alpha=-2).argmin(-1)


def evenly(parts: Sequence[Tensor], most: int) -> Tensor:
    """At most so many rows of all parts together, evenly from first to last."""
    n = sum(map(len, parts))
    if n <= most:
        return torch.cat(list(parts))
    wanted = torch.arange(most) * n // most
    taken, begin = [], 0
    for part in parts:
        own = wanted[(wanted >= begin) & (wanted < begin + len(part))] - begin
        taken.append(part[own.to(part.device)])
        begin += len(part)
    return torch.cat(taken)


def _rounded(value: float, digits: int = DIGITS) -> float:
    """To a few significant digits, within what JSON can say."""
    largest = 1.7e308
    return (
        float(f"{max(-largest, min(largest, value)):.{digits}g}") if not math.isnan(value) else 0.0
    )
