"""Preset `mfa` behind the protocol of every learner."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from core.config import EngineConfig
from core.density.density import Parts
from core.density.diagonal.components import NO_CLASS
from core.density.factor_mixture import n_factors_of
from core.density.factors.components import Analysers
from core.density.factors.density import FactorDensity
from core.density.mixture import log_sum_exp, responsibilities
from core.density.traits import factor_traits
from core.learners.learner import Replay, Scores, Unnamed
from core.learners.per_class.budget import Budget
from core.learners.per_class.flush import due_when_quiet
from core.learners.per_class.mfa.capacity import Capacity
from core.learners.per_class.mfa.state import ComponentSet, Group, MfaState
from core.learners.per_class.mfa.windows import Windows, standing
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

FEATURES_PER_DEGREE = 56
"""The read-out's temperature is D over this: chosen on held-out training data of MNIST."""

SHIFTED_FEATURES_PER_DEGREE = 80
"""The same where shifts of a sample are heard, likewise."""


Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""From votes (K, C), owners (K,), responsibilities (N, K) and classes (N, C) to votes (K, C)."""


class MfaLearner:
    """Learns `MfaState`; holds settings only."""

    state_type = MfaState
    anneals = False

    def __init__(self, config: EngineConfig) -> None:
        self.floor = config.variance_floor
        self.n_factors = config.n_factors
        budget = Budget(config.budget)
        self.shifts = shifts_of(config)
        self.windows = Windows(budget, self.floor, config.window, self.shifts)
        self.mode = config.replay_mode
        regenerator = SampledReplay(self.mode, config.replay_factor, config.outlier_c)
        self.room = Capacity(budget, self.windows, regenerator, self._regenerated)

    def start(self, n_features: int, device: torch.device) -> MfaState:
        self.shifts.check(n_features)
        n_factors = n_factors_of(n_features, self.n_factors)
        return MfaState.empty(n_features, n_factors, self.floor, device)

    def grow(self, state: MfaState, n_classes: int) -> MfaState:
        def grown(bank: ComponentSet) -> ComponentSet:
            votes = bank.analysers.votes
            added = votes.new_zeros(len(votes), n_classes - state.n_classes)
            return bank.with_votes(torch.cat([votes, added], 1))

        groups = tuple(group.with_banks(grown) for group in state.groups)
        recent = torch.nn.functional.pad(state.recent, (0, n_classes - state.n_classes))
        return replace(
            state, frozen=grown(state.frozen), groups=groups, n_classes=n_classes, recent=recent
        )

    def rescale(self, state: MfaState, factor: Tensor, offset: Tensor) -> MfaState:
        def moved(bank: ComponentSet) -> ComponentSet:
            old = bank.analysers
            # No standardised sample lies outside the clip, so that no mean or deviation can.
            # Not by the square of the factor, which may overflow where the product does not.
            return ComponentSet(
                replace(
                    old,
                    means=(old.means * factor + offset).clamp(-CLIP, CLIP),
                    loadings=(old.loadings * factor[:, None]).clamp(-CLIP, CLIP),
                    noise=(old.noise * factor * factor).clamp_max(CLIP**2),
                ),
                bank.floor,
            )

        def follow(group: Group) -> Group:
            followed = group.with_banks(moved)
            if group.sums is not None:
                # Sums of squares in other units may leave the float32 range; what the
                # components would generate does not.
                behind = standing(followed.unsettled, group.sums.mass)
                followed = replace(followed, sums=behind.sums)
            window = (group.window * factor + offset).clamp(-CLIP, CLIP)
            return replace(followed, window=window)

        groups = tuple(follow(group) for group in state.groups)
        return replace(state, frozen=moved(state.frozen), groups=groups)

    def score(self, state: MfaState, x: Tensor) -> Scores | None:
        if not len(state):
            return None
        squared = x.square()
        parts: Parts = {bank.part: bank.part.log_joint(x, squared) for bank in state.banks}
        joint = torch.cat([*parts.values()], 1).sub_(math.log(state.mass_of(None)))
        return Scores(x, squared, joint, log_sum_exp(joint), parts)

    def traits(self, state: MfaState, scores: Scores) -> Tensor:
        parts = [bank.part.analyser for bank in state.banks]
        return factor_traits(parts, scores.x, scores.joint, scores.log_likelihood)

    def log_weights(self, state: MfaState) -> Tensor:
        parts = [bank.part.mixture.log_weights for bank in state.banks]
        return torch.cat(parts).log_softmax(0)

    def readout(self, state: MfaState) -> PosteriorReadout:
        return self._readout(state.votes, state.n_features)

    def settled(self, state: MfaState) -> bool:
        return True

    def n_components(self, state: MfaState) -> int:
        return len(state)

    def latest(self, state: MfaState) -> Tensor:
        return torch.arange(len(state), device=state.frozen.analysers.mass.device) >= len(
            state.frozen
        )

    def raw_samples(self, state: MfaState) -> int:
        return sum(len(group.window) for group in state.groups)

    def without_raw(self, state: MfaState) -> MfaState:
        return replace(state, groups=tuple(self.windows.emptied(state)))

    def model(self, state: MfaState) -> Model | None:
        if not len(state):
            return None
        parts = tuple(bank.part for bank in state.banks)
        return self._model(FactorDensity(parts), state.votes)

    def learn(
        self,
        state: MfaState,
        x: Tensor,
        codes: Tensor,
        scores: Scores | None,
        generator: torch.Generator,
        least: float = -math.inf,
    ) -> tuple[MfaState, list[Replay]]:
        partition = state.partition
        state, replays = self._welcome(state, codes, generator)
        if state.partition != partition:
            scores = None  # components changed under them
        state = self._heard(state, x, codes, scores)
        state = self._vote(state, x, codes, scores, least)
        owners = state.owners_of(codes)
        for owner in sorted(set(owners.tolist())):
            rows = (owners == owner).nonzero()[:, 0]
            while len(rows):
                index = state.index_of(owner)
                state, taken = self.windows.take(state, index, x[rows], codes[rows])
                rows = rows[taken:]
                while (due := self.windows.due(state, index)) is not None:
                    state = self._learned(state, due, generator)
        return state, replays

    def surrogates(self, state: MfaState, x: Tensor) -> Tensor | None:
        scores, all_ = self.score(state, x), state.analysers
        nobody = all_.owner == NO_CLASS
        if scores is None or not bool(nobody.any()):
            return None
        return all_.means[nobody][scores.joint[:, nobody].argmax(-1)]

    def unnamed(self, state: MfaState) -> Unnamed | None:
        index, current, means, mass, begin = [], [], [], [], 0
        for bank in state.banks:
            all_ = bank.analysers
            if NO_CLASS in bank.owners:
                rows = nameless(all_.owner, all_.votes)
                index.append(rows + begin)
                current.append(torch.full_like(rows, bank is not state.frozen, dtype=torch.bool))
                means.append(all_.means[rows])
                mass.append(all_.mass[rows])
            begin += len(bank)
        if not sum(map(len, index)):
            return None
        return Unnamed(*map(torch.cat, (index, current, means, mass)))

    def vote(self, state: MfaState, x: Tensor, codes: Tensor, weights: Tensor) -> MfaState:
        said = torch.nn.functional.one_hot(codes, state.n_classes) * weights[:, None]

        def voted(one: MfaState) -> MfaState:
            parts = [bank.analysers for bank in (one.frozen, *(group.bank for group in one.groups))]
            owner = torch.cat([part.owner for part in parts])
            means = torch.cat([part.means for part in parts])
            votes = torch.cat([part.votes for part in parts])
            return _with_votes(one, by_nearest(votes, owner, means, x, said))

        return _beside(state, voted)

    def renamed(self, state: MfaState, x: Tensor, codes: Tensor, shown: Tensor) -> MfaState:
        scores = self.score(state, x)
        if scores is None or not len(codes):
            return state
        votes = renamed(state.votes, responsibilities(scores.joint), codes, shown)
        return _by_name(state, replace(state.analysers, votes=votes))

    def begin_sub_task(
        self, state: MfaState, generator: torch.Generator
    ) -> tuple[MfaState, list[Replay]]:
        before = len(state)
        for index in range(len(state.groups)):
            state = self.windows.absorbed(state, index, generator)
        seen = dict(state.sub_tasks_of)
        for group in state.groups:
            seen[group.owner] = seen.get(group.owner, 0) + 1
        none = torch.zeros_like(state.recent)
        state = _by_name(state, state.analysers)
        state = replace(state, groups=(), sub_tasks_of=seen, recent=none)
        state = self.room.fitted(state, generator)
        return state, [_replay(self.mode, state, before, "boundary")] if before else []

    def waiting(self, state: MfaState) -> int:
        return sum(state.groups[index].waiting for index in _due_when_quiet(state))

    def settle(self, state: MfaState, generator: torch.Generator) -> MfaState:
        for index in _due_when_quiet(state):
            state = self.windows.settled(state, index, generator)
        return state

    def _welcome(
        self, state: MfaState, codes: Tensor, generator: torch.Generator
    ) -> tuple[MfaState, list[Replay]]:
        """Make a group, and room, for every owner that this sub-task sees for the first time."""
        arriving = set(state.owners_of(codes).tolist())
        if arriving <= {group.owner for group in state.groups}:
            return state, []
        before = len(state)
        state = self.room.pooled(state, arriving)
        owners = state.owners_of(codes)
        device = codes.device
        none = ComponentSet(
            Analysers.none(state.n_features, state.n_factors, state.n_classes, device), self.floor
        )
        window = torch.zeros(0, state.n_features, device=device)
        opened = tuple(
            Group(owner, none, None, 0, window, codes[:0], 0)
            for owner in sorted(set(owners.tolist()))
            if not state.is_active(owner)
        )
        state = replace(state, groups=state.groups + opened)
        incoming = int((owners == NO_CLASS).sum()), len(owners)
        state = self.room.fitted(state, generator, incoming)
        return state, [_replay(self.mode, state, before, "budget")] if len(state) < before else []

    def _learned(self, state: MfaState, index: int, generator: torch.Generator) -> MfaState:
        """With what an owner's window holds learned."""
        group = state.groups[index]
        if group.owner == NO_CLASS:
            # Its share of the budget follows its share of the samples.
            news = group.samples - round(group.bank.mass)
            state = self.room.fitted(state, generator, (news, news))
        return self.windows.learned(state, index, generator)

    def _vote(
        self, state: MfaState, x: Tensor, codes: Tensor, scores: Scores | None, least: float
    ) -> MfaState:
        """Labels that fall on components of unlabelled samples: those become a class's."""
        # Samples of pooled classes vote where they are learned.
        voting = (codes != NO_CLASS) & (state.owners_of(codes) == codes)
        if not any(NO_CLASS in bank.owners for bank in state.banks) or not bool(voting.any()):
            return state
        scores = self.score(state, x) if scores is None else scores
        assert scores is not None
        # What is far from all components falls on some of them for want of better.
        voting &= scores.log_likelihood >= least
        if not bool(voting.any()):
            return state
        return self._cast(state, x[voting], codes[voting], 1.0, scores.joint[voting], _by_nobody)

    def _heard(self, state: MfaState, x: Tensor, codes: Tensor, scores: Scores | None) -> MfaState:
        """Labels that fall on components of classes that come."""
        state = replace(state, recent=lately(state.recent, codes))
        stand = {one.owner for one in state.groups if one.sums is not None} | {*state.sub_tasks_of}
        speaking = torch.isin(
            state.owners_of(codes), torch.tensor(sorted(stand - {NO_CLASS})).to(codes)
        )
        if not bool(speaking.any()):
            return state
        come = coming(state.recent)

        def by_all(votes: Tensor, owner: Tensor, shares: Tensor, classes: Tensor) -> Tensor:
            return heard(votes, owner, shares, classes, come)

        joint = None if scores is None else scores.joint[speaking]
        return self._cast(state, x[speaking], codes[speaking], 1.0, joint, by_all)

    def _cast(
        self,
        state: MfaState,
        x: Tensor,
        codes: Tensor,
        weights: Tensor | float,
        joint: Tensor | None,
        rule: Rule,
    ) -> MfaState:
        """With votes on the components that are shown, and on those that learning goes on from."""

        def voted(one: MfaState) -> MfaState:
            known = joint if one is state else None
            return self._voted(one, x, codes, weights, known, rule)

        return _beside(state, voted)

    def _voted(
        self,
        state: MfaState,
        x: Tensor,
        codes: Tensor,
        weights: Tensor | float,
        joint: Tensor | None,
        rule: Rule,
    ) -> MfaState:
        """With votes of M samples, (M, D), counted by a rule."""
        if joint is None:
            scores = self.score(state, x)
            assert scores is not None
            joint = scores.joint
        classes = torch.nn.functional.one_hot(codes, state.n_classes).to(joint.dtype)
        banks = (state.frozen, *(group.bank for group in state.groups))
        parts = [bank.analysers for bank in banks]
        votes = rule(
            torch.cat([part.votes for part in parts]),
            torch.cat([part.owner for part in parts]),
            responsibilities(joint) * weights,
            classes,
        )
        return _with_votes(state, votes)

    def _regenerated(self, analysers: Analysers) -> Model:
        return self._model(FactorDensity.whole(analysers.mixture(), self.floor), analysers.votes)

    def _model(self, density: FactorDensity, votes: Tensor) -> Model:
        return Model(density, self._readout(votes, density.n_features), self.shifts)

    def _readout(self, votes: Tensor, n_features: int) -> PosteriorReadout:
        per_degree = SHIFTED_FEATURES_PER_DEGREE if len(self.shifts) else FEATURES_PER_DEGREE
        return PosteriorReadout(class_shares(votes), max(1.0, n_features / per_degree))


