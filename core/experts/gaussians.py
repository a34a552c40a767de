"""Experts that see one Gaussian in each class: quick to learn, and quick to forget.

Regularised as in Friedman, Regularized Discriminant Analysis, 1989: what a class knows little of,
its covariance takes from all classes, and these from their diagonal.

Throughout: H horizons, N samples, D features, C classes. All tensors are float64 on the CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property

import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.experts.fading import ageing, columns_of, effective, few, known
from core.experts.moments import add_moments
from core.experts.opinions import share_odds, weigh_distances

HORIZONS = (30.0, 500.0, float("inf"))
"""Samples."""

MOST_VALUES = 2**20
"""Values of all classes' covariances at one horizon: with more, classes share one."""

MOST_OWN = 64
"""Features up to which classes have covariances of their own at every horizon; with more only of
what never fades, since some hundred samples say little beside the belief that they are alike."""

RIDGE = 0.1
"""Variance of one sample that is believed in before any comes, in standardised units."""

LEAST_VARIANCE = 1e-4
"""Standardised."""

QUICK = "quick_"
"""What names of tensors begin with, of horizons that fade."""


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Faded sums.

    Arguments:
        mass: Samples, with shape (H, C), at the last of all horizons.
        sums: With shape (H, C, D).
        squares: Sums of outer products, with shape (H, C, D, D); (H, 1, D, D) where classes share
            a covariance.
        mass_squares: Sums of squared weights of samples, with shape (H, C).
    """

    mass: Tensor
    sums: Tensor
    squares: Tensor
    mass_squares: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))

    @classmethod
    def start(cls, n_features: int, n_horizons: int = len(HORIZONS)) -> Gaussians:
        """Before any sample and class, at the last horizons."""
        h, d = n_horizons, n_features
        shapes = ((h, 0), (h, 0, d), (h, 0, d, d), (h, 0))
        return cls(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))

    def of_today(self) -> Gaussians:
        """The same; of sums that an earlier release left, as many samples as their mass."""
        if self.mass_squares.shape == self.mass.shape:
            return self
        return replace(self, mass_squares=self.mass)

    @property
    def shared(self) -> bool:
        """Whether classes share a covariance."""
        return self.squares.shape[1] != self.mass.shape[1]

    def grown(self, n_classes: int) -> Gaussians:
        """Make room for C classes."""
        h, c, d = self.sums.shape
        more = n_classes - c
        if more <= 0:
            return self
        mass, mass_squares = (
            torch.cat([part, part.new_zeros(h, more)], 1) for part in (self.mass, self.mass_squares)
        )
        sums = torch.cat([self.sums, self.sums.new_zeros(h, more, d)], 1)
        squares = self.squares
        if n_classes * d * d > MOST_VALUES:
            squares = squares.sum(1, keepdim=True)
        elif not self.shared:
            squares = torch.cat([squares, squares.new_zeros(h, more, d, d)], 1)
        return Gaussians(mass, sums, squares, mass_squares)

    def of_classes(self, columns: Tensor) -> Gaussians:
        """Change to these classes: see `fading.columns_of`."""
        squares = self.squares
        if not self.shared:
            if len(columns) * self.sums.shape[2] ** 2 > MOST_VALUES:
                squares = squares.sum(1, keepdim=True)
            else:
                squares = columns_of(squares, columns, 1)
        mass, sums, mass_squares = (
            columns_of(part, columns, 1) for part in (self.mass, self.sums, self.mass_squares)
        )
        return Gaussians(mass, sums, squares, mass_squares)

    def with_merged_classes(self, merge: ClassMerge) -> Gaussians:
        """Two classes in one."""
        mass, sums, mass_squares = (
            merge.added(part, 1) for part in (self.mass, self.sums, self.mass_squares)
        )
        squares = self.squares if self.shared else merge.added(self.squares, 1)
        return Gaussians(mass, sums, squares, mass_squares)

    def learned(self, x: Tensor, codes: Tensor) -> Gaussians:
        """Learn N labelled samples, in stream order.

        Arguments:
            x: Standardised, with shape (N, D).
            codes: Classes, with shape (N,), int64, below C.
        """
        kept, weights = ageing(torch.tensor(self._horizons, dtype=torch.float64), len(x))
        found = Gaussians(
            self.mass * kept[:, None],
            self.sums * kept[:, None, None],
            self.squares * kept[:, None, None, None],
            self.mass_squares * kept[:, None].square(),
        )
        sums = (found.mass, found.sums, found.squares, found.mass_squares)
        add_moments(
            x.contiguous().numpy(), codes.numpy(), weights.numpy(), *(one.numpy() for one in sums)
        )
        return found

    def rescaled(self, factor: Tensor, offset: Tensor) -> Gaussians:
        """The sums that samples x * factor + offset would have left, both with shape (D,)."""
        stretched, mass = self.sums * factor, self.mass
        sums = stretched + mass[..., None] * offset
        if self.shared:
            stretched, mass = stretched.sum(1, keepdim=True), mass.sum(1, keepdim=True)
        mixed = stretched[..., :, None] * offset + offset[:, None] * stretched[..., None, :]
        mixed = mixed + mass[..., None, None] * offset[:, None] * offset
        squares = self.squares * factor[:, None] * factor + mixed
        return replace(self, sums=sums, squares=squares)

    def without_few(self) -> Gaussians:
        """Drop sums of classes of which a horizon has fewer than three samples, effectively.

        The shortest horizon holds some thirty. Of ten classes it has a mass of three each.
        """
        gone = few(effective(self.mass, self.mass_squares))
        squares = self.squares
        if not self.shared:
            squares = squares.masked_fill(gone[..., None, None], 0.0)
        return Gaussians(
            self.mass.masked_fill(gone, 0.0),
            self.sums.masked_fill(gone[..., None], 0.0),
            squares,
            self.mass_squares.masked_fill(gone, 0.0),
        )

    @cached_property
    def rules(self) -> AnyRules:
        """What they say of any sample; see `fading.known`."""
        if self.shared:
            return SharedRules(*self._lines(), self._known(self._horizons))
        if self.sums.shape[2] <= MOST_OWN:
            return GaussianRules(*self._fitted(), self._known(self._horizons))
        quick, lasting = self._at(slice(0, -1)), self._at(slice(-1, None))
        quick = replace(quick, squares=quick.squares.sum(1, keepdim=True))
        return QuickAndLasting(
            SharedRules(*quick._lines(), quick._known(self._horizons[:-1])),
            GaussianRules(*lasting._fitted(), lasting._known(HORIZONS[-1:])),
        )

    def _at(self, horizons: slice) -> Gaussians:
        """The sums at some horizons."""
        return Gaussians(
            self.mass[horizons],
            self.sums[horizons],
            self.squares[horizons],
            self.mass_squares[horizons],
        )

    @property
    def _horizons(self) -> tuple[float, ...]:
        """At which there are sums."""
        return HORIZONS[-len(self.mass) :]

    def _known(self, horizons: Sequence[float]) -> Tensor:
        return known(self.mass, torch.tensor(horizons, dtype=torch.float64))

    @property
    def _log_priors(self) -> Tensor:
        """Of classes, with shape (H, C)."""
        c = self.mass.shape[1]
        return ((self.mass + 0.01) / (self.mass.sum(1, keepdim=True) + 0.01 * max(1, c))).log()

    def _lines(self) -> tuple[Tensor, Tensor]:
        """Slopes and heights where classes share a covariance; see `SharedRules`."""
        d = self.sums.shape[2]
        means = self.sums / self.mass.clamp_min(1e-9)[..., None]
        covariances = self.squares[:, 0] - (means * self.mass[..., None]).mT @ means
        total = self.mass.sum(1)[:, None]
        spread = (torch.diagonal(covariances, dim1=-2, dim2=-1) + RIDGE) / (total + 1)
        spread = spread.clamp_min(0.0) + LEAST_VARIANCE
        # D samples' worth of belief that features do not go together.
        covariances *= (total / ((total + 1) * (total + d)))[..., None]
        torch.diagonal(covariances, dim1=-2, dim2=-1).copy_(spread)
        factors, failed = torch.linalg.cholesky_ex(covariances)
        if bool(failed.any()):  # rounding of sums of very different size
            plain = torch.diag_embed(spread.sqrt())
            factors = torch.where((failed > 0)[..., None, None], plain, factors)
        slopes = torch.cholesky_solve(means.mT, factors).mT.contiguous()
        return slopes, self._log_priors - 0.5 * (slopes * means).sum(-1)

    def _fitted(self) -> tuple[Tensor, Tensor, Tensor]:
        """Means, whiteners and heights of classes with covariances of their own."""
        d = self.sums.shape[2]
        mass = self.mass.clamp_min(1e-9)
        means = self.sums / mass[..., None]
        outer = self.mass[..., None, None] * means[..., :, None] * means[..., None, :]
        total = self.mass.sum(1)[:, None, None]
        eye = torch.eye(d, dtype=torch.float64)
        scatter = self.squares - outer
        pooled = (scatter.sum(1) + RIDGE * eye) / (total + 1)
        # D samples' worth of belief that features do not go together.
        pooled = (pooled * total + pooled * eye * d) / (total + d)
        belief = float(d + 1)
        covariances = scatter + belief * pooled[:, None]
        covariances = covariances / (self.mass[..., None, None] + belief)
        covariances = covariances + LEAST_VARIANCE * eye
        factors, failed = torch.linalg.cholesky_ex(covariances)
        if bool(failed.any()):
            # Rounding of sums of very different size.
            spread = torch.diagonal(covariances, dim1=-2, dim2=-1).clamp_min(LEAST_VARIANCE)
            plain = torch.diag_embed(spread.sqrt())
            factors = torch.where((failed > 0)[..., None, None], plain, factors)
        heights = self._log_priors - factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        whiteners = torch.linalg.solve_triangular(factors, eye, upper=False)
        return means, whiteners, heights


@dataclass(frozen=True, eq=False)
class GaussianRules:
    """Gaussians by which samples can be named.

    Arguments:
        means: With shape (H, C, D).
        whiteners: Inverse Cholesky factors of the covariances, with shape (H, C, D, D); of earlier
            releases (H, 1, D, D), where classes shared one.
        heights: Log of prior and normaliser, up to a constant, with shape (H, C).
        known: Classes that have come within the horizon, with shape (H, C), bool.
    """

    means: Tensor
    whiteners: Tensor
    heights: Tensor
    known: Tensor

    def probabilities(self, x: Tensor) -> Tensor:
        """Class probabilities, with shape (H, N, C); rows sum to one over known classes.

        Arguments:
            x: Standardised samples, with shape (N, D).
        """
        # |W x - W mu|^2 with one product over all samples.
        turned = (x @ self._turns).view(len(x), *self.whiteners.shape[:3])
        n_horizons, n_classes = self.heights.shape
        found = torch.empty(n_horizons, len(x), n_classes, dtype=torch.float64)
        parts = (turned, self._homes, self.heights, self.known, found)
        weigh_distances(*(part.numpy() for part in parts))
        return found

    @cached_property
    def _turns(self) -> Tensor:
        """All whiteners side by side, with shape (D, H C D), or (D, H D)."""
        return self.whiteners.flatten(0, 2).T

    @cached_property
    def _homes(self) -> Tensor:
        """Whitened means, with shape (H, C, D)."""
        return (self.whiteners @ self.means[..., None])[..., 0]


@dataclass(frozen=True, eq=False)
class SharedRules:
    """Gaussians of one covariance: how likely one class is beside another is linear in the sample.

    Arguments:
        slopes: Means by the inverse covariance, with shape (H, C, D).
        heights: Log-odds of a sample at the origin, up to a constant, with shape (H, C).
        known: Classes that have come within the horizon, with shape (H, C), bool.
    """

    slopes: Tensor
    heights: Tensor
    known: Tensor

    def probabilities(self, x: Tensor) -> Tensor:
        """Class probabilities, with shape (H, N, C); rows sum to one over known classes.

        Arguments:
            x: Standardised samples, with shape (N, D).
        """
        found = (x @ self.slopes.mT).add_(self.heights[:, None])
        share_odds(found.numpy(), self.known.numpy())
        return found


@dataclass(frozen=True, eq=False)
class QuickAndLasting:
    """Gaussians of one covariance at horizons that fade, of one for each class at the one that
    does not.

    Arguments:
        quick: At all horizons but the last.
        lasting: At the last.
    """

    quick: SharedRules
    lasting: GaussianRules

    @property
    def known(self) -> Tensor:
        """Classes that have come within the horizon, with shape (H, C), bool."""
        return torch.cat([self.quick.known, self.lasting.known])

    def probabilities(self, x: Tensor) -> Tensor:
        """Class probabilities, with shape (H, N, C); rows sum to one over known classes.

        Arguments:
            x: Standardised samples, with shape (N, D).
        """
        return torch.cat([self.quick.probabilities(x), self.lasting.probabilities(x)])


AnyRules = GaussianRules | SharedRules | QuickAndLasting


def tensors_of(rules: AnyRules) -> dict[str, Tensor]:
    """Every tensor, by name."""
    if isinstance(rules, QuickAndLasting):
        quick = {f"{QUICK}{name}": value for name, value in tensors_of(rules.quick).items()}
        return {**quick, **tensors_of(rules.lasting)}
    return {one.name: getattr(rules, one.name) for one in fields(rules)}


def rules_of(tensors: Mapping[str, Tensor]) -> AnyRules:
    """The inverse of `tensors_of`; others may be among them.

    Raises:
        KeyError: One is missing.
    """
    if f"{QUICK}slopes" in tensors:
        quick = {one.name: tensors[f"{QUICK}{one.name}"] for one in fields(SharedRules)}
        return QuickAndLasting(SharedRules(**quick), _lasting(tensors))
    if "slopes" in tensors:
        return SharedRules(**{one.name: tensors[one.name] for one in fields(SharedRules)})
    return _lasting(tensors)


def _lasting(tensors: Mapping[str, Tensor]) -> GaussianRules:
    return GaussianRules(**{one.name: tensors[one.name] for one in fields(GaussianRules)})
