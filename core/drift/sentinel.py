"""A model at rest through which the detector watches the stream.

A model that learns scores every batch by another ruler than the one before: what it says of
samples cannot be compared over time. So the detector keeps one version of it, the sentinel,
and asks that for a while. What the sentinel says of samples that it has not learned is, as long
as nothing changes, exchangeable; that is all which the evidence (`core.drift.evidence`) needs.

Throughout: N samples, D features, K components, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from core.model import Model
from core.readout import PosteriorReadout
from core.standardiser import Standardiser

CHUNK = 1024
"""Rows that are scored at a time, which bounds the memory of a large batch."""


LIKELIHOOD, MARGIN = range(2)
"""Scores: the log-likelihood in nats, in the sender's units; nats by which the best component
stands above the best one of another class, `UNRIVALLED` where there is no other."""

UNRIVALLED = 2.0**40


@dataclass(frozen=True, eq=False)
class Sighting:
    """What a sentinel says of samples, in stream order, on the CPU."""

    scores: Tensor  # (2, N) float64
    components: Tensor  # (N,) int64, the component with the largest log-joint

    def __len__(self) -> int:
        return len(self.components)

    @property
    def log_likelihoods(self) -> Tensor:
        """With shape (N,), float64."""
        return self.scores[LIKELIHOOD]

    @classmethod
    def joined(cls, *parts: Sighting) -> Sighting:
        """All of them, one after the other."""
        return cls(
            torch.cat([part.scores for part in parts], 1),
            torch.cat([part.components for part in parts]),
        )

    @classmethod
    def nothing(cls) -> Sighting:
        """No samples."""
        return cls(torch.zeros(2, 0, dtype=torch.float64), torch.zeros(0, dtype=torch.int64))


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
    def classes(self) -> Tensor:
        """The class that each component stands for, with shape (K,), on the CPU; 0 where none."""
        readout = self.model.readout
        if isinstance(readout, PosteriorReadout) and readout.n_classes:
            return readout.component_classes.argmax(-1).cpu()
        return torch.zeros(self.model.n_components, dtype=torch.int64)

    @cached_property
    def _classes(self) -> Tensor:
        return self.classes.to(self.standardiser.mean.device)

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
        joint, likelihood = self.model.density.score(self.standardiser.apply(x))
        best, winners = joint.max(-1)
        own = self._classes[winners, None] == self._classes
        rivals = joint.masked_fill_(own, -math.inf).amax(-1)
        margins = (best - rivals).clamp_max(UNRIVALLED)
        scores = torch.stack([likelihood - self._log_volume, margins])
        return Sighting(scores.double().cpu(), winners.cpu())
