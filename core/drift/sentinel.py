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


def within(classes: Array, scores: Array) -> Array:
    """Numbers that sort by class first, then by score, float64, shaped like `scores`.

    Arguments:
        classes: With shape (N,), int64.
        scores: With shape (N,), or rows of them.
    """
    keys: Array = np.clip(scores, -FARTHEST, FARTHEST) + classes * BLOCK
    return keys


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
        """The class that each component stands for, with shape (K,), int64; 0 where none."""
        readout = self.model.readout
        if isinstance(readout, PosteriorReadout) and readout.n_classes:
            classes: Array = readout.component_classes.argmax(-1).cpu().numpy()
            return classes
        return np.zeros(self.model.n_components, np.int64)

    @cached_property
    def _others(self) -> Array:
        """0 for components of other classes than the row's, else minus infinity: (C, K)."""
        others = np.zeros((self.n_classes, len(self.classes)), np.float32)
        others[self.classes, np.arange(len(self.classes))] = -np.inf
        return others

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
        joint, scores = scored.cpu().numpy(), np.zeros((N_SCORES, len(x)))
        likelihoods = scores[LIKELIHOOD]
        np.subtract(likelihood.cpu().numpy(), self._log_volume, out=likelihoods)
        winners = joint.argmax(1)
        if self.n_classes > 1:  # else they would say nothing, or nothing more
            classes = self.classes[winners]
            best = joint[np.arange(len(x)), winners]
            margins = best - (joint + self._others[classes]).max(1)
            own = np.array([likelihoods + margins, margins, likelihoods])
            scores[SURENESS:] = within(classes, own)
        return Sighting(scores, winners)
