"""Proposed classes: unknown samples without a label that lie together, as a bounded value.

Rules of this module:

1. An unknown sample is in exactly one place: among the `unknown`, in one proposal, or learned.
2. Unknown samples are a class when enough of them lie as close to their mean as samples of the
   classes that the model knows lie to theirs. Outliers of many kinds do not. Where labels come, as
   many unknown samples as these lead to expect of known classes do not count
   (`core.memory.unknown_rates`).
3. Samples that were learned without a label are in a proposal by the components that learned
   them; the last of the sub-task are kept beside the model, to ask what its components are.
4. Raw samples go at a boundary, from proposals too; what a name can fall on then are means of
   the model's own. A proposal shows the mean of its samples and none of them.

Throughout: N samples, D features, in the sender's units unless they are called standardised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from core.batch import Label
from core.memory.unknown_rates import UnknownRates
from core.running import Running

MOST_UNKNOWN = 512
"""Unknown samples held, beside those of proposals; and in one proposal."""

MOST_OPEN = 8
"""Proposals that nobody has decided about; the oldest goes when there is one more."""

MOST_FEATURES_SHOWN = 4096
"""Features up to which a proposal shows its prototype: it is an event, and events are small."""

MOST_RECENT = 512
"""Unlabelled samples of the current sub-task that are kept once they are learned: the last."""

FIRST_LOOK = 400
"""Such samples that have come when the model's components are first looked at; then half as many
more each time, ..."""

MOST_BETWEEN = 1000
"""... at most so many, and ..."""

LEAST_BETWEEN = 100
"""... at least so many."""

LOOKS = 5
"""Looks for a new class while as many unknown samples come as make one."""

ROUNDS = 3
"""Times that a group's mean is taken anew."""


@dataclass(frozen=True, eq=False)
class Unknowns:
    """N raw samples in the order in which they were learned or held back.

    That of the stream, but for samples that awaited a label first.

    Arguments:
        arrived: Samples of the stream before each.
        features: With shape (N, D).
    """

    arrived: tuple[int, ...]
    features: Tensor

    def __len__(self) -> int:
        return len(self.arrived)

    @classmethod
    def none(cls) -> Unknowns:
        """No samples, of any D."""
        return cls((), torch.zeros(0, 0))

    def select(self, rows: Sequence[int]) -> Unknowns:
        """Some of them, in this order."""
        index = torch.tensor(rows, dtype=torch.int64, device=self.features.device)
        return Unknowns(tuple(self.arrived[row] for row in rows), self.features[index])

    def joined(self, more: Unknowns) -> Unknowns:
        """And more, that came later."""
        if not len(more):
            return self
        if not len(self):
            return more
        features = torch.cat([self.features, more.features])
        return Unknowns(self.arrived + more.arrived, features)


