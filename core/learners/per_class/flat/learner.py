"""Preset `flat` behind the protocol of every learner."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from core.config import EngineConfig
from core.density.diagonal.components import NO_CLASS, Components
from core.density.diagonal.density import DiagonalDensity
from core.density.mixture import Moments, log_joint, log_sum_exp, responsibilities
from core.density.traits import diagonal_heights, diagonal_traits
from core.learners.learner import Replay, Scores, Unnamed
from core.learners.per_class.budget import Budget
from core.learners.per_class.flat.capacity import Capacity
from core.learners.per_class.flat.state import LEAST_MASS, FlatState, Group, votes_of
from core.learners.per_class.flat.stepwise import StepwiseEM
from core.learners.per_class.flat.windows import Windows
from core.learners.per_class.flush import due_when_quiet
from core.learners.per_class.relabelling import (
    by_nearest,
    coming,
    heard,
    lately,
    nameless,
    owners_by_name,
    renamed,
)
from core.learners.per_class.sampled_replay import SampledReplay
from core.learners.per_class.shifting import shifts_of
from core.model.model import Model
from core.model.readout import PosteriorReadout, class_shares
from core.standardiser import CLIP

FEATURES_PER_DEGREE = 25
"""The read-out's temperature is D over this: chosen on held-out training data of MNIST."""


