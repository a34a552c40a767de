"""Kind of density -> its class. The one place that knows all of them."""

from __future__ import annotations

from core.density.density import Density
from core.density.diagonal_density import DiagonalDensity

DENSITIES: dict[str, type[Density]] = {DiagonalDensity.kind: DiagonalDensity}
