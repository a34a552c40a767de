"""Logarithms and powers of many numbers at a time.

What the mathematical library does one by one is put together here from sums and products, which
a processor carries out for several numbers at once. To a part in 10^10 they are the same.
"""

from __future__ import annotations

import math

import numpy as np

from core.compiled.loops import Array, vectorised

_LOGARITHM = tuple(2 / (2 * i + 1) / math.log(2) for i in range(8))
"""log2((1 + s) / (1 - s)) is s times the sum of these times s^0, s^2, s^4 and so on."""

_POWER = tuple(math.log(2) ** i / math.factorial(i) for i in range(10))
"""2^u is the sum of these times u^0, u^1, u^2 and so on, for u from -1/2 to 1/2."""

_FRACTION = np.int64(52)
"""Bits of a double below those of its exponent."""

_ROOT = np.float64(0.5**0.5).view(np.int64)

_NOTHING = -1000.0
"""Power of two that is as good as zero."""


@vectorised
def find_logarithms(logs: Array, values: Array) -> None:
    """Fills `logs` with log2 of `values`, both with shape (N,), float64.

    Numbers are 0 to 1; the few subnormal ones just above 0 are taken for 2^-1023.
    """
    parts = values.copy()
    bits = parts.view(np.int64)
    for i in range(len(parts)):
        # What is left of the number lies about 1, from the root of 1/2 to that of 2.
        exponent = (bits[i] - _ROOT) >> _FRACTION
        bits[i] -= exponent << _FRACTION
        logs[i] = exponent
    a, b, c, d, e, f, g, h = _LOGARITHM
    for i in range(len(parts)):
        s = (parts[i] - 1) / (parts[i] + 1)
        z = s * s
        logs[i] += s * (a + z * (b + z * (c + z * (d + z * (e + z * (f + z * (g + z * h)))))))
    for i in range(len(parts)):
        if values[i] == 0:
            logs[i] = -np.inf


@vectorised
def find_powers(powers: Array, logs: Array, exponent: float) -> None:
    """Fills `powers` with numbers raised to an exponent above 0.

    Arguments:
        powers: With shape (N,), float64.
        logs: log2 of the numbers, 0 at most, with shape (N,).
    """
    bits = powers.view(np.int64)
    a, b, c, d, e, f, g, h, k, m = _POWER
    for i in range(len(logs)):
        log = max(exponent * logs[i], _NOTHING)
        whole = np.floor(log + 0.5)
        u = log - whole
        series = e + u * (f + u * (g + u * (h + u * (k + u * m))))
        powers[i] = a + u * (b + u * (c + u * (d + u * series)))
        bits[i] += np.int64(whole) << _FRACTION
