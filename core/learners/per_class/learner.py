"""The learner of components that belong to classes, whatever the family.

A family supplies how components are seeded, fitted, stepped and merged (`windows.py`), and how they
score; here are the owners, the labels, and the boundaries.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.config import EngineConfig
from core.density.density import Density
from core.density.mixture import responsibilities
from core.density.owned import NO_CLASS
from core.learners.learner import Replay, Scores, Unnamed
from core.learners.per_class.budget import Budget
from core.learners.per_class.capacity import Capacity
from core.learners.per_class.flush import due_when_quiet
from core.learners.per_class.relabelling import (
    by_nearest,
    coming,
    faded,
    heard,
    lately,
    nameless,
    renamed,
    updated_baseline,
)
from core.learners.per_class.shifting import shifts_of
from core.learners.per_class.state import PerClassState
from core.learners.per_class.windows import Windows
from core.model.model import Model
from core.model.readout import PosteriorReadout
from core.standardiser import CLIP

S = TypeVar("S", bound=PerClassState)

LEAST_UNLABELLED = 0.01
"""Samples without a label among the last below which none have come."""

Rule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""From votes (K, C), owners (K,), responsibilities (N, K) and classes (N, C) to votes (K, C)."""


class PerClassLearner(ABC, Generic[S]):
    """Learns a `PerClassState`; holds settings only."""

    state_type: type[S]
    anneals = False
    takes_scores = False
    """Whether `taken` reads scores, so that those of a whole batch are worth working out."""

    def __init__(self, config: EngineConfig) -> None:
        self.floor = config.variance_floor
        self.shifts = shifts_of(config)
        self.windows = self.windows_of(config, Budget(config.budget))
        self.capacity = Capacity(self.windows.budget, self.windows)

    # What a family supplies.

    @abstractmethod
    def windows_of(self, config: EngineConfig, budget: Budget) -> Windows[S]:
        """How samples are held and components made of them."""

    @abstractmethod
    def empty(self, n_features: int, device: torch.device) -> S:
        """The state before anything was learned."""

    @abstractmethod
    def moved(self, components: Any, factor: Tensor, offset: Tensor) -> Any:
        """Components in other units; no mean or deviation may leave the clip."""

    @abstractmethod
    def score(self, state: S, x: Tensor) -> Scores | None:
        """Score samples (N, D); None before anything was learned."""

    @abstractmethod
    def conformity(self, state: S, scores: Scores) -> Tensor:
        """In which ways scored samples fit, with shape (N, S): `core.density.conformity`."""

    @abstractmethod
    def log_weights(self, state: S) -> Tensor:
        """Log weights of the components of `Scores.joint`, with shape (K,)."""

    @abstractmethod
    def density(self, state: S) -> Density:
        """What is served; there are components."""

    @abstractmethod
    def temperature(self, n_features: int) -> float:
        """Of the read-out, at least 1."""

    @abstractmethod
    def taken(
        self, state: S, x: Tensor, codes: Tensor, scores: Scores | None, generator: torch.Generator
    ) -> S:
        """With samples, (N, D), held or learned; every owner of them has its group.

        Arguments:
            codes: Classes of samples, with shape (N,), int64, on the CPU.
        """

    # What all of them share.

    def start(self, n_features: int, device: torch.device) -> S:
        self.shifts.check(n_features)
        return self.empty(n_features, device)

    def grow(self, state: S, n_classes: int) -> S:
        more = (0, n_classes - state.n_classes)

        def grown(bank: Any) -> Any:
            old = bank.components
            votes = (torch.nn.functional.pad(part, more) for part in (old.votes, old.vote_baseline))
            return bank.with_votes(*votes)

        recent = torch.nn.functional.pad(state.recent, more)
        return replace(state.mapped(grown), n_classes=n_classes, recent=recent)

    def with_merged_classes(self, state: S, merge: ClassMerge, generator: torch.Generator) -> S:
        # Components of two groups are fitted to windows of their own, so that these end.
        state = self._closed(self.windows.all_absorbed(state, generator))

        def changed(bank: Any) -> Any:
            old = bank.components
            expected = old.vote_baseline
            return bank.of(
                replace(
                    old,
                    owner=merge.codes(old.owner),
                    votes=merge.added(old.votes, 1),
                    vote_baseline=torch.cat([expected[:, :1], merge.added(expected[:, 1:], 1)], 1),
                )
            )

        sub_tasks_of: dict[int, int] = {}
        for owner, seen in state.sub_tasks_of.items():
            sub_tasks_of[merge.code(owner)] = sub_tasks_of.get(merge.code(owner), 0) + seen
        own = {merge.code(owner) for owner in state.owners - {NO_CLASS}}
        pooled = {merge.code(code) for code in state.pooled} - own
        state = replace(
            state,
            n_classes=state.n_classes - 1,
            sub_tasks_of=sub_tasks_of,
            pooled=tuple(sorted(pooled)),
            recent=merge.added(state.recent, 0),
        )
        return self.capacity.fitted(state.mapped(changed), generator)

    def rescale(self, state: S, factor: Tensor, offset: Tensor) -> S:
        state = state.mapped(lambda bank: bank.of(self.moved(bank.components, factor, offset)))
        groups = tuple(
            group
            if group.window is None
            else replace(group, window=(group.window * factor + offset).clamp(-CLIP, CLIP))
            for group in state.groups
        )
        return replace(state, groups=groups)

    def readout(self, state: S) -> PosteriorReadout:
        return PosteriorReadout(state.component_classes, self.temperature(state.n_features))

    def converged(self, state: S) -> bool:
        return True

    def n_components(self, state: S) -> int:
        return len(state)

    def latest(self, state: S) -> Tensor:
        return torch.arange(len(state), device=state.recent.device) >= len(state.earlier)

    def raw_samples(self, state: S) -> int:
        return sum(group.held for group in state.groups)

    def without_raw(self, state: S) -> S:
        return replace(state, groups=tuple(self.windows.emptied(state)))

    def model(self, state: S) -> Model | None:
        if not len(state):
            return None
        return Model(self.density(state), self.readout(state), self.shifts)

    def learn(
        self,
        state: S,
        x: Tensor,
        codes: Tensor,
        scores: Scores | None,
        generator: torch.Generator,
        least: float = -math.inf,
    ) -> tuple[S, list[Replay]]:
        partition, codes = state.partition, codes.cpu()
        state, replays = self._welcome(state, codes, generator)
        if state.partition != partition:
            scores = None  # components changed under them
        state, scores = self._heard(state, x, codes, scores)
        state, scores = self._vote(state, x, codes, scores, least)
        state, scores = self._compare_votes(state, x, codes, scores, least)
        return self.taken(state, x, codes, scores, generator), replays

    def surrogates(self, state: S, x: Tensor) -> Tensor | None:
        scores, nobody = self.score(state, x), state.owner == NO_CLASS
        if scores is None or not bool(nobody.any()):
            return None
        return state.column("means")[nobody][scores.joint[:, nobody].argmax(-1)]

    def unnamed(self, state: S) -> Unnamed | None:
        if not _has_nobody(state):
            return None
        rows = nameless(state.owner, state.naming_votes)
        if not len(rows):
            return None
        means, mass = (state.column(name)[rows] for name in ("means", "mass"))
        return Unnamed(rows, rows >= len(state.earlier), means, mass)

    def vote(self, state: S, x: Tensor, codes: Tensor, weights: Tensor) -> S:
        said = torch.nn.functional.one_hot(codes, state.n_classes) * weights[:, None]

        def voted(one: S) -> S:
            means = one.column("means")
            return one.with_votes(by_nearest(one.votes, one.owner, means, x, said))

        return _beside(state, voted)

    def renamed(self, state: S, x: Tensor, codes: Tensor, shown: Tensor) -> S:
        scores = self.score(state, x)
        if scores is None or not len(codes):
            return state
        votes = renamed(state.votes, responsibilities(scores.joint), codes, shown)
        return state.with_votes(votes).named()

    def absorbed(self, state: S, generator: torch.Generator) -> S:
        return self.windows.all_absorbed(state, generator)

    def begin_sub_task(self, state: S, generator: torch.Generator) -> tuple[S, list[Replay]]:
        before = len(state)
        state = self._closed(self.windows.all_absorbed(state, generator))
        none = torch.zeros_like(state.recent)
        state = replace(state.named(), recent=none, unlabelled=0.0)
        # Nothing has fallen on them in the sub-task that begins.
        vote_baseline = torch.cat(
            [torch.zeros_like(state.vote_baseline[:, :1]), state.vote_baseline[:, 1:]], 1
        )
        state = state.with_votes(state.votes, vote_baseline)
        state = self.capacity.fitted(state, generator)
        return state, [_replay(state, before, "boundary")] if before else []

    def _closed(self, state: S) -> S:
        """All components are those of earlier sub-tasks; no raw sample is left."""
        seen = dict(state.sub_tasks_of)
        for group in state.groups:
            seen[group.owner] = seen.get(group.owner, 0) + 1
        return replace(state.closed(), sub_tasks_of=seen)

    def waiting(self, state: S) -> int:
        return sum(state.groups[index].waiting for index in _due_when_quiet(state))

    def settle(self, state: S, generator: torch.Generator) -> S:
        for index in _due_when_quiet(state):
            state = self.windows.settled(state, index, generator)
        return state

    def _welcome(
        self, state: S, codes: Tensor, generator: torch.Generator
    ) -> tuple[S, list[Replay]]:
        """Make a group, and room, for every owner that this sub-task sees for the first time."""
        arriving = set(state.owners_of(codes).tolist())
        if arriving <= {group.owner for group in state.groups}:
            return state, []
        before = len(state)
        state = self.capacity.pooled(state, arriving)
        owners = state.owners_of(codes)
        window = state.recent.new_zeros(0, state.n_features)
        opened = tuple(
            self.windows.opened(state, owner, window, codes[:0].to(window.device))
            for owner in sorted(set(owners.tolist()))
            if not state.is_active(owner)
        )
        state = replace(state, groups=state.groups + opened)
        state = self.windows.crowded(state, generator)
        incoming = int((owners == NO_CLASS).sum()), len(owners)
        state = self.capacity.fitted(state, generator, incoming)
        return state, [_replay(state, before, "budget")] if len(state) < before else []

    def _vote(
        self, state: S, x: Tensor, codes: Tensor, scores: Scores | None, least: float
    ) -> tuple[S, Scores | None]:
        """Labels that fall on components of unlabelled samples: those become a class's."""
        # Samples of pooled classes vote where they are learned.
        voting = (codes != NO_CLASS) & (state.owners_of(codes) == codes)
        if not _has_nobody(state) or not bool(voting.any()):
            return state, scores
        scores = self._scored(state, x, scores)
        # What is far from all components falls on some of them for want of better.
        voting &= (scores.log_likelihood >= least).cpu()
        if not bool(voting.any()):
            return state, scores
        rows = voting.nonzero()[:, 0]
        there = rows.to(x.device)
        return self._cast(state, x[there], codes[rows], scores.joint[there], _by_nobody), scores

    def _compare_votes(
        self, state: S, x: Tensor, codes: Tensor, scores: Scores | None, least: float
    ) -> tuple[S, Scores | None]:
        """What votes on such components are compared with: where samples without a label fall."""
        labels_come = bool(state.pooled) or any(one.owner != NO_CLASS for one in state.groups)
        if not labels_come or state.unlabelled < LEAST_UNLABELLED or not _has_nobody(state):
            return state, scores
        scores = self._scored(state, x, scores)
        near = (scores.log_likelihood >= least).cpu()
        voting = near & (codes != NO_CLASS) & (state.owners_of(codes) == codes)
        said = torch.bincount(codes[voting], minlength=state.n_classes).to(x)
        rows = (near & (codes == NO_CLASS)).nonzero()[:, 0].to(x.device)
        joint, silent = scores.joint[rows], x[rows]

        def compared(one: S) -> S:
            known = joint if one is state else self._scored(one, silent, None).joint
            falls = responsibilities(known).sum(0) * (one.owner == NO_CLASS)
            old = one.vote_baseline
            return one.with_votes(
                one.votes, updated_baseline(old, falls, said, len(codes), state.unlabelled)
            )

        return _beside(state, compared), scores

    def _heard(
        self, state: S, x: Tensor, codes: Tensor, scores: Scores | None
    ) -> tuple[S, Scores | None]:
        """Labels that fall on components of classes that come."""
        silent = float((codes == NO_CLASS).sum())
        state = replace(
            state,
            recent=lately(state.recent, codes.to(state.recent.device)),
            unlabelled=faded(state.unlabelled, silent, len(codes)),
        )
        stand = {group.owner for group in state.groups if group.stands} | {*state.sub_tasks_of}
        owners = state.owners_of(codes)
        speaking = torch.isin(owners, torch.tensor(sorted(stand - {NO_CLASS}), dtype=owners.dtype))
        if not bool(speaking.any()):
            return state, scores
        come = coming(state.recent)

        def by_all(votes: Tensor, owner: Tensor, shares: Tensor, classes: Tensor) -> Tensor:
            return heard(votes, owner, shares, classes, come)

        if scores is None and self.takes_scores:
            scores = self.score(state, x)
        known = None if scores is None else scores.joint
        if not bool(speaking.all()):
            rows = speaking.nonzero()[:, 0]
            there = rows.to(x.device)
            x, codes = x[there], codes[rows]
            known = None if known is None else known[there]
        joint = self._scored(state, x, None).joint if known is None else known
        unsteady = state.unsteady
        if unsteady is not None:
            joint = joint.masked_fill(unsteady, -math.inf)
        return self._cast(state, x, codes, joint, by_all), scores

    def _scored(self, state: S, x: Tensor, scores: Scores | None) -> Scores:
        """Scores that are known, or worked out; there are components."""
        scores = self.score(state, x) if scores is None else scores
        assert scores is not None
        return scores

    def _cast(self, state: S, x: Tensor, codes: Tensor, joint: Tensor, rule: Rule) -> S:
        """With votes on the components that are shown, and on those that learning goes on from.

        Arguments:
            x: Samples that vote, with shape (M, D).
            codes: Their classes, with shape (M,), int64.
            joint: Theirs under the components that are shown, with shape (M, K).
        """
        classes = torch.nn.functional.one_hot(codes, state.n_classes).to(joint)

        def voted(one: S) -> S:
            known = joint if one is state else self._scored(one, x, None).joint
            return one.with_votes(rule(one.votes, one.owner, responsibilities(known), classes))

        return _beside(state, voted)


def _beside(state: S, voted: Callable[[S], S]) -> S:
    """With votes on what is shown, and on what learning goes on from."""
    shown, behind = voted(state), state.unsettled
    return shown if behind is state else shown.with_behind(voted(behind))


def _by_nobody(votes: Tensor, owner: Tensor, shares: Tensor, classes: Tensor) -> Tensor:
    """Votes for components without a class."""
    return votes + (shares.T @ classes) * (owner == NO_CLASS)[:, None]


def _has_nobody(state: PerClassState) -> bool:
    return any(NO_CLASS in bank.owners for bank in state.banks)


def _due_when_quiet(state: PerClassState) -> list[int]:
    groups = state.groups
    return due_when_quiet([one.waiting for one in groups], [one.samples for one in groups])


def _replay(state: PerClassState, before: int, reason: str) -> Replay:
    """What merging did, and for how many samples the components stand."""
    return Replay("analytic", round(state.mass_of(None)), before, len(state), reason)
