"""Samples in, components out: an owner's window, learned and let go.

A window is learned by EM in a few rounds, each of which sees its samples and the
statistics of all windows before. Those were taken with the parameters of their time and
fade a little with every window, so that early, poor ones are forgotten (incremental EM,
Neal & Hinton 1998, with the fading of Cappe & Moulines 2009).

Until an owner's first window is full, its components are started from what is there
whenever that has doubled: the model answers from the first batch on.

When the stream is quiet, components are fitted to the windows as they are, to be shown until
a window is due. Learning goes on from those of before, so that it makes no difference to what
is learned how often a stream pauses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from core.density.deep.shifts import NO_SHIFTS, Shifts
from core.density.diagonal.components import NO_CLASS
from core.density.diagonal.seeding import FEWEST_SAMPLES as FEWEST_TO_AVERAGE
from core.density.diagonal.seeding import without_spread
from core.density.factor_mixture import (
    FactorMixture,
    FactorMoments,
    e_step,
    expected_moments,
    log_joint,
    m_step,
    no_moments,
    whitened_form,
)
from core.density.factors.components import Analysers
from core.density.factors.seeding import (
    FEWEST_COPIES,
    FEWEST_SAMPLES,
    SPARK,
    seed_analysers,
)
from core.density.mixture import Moments, responsibilities
from core.learners.per_class.budget import Budget
from core.learners.per_class.mfa.state import ComponentSet, Group, MfaState

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

RIDGE = 1.0
BELIEF = 10.0
"""Samples' worth of belief in loadings of zero, and in noise of half of what varies."""


class Fit(NamedTuple):
    """What EM made of a window of N samples."""

    sums: FactorMoments  # statistics of all samples, under all shifts
    versions: tuple[FactorMoments, ...]  # the same for samples as they came, and for each shift
    shares: Tensor  # (N, K) their responsibilities
    parameters: tuple[Tensor, Tensor, Tensor]  # means, loadings and noise

    @property
    def copies(self) -> Tensor:
        """Whose samples are one sample, sent too few times to be a fact; shape (K,), bool.

        Shifts of one sample differ from each other, but say no more than that sample.
        """
        alike = [
            without_spread(Moments(part.mass, part.cross[..., -1], part.second))
            for part in self.versions
        ]
        return torch.stack(alike).all(0) & (self.sums.mass < FEWEST_COPIES)


