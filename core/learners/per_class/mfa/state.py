"""What preset `mfa` has learned, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from core.density.factor_mixture import FactorMoments
from core.density.factors.components import Analysers
from core.density.factors.density import FactorDensity
from core.density.factors.part import FactorPart
from core.learners.per_class.banks import BankGroup, BankState
from core.learners.per_class.state import ComponentSet


@dataclass(frozen=True, eq=False)
class AnalyserSet(ComponentSet[Analysers]):
    """Factor analysers with what is computed from them once."""

    components: Analysers

    @cached_property
    def form(self) -> FactorPart:
        """For scoring; weights are masses, so that sets can be scored side by side."""
        return FactorPart(self.components.mixture(total=1.0), self.floor)


@dataclass(frozen=True, eq=False, kw_only=True)
class MfaGroup(BankGroup):
    """The samples of one owner in the current sub-task, and its factor analysers."""

    bank: AnalyserSet
    sums: FactorMoments | None
    base: AnalyserSet | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class MfaState(BankState):
    """Everything preset `mfa` has learned.

    Arguments:
        n_factors: L.
        directions: By which components are told apart roughly, with shape (D, P); None while all
            are scored exactly: `core.density.factors.outline`.
        directed: Components that there were when these were chosen.
    """

    frozen: AnalyserSet
    groups: tuple[MfaGroup, ...]
    n_factors: int
    directions: Tensor | None = None
    directed: int = 0

    @cached_property
    def density(self) -> FactorDensity:
        """What scores samples; there are components."""
        return FactorDensity(tuple(bank.form for bank in self.banks), self.directions)

    @classmethod
    def empty(cls, n_features: int, n_factors: int, floor: float, device: torch.device) -> MfaState:
        """Before anything was learned."""
        none = AnalyserSet(Analysers.none(n_features, n_factors, 0, device), floor)
        return cls(**cls.beginning(n_features, device), frozen=none, n_factors=n_factors)
