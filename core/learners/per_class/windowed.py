"""Samples in, components out: an owner's window, learned in rounds of EM and let go.

A window is learned in a few rounds, each of which sees its samples and the
statistics of all windows before. Those were taken with the parameters of their time and
fade a little with every window, so that early, poor ones are forgotten (incremental EM,
Neal & Hinton 1998, with the fading of Cappe & Moulines 2009).

Until an owner's first window is full, its components are started from what is there
whenever that has doubled: the model answers from the first batch on.

When the stream is quiet, components are fitted to the windows as they are, to be shown until
a window is due. Learning goes on from those of before, so that it makes no difference to what
is learned how often a stream pauses.

A family supplies `seeded`, `fitted`, `expected`, `broad`, `made` and `merged`. Parameters of K
components are a tuple of tensors, means first; statistics a named tuple of them, masses first.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from core.density.density import Parts
from core.density.diagonal.seeding import FEWEST_SAMPLES as FEWEST_TO_AVERAGE
from core.density.factors.seeding import FEWEST_COPIES, FEWEST_SAMPLES
from core.density.grouping import Grouping
from core.density.mixture import log_sum_exp, responsibilities
from core.density.owned import NO_CLASS
from core.learners.learner import Scores
from core.learners.per_class.banks import BankGroup, BankState
from core.learners.per_class.growing import appended
from core.learners.per_class.learner import PerClassLearner
from core.learners.per_class.windows import Windows
from core.standardiser import strays

S = TypeVar("S", bound=BankState)

Parameters = tuple[Tensor, ...]

SAMPLES_PER_COMPONENT = 40
"""An owner's components grow by one for so many of its samples ..."""

MOST_PER_OWNER = 50
"""... up to so many in a sub-task: twice as many cost twice as much and gain a tenth of a point."""

SAMPLES_PER_NEWCOMER = 20
"""A later window starts at most one for so many of its samples beside those there are: many find
too few samples of their own, and are let go."""

MOST_HELD = 2048
"""Samples in one owner's window: more gain little and are learned later, all at once."""

FEWEST_TO_WAIT = 200
"""Samples that components stand for, from which on more of them wait until a window is full.
Fewer are left where raw samples were let go early in a sub-task."""

FIRST_ROUNDS = 5
PASSING_ROUNDS = 2
"""Rounds of EM for components that will be started again when the window has doubled."""

ROUNDS = 4
FADING = 1.0
"""How much faster than an average the statistics forget: 0 weighs all windows alike, 1 weighs
each in proportion to its place, so that early, poor ones count little."""


class Fit(NamedTuple):
    """What EM made of a window of N samples."""

    sums: Any  # statistics of all samples, those of before included
    shares: Tensor  # (N, K) their responsibilities
    parameters: Parameters
    copies: Tensor  # (K,) bool, whose samples are one sample, sent too few times to be a fact


