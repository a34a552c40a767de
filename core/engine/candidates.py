"""Clusters among what was learned without labels: which of them are new, and whose they are.

Components of unlabelled samples say what these are like. Here they are told apart:

1. A component *gains* where its samples were explained better by components of the sub-task's
   unlabelled samples than by all that was known, when they came and nothing had learned them yet.
   Samples of a known class gain next to nothing from a second description of it. Where features
   are few it may still be the better one by some nats. So these samples must be less likely than
   usual by components with a name, too, or gain very much.
2. Components that gain and overlap are one *cluster* (`core.engine.clusters`). It is *new* where
   their means gain, too, on average.
3. A cluster is of the open proposal whose components its own come from, or is explained by; of
   several where they have grown together, and then each component keeps to its own. Where a
   proposal's components are two clusters by now, one of these is another.

Throughout: N samples, D features, K components of the model, M of which have no name, P proposals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from core.config import LEAST_PROPOSAL
from core.engine.clusters import clusters
from core.engine.state import EngineState
from core.learners.learner import Learner, Scores, Unnamed
from core.memory.proposals import Proposal
from core.model.readout import margin_temperature
from core.outliers.unknown import READY_SAMPLES

GAIN = 0.6
"""Log-likelihood ratio that counts as a gain of 1, over the temperature of margins
(docs/notebook.md says how it was chosen), ..."""

LEAST_NATS = 3.0
"""... and at least so many nats: where features are few, the number of samples alone moves it."""

MOST_GAIN = 1.5
"""What a single sample's gain counts as at most: a few samples of a new class must not make a
component of a known one gain."""

LEAST_GAIN = 0.75
"""Mean gain of the samples of a component from which on it may be of a new cluster."""

SURE = 15.0
"""Mean gain of a component's samples, in nats, from which on they are of no known class. Components
fitted to more samples than those with a name may describe known classes better by a few nats, and
then ..."""

LEAST_BELOW = 0.9
"""... samples of a new class are less likely by named components than usual samples are: so many
deviations on average, where ..."""

USUAL_SAMPLES = 8
"""... so many usual ones count as well, and ..."""

MOST_BELOW = 5.0
"""... one sample counts as so many deviations at most."""

LEAST_MEAN = 0.5
"""Gain of the means of components, by samples, from which on their cluster is new."""

APART = 0.25
"""Share of a cluster's samples from which on a proposal stays one of its own when it turns out to
be part of that cluster: what is found early is found in pieces."""


class Found(NamedTuple):
    """The clusters and proposals to which components belong.

    `claims` has for each component without a name the place of its proposal, or -1, with shape
    (M,); `fresh` for each the number of its new cluster, or -1, with shape (M,).
    """

    unnamed: Unnamed
    claims: Tensor
    fresh: Tensor
    fallen: Tensor  # (N,) the component without a name on which each recent sample falls, or -1
    joins: dict[int, int]  # places of open proposals that are part of another one, and of which


class Evidence(NamedTuple):
    """Samples, or means of components, of P proposals."""

    features: Tensor  # (N, D) in the sender's units
    weights: Tensor  # (N, P) samples that each stands for

    @classmethod
    def of_one(cls, features: Tensor) -> Evidence:
        """The claims of a single proposal, all alike."""
        return cls(features, torch.ones(len(features), 1))


@dataclass(frozen=True)
class Candidates:
    """Asks a learner about its components.

    Arguments:
        learner: The model's way of learning.
    """

    learner: Learner[Any]

    def gains(self, state: EngineState, scores: Scores | None) -> Tensor | None:
        """What scored samples gain by this sub-task's unlabelled ones, with shape (N,).

        The log of the ratio of what their components and all others say; 1 is what makes a
        component new. None where there are not both.
        """
        unnamed = None if scores is None else self.learner.unnamed(state.model.learner)
        if unnamed is None or scores is None or not bool(unnamed.current.any()):
            return None
        joint = scores.joint
        mine = torch.zeros(joint.shape[1], dtype=torch.bool, device=joint.device)
        mine[unnamed.index[unnamed.current]] = True
        if bool(mine.all()):
            return None
        new = joint.masked_fill(~mine, -math.inf).logsumexp(1)
        known = joint.masked_fill(mine, -math.inf).logsumexp(1)
        gain = (new - known) / _unit(scores.x.shape[1])
        return gain.float().nan_to_num(nan=0.0).clamp(-MOST_GAIN, MOST_GAIN).cpu()

    def found(self, state: EngineState, proposals: Sequence[Proposal], n_open: int) -> Found | None:
        """Sort the current sub-task's components without a name, by its recent samples.

        Arguments:
            proposals: That may claim some, P of them.
            n_open: Of these are open, the first ones; the others have been dismissed.
        """
        recent = state.pending.proposals.recent
        unnamed = self.learner.unnamed(state.model.learner)
        joint = self._joint(state, recent.samples.features) if len(recent) else None
        if joint is None or unnamed is None or not bool(unnamed.current.any()):
            return None
        index, current = unnamed.index.cpu(), unnamed.current.cpu()
        m = len(index)
        places = torch.full((joint.shape[1],), -1)
        places[index] = torch.arange(m)
        fallen = places[joint.argmax(1)]
        fallen[(fallen >= 0) & ~current[fallen]] = -1
        on = fallen >= 0
        counts = torch.bincount(fallen[on], minlength=m)
        gain = torch.bincount(fallen[on], recent.gains[on].double(), m) / counts.clamp_min(1)
        # Means fall where samples do: many a component stands for few that never come again.
        homes = self._homes(state, unnamed, (counts > 0) | ~current, proposals)
        groups = torch.full((m,), -1)
        gaining = (gain >= LEAST_GAIN) & (counts > 0)
        gaining &= self._strange(state, joint, index, fallen)
        rows = on & gaining[fallen]
        groups[gaining] = clusters(
            joint[rows][:, index[gaining]], recent.samples.features.shape[1], LEAST_PROPOSAL
        )
        groups = _new(groups, counts, self._mean_gains(state, unnamed))
        claims, fresh, joins = _claimed(groups, counts, homes, n_open)
        explained = self._explained(joint, index, current, fallen, homes)
        claims = torch.where((counts > 0) & (groups < 0) & current, explained, claims)
        return Found(unnamed, *_by_nearest(unnamed, counts, claims, fresh), fallen, joins)

    def assigned(
        self, state: EngineState, means: Evidence, samples: Evidence | None = None
    ) -> tuple[Unnamed, Tensor] | None:
        """Which components without a name learned samples of which proposals.

        Arguments:
            means: Of components that did, perhaps before they changed.
            samples: Themselves, where they are still there.

        Returns:
            The components, and weights with shape (M, P); None where there are none.
        """
        unnamed = self.learner.unnamed(state.model.learner)
        if unnamed is None:
            return None
        weights = torch.zeros(len(unnamed.index), means.weights.shape[1], dtype=torch.float64)
        everyone = torch.ones(len(unnamed.index), dtype=torch.bool)
        if len(means.features):
            fallen = self._nearest(state, unnamed, everyone, means.features)
            weights.index_add_(0, fallen, means.weights.double())
        joint = self._joint(state, samples.features) if samples and len(samples.features) else None
        if joint is not None and samples is not None:
            fallen = joint[:, unnamed.index.cpu()].argmax(1)
            weights.index_add_(0, fallen, samples.weights.double())
        return unnamed, weights

    def home(
        self, state: EngineState, features: Tensor, proposals: Sequence[Proposal]
    ) -> int | None:
        """The place of the proposal on whose components most samples fall, if there is one.

        Arguments:
            features: In the sender's units, with shape (N, D), N at least 1.
        """
        unnamed = self.learner.unnamed(state.model.learner)
        if unnamed is None or not proposals:
            return None
        homes = torch.zeros(len(unnamed.index), len(proposals))
        everyone = torch.ones(len(unnamed.index), dtype=torch.bool)
        for place, one in enumerate(proposals):
            if len(one.surrogates):
                homes[self._nearest(state, unnamed, everyone, one.surrogates), place] = 1
        joint = self._joint(state, features)
        assert joint is not None
        owner = torch.full((joint.shape[1],), len(proposals))
        index, owned = unnamed.index.cpu(), homes.sum(1) > 0
        owner[index[owned]] = homes[owned].argmax(1)
        # What this sub-task has learned of them already says nothing of whose they are.
        joint[:, index[unnamed.current.cpu() & ~owned]] = -math.inf
        fallen = owner[joint.argmax(1)]
        place = int(fallen.mode().values)
        most = int((fallen == place).sum())
        return place if place < len(proposals) and 2 * most > len(features) else None

    def falls(self, state: EngineState, features: Tensor, unnamed: Unnamed) -> Tensor:
        """The component without a name that fits each sample best of all, with shape (N,), or -1.

        Arguments:
            features: In the sender's units, with shape (N, D).
            unnamed: Of the same state, M components.
        """
        joint = self._joint(state, features)
        assert joint is not None
        places = torch.full((joint.shape[1],), -1)
        places[unnamed.index.cpu()] = torch.arange(len(unnamed.index))
        return places[joint.argmax(1)]

    def _joint(self, state: EngineState, features: Tensor) -> Tensor | None:
        """Log-joint values of samples in the sender's units, with shape (N, K), on the CPU."""
        scores = self.learner.score(state.model.learner, state.standardiser.apply(features))
        return None if scores is None else scores.joint.cpu()

    def _strange(self, state: EngineState, joint: Tensor, index: Tensor, fallen: Tensor) -> Tensor:
        """Whether the samples of components are less likely than usual by named ones, (M,) bool.

        True as well where they gain so much that no better description of known samples does, and
        where nothing is known by name.

        Arguments:
            joint: Of recent samples, with shape (N, K).
            index: Places of the components without a name, with shape (M,), int64.
            fallen: The one of these on which each falls, with shape (N,), or -1.
        """
        m, unit = len(index), _unit(state.pending.proposals.recent.samples.features.shape[1])
        everyone = torch.ones(m, dtype=torch.bool)
        past = state.past.log_likelihood
        usual = past if past.weight >= READY_SAMPLES else state.log_likelihood
        if unit * LEAST_GAIN >= SURE or joint.shape[1] == m or usual.weight < READY_SAMPLES:
            return everyone
        on = fallen >= 0
        named = joint[on].index_fill(1, index, -math.inf).logsumexp(1).double()
        nats = (joint[on].logsumexp(1) - named).clamp(max=2 * SURE)
        below = (usual.mean - named + state.standardiser.log_volume) / max(usual.deviation, 1.0)
        below = below.clamp(-MOST_BELOW, MOST_BELOW)
        counts = torch.bincount(fallen[on], minlength=m)
        gained = torch.bincount(fallen[on], nats, m) / counts.clamp_min(1)
        short = torch.bincount(fallen[on], below, m) / (counts + USUAL_SAMPLES)
        return (gained >= SURE) | (short >= LEAST_BELOW)

    def _mean_gains(self, state: EngineState, unnamed: Unnamed) -> Tensor:
        """What the means of components gain, with shape (M,), float64.

        Components of a known class that have taken in some samples of a new one lie among the
        known ones, though their latest samples gain.
        """
        gains = self.gains(state, self.learner.score(state.model.learner, unnamed.means))
        # Where nothing else is known all is new.
        blank = torch.full((len(unnamed.index),), MOST_GAIN, dtype=torch.float64)
        return blank if gains is None else gains.double()

    def _nearest(
        self, state: EngineState, unnamed: Unnamed, asked: Tensor, means: Tensor
    ) -> Tensor:
        """The component whose mean is nearest to each of these, with shape (N,).

        By distance: a mean may well be likeliest under a broad neighbour of its own component.

        Arguments:
            asked: Which components, with shape (M,), bool, at least one.
            means: In the sender's units, with shape (N, D).
        """
        x = state.standardiser.apply(means).cpu().double()
        away = torch.cdist(x, unnamed.means.cpu().double())
        return away.masked_fill(~asked, math.inf).argmin(1)

    def _homes(
        self, state: EngineState, unnamed: Unnamed, asked: Tensor, proposals: Sequence[Proposal]
    ) -> Tensor:
        """How many samples of each proposal fall on each component, with shape (M, P).

        Arguments:
            asked: On which anything may fall, with shape (M,), bool.
        """
        homes = torch.zeros(len(asked), len(proposals), dtype=torch.float64)
        if not bool(asked.any()):
            return homes
        for place, one in enumerate(proposals):
            # What was first found in this sub-task has none that were there before it.
            mine = (
                asked if one.first < state.sub_task.first_sample else asked & unnamed.current.cpu()
            )
            if not bool(mine.any()):
                continue
            if len(one.surrogates):
                fallen = self._nearest(state, unnamed, mine, one.surrogates)
                homes[:, place].index_add_(0, fallen, one.weights.cpu().double())
            joint = self._joint(state, one.unknowns.features) if len(one.unknowns) else None
            if joint is not None:
                joint = joint[:, unnamed.index.cpu()].masked_fill(~mine, -math.inf)
                ones = torch.ones(len(joint), dtype=torch.float64)
                homes[:, place].index_add_(0, joint.argmax(1), ones)
        return homes

    def _explained(
        self, joint: Tensor, index: Tensor, current: Tensor, fallen: Tensor, homes: Tensor
    ) -> Tensor:
        """The proposal whose older components explain each component's samples, (M,), or -1."""
        m, n_homes = homes.shape
        none = torch.full((m,), -1)
        old = ~current & (homes.sum(1) > 0)
        if not n_homes or not bool(old.any()):
            return none
        owner = torch.full((joint.shape[1],), n_homes)
        owner[index[old]] = homes[old].argmax(1)
        others = joint.clone()
        others[:, index[current]] = -math.inf
        on = fallen >= 0
        said = torch.zeros(m, n_homes + 1)
        said.index_put_(
            (fallen[on], owner[others[on].argmax(1)]), torch.ones(int(on.sum())), accumulate=True
        )
        most = said.argmax(1)
        return torch.where((most < n_homes) & (said.sum(1) > 0), most, none)


