"""Experts that see one Gaussian in each class: quick to learn, and quick to forget.

Regularised as in Friedman, Regularized Discriminant Analysis, 1989: what a class knows little of,
its covariance takes from all classes, and these from their diagonal.

Throughout: H horizons, N samples, D features, C classes. All tensors are float64 on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from core.experts.fading import ageing, columns_of, effective, few, known
from core.experts.moments import add_moments
from core.experts.opinions import weigh_distances

HORIZONS = (30.0, 500.0, float("inf"))
"""Samples."""

MOST_VALUES = 2**20
"""Values of all classes' covariances at one horizon: with more, classes share one."""

RIDGE = 0.1
"""Variance of one sample that is believed in before any comes, in standardised units."""

LEAST_VARIANCE = 1e-4
"""Standardised."""


@dataclass(frozen=True, eq=False)
class Gaussians:
    """Faded sums.

    Arguments:
        mass: Samples, with shape (H, C).
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
    def start(cls, n_features: int) -> Gaussians:
        """Before any sample and class."""
        h, d = len(HORIZONS), n_features
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

    def learned(self, x: Tensor, codes: Tensor) -> Gaussians:
        """Learn N labelled samples, in stream order.

        Arguments:
            x: Standardised, with shape (N, D).
            codes: Classes, with shape (N,), int64, below C.
        """
        kept, weights = ageing(torch.tensor(HORIZONS, dtype=torch.float64), len(x))
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
        stretched = self.sums * factor
        sums = stretched + self.mass[..., None] * offset
        mixed = stretched[..., :, None] * offset + offset[:, None] * stretched[..., None, :]
        mixed = mixed + self.mass[..., None, None] * offset[:, None] * offset
        if self.shared:
            mixed = mixed.sum(1, keepdim=True)
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

    def rules(self) -> GaussianRules:
        """What they say of any sample; see `fading.known`."""
        within = torch.tensor(HORIZONS, dtype=torch.float64)
        return GaussianRules(*self._fitted, known(self.mass, within))

    @cached_property
    def _fitted(self) -> tuple[Tensor, Tensor, Tensor]:
        """Means, whiteners and heights; see `GaussianRules`."""
        c, d = self.sums.shape[1:]
        mass = self.mass.clamp_min(1e-9)
        means = self.sums / mass[..., None]
        outer = self.mass[..., None, None] * means[..., :, None] * means[..., None, :]
        total = self.mass.sum(1)[:, None, None]
        eye = torch.eye(d, dtype=torch.float64)
        scatter = self.squares - (outer.sum(1, keepdim=True) if self.shared else outer)
        pooled = (scatter.sum(1) + RIDGE * eye) / (total + 1)
        # D samples' worth of belief that features do not go together.
        pooled = (pooled * total + pooled * eye * d) / (total + d)
        belief = float(d + 1)
        if self.shared:
            covariances = pooled[:, None]
        else:
            covariances = scatter + belief * pooled[:, None]
            covariances = covariances / (self.mass[..., None, None] + belief)
        covariances = covariances + LEAST_VARIANCE * eye
        factors, failed = torch.linalg.cholesky_ex(covariances)
        if bool(failed.any()):
            # Rounding of sums of very different size.
            spread = torch.diagonal(covariances, dim1=-2, dim2=-1).clamp_min(LEAST_VARIANCE)
            plain = torch.diag_embed(spread.sqrt())
            factors = torch.where((failed > 0)[..., None, None], plain, factors)
        priors = (self.mass + 0.01) / (self.mass.sum(1, keepdim=True) + 0.01 * max(1, c))
        heights = priors.log() - factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        whiteners = torch.linalg.solve_triangular(factors, eye, upper=False)
        return means, whiteners, heights


@dataclass(frozen=True, eq=False)
class GaussianRules:
    """Gaussians by which samples can be named.

    Arguments:
        means: With shape (H, C, D).
        whiteners: Inverse Cholesky factors of the covariances: (H, C, D, D), or (H, 1, D, D).
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
