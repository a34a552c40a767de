"""Stepwise EM for owners whose windows are closed (Cappe & Moulines 2009).

Statistics are moved towards those of the newest samples by a rate that falls with the
samples behind an owner. Steps are counted in samples, not in batches, so that the size
of the batches hardly matters.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from core.density.diagonal.components import Components
from core.density.diagonal.seeding import next_to_samples
from core.density.grouping import Grouping
from core.density.mixture import log_joint, moments, responsibilities
from core.learners.learner import Scores
from core.learners.per_class.flat.state import LEAST_MASS, FlatState

STEP_SAMPLES = 100
"""Samples of one owner behind every M-step, however they are cut into batches."""

STEP_EXPONENT = 0.7
STEP_OFFSET = 2.0
"""The t-th M-step moves the statistics by (t + offset) ** -exponent."""

CHUNK = 512
"""Rows per E-step: between M-steps no more than this many samples share one posterior."""


def stepped(state: FlatState, x: Tensor, codes: Tensor, scores: Scores | None) -> FlatState:
    """With N samples learned of owners whose components stand on their own.

    Arguments:
        x: Samples, with shape (N, D).
        codes: Class per sample, with shape (N,), or `NO_CLASS`, on the CPU.
        scores: Theirs under `state`, where known.
    """
    if len(x) > CHUNK:
        scores = None
    for begin in range(0, len(x), CHUNK):
        rows = slice(begin, begin + CHUNK)
        state = _accumulated(state, x[rows], codes[rows], scores)
        state = maximised(state, at_least=STEP_SAMPLES)
    return state


def _accumulated(state: FlatState, x: Tensor, codes: Tensor, scores: Scores | None) -> FlatState:
    """E-step: with the samples' moments added to those of their owners' components."""
    squared: Tensor | None
    if scores is None:
        squared = x.square()
        joint = log_joint(state.mixing.form, x, squared)
    else:
        joint, squared = scores.joint, scores.x_squared
    owners = state.owners_of(codes)
    foreign = owners.to(x.device)[:, None] != state.components.owner[state.n_frozen :]
    joint = joint[:, state.n_frozen :].masked_fill(foreign, -math.inf)
    pending = state.pending + moments(responsibilities(joint), x, squared)
    shared = (owners != codes).nonzero()[:, 0]
    if len(shared):
        votes, said = state.components.votes.clone(), codes[shared].to(x.device)
        votes[state.n_frozen :] += votes_of(joint[shared.to(x.device)], said, votes.shape[1])
        state = state.with_votes(votes)
    return replace(state, pending=pending)


def maximised(state: FlatState, at_least: float) -> FlatState:
    """M-step, once some owner has `at_least` new samples."""
    pending, n_groups = state.pending, len(state.groups)
    by_group = Grouping(state.group_of, n_groups)
    new = by_group.summed(pending.mass)
    counts = new.tolist()
    if max(counts, default=0.0) < at_least - 0.5:
        return state
    # Who is half-way there comes along: one pass over the parameters serves them all.
    due = [count > 0.5 and count >= at_least / 2 for count in counts]
    active = state.active
    old = by_group.summed(active.mass)
    groups, keep, gain, samples = [], [], [], []
    for group, is_due, count in zip(state.groups, due, counts, strict=True):
        rate = 0.0
        if is_due:
            steps = group.steps + count / STEP_SAMPLES
            rate = (steps + STEP_OFFSET) ** -STEP_EXPONENT * min(1.0, count / STEP_SAMPLES)
            group = replace(group, samples=group.samples + count, steps=steps)
        groups.append(group)
        keep.append(1 - rate)
        gain.append(rate / count if is_due else 0.0)
        samples.append(group.samples)
    # Statistics are kept per sample of the owner, so that shares add up to one.
    total = new.new_tensor(samples)
    stay = active.mass * (new.new_tensor(keep) * total / old.clamp_min(1e-12))[state.group_of]
    fresh = pending.mass * (new.new_tensor(gain) * total)[state.group_of]
    # A handful of samples, or copies of one, may move a component that is nearly forgotten,
    # but not take its place: its mean would be one of them.
    fresh = torch.where(next_to_samples(pending), fresh.minimum(stay), fresh)
    mass = (stay + fresh).clamp_min(LEAST_MASS)
    moved = torch.tensor(due, device=new.device)[state.group_of]
    share = torch.where(moved & (pending.mass > LEAST_MASS), fresh / mass, 0.0)[:, None]
    mass = mass * (total / by_group.summed(mass))[state.group_of]
    behind = pending.mass.clamp_min(LEAST_MASS)[:, None]
    first, second = pending.first / behind, pending.second / behind
    towards = first - active.means
    spread = (second - first.square()).clamp_min(0)
    moved_on = replace(
        active,
        mass=torch.where(moved, mass, active.mass),
        means=active.means + share * towards,
        variances=(1 - share) * (active.variances + share * towards.square()) + share * spread,
    )
    return replace(
        state.with_values(Components.concatenated([state.earlier, moved_on])),
        groups=tuple(groups),
        pending=pending.scaled((~moved).to(mass.dtype)),
    )


def votes_of(joint: Tensor, codes: Tensor, n_classes: int) -> Tensor:
    """Samples per component and class, with shape (K, C), from log-joint values (N, K)."""
    classes = torch.nn.functional.one_hot(codes, n_classes)
    return responsibilities(joint).T @ classes.to(joint.dtype)
