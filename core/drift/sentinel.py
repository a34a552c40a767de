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
from itertools import repeat
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.density.blocks import ROWS
from core.density.density import Parts
from core.drift.bets import Array
from core.drift.compiled import compiled, vectorised
from core.drift.features import LEAST_DEVIATION, MOST_FEATURES, find_bins
from core.drift.misses import UNTOLD
from core.model import Model
from core.readout import NAMED, PosteriorReadout, margin_temperature
from core.standardiser import Standardiser

LIKELIHOOD, SURENESS, OWN_SURENESS, MARGIN, OWN_LIKELIHOOD = range(5)
"""Scores. The log-likelihood in nats, in the sender's units; it and the margin added up, twice;
the margin, the nats by which the class of the best component stands above all others together,
at a temperature T: T log (sum of its e^(joint / T) / theirs); and the log-likelihood once more.
The last three are kept as numbers that sort `within` classes, that of the best component first:
what is usual differs between classes. Where no classes are told apart, the margin is that of
the best component, and nothing is kept within classes."""

N_SCORES = 5

OVERALL = 2
"""The first scores, whose numbers are those of all classes together."""

FARTHEST = 2.0**30
"""Nats at which a score within a class is cut off."""

BLOCK = 2.0**32
"""Between the scores of one class and the next."""

FEATURES_PER_DEGREE = 4
"""Features for each degree at which components are compared where there are no classes: they are
more alike than classes are, and more of them have a say."""

_FAINTEST = np.float32(-125)
"""Power of two that is as good as nothing, the least but one of single precision."""

_ONE = np.float32(1)
_LINEAR = np.float32(0.6951786)
_SQUARE = np.float32(0.2276132)
_CUBE = np.float32(0.0772093)
"""These times 1, u, u^2 and u^3 add up to 2^u, to a part in ten thousand, for u from 0 to 1."""


@compiled
def within(one: int, score: float) -> float:
    """A number that sorts by class first, then by score; what is no number at all is lowest.

    Arguments:
        one: The class, 0 or above.
    """
    return one * BLOCK + (min(score, FARTHEST) if score > -FARTHEST else -FARTHEST)


class ForwardPass(NamedTuple):
    """One forward pass over some samples, in which versions of a model share what they can."""

    standardiser: Standardiser  # by which the samples were scored
    parts: Parts  # what parts of mixtures said of them

    def of(self, rows: slice) -> ForwardPass:
        """Of some of the samples."""
        return ForwardPass(
            self.standardiser, {part: said[rows] for part, said in self.parts.items()}
        )


