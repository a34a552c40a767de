"""Kind of density -> its class. The one place that knows all of them."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from core import extensions
from core.density.deep.density import DeepDensity
from core.density.density import Density, Fact
from core.density.diagonal.density import DiagonalDensity
from core.density.factors.density import FactorDensity

DENSITIES: dict[str, type[Density]] = {
    family.kind: family for family in (DiagonalDensity, FactorDensity, DeepDensity)
}
"""Those of this project; others come from the installation (`core.extensions`)."""


def density_of(kind: str, tensors: Mapping[str, Tensor], facts: Mapping[str, Fact]) -> Density:
    """A density from what it says of itself: `Density.tensors` and `Density.facts`.

    Raises:
        KeyError: There is no such family, or it lacks a tensor or a fact.
    """
    family = DENSITIES.get(kind) or extensions.load(extensions.DENSITIES, kind)
    made: Density = family.of(tensors, facts)
    return made
