"""Factor analysers that are scored together, with what is computed from them once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from core.density.conformity import Analyser, factor_log_peaks
from core.density.factor_mixture import FactorMixture, WhitenedForm, log_joint, whitened_form
from core.density.factors.outline import Outline, exact
from core.density.factors.refining import Exact
from core.density.factors.versions import kept


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
        """For the conformity scores of samples."""
        log_weights, means, loadings, _ = self.mixture
        return Analyser(self.form, log_weights, means, loadings, factor_log_peaks(self.form))

    @cached_property
    def exact(self) -> Exact:
        """What it takes to score components one by one, where they are on the CPU."""
        return exact(self.mixture, self.form)

    def beside(self, others: Sequence[FactorPart]) -> Analyser:
        """All components of this part and of others, in order; those of the last few are kept.

        For a device, which is asked for as few operations as can be.
        """
        if not others:
            return self.analyser
        parts = (self, *others)
        return kept(
            self, "_beside", others, lambda: Analyser.joined([one.analyser for one in parts])
        )

    def outline(self, directions: Tensor) -> Outline:
        """The components as they are seen in directions (D, P).

        Those of the last few directions are kept: versions of a model of before and after a choice
        of directions score the same samples in turns.
        """
        return kept(
            self, "_outlines", (directions,), lambda: Outline(self.mixture, self.form, directions)
        )

    def log_joint(self, x: Tensor, x_squared: Tensor) -> Tensor:
        """Log of weight times density, up to the constant of the weights, with shape (N, K).

        Arguments:
            x: Samples, with shape (N, D).
            x_squared: Their squares.
        """
        return log_joint(self.form, x, x_squared)
