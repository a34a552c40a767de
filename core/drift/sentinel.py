"""A model at rest through which the detector watches the stream.

A model that learns scores every batch by another ruler than the one before: what it says of
samples cannot be compared over time. So the detector keeps one version of it, the sentinel,
and asks that for a while. What the sentinel says of samples that it has not learned is, as long
as nothing changes, exchangeable; that is all which the evidence (`core.drift.evidence`) needs.

Throughout: N samples, D features, K components, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from core.drift.bets import Array
from core.drift.compiled import compiled
from core.model import Model
from core.readout import PosteriorReadout
from core.standardiser import Standardiser

CHUNK = 1024
"""Rows that are scored at a time, which bounds the memory of a large batch."""


LIKELIHOOD, SURENESS, MARGIN, OWN_LIKELIHOOD = range(4)
"""Scores. The log-likelihood in nats, in the sender's units; it and the margin added up; the
margin, the nats by which the best component stands above the best one of another class; and
the log-likelihood once more. All but the first differ between classes, so that they say most
within one, that of the best component: they are kept as numbers that sort `within` classes."""

N_SCORES = 4

FARTHEST = 2.0**30
"""Nats at which a score within a class is cut off."""

BLOCK = 2.0**32
"""Between the scores of one class and the next."""

_BUT_THE_SIGN = np.int32(2**31 - 1)
"""Bits that are inverted so that, read as integers, negative numbers sort as they should."""

_SMALLEST = np.float32(-np.inf).view(np.int32) ^ _BUT_THE_SIGN
"""Minus infinity as such an integer."""


@compiled
def within(one: int, score: float) -> float:
    """A number that sorts by class first, then by score; what is no number at all is lowest.

    Arguments:
        one: The class, 0 or above.
    """
    return one * BLOCK + (min(score, FARTHEST) if score > -FARTHEST else -FARTHEST)


@dataclass(frozen=True, eq=False)
class Sighting:
    """What a sentinel says of samples, in stream order."""

    scores: Array  # (4, N) float64
    components: Array  # (N,) int64, the component with the largest log-joint

    def __len__(self) -> int:
        return len(self.components)

    @property
    def log_likelihoods(self) -> Array:
        """With shape (N,), float64."""
        likelihoods: Array = self.scores[LIKELIHOOD]
        return likelihoods

    @classmethod
    def joined(cls, *parts: Sighting) -> Sighting:
        """All of them, at least one, one after the other."""
        return cls(
            np.concatenate([part.scores for part in parts], 1),
            np.concatenate([part.components for part in parts]),
        )

    @classmethod
    def nothing(cls) -> Sighting:
        """No samples."""
        return cls(np.zeros((N_SCORES, 0)), np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class Sentinel:
    """One version of the model, and of the scale of its features.

    Arguments:
        model: As it was served.
        standardiser: Of the same moment.
        taken_at: Samples of the sub-task when it was taken.
    """

    model: Model
    standardiser: Standardiser
    taken_at: int

    @cached_property
    def classes(self) -> Array:
        """The class that each component stands for, with shape (K,), int32; 0 where none."""
        readout = self.model.readout
        if isinstance(readout, PosteriorReadout) and readout.n_classes:
            classes: Array = readout.component_classes.argmax(-1).int().cpu().numpy()
            return classes
        return np.zeros(self.model.n_components, np.int32)

    @cached_property
    def _log_volume(self) -> float:
        return self.standardiser.log_volume

    @property
    def n_classes(self) -> int:
        """Different values that `classes` may take, at least 1."""
        return max(1, self.model.n_classes)

    def sees(self, x: Tensor) -> Sighting:
        """Score samples, with shape (N, D), in the sender's units."""
        if len(x) <= CHUNK:
            return self._sees(x)
        return Sighting.joined(*(self._sees(rows) for rows in torch.split(x, CHUNK)))

    def _sees(self, x: Tensor) -> Sighting:
        scored, likelihood = self.model.density.score(self.standardiser.apply(x))
        joint, scores = scored.float().cpu().numpy(), np.zeros((N_SCORES, len(x)))
        winners = joint.argmax(1)
        likelihoods = likelihood.cpu().numpy()
        np.subtract(likelihoods, self._log_volume, out=scores[LIKELIHOOD])
        if self.n_classes > 1:  # else they would say nothing, or nothing more
            _tell_apart(scores, joint, joint.view(np.int32), winners, self.classes)
        return Sighting(scores, winners)


@compiled
def _tell_apart(scores: Array, joint: Array, bits: Array, winners: Array, classes: Array) -> None:
    """Fills the scores within classes, from log-joint values (N, K), float32, and their bits.

    The best component of another class is looked for among integers that sort as the numbers
    do: of those the processor compares many at a time, of numbers, for the sake of those that
    are none, only one.
    """
    others = np.empty(len(winners), np.int32)
    for i in range(len(winners)):
        row, one, largest = bits[i], classes[winners[i]], _SMALLEST
        for k in range(len(row)):
            key = row[k] ^ ((row[k] >> 31) & _BUT_THE_SIGN)
            other = key if classes[k] != one else _SMALLEST
            largest = other if other > largest else largest
        others[i] = largest ^ ((largest >> 31) & _BUT_THE_SIGN)
    best_of_others = others.view(np.float32)
    for i in range(len(winners)):
        one, likelihood = classes[winners[i]], scores[LIKELIHOOD, i]
        margin = joint[i, winners[i]] - best_of_others[i]
        scores[SURENESS, i] = within(one, likelihood + margin)
        scores[MARGIN, i] = within(one, margin)
        scores[OWN_LIKELIHOOD, i] = within(one, likelihood)