def _with_votes(state: MfaState, votes: Tensor) -> MfaState:
    """With these votes, (K, C), on the components that are shown."""
    banks = (state.frozen, *(group.bank for group in state.groups))
    own = torch.split(votes, [len(bank) for bank in banks])
    frozen, *others = (bank.with_votes(one) for bank, one in zip(banks, own, strict=True))
    groups = zip(state.groups, others, strict=True)
    changed = tuple(replace(group, bank=bank) for group, bank in groups)
    return replace(state, frozen=frozen, groups=changed)


def _beside(state: MfaState, voted: Callable[[MfaState], MfaState]) -> MfaState:
    """With votes on what is shown, and on what learning goes on from."""
    shown = voted(state)
    if all(group.base is None for group in state.groups):
        return shown
    unsettled = tuple(group.unsettled for group in state.groups)
    behind = voted(replace(state, groups=unsettled))
    groups = tuple(
        other if one.base is None else replace(one, base=other.bank)
        for one, other in zip(shown.groups, behind.groups, strict=True)
    )
    return replace(shown, frozen=behind.frozen, groups=groups)


def _by_nobody(votes: Tensor, owner: Tensor, shares: Tensor, classes: Tensor) -> Tensor:
    """Votes for components without a class."""
    return votes + (shares.T @ classes) * (owner == NO_CLASS)[:, None]


def _by_name(state: MfaState, frozen: Analysers) -> MfaState:
    """With these components frozen, each its class's by what it is called."""
    pooled = torch.tensor(state.pooled, dtype=torch.int64, device=frozen.owner.device)
    owner = owners_by_name(frozen.votes, frozen.owner, pooled)
    return state.with_frozen(replace(frozen, owner=owner))


def _due_when_quiet(state: MfaState) -> list[int]:
    groups = state.groups
    return due_when_quiet([one.waiting for one in groups], [one.samples for one in groups])


def _replay(mode: str, state: MfaState, before: int, reason: str) -> Replay:
    """What merging did, and for how many samples the components stand."""
    samples = round(state.mass_of(None))
    return Replay(mode, samples, before, len(state), reason)