@dataclass(frozen=True, eq=False)
class Recent:
    """The last unlabelled samples of the current sub-task, which the model has learned since.

    Arguments:
        samples: N raw samples.
        gains: By how much components of unlabelled samples explained each better than all that
            was known, before it was learned, with shape (N,): `core.engine.candidates`.
        seen: Such samples in this sub-task.
        due: Of these when components are to be looked at next.
    """

    samples: Unknowns = field(default_factory=Unknowns.none)
    gains: Tensor = field(default_factory=lambda: torch.zeros(0))
    seen: int = 0
    due: int = FIRST_LOOK

    def __len__(self) -> int:
        return len(self.samples)

    def joined(self, more: Unknowns, gains: Tensor, most: int) -> Recent:
        """Add later samples; where there are too many, the oldest go.

        Arguments:
            most: Raw samples that may be held at a time; `MOST_RECENT` at most.
        """
        samples, gains = self.samples.joined(more), torch.cat([self.gains, gains])
        surplus = len(samples) - min(most, MOST_RECENT)
        if surplus > 0:
            samples = samples.select(range(surplus, len(samples)))
            gains = gains[surplus:].clone()
        return Recent(samples, gains, self.seen + len(more), self.due)

    def select(self, rows: Tensor) -> Recent:
        """Some of them, by a mask with shape (N,), bool."""
        samples = self.samples.select(rows.nonzero()[:, 0].tolist())
        return replace(self, samples=samples, gains=self.gains[rows])

    def looked(self) -> Recent:
        """Components have been looked at."""
        wait = min(MOST_BETWEEN, max(LEAST_BETWEEN, self.seen // 2))
        return replace(self, due=self.seen + wait)


@dataclass(frozen=True, eq=False)
class Proposal:
    """A proposed class.

    Arguments:
        number: 1 for the first ever.
        origin: "unknown" samples among known ones, or a "boundary".
        samples: That it stands for.
        first: Samples of the stream before its first; at least so many, where more were learned
            than are known one by one: they came no earlier.
        last: Samples of the stream before its last; at most so many, likewise.
        prototype: Mean of the samples that it was found by, with shape (D,).
        reach: Largest squared distance of those to it, standardised; what lies within joins.
        classes: Those that the prototype looks like most.
        probabilities: What the model gives each of them.
        may_be_known: Whether they may be samples of all known classes, which have moved together;
            None where that cannot be said.
        unknowns: Raw samples, not learned yet.
        surrogates: Means of the components that learned the others, with shape (M, D).
        weights: Samples that each stands for, whole numbers, with shape (M,).
    """

    number: int
    origin: str
    samples: int
    first: int
    last: int
    prototype: Tensor
    reach: float
    classes: tuple[Label, ...]
    probabilities: tuple[float, ...]
    unknowns: Unknowns
    surrogates: Tensor
    weights: Tensor
    may_be_known: bool | None = None

    def with_components(self, means: Tensor, mass: Tensor) -> Proposal:
        """Note the components that learned its samples, as the model stands.

        Arguments:
            means: In the sender's units, with shape (M, D).
            mass: With shape (M,).
        """
        weights = mass.round().clamp_min(1)
        samples = int(weights.double().sum()) + len(self.unknowns)
        return replace(self, samples=samples, surrogates=means, weights=weights)

    def with_room(self, earliest: int, latest: int) -> Proposal:
        """Widen a place in the stream that has no room for all its samples.

        The components that learned them have learned others before those that were seen to be of
        it; where these were in the stream is not kept.

        Arguments:
            earliest: Samples of the stream before the first that they may have learned.
            latest: Likewise before the last.
        """
        if self.samples <= self.last - self.first + 1:
            return self
        one = replace(self, first=min(self.first, earliest), last=max(self.last, latest))
        room = one.last - one.first + 1
        if one.samples <= room or not len(one.weights):
            return one
        # Parts of samples that fell on many components have been rounded up.
        weights = one.weights.double()
        wanted = weights * ((room - len(one.unknowns)) / float(weights.sum()))
        weights = wanted.floor().clamp_min(1)
        left = max(0, min(len(weights), room - len(one.unknowns) - int(weights.sum())))
        weights[(wanted - weights).topk(left).indices] += 1
        samples = int(weights.sum()) + len(one.unknowns)
        return replace(one, samples=samples, weights=weights.to(one.weights))

    def with_more(self, more: Unknowns) -> Proposal:
        """Add samples that have come since."""
        return replace(
            self,
            samples=self.samples + len(more),
            first=min(self.first, *more.arrived),
            last=max(self.last, *more.arrived),
            unknowns=self.unknowns.joined(more),
        )

    def to_dict(self) -> dict[str, Any]:
        """What there is to tell of it, JSON-ready."""
        few = len(self.prototype) <= MOST_FEATURES_SHOWN
        return {
            "proposal": self.number,
            "origin": self.origin,
            "samples": self.samples,
            "first_sample": self.first,
            "last_sample": self.last,
            "prototype": self.prototype.tolist() if few else [],
            "nearest_classes": list(self.classes),
            "nearest_probabilities": list(self.probabilities),
            "may_be_known": self.may_be_known,
        }


@dataclass(frozen=True, eq=False)
class Proposals:
    """Unknown samples, and the proposals made of such.

    Arguments:
        unknown: Samples that belong to no proposal, oldest first.
        open: Proposals that nobody has decided about, oldest first.
        made: Proposals ever made.
        unseen: Unknown samples that have come since the last look for a class.
        rate: Share of the stream's samples that are unknown, since the last boundary.
        recent: The last samples of the sub-task that were learned without a label.
        dismissed: What has been dismissed in this sub-task, not to be proposed again.
        rates: How often samples with a label and without are unknown, since the last boundary.
    """

    unknown: Unknowns = field(default_factory=Unknowns.none)
    open: tuple[Proposal, ...] = ()
    made: int = 0
    unseen: int = 0
    rate: Running = field(default_factory=Running)
    recent: Recent = field(default_factory=Recent)
    dismissed: tuple[Proposal, ...] = ()
    # Checkpoints of earlier releases have none.
    rates: UnknownRates = field(default_factory=UnknownRates)

    @property
    def raw_samples(self) -> int:
        """Raw samples held back from learning."""
        return len(self.unknown) + sum(len(one.unknowns) for one in self.open)

    @property
    def proposed(self) -> tuple[int, ...]:
        """Samples of the stream before each that open proposals hold back."""
        return tuple(sample for one in self.open for sample in one.unknowns.arrived)

    def find(self, number: int) -> Proposal | None:
        """An open proposal by its number."""
        return next((one for one in self.open if one.number == number), None)

    def changed(self, proposal: Proposal) -> Proposals:
        """Replace one of its open or dismissed proposals by a later form."""

        def later(proposals: tuple[Proposal, ...]) -> tuple[Proposal, ...]:
            number = proposal.number
            return tuple(proposal if one.number == number else one for one in proposals)

        return replace(self, open=later(self.open), dismissed=later(self.dismissed))

    def without(self, number: int) -> Proposals:
        """Take out a proposal that somebody decided about."""
        return replace(self, open=tuple(one for one in self.open if one.number != number))

    def forgotten(self) -> Proposals:
        """Keep nothing but the count, so that no number is given twice."""
        return Proposals(made=self.made)


def group_of(x: Tensor, least: int, spread: float) -> Tensor | None:
    """The samples that lie together, if enough of them do.

    They are found around the sample with the closest neighbours; as many belong to them as
    keep the mean squared distance to their mean within `spread`.

    Arguments:
        x: Unknown samples, standardised, with shape (N, D).
        least: Fewest samples that are a class, at least 2.
        spread: Mean squared distance to the mean of a class that the model knows.

    Returns:
        Ascending indices, or None where no such group is.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> near = 0.1 * torch.randn(30, 8, generator=generator)
        >>> far = 9 * torch.randn(30, 8, generator=generator)
        >>> group_of(torch.cat([far, near]), 20, spread=0.2).tolist() == list(range(30, 60))
        True
        >>> group_of(far, 20, spread=0.2) is None
        True
    """
    if len(x) < least:
        return None
    x = x.double()
    squares = x.square().sum(1)
    apart = squares[:, None] + squares - 2 * x @ x.T
    nearest = apart.kthvalue(least, dim=1).values
    members = apart[nearest.argmin()].argsort(stable=True)[:least]
    for _ in range(ROUNDS):
        away = (x - x[members].mean(0)).square().sum(1)
        order = away.argsort(stable=True)
        means = away[order].cumsum(0) / torch.arange(1, len(x) + 1, device=x.device)
        n = int((means <= spread).sum())
        if n < least:
            return None
        members = order[:n]
    return members.sort().values
