"""Preset `flat`: diagonal components that belong to classes, learned in one pass.

The rules that keep it from forgetting:

1. A component learns from the samples of one owner only: a class, or the samples
   without a label. What one class learns cannot move another's components.
2. Components of earlier sub-tasks are frozen. Room for new ones is made by merging,
   with analytic replay (`core.density.merging`), never by drawing samples.
3. The budget K is shared equally by the classes known; unlabelled samples get a share
   by their number. So memory and the cost of a batch stay constant for an endless stream.
   Once there are more classes than components, the newest ones share: their samples join
   those without a label, and their labels become votes on those components.

How an owner's components of the current sub-task come about: its first samples are
held in a *window*; k-means++ and EM run on it whenever it has doubled, so that the
model answers from the first batch on. A full window is let go, and stepwise EM
(Cappe & Moulines 2009) goes on from there, a statistic at a time.

Throughout: N samples, D features, K components, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from core.config import EngineConfig
from core.density.components import NO_CLASS, Components
from core.density.diagonal import (
    Moments,
    NaturalForm,
    log_joint,
    log_sum_exp,
    moments,
    natural_form,
    responsibilities,
)
from core.density.merging import consolidate
from core.density.seeding import FEWEST_COPIES, next_to_samples, seed_components
from core.learners.learner import Replay, Scores
from core.model import Model
from core.readout import PosteriorReadout
from core.standardiser import CLIP

WINDOW_PER_OWNER = 512
WINDOW_FACTOR = 8
"""Samples of one owner that its components start from: the larger of a number, and so many
per component, as far as `EngineConfig.window` allows."""

SAMPLES_PER_COMPONENT = 8
"""Samples a window must hold for each component that starts from it."""

STEP_SAMPLES = 100
"""Samples of one owner behind every M-step, however they are cut into batches."""

STEP_EXPONENT = 0.7
STEP_OFFSET = 2.0
"""The t-th M-step moves the statistics by (t + offset) ** -exponent."""

LEAST_MASS = 1e-6
"""Samples, or a share of one, below which a component neither moves nor shrinks."""

CHUNK = 512
"""Rows per E-step: between M-steps no more than this many samples share one posterior."""

FEATURES_PER_DEGREE = 25
"""The read-out's temperature is D over this: chosen on held-out training data of MNIST."""


@dataclass(frozen=True, eq=False)
class Group:
    """The samples of one owner in the current sub-task."""

    owner: int
    samples: float  # seen in this sub-task
    steps: float  # M-steps behind it; fractions where more than STEP_SAMPLES came at once
    window: Tensor | None  # (n, D) first samples, None once components stand on their own
    codes: Tensor | None  # (n,) their classes
    seeded_at: int  # window length at the last seeding


@dataclass(frozen=True, eq=False)
class Mixing:
    """All components, frozen ones first, with what is computed from them once."""

    components: Components
    floor: float

    @cached_property
    def form(self) -> NaturalForm:
        """For scoring."""
        return natural_form(self.components.mixture(self.floor))

    @cached_property
    def component_classes(self) -> Tensor:
        """p(c | k), with shape (K, C); even where no label to speak of fell on a component."""
        votes = self.components.votes
        total = votes.sum(-1, keepdim=True)
        shares = votes / total.clamp_min(LEAST_MASS)
        return torch.where(total > LEAST_MASS, shares, 1 / max(1, votes.shape[1]))


@dataclass(frozen=True, eq=False)
class FlatState:
    """Everything preset `flat` has learned.

    Arguments:
        mixing: Components; the first `n_frozen` are of earlier sub-tasks.
        group_of: Index into `groups` per active component, with shape (K - n_frozen,), int64.
        groups: Owners that the current sub-task has seen.
        pending: Moments since the last M-step, per active component.
        sub_tasks_of: Per owner, how many sub-tasks its frozen components stand for.
        pooled: Classes without components of their own, ascending.
        pool_allowance: Components that the pool may have: the owner `NO_CLASS`, of unlabelled
            samples and of those classes.
        partition: Counts the changes of the set of components.
    """

    n_features: int
    n_classes: int
    mixing: Mixing
    n_frozen: int
    group_of: Tensor
    groups: tuple[Group, ...]
    pending: Moments
    sub_tasks_of: dict[int, int]
    pooled: tuple[int, ...]
    pool_allowance: int
    partition: int

    @property
    def components(self) -> Components:
        """All components, frozen ones first."""
        return self.mixing.components

    @property
    def frozen(self) -> Components:
        """Those of earlier sub-tasks."""
        return self.components.select(slice(0, self.n_frozen))

    @property
    def active(self) -> Components:
        """Those of the current sub-task."""
        return self.components.select(slice(self.n_frozen, None))

    @property
    def owners(self) -> set[int]:
        """Everyone with components, or about to get some."""
        return set(self.components.owner.tolist()) | {group.owner for group in self.groups}

    def owners_of(self, codes: Tensor) -> Tensor:
        """Who learns the samples of these classes, with shape (N,), int64."""
        if not self.pooled:
            return codes
        pooled = torch.tensor(self.pooled, device=codes.device)
        return torch.where(torch.isin(codes, pooled), NO_CLASS, codes)


