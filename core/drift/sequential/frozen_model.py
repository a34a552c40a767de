"""A model at rest through which the detector watches the stream.

A model that learns scores every batch by another ruler than the one before: what it says of
samples cannot be compared over time. So the detector keeps one version of it, the frozen model,
and asks that for a while. What the frozen model says of samples that it has not learned is, as long
as nothing changes, exchangeable; that is all which the evidence (`core.drift.sequential.evidence`)
needs.

Throughout: N samples, D features, K components, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import repeat

import numpy as np
import torch
from torch import Tensor

from core.compiled.loops import Array
from core.density.blocks import ROWS
from core.density.density import Parts, Scored
from core.drift.detector import ForwardPass, ModelVersion
from core.drift.sequential.features import LEAST_DEVIATION, MOST_FEATURES, find_bins
from core.drift.sequential.label_errors import UNTOLD
from core.drift.sequential.scores import N_SCORES, FrozenScores, hear, look
from core.model.readout import NAMED, margin_temperature

FEATURES_PER_DEGREE = 4
"""Features for each degree at which components are compared where there are no classes: they are
more alike than classes are, and more of them have a say."""

_SINGLE = np.dtype(np.float32)
"""Precision in which compiled loops read."""


@lru_cache(maxsize=16)
def _untold(n: int) -> tuple[Array, Array]:
    """Labels of n samples that have none, and bins where features are not looked at.

    Returns:
        With shape (n,), int64, and (n, 0), uint8; read, and never written.
    """
    return np.full(n, UNTOLD), np.empty((n, 0), np.uint8)


@dataclass(frozen=True, eq=False)
class FrozenModel(ModelVersion):
    """A version of the model that scores the stream, and never learns."""

    @classmethod
    def of(cls, version: ModelVersion) -> FrozenModel:
        """The same version, made to score a stream."""
        if isinstance(version, FrozenModel):
            return version
        return cls(version.model, version.standardiser, version.taken_at)

    @cached_property
    def classes(self) -> Array:
        """The class that each component stands for, with shape (K,), int32; 0 where none."""
        shares = self.model.readout.component_classes
        if shares is not None and shares.shape[1]:
            classes: Array = shares.argmax(-1).int().cpu().numpy()
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
        shares = self.model.readout.component_classes
        if shares is not None and shares.shape[1]:
            largest = shares.amax(-1)
            # Where there is one class only, every component that is not without any is of it.
            even = (1 + NAMED) / shares.shape[1] if shares.shape[1] > 1 else 0.0
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
        if self.several:
            return margin_temperature(n_features)
        return max(1.0, n_features / FEATURES_PER_DEGREE)

    @cached_property
    def several(self) -> bool:
        """Whether components stand for more than one class."""
        return bool((self.classes != self.classes[:1]).any())

    @cached_property
    def _kinds(self) -> Array:
        """What is told apart: the class of each component, or each component, (K,), int32."""
        if self.several:
            return self.classes
        return np.arange(self.model.n_components, dtype=np.int32)

    @cached_property
    def _lens(self) -> tuple[float, Array, Array, bool, float]:
        """Through which it sees; see `look`."""
        volume = self.standardiser.log_volume
        return volume, self.classes, self._kinds, self.several, self.temperature

    @property
    def n_classes(self) -> int:
        """Different values that `classes` may take, at least 1."""
        return max(1, self.model.n_classes)

    def score(
        self, x: Tensor, codes: Tensor | None = None, forward_pass: ForwardPass | None = None
    ) -> FrozenScores:
        """Score samples.

        Arguments:
            x: With shape (N, D), in the sender's units.
            codes: The class of each, with shape (N,), int64, on the CPU, -1 where there is none or
                a new one; None: no labels.
            forward_pass: What other versions of the model have said of these very samples.
        """
        if x.size(0) <= ROWS:
            return self._sees(x, codes, forward_pass)
        code_parts = repeat(None) if codes is None else iter(torch.split(codes, ROWS))
        parts = zip(torch.split(x, ROWS), code_parts, strict=False)
        return FrozenScores.joined(*(self._sees(rows, own) for rows, own in parts))

    def _sees(
        self, x: Tensor, codes: Tensor | None, forward_pass: ForwardPass | None = None
    ) -> FrozenScores:
        x, (scored, log_likelihood) = self.forward(x, forward_pass)
        joint, log_likelihoods = _array(scored), _array(log_likelihood)
        n = len(log_likelihoods)
        winners, scores = np.empty(n, np.int64), np.empty((N_SCORES, n))
        look(scores, winners, joint, log_likelihoods, self._lens)
        labels, bins = _untold(n)
        if codes is not None:
            labels = labels.copy()
            hear(labels, winners, codes.numpy(), self._spoken_for, self._known)
        if self._laws:
            bins = self._bins(x, winners)
        return FrozenScores(scores, winners, labels, bins)

    def forward(self, x: Tensor, forward_pass: ForwardPass | None = None) -> tuple[Tensor, Scored]:
        """One forward pass.

        Arguments:
            x: In the sender's units, with shape (N, D).
            forward_pass: See `score`.

        Returns:
            The samples on the frozen model's scale, and what its density says of them.
        """
        x = self.standardiser.apply(x)
        return x, self.model.density.score(x, self._known_parts(forward_pass))

    def _known_parts(self, forward_pass: ForwardPass | None) -> Parts | None:
        """What parts have said of samples on this very scale."""
        if forward_pass is None or not self.standardiser.same_scale(forward_pass.standardiser):
            return None
        return forward_pass.parts

    @cached_property
    def _laws(self) -> list[tuple[Array, Array]]:
        """Means and deviations of features in each component and in its class: float32, (K, D).

        A sensor that sticks stays where it is in the class, in whichever components samples fall.
        Empty where features are not looked at.
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
        """Where features lie in the winning component, and in its class, with shape (N, 2 D)."""
        n, n_features = len(winners), x.size(1)
        bins = np.empty((n, len(self._laws) * n_features), np.uint8)
        values = x.float().cpu().numpy()
        for index, (centres, spreads) in enumerate(self._laws):
            mine = bins[:, index * n_features : (index + 1) * n_features]
            find_bins(mine, values, winners, centres, spreads)
        return bins


def _array(values: Tensor) -> Array:
    """On the CPU, of single precision. To ask a tensor for both takes as long as to have it."""
    array: Array = values.numpy() if values.is_cpu else values.float().cpu().numpy()
    return array if array.dtype is _SINGLE else array.astype(np.float32)
