"""Class discovery: samples without a label that the model finds unknown.

The engine's part for `core.memory.proposals`, which has the rules; how a batch is learned is
handed in. They are held back from learning, as long as there is room, until enough of them lie
together to be proposed as a class, and learned with the name that a person gives it, or without
one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from core.batch import UNLABELLED, Batch, Label, codes_among
from core.config import EngineConfig
from core.engine.candidates import Candidates, Evidence
from core.engine.delayed_labels import DelayedLabels
from core.engine.proposal_keeper import ProposalKeeper
from core.engine.proximity import Proximity
from core.engine.state import EngineState
from core.errors import UnknownProposal
from core.events import Event, UnknownsLearned
from core.learners.learner import Scores, Unnamed
from core.memory.proposals import (
    LOOKS,
    MOST_OPEN,
    MOST_UNKNOWN,
    Proposal,
    Recent,
    Unknowns,
)
from core.memory.unknown_rates import UnknownRates
from core.outliers.unknown import READY_SAMPLES, UNKNOWN_DEVIATIONS, is_unknown
from core.running import Running

MOST_OF_STREAM = 0.3
"""Share of unknown samples from which on the stream as a whole is new, and must be learned."""


class Ended(NamedTuple):
    """The data by which a sub-task that ends finds the components of its proposals."""

    numbers: tuple[int, ...]  # of its open proposals
    means: Evidence  # of each of these, and, last, of none of them
    samples: Evidence  # likewise
    older: Tensor  # (M, D) means of components without a name that it found there, standardised
    first: int  # samples of the stream before it


@dataclass(frozen=True)
class ClassDiscovery:
    """Joins `core.memory.proposals` to the learning of an engine.

    Arguments:
        config: Says how many samples make a proposal; 0: none is ever made.
        candidates: Finds clusters among components.
        delayed_labels: Learns samples that were held back.
    """

    config: EngineConfig
    candidates: Candidates
    delayed_labels: DelayedLabels

    @cached_property
    def proximity(self) -> Proximity:
        """Says how near samples lie."""
        return Proximity(self.config, self.delayed_labels.learning.learner)

    @cached_property
    def keeper(self) -> ProposalKeeper:
        """Opens, changes and closes proposals."""
        own = self.config, self.candidates, self.delayed_labels
        return ProposalKeeper(*own, self.proximity)

    def unknown(self, state: EngineState, scores: Scores | None) -> Tensor | None:
        """Which samples of a batch are unknown, (N,) bool; None where that cannot be said.

        Arguments:
            state: Of before the batch.
            scores: Of the batch.
        """
        known = state.log_likelihood
        ready = known.weight >= READY_SAMPLES and len(state.model.classes) > 0
        if not state.in_force(self.config).proposal_samples or not ready or scores is None:
            return None
        values = scores.log_likelihood - state.standardiser.log_volume
        unknown = is_unknown(values, known)
        if state.sub_task.log_likelihood.weight >= READY_SAMPLES:
            # What is usual in a sub-task may be unlikely beside those before.
            unknown &= is_unknown(values, state.sub_task.log_likelihood)
        return unknown.cpu()

    def gains(self, state: EngineState, scores: Scores | None) -> Tensor | None:
        """What a batch's samples gain by components without a name, (N,); None: nothing to say.

        Arguments:
            state: Of before the batch.
            scores: Of the batch.
        """
        if not state.in_force(self.config).proposal_samples or not state.model.classes:
            return None
        return self.candidates.gains(state, scores)

    def remembered(
        self, state: EngineState, batch: Batch, places: Tensor, gains: Tensor | None
    ) -> EngineState:
        """Keep the unlabelled samples of a batch that is about to be learned, for `look`.

        Arguments:
            places: Samples of the stream before each, with shape (N,), int64.
            gains: With shape (N,).
        """
        if gains is None or not len(batch):
            return state
        rows = torch.arange(len(batch))
        if batch.codes is not None:
            rows = (batch.codes.cpu() == UNLABELLED).nonzero()[:, 0]
        if not len(rows):
            return state
        features = batch.features[rows.to(batch.features.device)]
        more = Unknowns(tuple(places[rows].tolist()), features)
        recent = state.pending.proposals.recent.joined(more, gains[rows], self.config.window)
        return state.with_pending(proposals=replace(state.pending.proposals, recent=recent))

    def hold_back(
        self, state: EngineState, batch: Batch, places: Tensor, unknown: Tensor | None
    ) -> tuple[EngineState, Tensor]:
        """Part with the unlabelled samples that are unknown, while there is room for them.

        Arguments:
            batch: What is to be learned, N samples.
            places: Samples of the stream before each, with shape (N,), int64.
            unknown: With shape (N,), bool.

        Returns:
            The state, and which samples are left to be learned, int64.
        """
        everything = torch.arange(len(batch))
        if unknown is None or not len(batch):
            return state, everything
        share = float(unknown.double().mean())
        proposals = replace(
            state.pending.proposals,
            rate=state.pending.proposals.rate.updated(len(batch), share),
            rates=_counted(state, batch, unknown),
        )
        state = state.with_pending(proposals=proposals)
        if batch.codes is not None:
            unknown = unknown & (batch.codes.cpu() == UNLABELLED)
        rows = unknown.nonzero()[:, 0].tolist()
        if not rows or proposals.rate.mean > MOST_OF_STREAM:
            return state, everything
        held_back = list[int]()
        features = batch.features[torch.tensor(rows, device=batch.features.device)]
        found = Unknowns(tuple(places[rows].tolist()), features)
        homes = self.proximity.homes(state, found.features)
        for one in proposals.open:
            mine = [index for index, home in enumerate(homes) if home == one.number]
            # A proposal that is full needs no more of them: they are learned like any other.
            mine = mine[: max(0, MOST_UNKNOWN - len(one.unknowns))]
            if mine:
                held_back += mine
                more = one.with_more(found.select(mine))
                changed = (more if old is one else old for old in proposals.open)
                proposals = replace(proposals, open=tuple(changed))
        unclaimed = [index for index, home in enumerate(homes) if home is None]
        held_back += unclaimed
        proposals = replace(
            proposals,
            unknown=proposals.unknown.joined(found.select(unclaimed)),
            unseen=proposals.unseen + len(unclaimed),
        )
        stay = torch.ones(len(batch), dtype=torch.bool)
        stay[[rows[index] for index in held_back]] = False
        return state.with_pending(proposals=proposals), stay.nonzero()[:, 0]

    def learn_late(
        self, state: EngineState, batch: Batch, arrived: Sequence[int]
    ) -> tuple[EngineState, int, list[Event]]:
        """Learn samples whose label never came, and look at them like those that come without one.

        The model of this moment judges them, which has learned nothing of them yet. While a change
        is suspected they are put off, like whatever is set aside.

        Arguments:
            batch: Of the current sub-task, N samples without a label.
            arrived: Samples of the stream before each.

        Returns:
            The state, how many samples were learned at once, and what happened.
        """
        suspected = state.pending.awaiting.suspect_since is not None
        if suspected or not state.in_force(self.config).proposal_samples or not len(batch):
            return self.delayed_labels.learn_late(state, batch, arrived)
        x = state.standardiser.apply(batch.features)
        scores: Scores | None = self.candidates.learner.score(state.model.learner, x)
        unknown, gains = self.unknown(state, scores), self.gains(state, scores)
        places = torch.tensor(arrived)
        state, stay = self.hold_back(state, batch, places, unknown)
        if len(stay) < len(batch):  # scores hold for the whole batch
            batch, places, scores = batch.select(stay), places[stay], None
            gains = None if gains is None else gains[stay]
        state = self.remembered(state, batch, places, gains)
        state, learned = self.delayed_labels.learning.learn(state, batch, scores)
        state, proposed = self.look(state)
        return state, len(batch), [*learned, *proposed]

    def look(self, state: EngineState) -> tuple[EngineState, list[Event]]:
        """Look for classes among what is unknown or was learned; learn what is too much."""
        least, proposals = state.in_force(self.config).proposal_samples, state.pending.proposals
        events = list[Event]()
        if least and len(proposals.unknown) >= least and proposals.unseen * LOOKS >= least:
            proposals = replace(proposals, unseen=0)
            state = state.with_pending(proposals=proposals)
            rows = self._group(state, proposals.unknown.features, least)
            if rows is not None:
                mine = set(rows)
                rest = [row for row in range(len(proposals.unknown)) if row not in mine]
                group = proposals.unknown.select(rows)
                left = replace(proposals, unknown=proposals.unknown.select(rest))
                home = self.candidates.home(state, group.features, proposals.open)
                home = self.proximity.beside(state, group.features) if home is None else home
                if home is None:
                    # Of known classes as many are unknown as samples with a label are.
                    if len(group) * (1 - proposals.rates.known_share) >= least:
                        new = state.with_pending(proposals=left)
                        state, events = self.keeper.propose(new, group)
                elif len(group) + len(proposals.open[home].unknowns) <= MOST_UNKNOWN:
                    grown = left.changed(proposals.open[home].with_more(group))
                    state = state.with_pending(proposals=grown)
        state, learned = self._trim(state)
        recent = state.pending.proposals.recent
        if recent.seen < recent.due:
            return state, [*events, *learned]
        state, found = self._looked(state)
        return state, [*events, *learned, *found]

    def _group(self, state: EngineState, features: Tensor, least: int) -> list[int] | None:
        """Which unknown samples lie together, and not around what is known; None where too few do.

        Arguments:
            features: In the sender's units, with shape (N, D).
            least: Samples of a group.
        """
        left = torch.arange(len(features))
        while (rows := self.proximity.group(state, features[left], least)) is not None:
            if not self._around_known(state, features[left[rows]]):
                found: list[int] = left[rows].tolist()
                return found
            others = torch.ones(len(left), dtype=torch.bool)
            others[rows] = False
            left = left[others]
        return None

    def _around_known(self, state: EngineState, features: Tensor) -> bool:
        """Whether samples of a table are the outer ones of what is known.

        Then their mean lies in the middle of that. Log-likelihoods of a Gaussian have a variance of
        D / 2, and lie D / 2 below that of its middle on average. The mean of images says nothing:
        it is a blur.

        Arguments:
            features: In the sender's units, with shape (N, D).
        """
        if state.standardiser.identity:
            return False
        x = state.standardiser.apply(features).mean(0, keepdim=True)
        scores = self.candidates.learner.score(state.model.learner, x)
        if scores is None:
            return False
        log_likelihood, known = float(scores.log_likelihood), state.log_likelihood
        below = known.mean + known.variance - log_likelihood + state.standardiser.log_volume
        return below < UNKNOWN_DEVIATIONS / 2 * known.deviation

    def name(
        self, state: EngineState, number: int, label: Label | None
    ) -> tuple[EngineState, list[Event]]:
        """Learn the samples of a proposal as a class; None: without a label.

        Raises:
            UnknownProposal: No such proposal is open.
        """
        proposal = state.pending.proposals.find(number)
        if proposal is None:
            known = [one.number for one in state.pending.proposals.open]
            raise UnknownProposal.among(number, known)
        # What has come since the last look is of it, too.
        state, events = self._looked(state, propose=False)
        proposal = state.pending.proposals.find(number)
        assert proposal is not None
        reason = "dismissed" if label is None else "named"
        state, closed = self.keeper.close(state, proposal, label, reason)
        # There is room for another proposal, and what was named no longer hides it.
        state, made = self._looked(state)
        return state, [*events, *closed, *made]

    # At a boundary ------------------------------------------------------------------------

    def leave(
        self, state: EngineState, first: int
    ) -> tuple[EngineState, list[Batch], Ended, list[Event]]:
        """Look at what the sub-task that ends has learned a last time, and learn the rest of it.

        Arguments:
            first: Samples of the stream before the next sub-task.

        Returns:
            The state, samples that belong to the next one, what is left to tell of proposals,
            and what happened.
        """
        state, events = self._looked(state)
        ended = self._ended(state)
        proposals = replace(
            state.pending.proposals,
            rate=Running(),
            recent=Recent(),
            dismissed=(),
            rates=UnknownRates(),
        )
        state = state.with_pending(proposals=proposals)
        if not proposals.raw_samples:
            return state, [], ended, events
        parts = [one.unknowns for one in proposals.open if len(one.unknowns)]
        unknown = proposals.unknown
        old = [row for row, place in enumerate(unknown.arrived) if place < first]
        new = [row for row, place in enumerate(unknown.arrived) if place >= first]
        gone = tuple(replace(one, unknowns=Unknowns.none()) for one in proposals.open)
        state = state.with_pending(
            proposals=replace(proposals, unknown=Unknowns.none(), open=gone, unseen=0)
        )
        for part in [*parts, unknown.select(old)] if old else parts:
            state, _, learned = self.delayed_labels.learn_late(
                state, Batch(part.features), part.arrived
            )
            events += learned
        fresh = [Batch(unknown.select(new).features)] if new else []
        n = proposals.raw_samples
        events.append(UnknownsLearned(n, n, "boundary", state.sub_task.number, state.model.version))
        return state, fresh, ended, events

    def left_behind(self, state: EngineState, ended: Ended) -> tuple[EngineState, list[Event]]:
        """Let proposals of an ended sub-task wait on as means of the model's."""
        events, kept = list[Event](), list[Proposal]()
        assigned = None
        if state.pending.proposals.open:
            assigned = self.candidates.assigned(state, ended.means, ended.samples)
        for one in state.pending.proposals.open:
            if assigned is not None:
                unnamed, weights = assigned[0], _by_nearest(assigned[0], assigned[1], ended.older)
                column = ended.numbers.index(one.number)
                mine = (weights.argmax(1) == column) & (weights[:, column] > 0)
                # A component may have learned more than is known to be of it.
                total = float(unnamed.mass.cpu().double()[mine].sum())
                part = min(1.0, float(weights[mine, column].sum()) / total) if total else 1.0
                one = self.keeper.with_components(
                    state, one, replace(unnamed, mass=unnamed.mass * part), mine
                )
                one = one.with_room(ended.first, state.sub_task.first_sample - 1)
            if assigned is not None and len(one.surrogates):
                kept.append(one)
            else:  # nothing that a name could fall on
                events.append(self.keeper.closed(state, one, None, "boundary", 0))
        return state.with_pending(
            proposals=replace(state.pending.proposals, open=tuple(kept))
        ), events

    def _ended(self, state: EngineState) -> Ended:
        """What is known of the samples of each open proposal, as samples and means."""
        proposals = state.pending.proposals
        recent = proposals.recent
        numbers = tuple(one.number for one in proposals.open)

        def of(parts: Sequence[tuple[Tensor, Tensor | int, Tensor | float]]) -> Evidence:
            weights = list[Tensor]()
            for rows, column, weight in parts:
                weights.append(torch.zeros(len(rows), len(numbers) + 1, dtype=torch.float64))
                weights[-1][torch.arange(len(rows)), column] = torch.as_tensor(weight).double()
            features = [rows for rows, _, _ in parts]
            if not parts:
                return Evidence(torch.zeros(0, 0), torch.zeros(0, len(numbers) + 1))
            return Evidence(torch.cat(features), torch.cat(weights))

        samples: list[tuple[Tensor, Tensor | int, Tensor | float]] = [
            (one.unknowns.features, place, 1.0)
            for place, one in enumerate(proposals.open)
            if len(one.unknowns)
        ]
        found = self.candidates.found(state, proposals.open, len(numbers)) if numbers else None
        if found is not None:
            home = torch.where(found.fallen >= 0, found.claims[found.fallen], -1)
            home = torch.where(home < 0, len(numbers), home)
            samples.append((recent.samples.features, home, recent.seen / len(recent)))
        own = [
            (one.surrogates, place, one.weights.cpu()) for place, one in enumerate(proposals.open)
        ]
        unnamed = self.candidates.learner.unnamed(state.model.learner)
        older = torch.zeros(0, 0) if unnamed is None else unnamed.means[~unnamed.current]
        return Ended(numbers, of(own), of(samples), older, state.sub_task.first_sample)

    # Machinery ----------------------------------------------------------------------------

    def _trim(self, state: EngineState) -> tuple[EngineState, list[Event]]:
        """Learn the oldest unknown samples where there are too many, a good many at once."""
        unknown = state.pending.proposals.unknown
        if len(unknown) <= MOST_UNKNOWN:
            return state, []
        n = max(len(unknown) - MOST_UNKNOWN, MOST_UNKNOWN // 8)
        old, rest = unknown.select(range(n)), unknown.select(range(n, len(unknown)))
        state = state.with_pending(proposals=replace(state.pending.proposals, unknown=rest))
        state, learned, events = self.delayed_labels.learn_late(
            state, Batch(old.features), old.arrived
        )
        event = UnknownsLearned(n, learned, "limit", state.sub_task.number, state.model.version)
        return state, [*events, event]

    def _looked(self, state: EngineState, propose: bool = True) -> tuple[EngineState, list[Event]]:
        """Let open proposals follow the components, and propose clusters that are of none."""
        least, proposals = state.in_force(self.config).proposal_samples, state.pending.proposals
        recent = proposals.recent
        # Of known classes few samples gain, so that most looks for new ones are spared. Nor do
        # those gain of a proposal that comes back, which must be followed before it is named.
        if not least or (propose and int((recent.gains >= 1).sum()) < least):
            return state, []
        asked = (*proposals.open, *proposals.dismissed)
        found = self.candidates.found(state, asked, len(proposals.open))
        state = state.with_pending(proposals=replace(proposals, recent=recent.looked()))
        if found is None:
            return state, []
        for index, one in enumerate(asked):
            state = self.keeper.followed(state, one, found, found.claims == index)
        events = list[Event]()
        if propose:
            for index, other in found.joins.items():
                state, joined = self.keeper.joined(state, asked[index].number, asked[other].number)
                events += joined
            for number in sorted(set(found.fresh[found.fresh >= 0].tolist())):
                if (
                    len(state.pending.proposals.open) < MOST_OPEN
                ):  # else it is found again when there is room
                    state, made = self.keeper.discovered(state, found, found.fresh == number)
                    events += made
        return state, events


def _counted(state: EngineState, batch: Batch, unknown: Tensor) -> UnknownRates:
    """How often samples are unknown, with those of a batch.

    Arguments:
        unknown: Which of its samples are, with shape (N,), bool, on the CPU.
    """
    codes = codes_among(batch, state.model.classes)
    labelled = codes != UNLABELLED
    unlabelled = ~labelled
    if batch.codes is not None:
        unlabelled &= batch.codes.cpu() == UNLABELLED  # what names a new class is neither
    kinds = (labelled, labelled & unknown, unlabelled, unlabelled & unknown)
    return state.pending.proposals.rates.updated(*(int(kind.sum()) for kind in kinds))


def _by_nearest(unnamed: Unnamed, weights: Tensor, older: Tensor) -> Tensor:
    """Weights, (M, P), with those of the nearest for components of which nothing is known.

    Arguments:
        older: Means of components that the sub-task found there, with shape (M', D).
    """
    means = unnamed.means.double()
    silent = weights.sum(1) == 0
    if len(older):
        silent &= ~(means[:, None] == older.double()).all(-1).any(1).cpu()
    heard = weights.sum(1) > 0
    if not bool(silent.any()) or not bool(heard.any()):
        return weights
    near = torch.cdist(means.cpu()[silent], means.cpu()[heard]).argmin(1)
    weights = weights.clone()
    weights[silent] = weights[heard][near]
    return weights
