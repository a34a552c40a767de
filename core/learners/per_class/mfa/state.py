"""What preset `mfa` has learned, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from core.density.factor_mixture import FactorMoments
from core.density.factors.components import Analysers
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
    """

    frozen: AnalyserSet
    groups: tuple[MfaGroup, ...]
    n_factors: int

    @classmethod
    def empty(cls, n_features: int, n_factors: int, floor: float, device: torch.device) -> MfaState:
        """Before anything was learned."""
        none = AnalyserSet(Analysers.none(n_features, n_factors, 0, device), floor)
        return cls(**cls.beginning(n_features, device), frozen=none, n_factors=n_factors)