def _unit(n_features: int) -> float:
    """Nats that are a gain of 1."""
    return max(GAIN * margin_temperature(n_features), LEAST_NATS)


def _new(groups: Tensor, counts: Tensor, gains: Tensor) -> Tensor:
    """Clusters that lie where known classes do not, numbered from 0, with shape (M,); -1: of none.

    Arguments:
        groups: Cluster of each component, with shape (M,), or -1.
        counts: Samples on each, with shape (M,).
        gains: Of the mean of each, with shape (M,), float64.
    """
    found, n = torch.full_like(groups, -1), 0
    for one in range(int(groups.max()) + 1 if len(groups) else 0):
        mine = groups == one
        shares = counts.double() * mine
        if float(shares @ gains) >= LEAST_MEAN * max(1.0, float(shares.sum())):
            found[mine] = n
            n += 1
    return found


def _claimed(
    groups: Tensor, counts: Tensor, homes: Tensor, n_open: int
) -> tuple[Tensor, Tensor, dict[int, int]]:
    """The proposal of each component, and its new cluster, with shape (M,) each; -1: none.

    And which proposals have turned out to be part of which other.

    Arguments:
        groups: Cluster of each, with shape (M,), or -1.
        counts: Recent samples on each, with shape (M,).
        homes: How much of each proposal falls on each, with shape (M, P).
        n_open: Of these proposals are open, the first ones.
    """
    joins = dict[int, int]()
    claims, fresh = torch.full_like(groups, -1), torch.full_like(groups, -1)
    n = int(groups.max()) + 1 if len(groups) else 0
    if not n:
        return claims, fresh, joins
    of = torch.stack([groups == one for one in range(n)])  # (n, M)
    fall = of.double() @ homes  # (n, P)
    sizes = of.double() @ counts.double()
    takes = [
        int(fall[:, place].argmax()) if bool(fall[:, place].any()) else -1
        for place in range(homes.shape[1])
    ]
    for one in sizes.argsort(descending=True, stable=True).tolist():
        claimants = [place for place, taken in enumerate(takes) if taken == one]
        if not claimants:
            fresh[of[one]] = one
            continue
        first = max(claimants, key=lambda place: float(fall[one, place]))
        owner = torch.tensor(claimants)[homes[:, claimants].argmax(1)]
        owner[homes[:, claimants].sum(1) == 0] = first
        for place in claimants:
            small = float(counts[of[one] & (owner == place)].sum()) < APART * float(sizes[one])
            if place != first and small and (first < n_open or place >= n_open):
                owner[owner == place] = first
                if place < n_open:
                    joins[place] = first
        claims = torch.where(of[one], owner, claims)
    return claims, fresh, joins


def _by_nearest(
    unnamed: Unnamed, counts: Tensor, claims: Tensor, fresh: Tensor
) -> tuple[Tensor, Tensor]:
    """Give components without a recent sample the claims of the nearest that has one."""
    current = unnamed.current.cpu()
    silent, heard = current & (counts == 0), current & (counts > 0)
    if not bool(silent.any()) or not bool(heard.any()):
        return claims, fresh
    means = unnamed.means.cpu().double()
    near = torch.cdist(means[silent], means[heard]).argmin(1)
    claims, fresh = claims.clone(), fresh.clone()
    claims[silent], fresh[silent] = claims[heard][near], fresh[heard][near]
    return claims, fresh