class WindowedEM(Windows[S]):
    """Holds samples, and learns them a window at a time."""

    # What a family supplies.

    @abstractmethod
    def seeded(
        self, state: S, x: Tensor, k: int, generator: torch.Generator, beside: Tensor | None = None
    ) -> tuple[Tensor, Parameters]:
        """Place at most k components among samples.

        Arguments:
            x: With shape (N, D), N at least 1.
            beside: Means that there are already, with shape (M, D): what is nearest to one of
                them is left to it.

        Returns:
            Masses, with shape (K,), and parameters; with `beside` there may be none.
        """

    @abstractmethod
    def fitted(
        self, x: Tensor, before: Any, mass: Tensor, parameters: Parameters, rounds: int
    ) -> Fit:
        """Rounds of EM on N samples beside the statistics of those before; None: there are none."""

    @abstractmethod
    def expected(self, mass: Tensor, components: Any) -> Any:
        """The statistics that components would generate, counting as `mass` samples, (K,)."""

    @abstractmethod
    def broad(
        self, state: S, means: Tensor, variances: Tensor, generator: torch.Generator
    ) -> Parameters:
        """Parameters of components of which no more is known than these, with shape (K, D)."""

    @abstractmethod
    def made(self, mass: Tensor, parameters: Parameters, owner: int, n_classes: int) -> Any:
        """Components of one owner."""

    @abstractmethod
    def variances(self, components: Any) -> Tensor:
        """Of each feature in each component, with shape (K, D)."""

    @abstractmethod
    def parameters(self, components: Any) -> Parameters:
        """Those of `made`, again."""

    # What all of them share.

    def take(self, state: S, index: int, x: Tensor, codes: Tensor) -> tuple[S, int]:
        """Hold as many of an owner's samples as there is room for: at least one.

        Returns:
            The state, and how many were taken: the first ones.
        """
        group = state.groups[index]
        room = min(self.samples - _held(state), MOST_HELD - group.held)
        n = min(x.size(0), room)
        held = replace(
            group,
            window=appended(group.window, x[:n]),
            codes=appended(group.codes, codes[:n]),
            samples=group.samples + n,
        )
        return state.with_group(index, held), n

    def due(self, state: S, index: int) -> int | None:
        """Whose window is to be learned, after samples were held for the group `index`.

        The longest one where there is no room left: so windows of many owners fill up at
        different times, and are twice as long as if each had its fixed share.
        """
        lengths = [group.held for group in state.groups]
        if sum(lengths) >= self.samples:
            return lengths.index(max(lengths))
        group, length = state.groups[index].unsettled, lengths[index]
        if group.sums is None:
            early = length >= max(1, 2 * group.seeded_at)
        else:
            # What stands for next to nothing, or not for all of its classes, must not wait long.
            early = group.absorbed < FEWEST_TO_WAIT and length >= group.absorbed
            early = early or _unheard(group)
        return index if early or length >= MOST_HELD else None

    def learned(self, state: S, index: int, generator: torch.Generator) -> S:
        """With a window absorbed, or components started anew from one that has doubled."""
        state = _unsettled(state, index)
        group = state.groups[index]
        full = len(group.window) >= MOST_HELD or _held(state) >= self.samples
        # Statistics of earlier windows are never dropped, even if room has been made since.
        if full or group.sums is not None:
            return self.absorbed(state, index, generator)
        return self._started(state, index, generator, PASSING_ROUNDS, passing=True)

    def absorbed(self, state: S, index: int, generator: torch.Generator) -> S:
        state = _unsettled(state, index)
        group = state.groups[index]
        if not len(group.window):
            return state
        if group.sums is None:
            state = self._started(state, index, generator, FIRST_ROUNDS)
        else:
            state = self._continued(state, index, generator)
        group = state.groups[index]
        empty = replace(group, window=group.window[:0].clone(), codes=group.codes[:0].clone())
        return state.with_group(index, empty)

    def settled(self, state: S, index: int, generator: torch.Generator) -> S:
        before = state.groups[index].unsettled
        learned = self.absorbed(state, index, generator)
        bank, length = learned.groups[index].bank, len(before.window)
        return state.with_components(
            index, replace(before, bank=bank, base=before.bank, settled_at=length)
        )

    def emptied(self, state: S) -> Iterator[BankGroup]:
        for group in state.groups:
            samples = group.absorbed + group.fitted
            if group.fitted:
                # Its components have seen some of them, and stand on their own from here.
                group = replace(self.standing(group), base=None, settled_at=0)
            window, codes = group.window[:0].clone(), group.codes[:0].clone()
            yield replace(group, window=window, codes=codes, samples=samples, seeded_at=0)

    def reduced(self, state: S, index: int, most: int) -> S:
        group = state.groups[index]
        if group.base is not None and most < max(len(group.base), len(group.bank)):
            state = state.with_components(index, group.unsettled)
        if len(state.groups[index].bank) <= most:
            return state
        state = super().reduced(state, index, most)
        group = state.groups[index]
        return state if group.sums is None else state.with_group(index, self.standing(group))

    def resumed(self, group: BankGroup, mass: float) -> BankGroup:
        return self.standing(replace(group, samples=group.samples + round(mass)))

    def standing(self, group: BankGroup, mass: Tensor | None = None) -> BankGroup:
        """With the statistics that a group's components would generate: analytic replay.

        Arguments:
            mass: What they count as, with shape (K,), where earlier samples have faded.
        """
        components = group.bank.components
        mass = components.mass if mass is None else mass
        return replace(group, sums=self.expected(mass, components))

    def _wanted(self, state: S, group: BankGroup) -> int:
        """Components that an owner's samples call for, and its budget allows."""
        allowed = self.budget.most_active(state, group.owner)
        grown = max(1, group.samples // SAMPLES_PER_COMPONENT)
        return min(allowed, MOST_PER_OWNER, grown)

    def _started(
        self,
        state: S,
        index: int,
        generator: torch.Generator,
        rounds: int,
        passing: bool = False,
    ) -> S:
        """With an owner's components started anew from its window."""
        whole = state.groups[index]
        group = _without_strays(whole)
        state = state.with_group(index, group)
        x = group.window
        mass, parameters = self.seeded(state, x, self._wanted(state, group), generator)
        fit = self.fitted(x, None, mass, parameters, rounds)
        copies = len(x) < FEWEST_COPIES and bool((x == x[0]).all())
        alone = len(x) < FEWEST_TO_AVERAGE or copies
        if alone:
            fit = fit._replace(parameters=self._blurred(state, fit.parameters[0], generator))
        state = self._with_components(state, index, fit)
        group = state.groups[index]
        if passing:
            # They will be started again, from more samples and without what was learned here.
            held = replace(group, window=whole.window, codes=whole.codes)
            return state.with_group(index, replace(held, sums=None, seeded_at=len(held.window)))
        # Sums over one sample are that sample.
        return state.with_group(index, self.standing(group)) if alone else state

    def _continued(self, state: S, index: int, generator: torch.Generator) -> S:
        """With an owner's window learned on top of what it has learned before."""
        group = _without_strays(state.groups[index])
        state = state.with_group(index, group)
        x, old = group.window, group.bank.components
        faded = FADING * len(x) / (FADING * len(x) + group.absorbed)
        before = group.sums.scaled(1 - faded)
        mass, parameters = old.mass, self.parameters(old)
        more = min(self._wanted(state, group) - len(old), len(x) // SAMPLES_PER_NEWCOMER)
        if more > 0:
            new_mass, new = self.seeded(state, x, more, generator, old.means)
            before = type(before)(*(_extended(part, len(new_mass)) for part in before))
            mass = torch.cat([before[0][: len(old)], new_mass])
            parameters = tuple(map(torch.cat, zip(parameters, new, strict=True)))
        rounds = ROUNDS if len(x) >= SAMPLES_PER_COMPONENT else 1
        fit = self.fitted(x, before, mass, parameters, rounds)
        return self._with_components(state, index, fit)

    def _with_components(self, state: S, index: int, fit: Fit) -> S:
        """With an owner's components as they were fitted to its window, starved ones left out."""
        group = state.groups[index]
        sums, shares, parameters = fit.sums, fit.shares, fit.parameters
        masses = sums[0]
        # The others take over what a starved one stood for when the next samples come.
        kept = masses >= masses.max().clamp_max(FEWEST_SAMPLES)
        apart = kept > fit.copies  # kept, and no copies: one operation for a device
        kept = torch.where(apart.any(), apart, kept)
        rows = kept.nonzero()[:, 0]  # a device counts a mask anew for each tensor
        mass = masses[rows]
        mass = mass * (group.samples / mass.sum())
        stayed = tuple(part[rows] for part in parameters)
        owned = self.made(mass, stayed, group.owner, state.n_classes)
        if group.owner == NO_CLASS:
            nearest = _nearest(parameters[0][~kept], stayed[0])
            both = self._votes(state, group, shares)
            votes, vote_baseline = (part[rows] + nearest.summed(part[~kept]) for part in both)
            owned = replace(owned, votes=votes, vote_baseline=vote_baseline)
        elif group.sums is not None:
            # What labels have said of those that learning goes on from.
            said = group.bank.components.votes
            stay = kept[: len(said)].nonzero()[:, 0]
            owned = replace(owned, votes=torch.cat([said[stay], owned.votes[len(stay) :]]))
        sums = type(sums)(*(part[rows] for part in sums))
        learned = replace(group, bank=group.bank.of(owned), sums=sums)
        # Even the same components now win other samples than before.
        return state.with_components(index, learned)

    def _blurred(self, state: S, means: Tensor, generator: torch.Generator) -> Parameters:
        """One sample, however often: mixed with all that is known, or with nothing."""
        known, spread = torch.zeros_like(means), torch.full_like(means, self.floor)
        if len(state):
            all_ = state.components
            shares = all_.mass / all_.mass.sum()
            known = (shares @ all_.means).expand_as(means)
            away = (all_.means - known[0]).square()
            spread = (shares @ (self.variances(all_) + away)).expand_as(means)
        blur = spread / 2 + ((means - known) / 2).square()
        return self.broad(state, (means + known) / 2, blur, generator)

    def _votes(self, state: S, group: BankGroup, shares: Tensor) -> tuple[Tensor, Tensor]:
        """Labelled samples per component (K) and class (C): those of before and the window's.

        And what they are compared with, of before.
        """
        components = group.bank.components
        old: Tensor = components.votes
        votes = old.new_zeros(shares.shape[1], state.n_classes)
        vote_baseline = old.new_zeros(len(votes), 1 + state.n_classes)
        if group.sums is not None:
            votes[: len(old)] = old
            vote_baseline[: len(old)] = components.vote_baseline
        elif len(old):
            # Components were started anew: votes that came from outside of the window follow
            # the samples on whose components they fell. Those of pooled classes are inside.
            pooled = torch.tensor(state.pooled, dtype=torch.int64, device=old.device)
            joint = group.bank.form.log_joint(group.window, group.window.square())
            wins = responsibilities(joint)
            wins = wins / wins.sum(0).clamp_min(torch.finfo(wins.dtype).tiny)
            votes += shares.T @ (wins @ old.index_fill(1, pooled, 0))
            vote_baseline += shares.T @ (wins @ components.vote_baseline)
        labelled = group.codes != NO_CLASS
        if bool(labelled.any()):
            classes = torch.nn.functional.one_hot(group.codes[labelled], state.n_classes)
            votes += shares[labelled].T @ classes.to(shares.dtype)
        return votes, vote_baseline


def _without_strays(group: BankGroup) -> BankGroup:
    """The same without the strays of its window, which would bend components (docs/method.md)."""
    astray = strays(group.window)
    if astray is None:
        return group
    stay = ~astray
    return replace(group, window=group.window[stay], codes=group.codes[stay])


class WindowedLearner(PerClassLearner[S]):
    """A learner of such windows."""

    windows: WindowedEM[S]

    def rescale(self, state: S, factor: Tensor, offset: Tensor) -> S:
        state = super().rescale(state, factor, offset)
        # Sums of squares in other units may leave the float32 range; what the
        # components would generate does not.
        groups = tuple(
            group
            if group.sums is None
            else replace(group, sums=self.windows.standing(group.unsettled, group.sums[0]).sums)
            for group in state.groups
        )
        return replace(state, groups=groups)

    def score(self, state: S, x: Tensor) -> Scores | None:
        if not len(state):
            return None
        squared = x.square()
        parts: Parts = {bank.form: bank.form.log_joint(x, squared) for bank in state.banks}
        joint = torch.cat([*parts.values()], 1).sub_(math.log(state.mass_of(None)))
        return Scores(x, squared, joint, log_sum_exp(joint), parts)

    def log_weights(self, state: S) -> Tensor:
        return state.column("mass").log().log_softmax(0)

    def taken(
        self, state: S, x: Tensor, codes: Tensor, scores: Scores | None, generator: torch.Generator
    ) -> S:
        # Who learns which samples is told on the CPU, once.
        whose = state.owners_of(codes)
        sizes = sorted(Counter(whose.tolist()).items())
        order = whose.argsort(stable=True)
        by_owner = x[order.to(x.device)], codes[order].to(x.device)
        parts = (torch.split(part, [n for _, n in sizes]) for part in by_owner)
        for (owner, _), mine, said in zip(sizes, *parts, strict=True):
            while mine.size(0):
                index = state.index_of(owner)
                state, taken = self.windows.take(state, index, mine, said)
                mine, said = mine[taken:], said[taken:]
                while (due := self.windows.due(state, index)) is not None:
                    state = self._learned(state, due, generator)
        return state

    def _learned(self, state: S, index: int, generator: torch.Generator) -> S:
        """With what an owner's window holds learned."""
        group = state.groups[index]
        if group.owner == NO_CLASS:
            # Its share of the budget follows its share of the samples.
            news = group.samples - round(group.bank.mass)
            state = self.capacity.fitted(state, generator, (news, news))
        return self.windows.learned(state, index, generator)


def _extended(part: Tensor, n: int) -> Tensor:
    """Statistics of K components, and of n more that have none yet."""
    return torch.cat([part, part.new_zeros(n, *part.shape[1:])])


def _nearest(means: Tensor, others: Tensor) -> Grouping:
    """Components that are no more, by the nearest of others, which votes are handed on to.

    Arguments:
        means: Of those that are no more, with shape (M, D).
        others: Means of the others, with shape (K, D).
    """
    nearest = torch.addmm(others.square().sum(-1), means, others.T, alpha=-2).argmin(-1)
    return Grouping(nearest, len(others))


def _unheard(group: BankGroup) -> bool:
    """Whether a window holds samples of a pooled class that no component votes for yet."""
    if group.owner != NO_CLASS:
        return False
    mine = group.codes[group.codes != NO_CLASS]
    return len(mine) > 0 and not bool(group.bank.components.votes.sum(0)[mine].all())


def _unsettled(state: S, index: int) -> S:
    """With the components that one owner's learning goes on from, about to be replaced."""
    return state.with_group(index, state.groups[index].unsettled)


def _held(state: BankState) -> int:
    """Samples in all windows."""
    return sum(group.held for group in state.groups)
