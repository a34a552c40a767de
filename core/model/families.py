"""Kind of density -> its class. The one place that knows all of them."""

from __future__ import annotations

from core.density.deep.density import DeepDensity
from core.density.density import Density
from core.density.diagonal.density import DiagonalDensity
from core.density.factors.density import FactorDensity

DENSITIES: dict[str, type[Density]] = {
    family.kind: family for family in (DiagonalDensity, FactorDensity, DeepDensity)
}
