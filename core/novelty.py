"""What becomes of samples without a label that the model finds unknown.

The engine's part for `core.proposals`, which has the rules; how a batch is learned is handed in.
They are held back from learning, as long as there is room, until enough of them lie together to
be proposed as a class, and learned with the name that a person gives it, or without one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from core.batch import UNLABELLED, Batch, Label
from core.config import LEAST_PROPOSAL, EngineConfig
from core.errors import InvalidRequest
from core.events import ClassProposed, Event, ProposalClosed, UnknownsLearned
from core.inliers import Inliers
from core.late_labels import LateLabels
from core.learners.learner import Scores
from core.proposals import LOOKS, MOST_OPEN, MOST_UNKNOWN, Proposal, Unknowns, group_of
from core.running import Running
from core.sampling import draw
from core.state import EngineState

UNKNOWN_DEVIATIONS = 2.326
"""Deviations below the mean log-likelihood that one in a hundred samples of a normal law passes."""

BOUNDARY_RATE = 0.1
"""P-value up to which samples that a boundary was found by may be new ..."""

BOUNDARY_EXCESS = 3.0
"""... where there are so many standard deviations more of them than inliers would give."""

READY_SAMPLES = 500
"""Samples behind the statistics of the log-likelihood, below which nothing is unknown."""

MOST_OF_STREAM = 0.3
"""Share of unknown samples from which on the stream as a whole is new, and must be learned."""

DRAWS_PER_CLASS = 32
MOST_DRAWN_CLASSES = 32
"""Samples drawn of each known class, to see how far such lie from their mean."""

NEAREST = 3
"""Classes that are named beside a proposal."""

MOST_AT_ONCE = 4
"""Proposals that one boundary makes."""


def is_unknown(log_likelihoods: Tensor, known: Running) -> Tensor:
    """Which samples the model finds unknown, with shape (N,), bool.

    Arguments:
        log_likelihoods: With shape (N,), nats in the sender's units.
        known: Of what was learned.
    """
    return log_likelihoods.double() < known.mean - UNKNOWN_DEVIATIONS * known.deviation


@dataclass(frozen=True)
class Novelty:
    """Joins `core.proposals` to the learning of an engine.

    Arguments:
        config: Says how many samples make a proposal; 0: none is ever made.
        inliers: What p-values rest on.
        late: Learns samples that were held back.
    """

    config: EngineConfig
    inliers: Inliers
    late: LateLabels

    def unknown(self, state: EngineState, scores: Scores | None) -> Tensor | None:
        """Which samples of a batch are unknown, (N,) bool; None where that cannot be said.

        Arguments:
            state: Of before the batch.
            scores: Of the batch.
        """
        known = state.past_likelihood.pooled(state.likelihood)
        ready = known.weight >= READY_SAMPLES and len(state.classes) > 0
        if not self.config.proposal_samples or not ready or scores is None:
            return None
        assert state.standardiser is not None
        return is_unknown(scores.log_likelihood - state.standardiser.log_volume, known).cpu()

    def hold_back(
        self, state: EngineState, batch: Batch, places: Tensor, unknown: Tensor | None
    ) -> tuple[EngineState, Batch]:
        """Part with the unlabelled samples that are unknown, while there is room for them.

        Arguments:
            batch: What is to be learned, N samples.
            places: Samples of the stream before each, with shape (N,), int64.
            unknown: With shape (N,), bool.
        """
        if unknown is None or not len(batch):
            return state, batch
        share = float(unknown.double().mean())
        proposals = replace(state.proposals, rate=state.proposals.rate.updated(len(batch), share))
        state = replace(state, proposals=proposals)
        if batch.codes is not None:
            unknown = unknown & (batch.codes.cpu() == UNLABELLED)
        rows = unknown.nonzero()[:, 0].tolist()
        if not rows or proposals.rate.mean > MOST_OF_STREAM:
            return state, batch
        held = list[int]()
        features = batch.features[torch.tensor(rows, device=batch.features.device)]
        found = Unknowns(tuple(places[rows].tolist()), features)
        homes = self._homes(state, found.features)
        for one in proposals.open:
            mine = [index for index, home in enumerate(homes) if home == one.number]
            # A proposal that is full needs no more of them: they are learned like any other.
            mine = mine[: max(0, MOST_UNKNOWN - len(one.unknowns))]
            if mine:
                held += mine
                more = one.with_more(found.select(mine))
                changed = (more if old is one else old for old in proposals.open)
                proposals = replace(proposals, open=tuple(changed))
        strangers = [index for index, home in enumerate(homes) if home is None]
        held += strangers
        proposals = replace(
            proposals,
            unknown=proposals.unknown.joined(found.select(strangers)),
            unseen=proposals.unseen + len(strangers),
        )
        stay = torch.ones(len(batch), dtype=torch.bool)
        stay[[rows[index] for index in held]] = False
        return replace(state, proposals=proposals), batch.select(stay.nonzero()[:, 0])

    def look(self, state: EngineState) -> tuple[EngineState, list[Event]]:
        """Look for a class among the unknown samples, and learn those that are too many."""
        least, proposals = self.config.proposal_samples, state.proposals
        events = list[Event]()
        if least and len(proposals.unknown) >= least and proposals.unseen * LOOKS >= least:
            proposals = replace(proposals, unseen=0)
            state = replace(state, proposals=proposals)
            rows = self._group(state, proposals.unknown.features, least)
            if rows is not None:
                mine = set(rows)
                rest = [row for row in range(len(proposals.unknown)) if row not in mine]
                group = proposals.unknown.select(rows)
                left = replace(proposals, unknown=proposals.unknown.select(rest))
                state = replace(state, proposals=left)
                state, events = self._propose(state, "unknown", group)
        state, learned = self._trim(state)
        return state, [*events, *learned]

    def name(
        self, state: EngineState, number: int, label: Label | None
    ) -> tuple[EngineState, list[Event]]:
        """Learn the samples of a proposal as a class; None: without a label.

        Raises:
            InvalidRequest: No such proposal is open.
        """
        proposal = state.proposals.find(number)
        if proposal is None:
            known = [one.number for one in state.proposals.open]
            raise InvalidRequest(
                f"Proposal {number} is not open. Open are "
                f"{', '.join(map(str, known)) or 'none'}. Choose one of GET /drift/proposals.",
                unknown=number,
                known=known,
            )
        return self._close(state, proposal, label, "dismissed" if label is None else "named")

    # At a boundary ------------------------------------------------------------------------

    def leave(
        self, state: EngineState, first: int
    ) -> tuple[EngineState, list[Batch], dict[int, Tensor], list[Event]]:
        """Learn the raw samples of the sub-task that ends.

        Arguments:
            first: Samples of the stream before the next sub-task.

        Returns:
            The state, samples that belong to the next one, those of each proposal, and what
            happened.
        """
        proposals = replace(state.proposals, rate=Running())
        state = replace(state, proposals=proposals)
        if not proposals.raw_samples:
            return state, [], {}, []
        parts = [one.unknowns for one in proposals.open if len(one.unknowns)]
        of_proposals = {
            one.number: one.unknowns.features for one in proposals.open if len(one.unknowns)
        }
        unknown = proposals.unknown
        old = [row for row, place in enumerate(unknown.arrived) if place < first]
        new = [row for row, place in enumerate(unknown.arrived) if place >= first]
        gone = tuple(replace(one, unknowns=Unknowns.none()) for one in proposals.open)
        state = replace(
            state, proposals=replace(proposals, unknown=Unknowns.none(), open=gone, unseen=0)
        )
        events = list[Event]()
        for part in [*parts, unknown.select(old)] if old else parts:
            state, _, learned = self.late.learn_late(state, Batch(part.features), part.arrived)
            events += learned
        fresh = [Batch(unknown.select(new).features)] if new else []
        n = proposals.raw_samples
        events.append(UnknownsLearned(n, n, "boundary", state.sub_task, state.version))
        return state, fresh, of_proposals, events

    def left_behind(
        self, state: EngineState, of_proposals: dict[int, Tensor]
    ) -> tuple[EngineState, list[Event]]:
        """Let proposals of an ended sub-task wait on as means of the model's."""
        kept, events = list[Proposal](), list[Event]()
        for one in state.proposals.open:
            features = of_proposals.get(one.number)
            means = None if features is None else self._means(state, features)
            if means is not None:
                stand_ins = torch.cat([one.stand_ins.reshape(-1, means[0].shape[1]), means[0]])
                one = replace(one, stand_ins=stand_ins, weights=torch.cat([one.weights, means[1]]))
            if len(one.stand_ins):
                kept.append(one)
            else:  # nothing that a name could fall on
                events.append(self._closed(state, one, None, "boundary", 0))
        return replace(state, proposals=replace(state.proposals, open=tuple(kept))), events

    def strange(self, state: EngineState, batches: Sequence[Batch]) -> Tensor | None:
        """Which unlabelled samples a new sub-task begins with are unknown, with shape (N,), bool.

        The boundary says that something is new, so that one in ten inliers may be taken for it
        by mistake: those do not lie together.

        Arguments:
            state: Of before the boundary.
            batches: That the sub-task begins with.
        """
        if not self.config.proposal_samples or not state.classes or not batches:
            return None
        assert state.standardiser is not None
        x = torch.cat([_unlabelled(batch) for batch in batches])
        learner = self.late.learning.learner
        scores = learner.score(state.learner, state.standardiser.apply(x)) if len(x) else None
        if scores is None:
            return None
        known = state.past_likelihood.pooled(state.likelihood)
        unknown = is_unknown(scores.log_likelihood - state.standardiser.log_volume, known)
        found = self.inliers.p_values(state, scores)
        if found is None:
            return unknown
        low = (found <= BOUNDARY_RATE).to(unknown.device)
        usual = BOUNDARY_RATE * len(low)
        spread = math.sqrt(usual * (1 - BOUNDARY_RATE))
        return unknown | low if int(low.sum()) > usual + BOUNDARY_EXCESS * spread else unknown

    def after_boundary(
        self, state: EngineState, batches: Sequence[Batch], strange: Tensor | None
    ) -> tuple[EngineState, list[Event]]:
        """Propose what a new sub-task began with, where that had no labels.

        Few unknown samples are enough, because the boundary says already that something is new;
        what lies among them belongs to them, though the model took it for typical. Where most
        of the samples are known, only those nearer than half of a group belong to it.

        Arguments:
            batches: Just learned, the last samples of the stream.
            strange: From before the boundary.
        """
        events = list[Event]()
        if strange is None or not bool(strange.any()):
            return state, events
        assert state.standardiser is not None
        features = torch.cat([_unlabelled(batch) for batch in batches])[:MOST_UNKNOWN]
        strange = strange[:MOST_UNKNOWN]
        begin = state.stream_samples - sum(map(len, batches))
        alone = float(strange.double().mean()) > MOST_OF_STREAM
        while len(events) < MOST_AT_ONCE:
            rows = self._group(state, features[strange], LEAST_PROPOSAL)
            if rows is None:
                break
            x = state.standardiser.apply(features).double()
            centre = x[strange][rows].mean(0)
            away = (x - centre).square().sum(1)
            lies = away[strange][rows]
            # Among samples of known classes the outer ones of a group may well be theirs.
            reach = lies.max() if alone else lies.median()
            group = Unknowns((begin, state.stream_samples - 1), features[away <= reach])
            state, made = self._propose(state, "boundary", group)
            events += made
            left = away > lies.max()
            features, strange = features[left], strange[left]
        return state, events

    # Machinery ----------------------------------------------------------------------------

    def _propose(
        self, state: EngineState, origin: str, group: Unknowns
    ) -> tuple[EngineState, list[Event]]:
        standardiser = state.standardiser
        assert standardiser is not None
        x = standardiser.apply(group.features)
        centre = x.double().mean(0)
        reach = float((x.double() - centre).square().sum(1).max())
        classes, probabilities = self._nearest(state, centre.to(x.dtype)[None])
        prototype = standardiser.invert(centre.to(x.dtype)[None])[0]
        stand_ins, weights = prototype.new_zeros(0, len(prototype)), prototype.new_zeros(0)
        unknowns = group
        if origin == "boundary":  # learned already
            unknowns = Unknowns.none()
            means = self._means(state, group.features)
            if means is None:
                return state, []
            stand_ins, weights = means
        proposal = Proposal(
            number=state.proposals.made + 1,
            origin=origin,
            samples=len(group.features),
            first=group.arrived[0],
            last=group.arrived[-1],
            prototype=prototype,
            reach=reach,
            classes=classes,
            probabilities=probabilities,
            unknowns=unknowns,
            stand_ins=stand_ins,
            weights=weights,
        )
        proposals = replace(
            state.proposals, open=(*state.proposals.open, proposal), made=proposal.number
        )
        state = replace(state, proposals=proposals)
        events = list[Event]()
        if len(proposals.open) > MOST_OPEN:
            state, events = self._close(state, proposals.open[0], None, "limit")
        shown = proposal.to_dict()
        made = ClassProposed(**shown, sub_task=state.sub_task, model_version=state.version)
        return state, [*events, made]

    def _close(
        self, state: EngineState, proposal: Proposal, label: Label | None, reason: str
    ) -> tuple[EngineState, list[Event]]:
        """Learn what a proposal still holds, and let its name fall on what was learned."""
        state = replace(state, proposals=state.proposals.without(proposal.number))
        unknowns, events = proposal.unknowns, list[Event]()
        learned = 0
        if len(unknowns):
            batch = Batch.of(unknowns.features, [label] * len(unknowns))
            state, learned, events = self.late.learn_late(state, batch, unknowns.arrived)
        if label is not None and len(proposal.stand_ins):
            named = Batch.of(proposal.stand_ins, [label] * len(proposal.stand_ins))
            state, voted = self.late.vote(state, named, proposal.weights)
            events += voted
        return state, [*events, self._closed(state, proposal, label, reason, learned)]

    def _closed(
        self, state: EngineState, proposal: Proposal, label: Label | None, reason: str, learned: int
    ) -> ProposalClosed:
        return ProposalClosed(
            proposal.number,
            label,
            reason,
            proposal.samples,
            learned,
            state.sub_task,
            state.version,
        )

    def _trim(self, state: EngineState) -> tuple[EngineState, list[Event]]:
        """Learn the oldest unknown samples where there are too many, a good many at once."""
        unknown = state.proposals.unknown
        if len(unknown) <= MOST_UNKNOWN:
            return state, []
        n = max(len(unknown) - MOST_UNKNOWN, MOST_UNKNOWN // 8)
        old, rest = unknown.select(range(n)), unknown.select(range(n, len(unknown)))
        state = replace(state, proposals=replace(state.proposals, unknown=rest))
        state, learned, events = self.late.learn_late(state, Batch(old.features), old.arrived)
        event = UnknownsLearned(n, learned, "limit", state.sub_task, state.version)
        return state, [*events, event]

    def _homes(self, state: EngineState, features: Tensor) -> list[int | None]:
        """For each sample the number of the open proposal that it belongs to, if any."""
        proposals = state.proposals.open
        if not proposals:
            return [None] * len(features)
        assert state.standardiser is not None
        centres = torch.stack([one.prototype for one in proposals])
        x, centres = state.standardiser.apply(features), state.standardiser.apply(centres)
        away = torch.stack([(x - centre).double().square().sum(1) for centre in centres], 1)
        nearest = away.min(1)
        return [
            proposals[index].number if distance <= proposals[index].reach else None
            for distance, index in zip(
                nearest.values.tolist(), nearest.indices.tolist(), strict=True
            )
        ]

    def _group(self, state: EngineState, features: Tensor, least: int) -> list[int] | None:
        if len(features) < least:
            return None
        assert state.standardiser is not None
        rows = group_of(state.standardiser.apply(features), least, self._spread(state))
        return None if rows is None else rows.tolist()

    def _spread(self, state: EngineState) -> float:
        """Mean squared distance of a known class's samples to their mean, standardised.

        By samples that the model draws, because no others are kept; the same ones for a state.
        """
        model = self.late.learning.learner.model(state.learner)
        if model is None:
            return 0.0
        n = min(len(state.classes), MOST_DRAWN_CLASSES)
        codes = torch.arange(n).repeat_interleave(DRAWS_PER_CLASS)
        generator = torch.Generator().manual_seed(self.config.seed)
        x = draw(model, len(codes), generator, codes).x.double().reshape(n, DRAWS_PER_CLASS, -1)
        # The mean of few samples lies too near to them.
        scale = DRAWS_PER_CLASS / (DRAWS_PER_CLASS - 1)
        return float((x - x.mean(1, keepdim=True)).square().sum(-1).mean()) * scale

    def _nearest(
        self, state: EngineState, x: Tensor
    ) -> tuple[tuple[Label, ...], tuple[float, ...]]:
        """The classes that a sample (1, D), standardised, looks like most, and how much."""
        learner = self.late.learning.learner
        scores = learner.score(state.learner, x)
        if scores is None or not state.classes:
            return (), ()
        probabilities = learner.readout(state.learner).class_probabilities(scores.joint)[0]
        top = probabilities.topk(min(NEAREST, len(state.classes)))
        return tuple(state.classes[code] for code in top.indices.tolist()), tuple(
            top.values.tolist()
        )

    def _means(self, state: EngineState, features: Tensor) -> tuple[Tensor, Tensor] | None:
        """Means of the model's that samples were learned by, each once, and for how many."""
        assert state.standardiser is not None
        x = state.standardiser.apply(features)
        means = self.late.learning.learner.stand_ins(state.learner, x)
        if means is None:
            return None
        each, counts = torch.unique(means, dim=0, return_counts=True)
        return state.standardiser.invert(each), counts.to(features.dtype)


def _unlabelled(batch: Batch) -> Tensor:
    """The samples of a batch that have no label, with shape (N, D)."""
    if batch.codes is None:
        return batch.features
    return batch.features[(batch.codes == UNLABELLED).to(batch.features.device)]
