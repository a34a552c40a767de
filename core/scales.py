"""What a model says of a sample at several scales: the same mixture, with fewer and fewer parts.

Outliers that come in groups get components of their own and look dense. From further away, where
their components have been joined with others, they do not: so the mixture is asked again with 16,
4 and 1 components, made from its own by their moments (`core.density.coarsening`). Closeness
at each is that of `core.density.traits`, softer. The last of these traits looks at features one by
one,

    sum_j log sum_m w_m N(x_j; mu_mj, s_mj^2)    in the sender's units

because a sample may be odd in each of many features without being far in any direction. Of all of
these less is stranger.

They are made again when the sub-task has grown by half, which moves them little: what they say of
samples that come is said before these were learned.

Throughout: N samples, D features, M components in all, T traits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor

from core.density.coarsening import coarsened
from core.density.diagonal import LOG_2PI, log_sum_exp
from core.density.factor_part import FactorPart
from core.density.factors import FactorMixture
from core.standardiser import Standardiser

SIZES = (16, 4, 1)
"""Components at every scale, at most."""

N_TRAITS = len(SIZES) + 1
"""T: one for every scale, and one for features one by one."""

SOFTNESS = 8.0
"""t of closeness at a scale."""

FEW_FEATURES = 64
"""Features up to which the finest of the scales is asked about each by itself; with more it is the
coarsest, because every component and feature costs an exponential."""

FIRST = 200
"""Samples of the first sub-task from which on there are scales."""

GROWTH = 1.5
"""They are made again when there are so many times as many samples ..."""

MOST_GROWTH = 16_384
"""... or so many more."""

LEAST_DENSITY = 1e-37
"""Of a single feature, over the highest there is: what is farther off is as strange as any."""

FARTHEST = 1e30
"""Largest trait in absolute value: whatever is farther off is as strange."""

ROWS = 256
"""Samples whose features are asked one by one at a time."""


@dataclass(frozen=True, eq=False)
class Scales:
    """Coarser and coarser mixtures, beside each other.

    Arguments:
        mixture: Components of all scales, the finest first; weights of each scale sum to one.
        sizes: How many components each scale has.
        floor: Smallest noise variance.
        shift: Of the standardiser that they were made under, with shape (D,); with `scale`.
        sub_task: In which they were made ...
        samples: ... after so many of its samples.
    """

    mixture: FactorMixture
    sizes: tuple[int, ...]
    floor: float
    shift: Tensor
    scale: Tensor
    sub_task: int = 0
    samples: int = 0

    @classmethod
    def of(
        cls,
        mixture: FactorMixture,
        floor: float,
        standardiser: Standardiser,
        sub_task: int,
        samples: int,
    ) -> Self:
        """Of a density's components, with noise of at least `floor`."""
        levels = coarsened(mixture, SIZES, floor)
        joined = FactorMixture(*(torch.cat(parts) for parts in zip(*levels, strict=True)))
        sizes = tuple(level.n_components for level in levels)
        shift, scale = standardiser.shift, standardiser.scale
        return cls(joined, sizes, floor, shift, scale, sub_task, samples)

    def due(self, sub_task: int, samples: int) -> bool:
        """Whether they should be made again."""
        grown = min(GROWTH * self.samples, self.samples + MOST_GROWTH)
        return sub_task != self.sub_task or samples >= max(FIRST, grown)

    @cached_property
    def _part(self) -> FactorPart:
        return FactorPart(self.mixture, self.floor / 2)

    @cached_property
    def _law(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of each feature in some components: means, reciprocal deviations, log peaks."""
        of = slice(0, self.sizes[0]) if self._few else slice(-self.sizes[-1], None)
        weights, means, loadings, noise = (part[of] for part in self.mixture)
        precision = (noise + loadings.square().sum(-1)).rsqrt()
        # In the sender's units, so that rows of before the scale of the features moved still count.
        density = precision.log() - self.scale.log() - 0.5 * LOG_2PI
        return means, precision, weights[:, None] + density

    @property
    def components(self) -> tuple[int, ...]:
        """How many the mixture has that each trait is of, T of them."""
        return (*self.sizes, self.sizes[0] if self._few else self.sizes[-1])

    @property
    def _few(self) -> bool:
        return len(self.shift) <= FEW_FEATURES

    def traits(self, x: Tensor, standardiser: Standardiser) -> Tensor:
        """Of samples (N, D) that are standardised, with shape (N, T).

        Arguments:
            standardiser: That they were standardised by.
        """
        if not torch.equal(standardiser.scale, self.scale) or not torch.equal(
            standardiser.shift, self.shift
        ):
            x = torch.addcmul(
                (standardiser.shift - self.shift) / self.scale, x, standardiser.scale / self.scale
            )
        part = self._part
        half = part.mixture.log_weights + part.analyser.heights - part.log_joint(x, x.square())
        soft = part.mixture.log_weights - half / SOFTNESS
        columns = [log_sum_exp(some) for some in torch.split(soft, list(self.sizes), 1)]
        return torch.stack([*columns, self._by_feature(x)], 1)

    def _by_feature(self, x: Tensor) -> Tensor:
        means, precision, peaks = self._law
        if len(means) == 1:
            return peaks.sum() - 0.5 * (x - means).mul_(precision).square_().sum(-1)
        highest, found = peaks.amax(0), []
        for rows in torch.split(x, ROWS):
            apart = (rows[:, None] - means).mul_(precision)
            # No need of a largest term: a feature that is too far from all of them is just that.
            density = apart.square_().mul_(-0.5).add_(peaks - highest).exp_().sum(1)
            found.append(density.clamp_min_(LEAST_DENSITY).log_().sum(-1) + highest.sum())
        return torch.cat(found)

    def tensors(self) -> dict[str, Tensor]:
        """What it is made of, by name."""
        return dict(self.mixture._asdict(), shift=self.shift, scale=self.scale)

    def facts(self) -> dict[str, Any]:
        """What else it takes to make it again."""
        return {
            "sizes": list(self.sizes),
            "floor": self.floor,
            "sub_task": self.sub_task,
            "samples": self.samples,
        }

    @classmethod
    def read(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> Self:
        """The inverse of `tensors` and `facts`; a missing one is a `KeyError`."""
        mixture = FactorMixture(*(tensors[name] for name in FactorMixture._fields))
        sizes = tuple(int(size) for size in facts["sizes"])
        if sum(sizes) != mixture.n_components:
            raise ValueError(f"scales of {sizes} components, of {mixture.n_components}")
        return cls(
            mixture,
            sizes,
            float(facts["floor"]),
            tensors["shift"],
            tensors["scale"],
            int(facts["sub_task"]),
            int(facts["samples"]),
        )


def n_scales(scales: Scales | None) -> int:
    """T, or 0 where there are none."""
    return 0 if scales is None else N_TRAITS


def at_scales(
    traits: Tensor, scales: Scales | None, x: Tensor, standardiser: Standardiser
) -> Tensor:
    """Traits (N, S) with those of the scales after the first, (N, S + T).

    Arguments:
        scales: None where there are none: then nothing is added.
        x: The samples, standardised, with shape (N, D).
        standardiser: By which.
    """
    if scales is None:
        return traits
    found = scales.traits(x, standardiser)
    # A broken sensor's 1e30 may leave the range of floats when seen by an earlier scale.
    found = found.nan_to_num(nan=-FARTHEST, posinf=FARTHEST, neginf=-FARTHEST)
    return torch.cat([traits[:, :1], found, traits[:, 1:]], 1)