class FlatLearner:
    """Learns `FlatState`; holds settings only."""

    state_type = FlatState
    anneals = False

    def __init__(self, config: EngineConfig) -> None:
        self.floor = config.variance_floor
        budget = Budget(config.budget)
        self.em = StepwiseEM()
        self.shifts = shifts_of(config)
        self.windows = Windows(budget, self.floor, config.window)
        self.mode = config.replay_mode
        regenerator = SampledReplay(self.mode, config.replay_factor, config.outlier_c)
        self.room = Capacity(budget, self.windows, self.em, self.floor, regenerator, self._served)

    def start(self, n_features: int, device: torch.device) -> FlatState:
        self.shifts.check(n_features)
        return FlatState.empty(n_features, self.floor, device)

    def grow(self, state: FlatState, n_classes: int) -> FlatState:
        old = state.components
        added = old.votes.new_zeros(len(old), n_classes - state.n_classes)
        grown = replace(old, votes=torch.cat([old.votes, added], 1))
        recent = torch.nn.functional.pad(state.recent, (0, n_classes - state.n_classes))
        return replace(state.with_values(grown), n_classes=n_classes, recent=recent)

    def rescale(self, state: FlatState, factor: Tensor, offset: Tensor) -> FlatState:
        old, pending = state.components, state.pending
        means, variances = _rescaled(old.means, old.variances, factor, offset)
        rescaled = replace(old, means=means, variances=variances)

        mass = pending.mass[:, None]
        first = pending.first / mass.clamp_min(LEAST_MASS)
        second = pending.second / mass.clamp_min(LEAST_MASS)
        means, variances = _rescaled(first, second - first.square(), factor, offset)
        pending = Moments(pending.mass, mass * means, mass * (means.square() + variances))

        groups = tuple(
            group
            if group.window is None
            else replace(group, window=(group.window * factor + offset).clamp(-CLIP, CLIP))
            for group in state.groups
        )
        return replace(state.with_values(rescaled), pending=pending, groups=groups)

    def score(self, state: FlatState, x: Tensor) -> Scores | None:
        if len(state.components) == 0:
            return None
        squared = x.square()
        joint = log_joint(state.mixing.form, x, squared)
        return Scores(x, squared, joint, log_sum_exp(joint))

    def traits(self, state: FlatState, scores: Scores) -> Tensor:
        weights, heights = self.log_weights(state), diagonal_heights(state.mixing.form)
        return diagonal_traits(weights, heights, scores.x, scores.joint, scores.log_likelihood)

    def log_weights(self, state: FlatState) -> Tensor:
        mass = state.components.mass
        return (mass / mass.sum()).log()

    def readout(self, state: FlatState) -> PosteriorReadout:
        return _readout(state.mixing.component_classes, state.n_features)

    def settled(self, state: FlatState) -> bool:
        return True

    def n_components(self, state: FlatState) -> int:
        return len(state.components)

    def latest(self, state: FlatState) -> Tensor:
        components = state.components
        return torch.arange(len(components), device=components.mass.device) >= state.n_frozen

    def raw_samples(self, state: FlatState) -> int:
        return sum(state.window_lengths.values())

    def without_raw(self, state: FlatState) -> FlatState:
        return replace(state, groups=tuple(self.windows.emptied(state)))

    def model(self, state: FlatState) -> Model | None:
        if len(state.components) == 0:
            return None
        return self._served(state.components)

    def learn(
        self,
        state: FlatState,
        x: Tensor,
        codes: Tensor,
        scores: Scores | None,
        generator: torch.Generator,
        least: float = -math.inf,
    ) -> tuple[FlatState, list[Replay]]:
        partition = state.partition
        state, replays = self._welcome(state, codes, generator)
        if state.partition != partition:
            scores = None  # components changed under them
        state, scores = self._heard(state, x, codes, scores)
        state, scores = self._vote(state, x, codes, scores, least)

        owners = state.owners_of(codes)
        stepping = torch.ones(len(x), dtype=torch.bool, device=x.device)
        for owner in sorted(set(owners.tolist())):
            index = state.index_of(owner)
            if state.groups[index].window is not None:
                rows = (owners == owner).nonzero()[:, 0]
                state, taken = self._hold(state, index, x[rows], codes[rows], generator)
                stepping[rows[:taken]] = False
                scores = None
        if bool(stepping.all()):
            return self.em.stepped(state, x, codes, scores), replays
        if bool(stepping.any()):
            state = self.em.stepped(state, x[stepping], codes[stepping], None)
        return state, replays

    def surrogates(self, state: FlatState, x: Tensor) -> Tensor | None:
        scores, nobody = self.score(state, x), state.components.owner == NO_CLASS
        if scores is None or not bool(nobody.any()):
            return None
        return state.components.means[nobody][scores.joint[:, nobody].argmax(-1)]

    def unnamed(self, state: FlatState) -> Unnamed | None:
        all_ = state.components
        rows = nameless(all_.owner, all_.votes)
        if not len(rows):
            return None
        return Unnamed(rows, rows >= state.n_frozen, all_.means[rows], all_.mass[rows])

    def vote(self, state: FlatState, x: Tensor, codes: Tensor, weights: Tensor) -> FlatState:
        all_ = state.components
        said = torch.nn.functional.one_hot(codes, state.n_classes) * weights[:, None]
        return state.with_votes(by_nearest(all_.votes, all_.owner, all_.means, x, said))

    def renamed(self, state: FlatState, x: Tensor, codes: Tensor, shown: Tensor) -> FlatState:
        scores = self.score(state, x)
        if scores is None or not len(codes):
            return state
        votes = renamed(state.components.votes, responsibilities(scores.joint), codes, shown)
        return _by_name(state.with_votes(votes))

    def begin_sub_task(
        self, state: FlatState, generator: torch.Generator
    ) -> tuple[FlatState, list[Replay]]:
        before = len(state.components)
        state = self.em.maximised(state, at_least=1)
        for index in range(len(state.groups)):
            state = self.windows.closed(state, index, generator)
        state = _by_name(state)
        seen = dict(state.sub_tasks_of)
        for group in state.groups:
            seen[group.owner] = seen.get(group.owner, 0) + 1
        none = Components.none(state.n_features, 0, state.group_of.device)
        state = replace(
            state,
            n_frozen=len(state.components),
            group_of=state.group_of[:0],
            groups=(),
            pending=none.moments(),
            sub_tasks_of=seen,
            recent=torch.zeros_like(state.recent),
            partition=state.partition + 1,
        )
        state = self.room.fitted(state, generator)
        return state, [_replay(self.mode, state, before, "boundary")] if before else []

    def waiting(self, state: FlatState) -> int:
        return sum(state.groups[index].waiting for index in _due_when_quiet(state))

    def settle(self, state: FlatState, generator: torch.Generator) -> FlatState:
        for index in _due_when_quiet(state):
            state = self.windows.settled(state, index, generator)
        return state

    def _welcome(
        self, state: FlatState, codes: Tensor, generator: torch.Generator
    ) -> tuple[FlatState, list[Replay]]:
        """Make a group, and room, for every owner that this sub-task sees for the first time."""
        arriving = set(state.owners_of(codes).tolist())
        if arriving <= {group.owner for group in state.groups}:
            return state, []
        before = len(state.components)
        state = self.room.pooled(state, arriving)
        owners = state.owners_of(codes)
        window = codes.new_zeros(0, state.n_features, dtype=torch.float32)
        opened = tuple(
            Group(owner, 0.0, 0.0, window, codes[:0], 0)
            for owner in sorted(set(owners.tolist()))
            if state.index_of(owner) < 0
        )
        state = replace(state, groups=state.groups + opened)
        state = self.windows.shrunk(state, generator)
        incoming = int((owners == NO_CLASS).sum()), len(owners)
        state = self.room.fitted(state, generator, incoming)
        if len(state.components) >= before:
            return state, []
        return state, [_replay(self.mode, state, before, "budget")]

    def _hold(
        self, state: FlatState, index: int, x: Tensor, codes: Tensor, generator: torch.Generator
    ) -> tuple[FlatState, int]:
        """Hold an owner's first samples, starting components anew at every doubling.

        Returns:
            The state, and how many of the samples the window took.
        """
        state, taken = self.windows.take(state, index, x, codes)
        if not self.windows.is_due(state, index):
            return state, taken
        group = state.groups[index]
        assert group.window is not None
        if group.owner == NO_CLASS:
            # Its share of the budget follows its share of the samples.
            news = len(group.window) - group.seeded_at
            state = self.room.fitted(state, generator, (news, news))
            if state.groups[index].window is None:
                return state, taken  # no room for new components: the frozen ones go on
        return self.windows.started(state, index, generator), taken

    def _vote(
        self, state: FlatState, x: Tensor, codes: Tensor, scores: Scores | None, least: float
    ) -> tuple[FlatState, Scores | None]:
        """Labels that fall on components of unlabelled samples: those become a class's."""
        components = state.components
        nobody = components.owner == NO_CLASS
        # Samples of pooled classes vote where they are learned.
        voting = (codes != NO_CLASS) & (state.owners_of(codes) == codes)
        if not bool(nobody.any() & voting.any()):
            return state, scores
        scores = self.score(state, x) if scores is None else scores
        assert scores is not None
        # What is far from all components falls on some of them for want of better.
        voting &= scores.log_likelihood >= least
        votes = votes_of(scores.joint[voting], codes[voting], state.n_classes)
        votes = components.votes + votes * nobody[:, None]
        return state.with_votes(votes), scores

    def _heard(
        self, state: FlatState, x: Tensor, codes: Tensor, scores: Scores | None
    ) -> tuple[FlatState, Scores | None]:
        """Labels that fall on components of classes that come.

        Nothing falls on those that are still started anew: what they are at the moment depends on
        when the stream was quiet.
        """
        owners, components = state.owners_of(codes), state.components
        state = replace(state, recent=lately(state.recent, codes))
        starting = {one.owner for one in state.groups if one.window is not None}
        stand = {one.owner for one in state.groups} - starting | {*state.sub_tasks_of}
        speaking = torch.isin(owners, torch.tensor(sorted(stand - {NO_CLASS})).to(codes))
        if not bool(speaking.any()):
            return state, scores
        scores = self.score(state, x) if scores is None else scores
        assert scores is not None
        unsteady = torch.isin(components.owner, torch.tensor(sorted(starting)).to(codes))
        unsteady[: state.n_frozen] = False
        joint = scores.joint[speaking].masked_fill(unsteady, -math.inf)
        classes = torch.nn.functional.one_hot(codes[speaking], state.n_classes).to(joint.dtype)
        shares = responsibilities(joint)
        come = coming(state.recent)
        votes = heard(components.votes, components.owner, shares, classes, come)
        return state.with_votes(votes), scores

    def _served(self, components: Components) -> Model:
        density = DiagonalDensity(components.mixture(self.floor), components.variances.sqrt())
        readout = _readout(class_shares(components.votes), density.n_features)
        return Model(density, readout, self.shifts)


