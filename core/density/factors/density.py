"""A mixture of factor analysers as it is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from core.compiled.loops import Array
from core.density.blocks import ROWS, one_by_one
from core.density.conformity import diagonal_conformity, fits, with_fits
from core.density.density import Fact, Parts, Scored
from core.density.factor_mixture import FactorMixture, log_joint, sample
from core.density.factors.outline import FEATURES_PER_NAT
from core.density.factors.part import FactorPart
from core.density.factors.refining import (
    FIRST,
    MOST,
    by_component,
    fit,
    longlist,
    refine,
    shortlist,
)
from core.density.feature_terms import FeatureTerms, factor_terms
from core.density.mixture import log_sum_exp


@dataclass(frozen=True, eq=False)
class FactorDensity:
    """Factor analysers whose raw noise draws, and scores once it is raised to a floor.

    Versions of a model that learns have most of their components in common. So a density is made of
    parts, and one pass over samples serves all densities that a part belongs to.

    Arguments:
        parts: All components in order; at least one part, of one floor.
        directions: By which components are told apart roughly, with shape (D, P), for those that
            are scored in two stages (`core.density.factors.outline`); None: all are exactly.
    """

    kind: ClassVar[str] = "factors"

    parts: tuple[FactorPart, ...]
    directions: Tensor | None = None

    @classmethod
    def whole(cls, mixture: FactorMixture, floor: float) -> Self:
        """All components in one part.

        Arguments:
            mixture: With raw noise, not negative; weights up to a constant.
            floor: Smallest noise variance while scoring, above 0.
        """
        return cls((FactorPart(mixture, floor),))

    @property
    def floor(self) -> float:
        """Smallest noise variance while scoring."""
        return self.parts[0].floor

    @cached_property
    def _stated_weights(self) -> Tensor:
        """Log weights as the parts have them, with shape (K,)."""
        return torch.cat([part.mixture.log_weights for part in self.parts])

    @cached_property
    def _log_total(self) -> Tensor:
        return self._stated_weights.logsumexp(0)

    @cached_property
    def log_weights(self) -> Tensor:
        return self._stated_weights - self._log_total

    @cached_property
    def log_peaks(self) -> Tensor:
        """Log density of each component at its mean, without its weight, with shape (K,)."""
        return torch.cat([part.analyser.log_peaks for part in self.parts])

    @cached_property
    def mixture(self) -> FactorMixture:
        """All components with raw noise."""
        _, *columns = (
            own[0] if len(own) == 1 else torch.cat(own)
            for own in zip(*(part.mixture for part in self.parts), strict=True)
        )
        return FactorMixture(self.log_weights, *columns)

    @property
    def n_components(self) -> int:
        return sum(map(len, self.parts))

    @property
    def n_features(self) -> int:
        return self.parts[0].mixture.means.shape[1]

    @property
    def device(self) -> torch.device:
        return self.parts[0].mixture.means.device

    def gathered(self) -> FactorDensity:
        if len(self.parts) == 1:
            return self
        return FactorDensity((FactorPart(self.mixture, self.floor),), self.directions)

    def score(self, x: Tensor, parts: Parts | None = None) -> Scored:
        cache: Parts = {} if parts is None else parts
        if self.directions is not None and one_by_one(x):
            joint = self._in_two_stages(x, self.directions, cache)
            return Scored(joint, log_sum_exp(joint))
        unasked = [part for part in self.parts if part not in cache]
        if unasked:
            squared = x.square()
            if one_by_one(x):
                cache.update((part, part.log_joint(x, squared)) for part in unasked)
            else:
                together = log_joint(unasked[0].beside(unasked[1:]).form, x, squared)
                columns = torch.split(together, [len(part) for part in unasked], 1)
                cache.update(zip(unasked, columns, strict=True))
        joint = torch.cat([cache[part] for part in self.parts], 1).sub_(self._log_total)
        return Scored(joint, log_sum_exp(joint))

    def _in_two_stages(self, x: Tensor, directions: Tensor, cache: Parts) -> Tensor:
        """Log-joint values, those of the likeliest components of each sample exactly, (N, K).

        Arguments:
            cache: Samples as they are seen in directions, by these, where known. What parts say is
                not kept: all in one are estimated about as fast as the half of them part by part.
        """
        outlines = [part.outline(directions) for part in self.parts]
        if directions not in cache:
            cache[directions] = torch.cat([one @ directions for one in torch.split(x, ROWS)])
        seen = outlines[0].beside(outlines[1:])
        joint = seen.estimated(x, x.square(), cache[directions])
        table, samples = joint.numpy(), x.contiguous().numpy()
        n, gap = len(x), x.shape[1] / FEATURES_PER_NAT
        order, starts = np.empty(n * MOST, np.int64), np.empty(joint.shape[1] + 1, np.int64)
        places, values = np.empty((n, FIRST), np.int64), np.empty((n, FIRST), np.float32)
        shortlist(order, starts, places, values, table)
        for first, part in self._asked(starts):
            refine(table, order, starts, first, samples, part.exact)
        longlist(order, starts, places, values, table, gap)
        for first, part in self._asked(starts):
            refine(table, order, starts, first, samples, part.exact)
        return joint.sub_(self._log_total)

    def _asked(self, starts: Array) -> Iterator[tuple[int, FactorPart]]:
        """Parts of which a list asks for any component, each with the place of its first one.

        Arguments:
            starts: Of the list: `by_component`.
        """
        first = 0
        for part in self.parts:
            last = first + len(part)
            if starts[first] < starts[last]:
                yield first, part
            first = last

    def _fits(self, x: Tensor, winners: Tensor) -> tuple[Tensor, Tensor]:
        """Stretch and squared rest of samples (N, D) by their likeliest components, each (N,)."""
        samples = x.contiguous().numpy()
        order, starts = np.empty(len(x), np.int64), np.empty(self.n_components + 1, np.int64)
        by_component(order, starts, winners[:, None].numpy())
        stretch, rest = np.empty(len(x), np.float32), np.empty(len(x), np.float32)
        for first, part in self._asked(starts):
            fit(stretch, rest, order, starts, first, samples, part.exact)
        return torch.from_numpy(stretch), torch.from_numpy(rest)

    def feature_terms(self, x: Tensor) -> FeatureTerms:
        joint, log_likelihood = self.score(x)
        largest, components = joint.max(-1)
        terms, expected, centres = (torch.empty_like(x) for _ in range(3))
        rest, begin = self.log_weights[components] + (log_likelihood - largest), 0
        for part in self.parts:
            rows = ((components >= begin) & (components < begin + len(part))).nonzero()[:, 0]
            own = components[rows] - begin
            terms[rows], expected[rows], factors = factor_terms(
                part.mixture, part.form, self.floor, own, x[rows]
            )
            rest[rows] += factors
            centres[rows] = part.mixture.means[own]
            begin += len(part)
        return FeatureTerms(components, terms, expected, centres, rest)

    @cached_property
    def feature_law(self) -> tuple[Tensor, Tensor]:
        _, means, loadings, noise = self.mixture
        return means, (noise + loadings.square().sum(-1)).sqrt()

    def conformity(self, x: Tensor, scored: Scored, *, closeness: bool = True) -> Tensor:
        common = diagonal_conformity(
            self.log_weights, self.log_peaks, x, *scored, closeness=closeness
        )
        winners = scored.joint.argmax(-1)
        if one_by_one(x):
            return with_fits(common, *self._fits(x, winners))
        whole = self.parts[0].beside(self.parts[1:])
        return with_fits(common, *fits(whole, winners, x))

    def sample(self, components: Tensor, generator: torch.Generator, noise: float = 1.0) -> Tensor:
        return sample(self.mixture, components.to(self.device), generator, noise)

    def tensors(self) -> dict[str, Tensor]:
        # Weights as they are, so that a part scores to the bit as it did.
        columns = dict(self.mixture._asdict(), log_weights=self._stated_weights)
        return columns if self.directions is None else {**columns, "directions": self.directions}

    def facts(self) -> dict[str, Fact]:
        return {"floor": self.floor, "sizes": [len(part) for part in self.parts]}

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Fact]) -> Self:
        columns = [tensors[name] for name in FactorMixture._fields]
        sizes: list[int] = facts["sizes"]  # type: ignore[assignment]
        lengths = {len(column) for column in columns}
        if lengths != {sum(sizes)} or min(sizes) < 0:
            raise ValueError(f"parts of {sizes} components, of {sorted(lengths)}")
        floor = float(facts["floor"])  # type: ignore[arg-type]
        # Not slices: how a product rounds may depend on where in memory numbers begin.
        parts = zip(
            *(map(torch.clone, torch.split(column, sizes)) for column in columns), strict=True
        )
        made = tuple(FactorPart(FactorMixture(*part), floor) for part in parts)
        return cls(made, tensors.get("directions"))
