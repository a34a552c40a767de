"""The life of a proposal: opened, followed to the components that learn it, and closed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from core.batch import Batch, Label
from core.config import LEAST_PROPOSAL, EngineConfig
from core.engine.candidates import Candidates, Evidence, Found
from core.engine.delayed_labels import DelayedLabels
from core.engine.proximity import Proximity
from core.engine.state import EngineState
from core.events import ClassProposed, Event, ProposalClosed
from core.learners.learner import Unnamed
from core.memory.proposals import MOST_OPEN, MOST_UNKNOWN, Proposal, Unknowns

USUAL_REACH = 0.9
"""Share of the samples found of a cluster that lie within the reach of its proposal."""


@dataclass(frozen=True)
class ProposalKeeper:
    """Opens, changes and closes proposals of a state.

    Arguments:
        config: Says how many samples make a proposal.
        candidates: Finds components of a proposal.
        delayed_labels: Learns samples that were held back, and lets names fall on components.
        proximity: Says which classes a proposal is like.
    """

    config: EngineConfig
    candidates: Candidates
    delayed_labels: DelayedLabels
    proximity: Proximity

    def joined(
        self, state: EngineState, number: int, other: int
    ) -> tuple[EngineState, list[Event]]:
        """A proposal has turned out to be part of another one."""
        proposals = state.pending.proposals
        part, whole = proposals.find(number), proposals.find(other)
        assert part is not None
        assert whole is not None
        if len(part.unknowns) + len(whole.unknowns) > MOST_UNKNOWN:
            return state, []
        if len(part.unknowns):
            whole = whole.with_more(part.unknowns)
        whole = replace(whole, first=min(whole.first, part.first))
        state = state.with_pending(proposals=proposals.without(number).changed(whole))
        return state, [self.closed(state, part, None, "joined", 0)]

    def followed(
        self, state: EngineState, one: Proposal, found: Found, mine: Tensor
    ) -> EngineState:
        """Follow a proposal's samples to the components that learn them now.

        Arguments:
            mine: Those of the sub-task, with shape (M,), bool.
        """
        if not bool(mine.any()):
            return state
        older = self._older(state, one, found.unnamed)
        later = self.with_components(state, one, found.unnamed, mine | older)
        later = later.with_room(state.sub_task.first_sample, state.stream.samples - 1)
        rows = (found.fallen >= 0) & mine[found.fallen]
        if int(rows.sum()) >= LEAST_PROPOSAL:
            later = self._shown(state, later, rows)
        return state.with_pending(proposals=state.pending.proposals.changed(later))

    def _older(self, state: EngineState, one: Proposal, unnamed: Unnamed) -> Tensor:
        """Components of earlier sub-tasks that a proposal has, with shape (M,), bool."""
        assigned = None
        if len(one.surrogates) and one.first < state.sub_task.first_sample:
            assigned = self.candidates.assigned(state, Evidence.of_one(one.surrogates))
        older = ~unnamed.current.cpu()
        return torch.zeros_like(older) if assigned is None else older & (assigned[1][:, 0] > 0)

    def _shown(self, state: EngineState, one: Proposal, rows: Tensor) -> Proposal:
        """Take prototype and reach from recent samples: `rows`, (N,), bool, at least ten."""
        some = state.pending.proposals.recent.select(rows).samples
        one = replace(one, last=max(one.last, *some.arrived))
        return self._placed(state, one, some.features, USUAL_REACH)

    def _placed(
        self, state: EngineState, one: Proposal, features: Tensor, share: float
    ) -> Proposal:
        """A proposal whose prototype is the mean of samples, with what that is like.

        Arguments:
            features: In the sender's units, with shape (N, D), N at least 1.
            share: Of these, how many lie within its reach.
        """
        x = state.standardiser.apply(features)
        centre = x.double().mean(0)
        away = (x.double() - centre).square().sum(1)
        middle = centre.to(x.dtype)[None]
        classes, probabilities = self.proximity.nearest(state, middle)
        return replace(
            one,
            prototype=state.standardiser.invert(middle)[0],
            reach=float(away.quantile(share)),
            classes=classes,
            probabilities=probabilities,
            may_be_known=self.proximity.may_be_known(state, features),
        )

    def with_components(
        self, state: EngineState, one: Proposal, unnamed: Unnamed, mine: Tensor
    ) -> Proposal:
        """A proposal that has these components without a name, with shape (M,), bool."""
        mine = mine.to(unnamed.means.device)
        means = state.standardiser.invert(unnamed.means[mine])
        return one.with_components(means, unnamed.mass[mine])

    def discovered(
        self, state: EngineState, found: Found, mine: Tensor
    ) -> tuple[EngineState, list[Event]]:
        """Propose components of the sub-task that are a cluster, (M,) bool, if they are enough."""
        rows = (found.fallen >= 0) & mine[found.fallen]
        mass = float(found.unnamed.mass.cpu()[mine].sum())
        if int(rows.sum()) < LEAST_PROPOSAL or mass < state.in_force(self.config).proposal_samples:
            return state, []
        some = state.pending.proposals.recent.select(rows).samples
        origin = "boundary" if state.sub_task.number else "unknown"
        proposal = self._shown(state, self._blank(state, origin, some), rows)
        proposal = self.with_components(state, proposal, found.unnamed, mine)
        recent = state.pending.proposals.recent
        if recent.seen > len(recent) and proposal.samples > int(rows.sum()):
            # Others came before the samples that are kept, nobody knows where in the sub-task.
            proposal = replace(proposal, first=min(proposal.first, state.sub_task.first_sample))
        proposal = proposal.with_room(state.sub_task.first_sample, state.stream.samples - 1)
        return self._opened(state, proposal)

    def propose(self, state: EngineState, group: Unknowns) -> tuple[EngineState, list[Event]]:
        """Propose unknown samples that lie together."""
        blank = self._blank(state, "unknown", group)
        proposal = self._placed(state, blank, group.features, 1.0)
        return self._opened(state, replace(proposal, samples=len(group), unknowns=group))

    def _blank(self, state: EngineState, origin: str, some: Unknowns) -> Proposal:
        """A proposal that has no samples and no components yet, but a place in the stream."""
        nothing = some.features.new_zeros(0, some.features.shape[1])
        return Proposal(
            number=state.pending.proposals.made + 1,
            origin=origin,
            samples=0,
            first=min(some.arrived),
            last=max(some.arrived),
            prototype=some.features[0],
            reach=0.0,
            classes=(),
            probabilities=(),
            unknowns=Unknowns.none(),
            surrogates=nothing,
            weights=nothing[:, 0],
        )

    def _opened(self, state: EngineState, proposal: Proposal) -> tuple[EngineState, list[Event]]:
        """Open one more proposal; where there are too many, the oldest goes."""
        proposals = replace(
            state.pending.proposals,
            open=(*state.pending.proposals.open, proposal),
            made=proposal.number,
        )
        state = state.with_pending(proposals=proposals)
        events = list[Event]()
        if len(proposals.open) > MOST_OPEN:
            state, events = self.close(state, proposals.open[0], None, "limit")
        shown = proposal.to_dict()
        made = ClassProposed(
            **shown, sub_task=state.sub_task.number, model_version=state.model.version
        )
        return state, [*events, made]

    def close(
        self, state: EngineState, proposal: Proposal, label: Label | None, reason: str
    ) -> tuple[EngineState, list[Event]]:
        """Learn what a proposal still holds, and let its name fall on what was learned."""
        state = state.with_pending(proposals=state.pending.proposals.without(proposal.number))
        unknowns, events = proposal.unknowns, list[Event]()
        learned = 0
        if len(unknowns):
            batch = Batch.of(unknowns.features, [label] * len(unknowns))
            batch = replace(batch, novel=True)
            state = self.delayed_labels.taught(state, batch)
            state, learned, events = self.delayed_labels.learn_late(state, batch, unknowns.arrived)
        if label is None:
            state = self._dismissed(state, proposal)
        elif len(proposal.surrogates):
            state = self._named(state, proposal)
            named = Batch.of(proposal.surrogates, [label] * len(proposal.surrogates))
            state, voted = self.delayed_labels.vote(state, named, proposal.weights)
            events += voted
        return state, [*events, self.closed(state, proposal, label, reason, learned)]

    def _dismissed(self, state: EngineState, proposal: Proposal) -> EngineState:
        """What was dismissed, and has been learned, is not to be proposed again."""
        assigned = self.candidates.assigned(
            state,
            Evidence.of_one(proposal.surrogates),
            Evidence.of_one(proposal.unknowns.features),
        )
        if assigned is None:
            return state
        gone = replace(proposal, unknowns=Unknowns.none())
        gone = self.with_components(state, gone, assigned[0], assigned[1][:, 0] > 0)
        dismissed = (*state.pending.proposals.dismissed, gone)[-MOST_OPEN:]
        return state.with_pending(proposals=replace(state.pending.proposals, dismissed=dismissed))

    def _named(self, state: EngineState, proposal: Proposal) -> EngineState:
        """What is about to be named is no evidence of anything new any more."""
        recent = state.pending.proposals.recent
        assigned = self.candidates.assigned(state, Evidence.of_one(proposal.surrogates))
        if assigned is None or not len(recent):
            return state
        fallen = self.candidates.falls(state, recent.samples.features, assigned[0])
        known = (fallen >= 0) & (assigned[1][fallen, 0] > 0)
        kept = recent.select(~known)
        return state.with_pending(proposals=replace(state.pending.proposals, recent=kept))

    def closed(
        self, state: EngineState, proposal: Proposal, label: Label | None, reason: str, learned: int
    ) -> ProposalClosed:
        """What is told of a proposal that is open no more."""
        return ProposalClosed(
            proposal.number,
            label,
            reason,
            proposal.samples,
            learned,
            state.sub_task.number,
            state.model.version,
        )
