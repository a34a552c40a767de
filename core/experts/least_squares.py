"""Experts that draw a line between classes: least squares on random features, that fades.

Ridge regression of an indicator of each class on `core.experts.features`, by its normal equations,
whose sums fade (recursive least squares with exponential forgetting; Haykin, Adaptive Filter
Theory). The sums are of constant size, and the solution is exact.

Throughout: H horizons, N samples, D features, P of `Cosines`, C classes. All tensors are float64 on
the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.experts.fading import ageing, columns_of, few, known
from core.experts.features import Cosines
from core.experts.opinions import share_out

RIDGE = 1.0
"""Samples' worth of belief that nothing tells classes apart."""

LAZINESS = 0.1
"""Part of all samples remembered that may be new before it is solved again."""

ROUNDING = 1e-11
"""Part of the largest sum that the ridge is at least."""

LEAST_VOTE = 1e-3
"""What least squares says of a class at least: it may say less than nothing."""


@dataclass(frozen=True, eq=False)
class LeastSquares:
    """Faded sums, and what they come to.

    Arguments:
        mass: Samples, with shape (H, C).
        gram: Sums of outer products of features, with shape (H, P, P).
        cross: Sums of features by class, with shape (H, P, C).
        solution: As it was last solved for, with shape (H, P, C).
        unsolved: Samples since then, with shape (H,), int64.
    """

    mass: Tensor
    gram: Tensor
    cross: Tensor
    solution: Tensor
    unsolved: Tensor

    @classmethod
    def start(cls, n_horizons: int, size: int) -> LeastSquares:
        """Before any sample and class."""
        h, p = n_horizons, size
        mass, gram, nothing = (
            torch.zeros(shape, dtype=torch.float64) for shape in ((h, 0), (h, p, p), (h, p, 0))
        )
        return cls(mass, gram, nothing, nothing, torch.zeros(h, dtype=torch.int64))

    def grown(self, n_classes: int) -> LeastSquares:
        """Make room for C classes."""
        more = n_classes - self.mass.shape[1]
        if more <= 0:
            return self
        mass, cross, solution = (
            torch.nn.functional.pad(part, (0, more))
            for part in (self.mass, self.cross, self.solution)
        )
        return LeastSquares(mass, self.gram, cross, solution, self.unsolved)

    def of_classes(self, columns: Tensor) -> LeastSquares:
        """Change to these classes: see `fading.columns_of`."""
        return replace(
            self,
            mass=columns_of(self.mass, columns, 1),
            cross=columns_of(self.cross, columns, 2),
            solution=columns_of(self.solution, columns, 2),
        )

    def with_merged_classes(self, merge: ClassMerge) -> LeastSquares:
        """Two classes in one: what was solved for is linear in the sums."""
        return replace(
            self,
            mass=merge.added(self.mass, 1),
            cross=merge.added(self.cross, 2),
            solution=merge.added(self.solution, 2),
        )

    def learned(
        self, cosines: Cosines, horizons: Sequence[float], x: Tensor, codes: Tensor
    ) -> LeastSquares:
        """Learn N labelled samples, in stream order.

        Arguments:
            cosines: Of these experts.
            horizons: H of them, in samples.
            x: Standardised, with shape (N, D).
            codes: Classes, with shape (N,), int64, below C.
        """
        kept, weights = ageing(torch.tensor(horizons, dtype=torch.float64), len(x))
        features = cosines.of(x)
        named = torch.nn.functional.one_hot(codes, self.mass.shape[1]).double()
        weighted = features.T * weights[:, None]  # (H, P, N)
        kept = kept[:, None, None]
        gram = torch.baddbmm(self.gram * kept, weighted, features.expand(len(horizons), -1, -1))
        cross = torch.baddbmm(self.cross * kept, weighted, named.expand(len(horizons), -1, -1))
        mass = self.mass * kept[:, 0] + weights @ named
        unsolved = self.unsolved + len(x)
        due = unsolved >= LAZINESS * mass.sum(1)
        solution = self.solution.clone()
        for one in due.nonzero()[:, 0].tolist():
            solution[one] = _solved(gram[one], cross[one])
        return LeastSquares(mass, gram, cross, solution, unsolved.masked_fill(due, 0))

    def without_few(self) -> LeastSquares:
        """Drop sums of classes of which a horizon has fewer than three samples."""
        gone = few(self.mass)
        return replace(
            self,
            mass=self.mass.masked_fill(gone, 0.0),
            cross=self.cross.masked_fill(gone[:, None], 0.0),
            solution=self.solution.masked_fill(gone[:, None], 0.0),
        )

    def rules(self, horizons: Sequence[float]) -> LinearRules:
        """What they say of any sample; see `fading.known`. They have H horizons."""
        within = torch.tensor(horizons, dtype=torch.float64)
        return LinearRules(self.solution, known(self.mass, within))


def _solved(gram: Tensor, cross: Tensor) -> Tensor:
    """Ridge regression, with shape (P, C), from sums (P, P) and (P, C)."""
    # However long the stream: never below what rounding leaves of the sums.
    ridge = RIDGE + ROUNDING * float(gram.diagonal().amax())
    ridged = gram + ridge * torch.eye(len(gram), dtype=torch.float64)
    return torch.cholesky_solve(cross, torch.linalg.cholesky(ridged))


@dataclass(frozen=True, eq=False)
class LinearRules:
    """Lines by which samples can be named.

    Arguments:
        solution: With shape (H, P, C).
        known: Classes that have come within the horizon, with shape (H, C), bool.
    """

    solution: Tensor
    known: Tensor

    def probabilities(self, features: Tensor) -> Tensor:
        """Class probabilities, with shape (H, N, C); rows sum to one over known classes.

        Arguments:
            features: Of samples, with shape (N, P).
        """
        votes = (features @ self.solution).clamp_min_(LEAST_VOTE).square_()
        share_out(votes.numpy(), self.known.numpy(), 0.0)
        return votes