def _by_name(state: FlatState) -> FlatState:
    """With every component its class's by what it is called."""
    all_ = state.components
    pooled = torch.tensor(state.pooled, dtype=torch.int64, device=all_.owner.device)
    owner = owners_by_name(all_.votes, all_.owner, pooled)
    return state.with_values(replace(all_, owner=owner))


def _due_when_quiet(state: FlatState) -> list[int]:
    waiting = [group.waiting for group in state.groups]
    held = [0 if group.window is None else len(group.window) for group in state.groups]
    return due_when_quiet(waiting, held)


def _readout(component_classes: Tensor, n_features: int) -> PosteriorReadout:
    return PosteriorReadout(component_classes, max(1.0, n_features / FEATURES_PER_DEGREE))


def _replay(mode: str, state: FlatState, before: int, reason: str) -> Replay:
    """What merging did, and for how many samples the components stand."""
    samples = round(float(state.components.mass.sum()))
    return Replay(mode, samples, before, len(state.components), reason)


def _rescaled(
    means: Tensor, variances: Tensor, factor: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor]:
    """Means and variances, both (K, D), of x' = factor * x + offset.

    No standardised sample lies outside the clip, so that no mean or deviation can.
    """
    means = (means * factor + offset).clamp(-CLIP, CLIP)
    # Not by the square of the factor, which may overflow where the product does not.
    return means, (variances.clamp_min(0) * factor * factor).clamp_max(CLIP**2)