class FlatLearner:
    """Learns `FlatState`; holds settings only."""

    state_type = FlatState

    def __init__(self, config: EngineConfig) -> None:
        self.budget = config.n_components
        self.floor = config.variance_floor
        self.window = config.window

    # What the engine asks of every learner -----------------------------------------------

    def start(self, n_features: int, device: torch.device) -> FlatState:
        none = Components.none(n_features, 0, device)
        return FlatState(
            n_features=n_features,
            n_classes=0,
            mixing=Mixing(none, self.floor),
            n_frozen=0,
            group_of=torch.zeros(0, dtype=torch.int64, device=device),
            groups=(),
            pending=none.moments(),
            sub_tasks_of={},
            pooled=(),
            pool_allowance=0,
            partition=0,
        )

    def grow(self, state: FlatState, n_classes: int) -> FlatState:
        old = state.components
        added = old.votes.new_zeros(len(old), n_classes - state.n_classes)
        grown = replace(old, votes=torch.cat([old.votes, added], 1))
        return replace(state, n_classes=n_classes, mixing=Mixing(grown, self.floor))

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
        return replace(state, mixing=Mixing(rescaled, self.floor), pending=pending, groups=groups)

    def score(self, state: FlatState, x: Tensor) -> Scores | None:
        if len(state.components) == 0:
            return None
        squared = x.square()
        joint = log_joint(state.mixing.form, x, squared)
        return Scores(x, squared, joint, log_sum_exp(joint))

    def class_probabilities(self, state: FlatState, joint: Tensor) -> Tensor:
        return self._readout(state).class_probabilities(joint)

    def settled(self, state: FlatState) -> bool:
        return True

    def partition(self, state: FlatState) -> int:
        return state.partition

    def n_components(self, state: FlatState) -> int:
        return len(state.components)

    def raw_samples(self, state: FlatState) -> int:
        return sum(len(group.window) for group in state.groups if group.window is not None)

    def model(self, state: FlatState) -> Model | None:
        if len(state.components) == 0:
            return None
        components = state.components
        return Model(
            mixture=components.mixture(self.floor),
            deviations=components.variances.sqrt(),
            readout=self._readout(state),
        )

    def learn(
        self,
        state: FlatState,
        x: Tensor,
        codes: Tensor,
        scores: Scores | None,
        generator: torch.Generator,
    ) -> tuple[FlatState, list[Replay]]:
        partition = state.partition
        state, replays = self._open_groups(state, codes, generator)
        if state.partition != partition:
            scores = None  # components changed under them
        state, scores = self._vote(state, x, codes, scores)
        owners = state.owners_of(codes)
        stepping = torch.ones(len(x), dtype=torch.bool, device=x.device)
        for owner in sorted(set(owners.tolist())):
            index = _index_of(state.groups, owner)
            if state.groups[index].window is not None:
                rows = (owners == owner).nonzero()[:, 0]
                state, taken = self._fill_window(state, index, x[rows], codes[rows], generator)
                stepping[rows[:taken]] = False
                scores = None
        if bool(stepping.all()):
            return self._step(state, x, codes, scores), replays
        if bool(stepping.any()):
            state = self._step(state, x[stepping], codes[stepping], None)
        return state, replays

    def begin_sub_task(
        self, state: FlatState, generator: torch.Generator
    ) -> tuple[FlatState, list[Replay]]:
        before = len(state.components)
        state = self._maximise(state, at_least=1)
        for index in range(len(state.groups)):
            state = self._close_window(state, index, generator)
        seen = dict(state.sub_tasks_of)
        for group in state.groups:
            seen[group.owner] = seen.get(group.owner, 0) + 1
        device = state.group_of.device
        state = replace(
            state,
            n_frozen=len(state.components),
            group_of=state.group_of[:0],
            groups=(),
            pending=Components.none(state.n_features, 0, device).moments(),
            sub_tasks_of=seen,
            partition=state.partition + 1,
        )
        state = self._fit_budget(state, generator)
        replay = Replay(
            "analytic",
            round(float(state.components.mass.sum())),
            before,
            len(state.components),
            "boundary",
        )
        return state, [replay] if before else []

    # Budget -------------------------------------------------------------------------------

    def _open_groups(
        self, state: FlatState, codes: Tensor, generator: torch.Generator
    ) -> tuple[FlatState, list[Replay]]:
        """Make a group, and room, for every owner that this sub-task sees for the first time."""
        arriving = set(state.owners_of(codes).tolist())
        if arriving <= {group.owner for group in state.groups}:
            return state, []
        before = len(state.components)
        state = self._pool(state, arriving)
        owners = state.owners_of(codes)
        window = codes.new_zeros(0, state.n_features, dtype=torch.float32)
        opened = tuple(
            Group(owner, 0.0, 0.0, window, codes[:0], 0)
            for owner in sorted(set(owners.tolist()))
            if _index_of(state.groups, owner) < 0
        )
        state = replace(state, groups=state.groups + opened)
        state = self._fit_windows(state, generator)
        incoming = int((owners == NO_CLASS).sum()), len(owners)
        state = self._fit_budget(state, generator, incoming)
        after = len(state.components)
        if after >= before:
            return state, []
        mass = round(float(state.components.mass.sum()))
        return state, [Replay("analytic", mass, before, after, "budget")]

    def _pool(self, state: FlatState, arriving: set[int]) -> FlatState:
        """Let classes share components where there are more owners than the budget has."""
        known = state.owners
        if len(known | arriving) <= self.budget:
            return state
        # One place is the pool's. Whoever has components of its own keeps them, but for the
        # smallest, if all places are taken.
        own = known - {NO_CLASS}
        places = self.budget - 1
        newcomers = sorted(arriving - known - {NO_CLASS})
        pooled = {*state.pooled, *newcomers[max(0, places - len(own)) :]}
        if len(own) > places:
            components = state.components
            masses = {
                owner: float(components.mass[components.owner == owner].sum()) for owner in own
            }
            smallest = min(own, key=lambda owner: (masses[owner], -owner))
            pooled.add(smallest)
            state = self._handed_to_pool(state, smallest)
        return replace(state, pooled=tuple(sorted(pooled)))

    def _handed_to_pool(self, state: FlatState, owner: int) -> FlatState:
        """The first class of the pool brings its components, which vote for it, and its group."""
        old = state.components
        mine = old.owner == owner
        votes = old.votes.clone()
        votes[mine, owner] = old.mass[mine]
        components = replace(old, owner=old.owner.masked_fill(mine, NO_CLASS), votes=votes)
        groups = tuple(
            replace(group, owner=NO_CLASS) if group.owner == owner else group
            for group in state.groups
        )
        sub_tasks = {
            NO_CLASS if other == owner else other: count
            for other, count in state.sub_tasks_of.items()
        }
        return replace(
            state,
            mixing=Mixing(components, self.floor),
            groups=groups,
            sub_tasks_of=sub_tasks,
        )

    def _allowance(self, state: FlatState) -> dict[int, int]:
        """Components that each owner may have, frozen and active together; K in all."""
        owners = state.owners
        classes = sorted(owners - {NO_CLASS})
        allowance = {NO_CLASS: state.pool_allowance} if NO_CLASS in owners else {}
        left = self.budget - sum(allowance.values())
        each, spare = divmod(left, max(1, len(classes)))
        for place, owner in enumerate(classes):
            allowance[owner] = each + (place < spare)
        return allowance

    def _pool_allowance(self, state: FlatState, incoming: tuple[int, int]) -> int:
        """What the pool may have by its share of the samples.

        Arguments:
            incoming: Samples about to be learned: those of the pool, and all.
        """
        owners = state.owners
        if NO_CLASS not in owners:
            return 0
        components = state.components
        mass = float(components.mass[components.owner == NO_CLASS].sum()) + incoming[0]
        total = float(components.mass.sum()) + incoming[1]
        share = mass / total if total else 1.0
        most = self.budget - len(owners - {NO_CLASS})
        return max(1, min(round(share * self.budget), most))

    def _split(self, state: FlatState, owner: int, allowed: int) -> tuple[int, int]:
        """An owner's allowance, for its frozen components and for the active ones."""
        sub_tasks = state.sub_tasks_of.get(owner, 0)
        if _index_of(state.groups, owner) < 0:
            return allowed, 0
        if sub_tasks == 0 or allowed == 1:
            return 0, allowed
        active = max(1, round(allowed / (sub_tasks + 1)))
        return allowed - active, active

    def _most(self, state: FlatState, owner: int) -> int:
        """Components that an owner may have in the current sub-task."""
        return self._split(state, owner, self._allowance(state)[owner])[1]

    def _fit_budget(
        self, state: FlatState, generator: torch.Generator, incoming: tuple[int, int] = (0, 0)
    ) -> FlatState:
        """Merge every owner's components down to what it is allowed."""
        state = self._maximise(state, at_least=1)  # merging lets go of unfinished statistics
        state = replace(state, pool_allowance=self._pool_allowance(state, incoming))
        split = {
            owner: self._split(state, owner, allowed)
            for owner, allowed in self._allowance(state).items()
        }
        for owner, (most_frozen, _) in split.items():
            if most_frozen == 0:
                state = self._thawed(state, owner, generator)
        frozen, active = state.frozen, state.active
        for owner, (most_frozen, most_active) in split.items():
            frozen = self._merge_owner(frozen, owner, most_frozen)
            merged = self._merge_owner(active, owner, most_active)
            if len(merged) != len(active):
                state = self._with_components(state, frozen, merged, restart=owner)
                active = merged
        return self._with_components(state, frozen, active)

    def _thawed(self, state: FlatState, owner: int, generator: torch.Generator) -> FlatState:
        """Go on with an owner's frozen components where there is no room for new ones."""
        mine = state.frozen.owner == owner
        if not bool(mine.any()):
            return state
        index = _index_of(state.groups, owner)
        state = self._close_window(state, index, generator, most=1)
        frozen, active = state.frozen, state.active
        thawed = frozen.select(mine)
        samples = float(thawed.mass.sum())
        group = state.groups[index]
        group = replace(
            group,
            samples=group.samples + samples,
            steps=group.steps + samples / STEP_SAMPLES,
            window=None,
            codes=None,
        )
        state = replace(
            state,
            groups=_put(state.groups, index, group),
            sub_tasks_of={**state.sub_tasks_of, owner: 0},
        )
        others = active.owner != owner
        parts = [active.select(others), active.select(~others), thawed]
        return self._with_components(
            state, frozen.select(~mine), Components.concatenated(parts), restart=owner
        )

    def _merge_owner(self, components: Components, owner: int, most: int) -> Components:
        """`components` with at most `most` of this owner's, the merged ones last."""
        mine = components.owner == owner
        if int(mine.sum()) <= most:
            return components
        old = components.select(mine)
        sums, shares = consolidate(old.moments(), most, self.floor)
        merged = Components.of_owner(sums, owner, components.votes.shape[1])
        merged = replace(merged, votes=shares.T @ old.votes)
        return Components.concatenated([components.select(~mine), merged])

    def _with_components(
        self,
        state: FlatState,
        frozen: Components,
        active: Components,
        restart: int | None = None,
    ) -> FlatState:
        """`state` with other components; statistics of owner `restart` are let go."""
        same = len(frozen) + len(active) == len(state.components)
        if same and restart is None:
            return state
        places = {group.owner: index for index, group in enumerate(state.groups)}
        group_of = torch.tensor(
            [places[owner] for owner in active.owner.tolist()],
            dtype=torch.int64,
            device=active.owner.device,
        )
        pending = state.pending
        if restart is not None:
            # Merging and seeding put an owner's components last; the others keep their order.
            old_owner = state.components.owner[state.n_frozen :]
            kept = old_owner != restart
            n_new = int((active.owner == restart).sum())
            padding = Moments(
                active.mass.new_zeros(n_new),
                active.means.new_zeros(n_new, state.n_features),
                active.means.new_zeros(n_new, state.n_features),
            )
            pending = Moments(
                *(torch.cat([part[kept], pad]) for part, pad in zip(pending, padding, strict=True))
            )
        return replace(
            state,
            mixing=Mixing(Components.concatenated([frozen, active]), self.floor),
            n_frozen=len(frozen),
            group_of=group_of,
            pending=pending,
            partition=state.partition + 1,
        )

    # Windows ------------------------------------------------------------------------------

    def _fit_windows(self, state: FlatState, generator: torch.Generator) -> FlatState:
        """Close every window that is longer than its fair share has become."""
        lengths = _window_lengths(state.groups)
        for index, length in lengths.items():
            if length and length >= self.window // len(lengths):
                state = self._close_window(state, index, generator)
        return state

    def _fill_window(
        self,
        state: FlatState,
        index: int,
        x: Tensor,
        codes: Tensor,
        generator: torch.Generator,
    ) -> tuple[FlatState, int]:
        """Hold an owner's first samples, seeding anew at every doubling.

        Returns:
            The state, and how many of the samples the window took.
        """
        group = state.groups[index]
        assert group.window is not None
        assert group.codes is not None
        fair = max(1, self.window // len(_window_lengths(state.groups)))
        limit = min(max(WINDOW_PER_OWNER, WINDOW_FACTOR * self._most(state, group.owner)), fair)
        taken = x[: max(0, limit - len(group.window))]
        n = len(taken)
        window = torch.cat([group.window, taken])
        group = replace(
            group,
            window=window,
            codes=torch.cat([group.codes, codes[:n]]),
            samples=group.samples + n,
        )
        state = replace(state, groups=_put(state.groups, index, group))
        full = len(window) >= limit
        if not full and len(window) < max(1, 2 * group.seeded_at):
            return state, n
        if group.owner == NO_CLASS:
            # Its share of the budget follows its share of the samples.
            state = self._fit_budget(state, generator, (len(window) - group.seeded_at,) * 2)
        if full:
            return self._close_window(state, index, generator), n
        return self._seed(state, index, generator), n

    def _close_window(
        self, state: FlatState, index: int, generator: torch.Generator, most: int | None = None
    ) -> FlatState:
        """Let an owner's raw samples go; its components stand on their own from here.

        Arguments:
            most: Components to start, if they have to be started; None takes the allowance.
        """
        group = state.groups[index]
        if group.window is None:
            return state
        if len(group.window) > group.seeded_at:
            state = self._seed(state, index, generator, most)
        group = replace(state.groups[index], window=None, codes=None, steps=0.0)
        return replace(state, groups=_put(state.groups, index, group))

    def _seed(
        self, state: FlatState, index: int, generator: torch.Generator, most: int | None = None
    ) -> FlatState:
        """Start an owner's components from its window."""
        group = state.groups[index]
        if group.window is None:
            return state
        owner, window = group.owner, group.window
        most = self._most(state, owner) if most is None else most
        k = min(most, max(1, len(window) // SAMPLES_PER_COMPONENT))
        sums = seed_components(window, k, self.floor, generator)
        if len(window) < FEWEST_COPIES and bool((window == window[0]).all()):
            sums = self._blurred(state, sums)
        seeded = Components.of_owner(sums, owner, state.n_classes)
        if owner == NO_CLASS:
            seeded = self._with_votes(seeded, group)
        active = state.active
        others = active.select(active.owner != owner)
        state = replace(
            state,
            groups=_put(state.groups, index, replace(group, seeded_at=len(window))),
        )
        return self._with_components(
            state, state.frozen, Components.concatenated([others, seeded]), restart=owner
        )

    def _with_votes(self, seeded: Components, group: Group) -> Components:
        """The votes of a window's labelled samples on the components that it started."""
        assert group.window is not None
        assert group.codes is not None
        labelled = group.codes != NO_CLASS
        if not bool(labelled.any()):
            return seeded
        joint = log_joint(seeded.mixture(self.floor), group.window[labelled])
        return replace(seeded, votes=_votes(joint, group.codes[labelled], seeded.votes.shape[1]))

    def _blurred(self, state: FlatState, sums: Moments) -> Moments:
        """One sample, however often: mixed with all that is known, or with nothing."""
        components = state.components
        mean, second = torch.zeros_like(sums.first), torch.full_like(sums.second, self.floor)
        if len(components):
            known = components.moments()
            total = known.mass.sum()
            mean, second = known.first.sum(0) / total, known.second.sum(0) / total
        mass = sums.mass[:, None]
        return Moments(sums.mass, (sums.first + mass * mean) / 2, (sums.second + mass * second) / 2)

    # Stepwise EM --------------------------------------------------------------------------

    def _step(self, state: FlatState, x: Tensor, codes: Tensor, scores: Scores | None) -> FlatState:
        """Learn samples of owners whose windows are closed."""
        for begin in range(0, len(x), CHUNK):
            rows = slice(begin, begin + CHUNK)
            known = scores if scores is not None and len(x) <= CHUNK else None
            state = self._accumulate(state, x[rows], codes[rows], known)
            state = self._maximise(state, at_least=STEP_SAMPLES)
        return state

    def _accumulate(
        self, state: FlatState, x: Tensor, codes: Tensor, scores: Scores | None
    ) -> FlatState:
        """E-step: add the samples' moments to those of their owners' components."""
        if scores is None:
            scores = self.score(state, x)
            assert scores is not None
        owners = state.owners_of(codes)
        foreign = owners[:, None] != state.components.owner[state.n_frozen :]
        joint = scores.joint[:, state.n_frozen :].masked_fill(foreign, -math.inf)
        pending = state.pending + moments(responsibilities(joint), x, scores.x_squared)
        shared = (owners != codes).nonzero()[:, 0]
        if len(shared):
            votes = state.components.votes.clone()
            votes[state.n_frozen :] += _votes(joint[shared], codes[shared], votes.shape[1])
            mixing = Mixing(replace(state.components, votes=votes), self.floor)
            state = replace(state, mixing=mixing)
        return replace(state, pending=pending)

    def _maximise(self, state: FlatState, at_least: float) -> FlatState:
        """M-step, once some owner has `at_least` new samples."""
        pending, n_groups = state.pending, len(state.groups)
        new = pending.mass.new_zeros(n_groups).index_add(0, state.group_of, pending.mass)
        counts = new.tolist()
        if max(counts, default=0.0) < at_least - 0.5:
            return state
        # Who is half-way there comes along: one pass over the parameters serves them all.
        due = [count > 0.5 and count >= at_least / 2 for count in counts]
        active = state.active
        old = new.new_zeros(n_groups).index_add(0, state.group_of, active.mass)
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
        mass = (
            mass
            * (total / new.new_zeros(n_groups).index_add(0, state.group_of, mass))[state.group_of]
        )
        first = pending.first / pending.mass.clamp_min(LEAST_MASS)[:, None]
        second = pending.second / pending.mass.clamp_min(LEAST_MASS)[:, None]
        towards = first - active.means
        spread = (second - first.square()).clamp_min(0)
        stepped = replace(
            active,
            mass=torch.where(moved, mass, active.mass),
            means=active.means + share * towards,
            variances=(1 - share) * (active.variances + share * towards.square()) + share * spread,
        )
        return replace(
            state,
            mixing=Mixing(Components.concatenated([state.frozen, stepped]), self.floor),
            groups=tuple(groups),
            pending=pending.scaled((~moved).to(mass.dtype)),
        )

    # Labels on components without a class -------------------------------------------------

    def _vote(
        self, state: FlatState, x: Tensor, codes: Tensor, scores: Scores | None
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
        votes = _votes(scores.joint[voting], codes[voting], state.n_classes)
        votes = components.votes + votes * nobody[:, None]
        mixing = Mixing(replace(components, votes=votes), self.floor)
        return replace(state, mixing=mixing), scores

    def _readout(self, state: FlatState) -> PosteriorReadout:
        temperature = max(1.0, state.n_features / FEATURES_PER_DEGREE)
        return PosteriorReadout(state.mixing.component_classes, temperature)


def _index_of(groups: tuple[Group, ...], owner: int) -> int:
    """Place of an owner's group, or -1."""
    for index, group in enumerate(groups):
        if group.owner == owner:
            return index
    return -1


def _put(groups: tuple[Group, ...], index: int, group: Group) -> tuple[Group, ...]:
    """`groups` with one of them replaced."""
    return (*groups[:index], group, *groups[index + 1 :])


def _window_lengths(groups: tuple[Group, ...]) -> dict[int, int]:
    """Samples held by every open window, by the group's place."""
    return {
        index: len(group.window) for index, group in enumerate(groups) if group.window is not None
    }


def _votes(joint: Tensor, codes: Tensor, n_classes: int) -> Tensor:
    """Samples per component and class, with shape (K, C), from log-joint values (N, K)."""
    classes = torch.nn.functional.one_hot(codes, n_classes)
    return responsibilities(joint).T @ classes.to(joint.dtype)


def _rescaled(
    means: Tensor, variances: Tensor, factor: Tensor, offset: Tensor
) -> tuple[Tensor, Tensor]:
    """Means and variances, both (K, D), of x' = factor * x + offset.

    No standardised sample lies outside the clip, so that no mean or deviation can.
    """
    means = (means * factor + offset).clamp(-CLIP, CLIP)
    # Not by the square of the factor, which may overflow where the product does not.
    return means, (variances.clamp_min(0) * factor * factor).clamp_max(CLIP**2)
