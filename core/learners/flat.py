"""Preset `flat`: diagonal components that belong to classes, learned in one pass.

The rules that keep it from forgetting:

1. A component learns from the samples of one owner only: a class, or the samples
   without a label. What one class learns cannot move another's components.
2. Components of earlier sub-tasks are frozen. Room for new ones is made by merging,
   with analytic replay (`core.density.merging`), never by drawing samples.
3. The budget K is shared equally by the classes known; unlabelled samples get a share
   by their number. So memory and the cost of a batch stay constant for an endless stream.

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
from core.density.seeding import seed_components
from core.learners.learner import Replay, Scores
from core.model import Model
from core.readout import PosteriorReadout

WINDOW_PER_OWNER = 512
WINDOW_FACTOR = 8
"""Samples of one owner that its components start from: the larger of a number, and so many
per component, as far as `EngineConfig.window` allows."""

SMALLEST_WINDOW = 32
SAMPLES_PER_COMPONENT = 8
"""Samples a window must hold for each component that starts from it."""

STEP_SAMPLES = 100
"""Samples of one owner behind every M-step, however they are cut into batches."""

STEP_EXPONENT = 0.7
STEP_OFFSET = 2.0
"""The t-th M-step moves the statistics by (t + offset) ** -exponent."""

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
        """p(c | k), with shape (K, C); even where no label ever fell on a component."""
        votes = self.components.votes
        total = votes.sum(-1, keepdim=True)
        return torch.where(total > 0, votes / total.clamp_min(1e-12), 1 / max(1, votes.shape[1]))


@dataclass(frozen=True, eq=False)
class FlatState:
    """Everything preset `flat` has learned.

    Arguments:
        mixing: Components; the first `n_frozen` are of earlier sub-tasks.
        group_of: Index into `groups` per active component, with shape (K - n_frozen,), int64.
        groups: Owners that the current sub-task has seen.
        pending: Moments since the last M-step, per active component.
        sub_tasks_of: Per owner, how many sub-tasks its frozen components stand for.
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
    partition: int

    @property
    def components(self) -> Components:
        """All components, frozen ones first."""
        return self.mixing.components


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
            partition=0,
        )

    def grow(self, state: FlatState, n_classes: int) -> FlatState:
        old = state.components
        added = old.votes.new_zeros(len(old), n_classes - state.n_classes)
        grown = replace(old, votes=torch.cat([old.votes, added], 1))
        return replace(state, n_classes=n_classes, mixing=Mixing(grown, self.floor))

    def rescale(self, state: FlatState, factor: Tensor, offset: Tensor) -> FlatState:
        old = state.components
        rescaled = replace(
            old,
            means=old.means * factor + offset,
            variances=old.variances * factor.square(),
        )
        mass = state.pending.mass[:, None]
        pending = Moments(
            state.pending.mass,
            state.pending.first * factor + mass * offset,
            state.pending.second * factor.square()
            + 2 * factor * offset * state.pending.first
            + mass * offset.square(),
        )
        groups = tuple(
            group if group.window is None else replace(group, window=group.window * factor + offset)
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
        owners = sorted(set(codes.tolist()))
        state, replays = self._open_groups(state, codes, owners)
        if scores is not None:
            state = self._vote(state, scores, codes)
        stepping = torch.ones(len(x), dtype=torch.bool, device=x.device)
        for owner in owners:
            index = _index_of(state.groups, owner)
            if state.groups[index].window is not None:
                rows = (codes == owner).nonzero()[:, 0]
                state, taken = self._fill_window(state, index, x[rows], generator)
                stepping[rows[:taken]] = False
                scores = None  # components changed under them
        if bool(stepping.all()):
            return self._step(state, x, codes, scores), replays
        if bool(stepping.any()):
            state = self._step(state, x[stepping], codes[stepping], None)
        return state, replays

    def begin_sub_task(
        self, state: FlatState, generator: torch.Generator
    ) -> tuple[FlatState, list[Replay]]:
        before = len(state.components)
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
        state = self._fit_budget(state)
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
        self, state: FlatState, codes: Tensor, owners: list[int]
    ) -> tuple[FlatState, list[Replay]]:
        """Make a group, and room, for every owner that this sub-task sees for the first time."""
        new = [owner for owner in owners if _index_of(state.groups, owner) < 0]
        if not new:
            return state, []
        opened = tuple(
            Group(owner, 0.0, 0.0, codes.new_zeros(0, state.n_features, dtype=torch.float32), 0)
            for owner in new
        )
        before = len(state.components)
        n_unlabelled = int((codes == NO_CLASS).sum())
        state = replace(state, groups=state.groups + opened)
        state = self._fit_budget(state, incoming=(n_unlabelled, len(codes)))
        after = len(state.components)
        if after == before:
            return state, []
        mass = round(float(state.components.mass.sum()))
        return state, [Replay("analytic", mass, before, after, "budget")]

    def _allowance(self, state: FlatState, incoming: tuple[int, int]) -> dict[int, int]:
        """Components that each owner may have, frozen and active together."""
        owners = set(state.components.owner.tolist()) | {group.owner for group in state.groups}
        classes = owners - {NO_CLASS}
        left = self.budget
        allowance = {}
        if NO_CLASS in owners:
            components = state.components
            mass = float(components.mass[components.owner == NO_CLASS].sum())
            total = float(components.mass.sum()) + incoming[1]
            share = (mass + incoming[0]) / total if total else 1.0
            most = max(1, self.budget - len(classes))
            allowance[NO_CLASS] = min(max(1, round(share * self.budget)), most)
            left -= allowance[NO_CLASS]
        each, spare = divmod(max(left, len(classes)), max(1, len(classes)))
        for place, owner in enumerate(sorted(classes)):
            allowance[owner] = each + (place < spare)
        return allowance

    def _split(self, state: FlatState, owner: int, allowed: int) -> tuple[int, int]:
        """An owner's allowance, for its frozen components and for the active ones."""
        sub_tasks = state.sub_tasks_of.get(owner, 0)
        if _index_of(state.groups, owner) < 0:
            return allowed, 0
        if sub_tasks == 0:
            return 0, allowed
        active = max(1, round(allowed / (sub_tasks + 1)))
        return max(1, allowed - active), active

    def _most(self, state: FlatState, owner: int) -> int:
        """Components that an owner may have in the current sub-task."""
        return self._split(state, owner, self._allowance(state, (0, 0))[owner])[1]

    def _fit_budget(self, state: FlatState, incoming: tuple[int, int] = (0, 0)) -> FlatState:
        """Merge every owner's components down to what it is allowed."""
        if len(state.components) == 0:
            return state
        frozen = state.components.select(slice(0, state.n_frozen))
        active = state.components.select(slice(state.n_frozen, None))
        for owner, allowed in self._allowance(state, incoming).items():
            most_frozen, most_active = self._split(state, owner, allowed)
            frozen = self._merge_owner(frozen, owner, most_frozen)
            merged = self._merge_owner(active, owner, most_active)
            if len(merged) != len(active):
                state = self._with_components(state, frozen, merged, restart=owner)
                active = merged
        return self._with_components(state, frozen, active)

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

    def _fill_window(
        self, state: FlatState, index: int, x: Tensor, generator: torch.Generator
    ) -> tuple[FlatState, int]:
        """Hold an owner's first samples, seeding anew at every doubling.

        Returns:
            The state, and how many of the samples the window took.
        """
        group = state.groups[index]
        assert group.window is not None
        fair = max(SMALLEST_WINDOW, self.window // len(state.groups))
        limit = min(max(WINDOW_PER_OWNER, WINDOW_FACTOR * self._most(state, group.owner)), fair)
        room = max(0, limit - len(group.window))
        taken = x[:room]
        window = torch.cat([group.window, taken])
        group = replace(group, window=window, samples=group.samples + len(taken))
        state = replace(state, groups=_put(state.groups, index, group))
        if len(window) >= limit:
            return self._close_window(state, index, generator), len(taken)
        if len(window) >= 2 * max(1, group.seeded_at):
            return self._seed(state, index, generator), len(taken)
        return state, len(taken)

    def _close_window(self, state: FlatState, index: int, generator: torch.Generator) -> FlatState:
        """Let an owner's raw samples go; its components stand on their own from here."""
        group = state.groups[index]
        if group.window is None:
            return state
        if len(group.window) > group.seeded_at:
            state = self._seed(state, index, generator)
        group = replace(state.groups[index], window=None, steps=0.0)
        return replace(state, groups=_put(state.groups, index, group))

    def _seed(self, state: FlatState, index: int, generator: torch.Generator) -> FlatState:
        """Start an owner's components from its window."""
        group = state.groups[index]
        assert group.window is not None
        owner, window = group.owner, group.window
        k = min(self._most(state, owner), max(1, len(window) // SAMPLES_PER_COMPONENT))
        sums = seed_components(window, k, self.floor, generator)
        if len(window) == 1:
            sums = self._blurred(state, sums)
        seeded = Components.of_owner(sums, owner, state.n_classes)
        frozen = state.components.select(slice(0, state.n_frozen))
        active = state.components.select(slice(state.n_frozen, None))
        others = active.select(active.owner != owner)
        state = replace(
            state,
            groups=_put(state.groups, index, replace(group, seeded_at=len(window))),
        )
        return self._with_components(
            state, frozen, Components.concatenated([others, seeded]), restart=owner
        )

    def _blurred(self, state: FlatState, sums: Moments) -> Moments:
        """A single sample, mixed with all that is known (or with nothing): never itself."""
        components = state.components
        if len(components) == 0:
            mean, second = torch.zeros_like(sums.first), torch.full_like(sums.second, self.floor)
        else:
            known = components.moments()
            total = known.mass.sum()
            mean = (known.first.sum(0) / total).expand_as(sums.first)
            second = (known.second.sum(0) / total).expand_as(sums.second)
        return Moments(sums.mass, (sums.first + mean) / 2, (sums.second + second) / 2)

    # Stepwise EM --------------------------------------------------------------------------

    def _step(self, state: FlatState, x: Tensor, codes: Tensor, scores: Scores | None) -> FlatState:
        """Learn samples of owners whose windows are closed."""
        for begin in range(0, len(x), CHUNK):
            rows = slice(begin, begin + CHUNK)
            known = scores if scores is not None and len(x) <= CHUNK else None
            state = self._accumulate(state, x[rows], codes[rows], known)
            state = self._maximise(state)
        return state

    def _accumulate(
        self, state: FlatState, x: Tensor, codes: Tensor, scores: Scores | None
    ) -> FlatState:
        """E-step: add the samples' moments to those of their owners' components."""
        if scores is None:
            scores = self.score(state, x)
            assert scores is not None
        owner = state.components.owner[state.n_frozen :]
        foreign = codes[:, None] != owner
        joint = scores.joint[:, state.n_frozen :].masked_fill(foreign, -math.inf)
        weights = responsibilities(joint)
        pending = state.pending + moments(weights, x, scores.x_squared)
        return replace(state, pending=pending)

    def _maximise(self, state: FlatState) -> FlatState:
        """M-step for every owner with enough new samples."""
        n_groups = len(state.groups)
        new = state.pending.mass.new_zeros(n_groups)
        new = new.index_add(0, state.group_of, state.pending.mass)
        counts = new.tolist()
        if max(counts, default=0.0) < STEP_SAMPLES - 0.5:
            return state
        # Who is half-way there comes along: one pass over the parameters serves them all.
        due = [count >= STEP_SAMPLES / 2 for count in counts]
        active = state.components.select(slice(state.n_frozen, None))
        old = new.new_zeros(n_groups).index_add(0, state.group_of, active.mass)
        groups, keep, gain, samples = [], [], [], []
        for group, is_due, count in zip(state.groups, due, counts, strict=True):
            rate = 0.0
            if is_due:
                steps = group.steps + count / STEP_SAMPLES
                rate = (steps + STEP_OFFSET) ** -STEP_EXPONENT
                group = replace(group, samples=group.samples + count, steps=steps)
            groups.append(group)
            keep.append(1 - rate)
            gain.append(rate / count if is_due else 0.0)
            samples.append(group.samples)
        # Statistics are kept per sample of the owner, so that shares add up to one.
        total = new.new_tensor(samples)
        keep_by = (new.new_tensor(keep) * total / old.clamp_min(1e-12))[state.group_of]
        gain_by = (new.new_tensor(gain) * total)[state.group_of]
        sums = active.moments().scaled(keep_by) + state.pending.scaled(gain_by)
        moved = torch.tensor(due, device=new.device)[state.group_of]
        mass = sums.mass.clamp_min(1e-6)
        means = sums.first / mass[:, None]
        variances = (sums.second / mass[:, None] - means.square()).clamp_min(0)
        stepped = replace(
            active,
            mass=torch.where(moved, mass, active.mass),
            means=torch.where(moved[:, None], means, active.means),
            variances=torch.where(moved[:, None], variances, active.variances),
        )
        frozen = state.components.select(slice(0, state.n_frozen))
        pending = state.pending.scaled((~moved).to(mass.dtype))
        return replace(
            state,
            mixing=Mixing(Components.concatenated([frozen, stepped]), self.floor),
            groups=tuple(groups),
            pending=pending,
        )

    # Labels on components without a class -------------------------------------------------

    def _vote(self, state: FlatState, scores: Scores, codes: Tensor) -> FlatState:
        """Labels that fall on components of unlabelled samples: those become a class's."""
        components = state.components
        nobody = components.owner == NO_CLASS
        labelled = codes != NO_CLASS
        if scores.joint.shape[1] != len(components) or not bool(nobody.any() & labelled.any()):
            return state
        weights = responsibilities(scores.joint[labelled]) * nobody
        classes = torch.nn.functional.one_hot(codes[labelled], state.n_classes)
        votes = components.votes + weights.T @ classes.to(weights.dtype)
        mixing = Mixing(replace(components, votes=votes), self.floor)
        return replace(state, mixing=mixing)

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
