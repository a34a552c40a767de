"""Factor analysers that are scored together, with what is computed from them once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from core.density.factor_mixture import FactorMixture, WhitenedForm, log_joint, whitened_form
from core.density.factors.outline import Outline
from core.density.traits import Analyser, factor_log_peaks


@dataclass(frozen=True, eq=False)
class FactorPart:
    """Some of a mixture's components, or all; the same object as long as they are the same.

    Arguments:
        mixture: With raw noise, not negative; weights are up to a constant, the same for all parts.
        floor: Smallest noise variance while scoring, above 0.
    """

    mixture: FactorMixture
    floor: float

    def __len__(self) -> int:
        return self.mixture.n_components

    @cached_property
    def form(self) -> WhitenedForm:
        """For scoring."""
        return whitened_form(self.mixture._replace(noise=self.mixture.noise.clamp_min(self.floor)))

    @cached_property
    def analyser(self) -> Analyser:
        """For the traits of samples."""
        log_weights, means, loadings, _ = self.mixture
        return Analyser(self.form, log_weights, means, loadings, factor_log_peaks(self.form))

    def outline(self, directions: Tensor) -> Outline:
        """The components as they are seen in directions (D, P); that of the last ones is kept."""
        known: Outline | None = self.__dict__.get("_outline")
        if known is None or known.directions is not directions:
            known = Outline(self.mixture, self.form, directions)
            self.__dict__["_outline"] = known
        return known

    def log_joint(self, x: Tensor, x_squared: Tensor) -> Tensor:
        """Log of weight times density, up to the constant of the weights, with shape (N, K).

        Arguments:
            x: Samples, with shape (N, D).
            x_squared: Their squares.
        """
        return log_joint(self.form, x, x_squared)