@dataclass(frozen=True)
class Windows:
    """Holds samples, and learns them.

    Arguments:
        budget: How many components there may be.
        floor: Smallest noise variance while responsibilities are computed.
        samples: Most samples held in all windows together.
        shifts: Under which samples are learned as well, all together as one sample.
    """

    budget: Budget
    floor: float
    samples: int
    shifts: Shifts = NO_SHIFTS

    def take(self, state: MfaState, index: int, x: Tensor, codes: Tensor) -> tuple[MfaState, int]:
        """Hold as many of an owner's samples as there is room for: at least one.

        Returns:
            The state, and how many were taken: the first ones.
        """
        group = state.groups[index]
        room = min(self.samples - _held(state), MOST_HELD - len(group.window))
        n = min(len(x), room)
        held = replace(
            group,
            window=torch.cat([group.window, x[:n]]),
            codes=torch.cat([group.codes, codes[:n]]),
            samples=group.samples + n,
        )
        return state.with_group(index, held), n

    def due(self, state: MfaState, index: int) -> int | None:
        """Whose window is to be learned, after samples were held for the group `index`.

        The longest one where there is no room left: so windows of many owners fill up at
        different times, and are twice as long as if each had its fixed share.
        """
        lengths = [len(group.window) for group in state.groups]
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

    def learned(self, state: MfaState, index: int, generator: torch.Generator) -> MfaState:
        """With a window absorbed, or components started anew from one that has doubled."""
        state = _unsettled(state, index)
        group = state.groups[index]
        full = len(group.window) >= MOST_HELD or _held(state) >= self.samples
        # Statistics of earlier windows are never dropped, even if room has been made since.
        if full or group.sums is not None:
            return self.absorbed(state, index, generator)
        return self._started(state, index, generator, PASSING_ROUNDS, passing=True)

    def absorbed(self, state: MfaState, index: int, generator: torch.Generator) -> MfaState:
        """With an owner's window learned and let go."""
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

    def settled(self, state: MfaState, index: int, generator: torch.Generator) -> MfaState:
        """With an owner's components fitted to its window, as if it were due; it stays open."""
        before = state.groups[index].unsettled
        learned = self.absorbed(state, index, generator)
        bank, length = learned.groups[index].bank, len(before.window)
        return state.with_components(
            index, replace(before, bank=bank, base=before.bank, settled_at=length)
        )

    def refitted(self, analysers: Analysers, x: Tensor) -> Analysers:
        """Components fitted to generated samples, (N, D); the mass of all, and votes, stay."""
        nothing = no_moments(len(analysers), analysers.loadings.shape[-1], x)
        parameters = (analysers.means, analysers.loadings, analysers.noise)
        # What is drawn has been learned under shifts, and has them already.
        sums, _, _, fitted = self._fitted(x, nothing, analysers.mass, parameters, ROUNDS, NO_SHIFTS)
        if bool((sums.mass < FEWEST_SAMPLES).any()):
            return analysers
        means, loadings, noise = fitted
        mass = sums.mass * (analysers.mass.sum() / sums.mass.sum())
        return replace(analysers, mass=mass, means=means, loadings=loadings, noise=noise)

    def emptied(self, state: MfaState) -> Iterator[Group]:
        """Every group without its raw samples; what was not learned from them is lost."""
        for group in state.groups:
            samples = group.absorbed + group.fitted
            if group.fitted:
                # Its components have seen some of them, and stand on their own from here.
                group = replace(standing(group), base=None, settled_at=0)
            window, codes = group.window[:0].clone(), group.codes[:0].clone()
            yield replace(group, window=window, codes=codes, samples=samples, seeded_at=0)

    def _wanted(self, state: MfaState, group: Group) -> int:
        """Components that an owner's samples call for, and its budget allows."""
        allowed = self.budget.most_active(state, group.owner)
        grown = max(1, group.samples // SAMPLES_PER_COMPONENT)
        return min(allowed, MOST_PER_OWNER, grown)

    def _started(
        self,
        state: MfaState,
        index: int,
        generator: torch.Generator,
        rounds: int,
        passing: bool = False,
    ) -> MfaState:
        """With an owner's components started anew from its window."""
        group = state.groups[index]
        x = group.window
        mass, parameters = seed_analysers(x, self._wanted(state, group), state.n_factors, generator)
        nothing = no_moments(len(mass), state.n_factors, x)
        fit = self._fitted(x, nothing, mass, parameters, rounds, self.shifts)
        copies = len(x) < FEWEST_COPIES and bool((x == x[0]).all())
        alone = len(x) < FEWEST_TO_AVERAGE or copies
        if alone:
            fit = fit._replace(parameters=self._blurred(state, fit.parameters, generator))
        state = self._with_components(state, index, fit)
        group = state.groups[index]
        if passing:
            # They will be started again, from more samples and without what was learned here.
            return state.with_group(index, replace(group, sums=None, seeded_at=len(x)))
        # Sums over one sample are that sample.
        return state.with_group(index, standing(group)) if alone else state

    def _continued(self, state: MfaState, index: int, generator: torch.Generator) -> MfaState:
        """With an owner's window learned on top of what it has learned before."""
        group = state.groups[index]
        assert group.sums is not None
        x, old = group.window, group.bank.analysers
        faded = FADING * len(x) / (FADING * len(x) + group.absorbed)
        before = group.sums.scaled(1 - faded)
        mass, parameters = old.mass, (old.means, old.loadings, old.noise)
        more = min(self._wanted(state, group) - len(old), len(x) // SAMPLES_PER_NEWCOMER)
        if more > 0:
            new_mass, new = seed_analysers(x, more, state.n_factors, generator, old.means)
            none = no_moments(len(new_mass), state.n_factors, x)
            before = FactorMoments(*map(_joined, before, none))
            mass = torch.cat([before.mass[: len(old)], new_mass])
            parameters = _joined3(parameters, new)
        rounds = ROUNDS if len(x) >= SAMPLES_PER_COMPONENT else 1
        fit = self._fitted(x, before, mass, parameters, rounds, self.shifts)
        return self._with_components(state, index, fit)

    def _fitted(
        self,
        x: Tensor,
        before: FactorMoments,
        mass: Tensor,
        parameters: tuple[Tensor, Tensor, Tensor],
        rounds: int,
        shifts: Shifts,
    ) -> Fit:
        """Rounds of EM on N samples, and their shifts, beside the statistics of those before."""
        squared = x.square()
        for _ in range(rounds):
            means, loadings, noise = parameters
            weights = (mass / mass.sum()).clamp_min(1e-9).log()
            mixture = FactorMixture(weights, means, loadings, noise.clamp_min(self.floor))
            form = whitened_form(mixture)
            new, shares = e_step(form, x, squared)
            # Shifts are made when they are learned, and never held.
            shifted = [e_step(form, moved)[0] for moved in shifts.of_samples(x)]
            versions = tuple(before + part for part in (new, *shifted))
            for part in shifted:
                new = new + part
            sums = before + new.scaled(1 / (1 + len(shifts))) if shifted else versions[0]
            parameters = m_step(sums, 0.5 * sums.spread_of_all, RIDGE, BELIEF)
            mass = sums.mass
        return Fit(sums, versions, shares, parameters)

    def _with_components(self, state: MfaState, index: int, fit: Fit) -> MfaState:
        """With an owner's components as they were fitted to its window, starved ones left out."""
        group = state.groups[index]
        sums, shares, parameters = fit.sums, fit.shares, fit.parameters
        # The others take over what a starved one stood for when the next samples come.
        kept = sums.mass >= min(FEWEST_SAMPLES, float(sums.mass.max()))
        apart = kept & ~fit.copies
        kept = apart if bool(apart.any()) else kept
        mass = sums.mass[kept] * (group.samples / sums.mass[kept].sum())
        means, loadings, noise = (part[kept] for part in parameters)
        owned = Analysers.of_owner(mass, (means, loadings, noise), group.owner, state.n_classes)
        if group.owner == NO_CLASS:
            votes = self._votes(state, group, shares)
            moved = _handed_on(votes[~kept], parameters[0][~kept], means)
            owned = replace(owned, votes=votes[kept] + moved)
        elif group.sums is not None:
            # What labels have said of those that learning goes on from.
            said = group.bank.analysers.votes
            stay = kept[: len(said)]
            owned = replace(owned, votes=torch.cat([said[stay], owned.votes[int(stay.sum()) :]]))
        learned = replace(group, bank=ComponentSet(owned, self.floor), sums=sums.select(kept))
        # Even the same components now win other samples than before.
        return state.with_components(index, learned)

    def _blurred(
        self,
        state: MfaState,
        parameters: tuple[Tensor, Tensor, Tensor],
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One sample, however often: mixed with all that is known, or with nothing."""
        means, loadings, noise = parameters
        known, spread = torch.zeros_like(means), torch.full_like(noise, self.floor)
        if len(state):
            all_ = state.analysers
            shares = all_.mass / all_.mass.sum()
            known = (shares @ all_.means).expand_as(means)
            variances = all_.noise + all_.loadings.square().sum(-1)
            away = (all_.means - known[0]).square()
            spread = (shares @ (variances + away)).expand_as(noise)
        blur = spread / 2 + ((means - known) / 2).square()
        sparks = torch.randn(loadings.shape, generator=generator).to(loadings)
        return (means + known) / 2, sparks * SPARK * blur.sqrt()[..., None], blur

    def _votes(self, state: MfaState, group: Group, shares: Tensor) -> Tensor:
        """Labelled samples per component (K) and class (C): those of before and the window's."""
        old = group.bank.analysers.votes
        votes = old.new_zeros(shares.shape[1], state.n_classes)
        if group.sums is not None:
            votes[: len(old)] = old
        elif len(old):
            # Components were started anew: votes that came from outside of the window follow
            # the samples on whose components they fell. Those of pooled classes are inside.
            pooled = torch.tensor(state.pooled, dtype=torch.int64, device=old.device)
            wins = responsibilities(log_joint(group.bank.part.form, group.window))
            wins = wins / wins.sum(0).clamp_min(torch.finfo(wins.dtype).tiny)
            votes += shares.T @ (wins @ old.index_fill(1, pooled, 0))
        labelled = group.codes != NO_CLASS
        if bool(labelled.any()):
            classes = torch.nn.functional.one_hot(group.codes[labelled], state.n_classes)
            votes += shares[labelled].T @ classes.to(shares.dtype)
        return votes


def _handed_on(votes: Tensor, means: Tensor, heirs: Tensor) -> Tensor:
    """Votes of components that are no more, for the nearest of others, with shape (K, C).

    Arguments:
        votes: With shape (M, C).
        means: Of those that voted, with shape (M, D).
        successors: Means of the others, with shape (K, D).
    """
    nearest = torch.addmm(heirs.square().sum(-1), means, heirs.T, alpha=-2).argmin(-1)
    return votes.new_zeros(len(heirs), votes.shape[1]).index_add_(0, nearest, votes)


def _unheard(group: Group) -> bool:
    """Whether a window holds samples of a pooled class that no component votes for yet."""
    mine = group.codes[group.codes != NO_CLASS]
    if group.owner != NO_CLASS or not len(mine):
        return False
    return not bool(group.bank.analysers.votes.sum(0)[mine].all())


def _unsettled(state: MfaState, index: int) -> MfaState:
    """With the components that one owner's learning goes on from, about to be replaced."""
    return state.with_group(index, state.groups[index].unsettled)


def _held(state: MfaState) -> int:
    """Samples in all windows."""
    return sum(len(group.window) for group in state.groups)


def standing(group: Group, mass: Tensor | None = None) -> Group:
    """With the statistics that a group's components would generate: analytic replay.

    Arguments:
        mass: What they count as, with shape (K,), where earlier samples have faded.
    """
    all_ = group.bank.analysers
    mass = all_.mass if mass is None else mass
    sums = expected_moments(mass, (all_.means, all_.loadings, all_.noise))
    return replace(group, sums=sums)


def _joined(a: Tensor, b: Tensor) -> Tensor:
    return torch.cat([a, b])


def _joined3(
    a: tuple[Tensor, Tensor, Tensor], b: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    return _joined(a[0], b[0]), _joined(a[1], b[1]), _joined(a[2], b[2])
