"""Moments of labelled samples, added up one sample after the other: compiled loops.

Throughout: H horizons, N samples, D features, C classes.
"""

from __future__ import annotations

from core.compiled.loops import Array, compiled, vectorised


@vectorised
def _add_product(row: Array, weight: float, sums: Array, products: Array) -> None:
    """Add a sample (D,) to weighted sums (D,), and its outer product to those of others (D, D)."""
    for one in range(len(row)):
        weighted, line = weight * row[one], products[one]
        sums[one] += weighted
        for other in range(len(row)):
            line[other] += weighted * row[other]


@compiled
def add_moments(
    x: Array,
    codes: Array,
    weights: Array,
    mass: Array,
    sums: Array,
    squares: Array,
    mass_squares: Array,
) -> None:
    """Add N samples to the sums of `core.experts.gaussians.Gaussians`, where they are.

    Arguments:
        x: With shape (N, D), float64.
        codes: Classes, with shape (N,), int64, below C.
        weights: What each sample counts, with shape (H, N), float64.
        mass: With shape (H, C), float64, as the next three.
        sums: With shape (H, C, D).
        squares: With shape (H, C, D, D), or (H, 1, D, D).
        mass_squares: With shape (H, C).
    """
    shared = squares.shape[1] != mass.shape[1]
    for h in range(len(mass)):
        for i in range(len(x)):
            code, weight = codes[i], weights[h, i]
            mass[h, code] += weight
            mass_squares[h, code] += weight * weight
            _add_product(x[i], weight, sums[h, code], squares[h, 0 if shared else code])