@dataclass(frozen=True, eq=False)
class Sighting:
    """What a sentinel says of samples, in stream order."""

    scores: Array  # (5, N) float64
    components: Array  # (N,) int64, the component with the largest log-joint
    labels: Array  # (N,) int64, classes that samples are said to be of; `UNTOLD` where none is
    bins: Array  # (N, R) uint8, of features; R is 2 D, or 0 where they are not looked at

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
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.bins for part in parts]),
        )

    @classmethod
    def nothing(cls) -> Sighting:
        """No samples."""
        none = np.zeros(0, np.int64)
        return cls(np.zeros((N_SCORES, 0)), none, none, np.zeros((0, 0), np.uint8))


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
            if len(classes) != self.model.n_components:
                # Loops over them do not check.
                raise ValueError(
                    f"{len(classes)} components have classes, of {self.model.n_components}"
                )
            return classes
        return np.zeros(self.model.n_components, np.int32)

    @cached_property
    def _spoken_for(self) -> Array:
        """Which components stand for a class, with shape (K,), bool."""
        readout = self.model.readout
        if isinstance(readout, PosteriorReadout) and readout.n_classes:
            largest = readout.component_classes.amax(-1)
            # Where there is one class only, every component that is not without any is of it.
            even = (1 + NAMED) / readout.n_classes if readout.n_classes > 1 else 0.0
            spoken: Array = (largest > even).cpu().numpy()
            return spoken
        return np.zeros(self.model.n_components, np.bool_)

    @cached_property
    def _known(self) -> Array:
        """Which classes a component stands for, with shape (C,), bool."""
        known = np.zeros(self.n_classes, np.bool_)
        known[self.classes[self._spoken_for]] = True
        return known

    @property
    def temperature(self) -> float:
        """T, at which classes, or components, are compared, at least 1."""
        n_features = self.model.density.n_features
        if self._several:
            return margin_temperature(n_features)
        return max(1.0, n_features / FEATURES_PER_DEGREE)

    @cached_property
    def _several(self) -> bool:
        """Whether components stand for more than one class."""
        return bool((self.classes != self.classes[:1]).any())

    @cached_property
    def _kinds(self) -> Array:
        """What is told apart: the class of each component, or each component, (K,), int32."""
        if self._several:
            return self.classes
        return np.arange(self.model.n_components, dtype=np.int32)

    @cached_property
    def _log_volume(self) -> float:
        return self.standardiser.log_volume

    @property
    def n_classes(self) -> int:
        """Different values that `classes` may take, at least 1."""
        return max(1, self.model.n_classes)

    def sees(
        self, x: Tensor, codes: Tensor | None = None, passed: ForwardPass | None = None
    ) -> Sighting:
        """Score samples.

        Arguments:
            x: With shape (N, D), in the sender's units.
            codes: The class of each, with shape (N,), int64, on the CPU, -1 where there is none or
                a new one; None: no labels.
            passed: What other versions of the model have said of these very samples.
        """
        if len(x) <= ROWS:
            return self._sees(x, codes, passed)
        said = repeat(None) if codes is None else iter(torch.split(codes, ROWS))
        parts = zip(torch.split(x, ROWS), said, strict=False)
        return Sighting.joined(*(self._sees(rows, own) for rows, own in parts))

    def _sees(self, x: Tensor, codes: Tensor | None, passed: ForwardPass | None = None) -> Sighting:
        x = self.standardiser.apply(x)
        scored, likelihood = self.model.density.score(x, self._said(passed))
        joint, scores = scored.float().cpu().numpy(), np.zeros((N_SCORES, len(x)))
        winners = joint.argmax(1)
        likelihoods = scores[LIKELIHOOD]
        np.subtract(likelihood.cpu().numpy(), self._log_volume, out=likelihoods)
        if self.model.n_components > 1:
            margins = np.empty(len(x))
            _compare(margins, joint, winners, self._kinds, self.temperature)
            scores[SURENESS] = likelihoods + margins
            if self._several:
                _tell_classes(scores, winners, self.classes, margins)
        labels = np.full(len(x), UNTOLD)
        if codes is not None:
            _tell_labels(labels, winners, codes.numpy(), self._spoken_for, self._known)
        return Sighting(scores, winners, labels, self._bins(x, winners))

    def _said(self, passed: ForwardPass | None) -> Parts | None:
        """What has been said of samples on this very scale."""
        if passed is None or not self.standardiser.same_scale(passed.standardiser):
            return None
        return passed.parts

    @cached_property
    def _laws(self) -> list[tuple[Array, Array]]:
        """Of features in each component, and in all of its class: float32, with shape (K, D).

        In whichever component samples fall, in the class a sensor that sticks stays where it is.
        Means and standard deviations; nothing where features are not looked at.
        """
        density = self.model.density
        law = density.feature_law if density.n_features <= MOST_FEATURES else None
        if law is None:
            return []
        means, deviations = (part.float().cpu() for part in law)
        same = torch.from_numpy(self.classes[:, None] == self.classes)
        shares = same * density.log_weights.float().cpu().exp()
        shares = shares / shares.sum(1, keepdim=True).clamp_min(torch.finfo(shares.dtype).tiny)
        centres = shares @ means
        second = shares @ (deviations.square() + means.square())
        spreads = (second - centres.square()).clamp_min(0).sqrt()
        return [
            (centre.numpy(), spread.clamp_min(LEAST_DEVIATION).numpy())
            for centre, spread in ((means, deviations), (centres, spreads))
        ]

    def _bins(self, x: Tensor, winners: Array) -> Array:
        """Where features lie in the winning component, and in its class: (N, 2 D), or (N, 0)."""
        values, n_features = x.float().cpu().numpy(), x.shape[1]
        bins = np.empty((len(x), len(self._laws) * n_features), np.uint8)
        for place, (centres, spreads) in enumerate(self._laws):
            mine = bins[:, place * n_features : (place + 1) * n_features]
            find_bins(mine, values, winners, centres, spreads)
        return bins


@vectorised
def _compare(
    margins: Array, joint: Array, winners: Array, classes: Array, temperature: float
) -> None:
    """Fills `margins` (N,), from log-joint values (N, K), float32, winners and the classes (K,).

    Fifty thousand exponentials a batch would cost more than all else that the detector does. So
    they are put together from a cubic and, for whole powers of two, the bits of the exponent
    (Schraudolph 1999). What is fainter than `_FAINTEST` counts as that: margins end at 86 T.
    """
    n = joint.shape[1]
    powers = np.empty(n, np.float32)
    bits = powers.view(np.int32)
    scale, nothing = np.float32(1 / (temperature * math.log(2))), np.float32(0)
    for i in range(len(joint)):
        own, others = nothing, nothing
        best, one = joint[i, winners[i]], classes[winners[i]]
        for k in range(n):
            power = (joint[i, k] - best) * scale
            power = power if power > _FAINTEST else _FAINTEST
            floor = np.floor(power)
            u = power - floor
            powers[k] = _ONE + u * (_LINEAR + u * (_SQUARE + u * _CUBE))
            bits[k] += np.int32(floor) << np.int32(23)
        for k in range(n):
            own += powers[k] if classes[k] == one else nothing
        # Two sums in one loop are not added up several numbers at a time.
        for k in range(n):
            others += nothing if classes[k] == one else powers[k]
        margins[i] = temperature * (np.log(own) - np.log(others))


@compiled
def _tell_classes(scores: Array, winners: Array, classes: Array, margins: Array) -> None:
    """Fills the scores within classes, each with shape (N,)."""
    for i in range(len(winners)):
        one, likelihood = classes[winners[i]], scores[LIKELIHOOD, i]
        scores[OWN_SURENESS, i] = within(one, likelihood + margins[i])
        scores[MARGIN, i] = within(one, margins[i])
        scores[OWN_LIKELIHOOD, i] = within(one, likelihood)


@compiled
def _tell_labels(
    labels: Array, winners: Array, codes: Array, spoken_for: Array, known: Array
) -> None:
    """Fills `labels` where they are known, and the component stands for a class."""
    for i in range(len(labels)):
        if 0 <= codes[i] < len(known) and known[codes[i]] and spoken_for[winners[i]]:
            labels[i] = codes[i]
