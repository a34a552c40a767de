"""A cumulative sum of evidence (Page 1954)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cusum:
    """A sum of evidence that never falls below zero, and how long it has been above.

    Example:
        >>> Cusum().added(2.0, 10).added(1.0, 10)
        Cusum(value=3.0, samples=20)
        >>> Cusum().added(2.0, 10).added(-5.0, 10)
        Cusum(value=0.0, samples=0)
    """

    value: float = 0.0
    samples: int = 0  # since it last stood at zero: the estimated length of the change

    def added(self, evidence: float, n: int) -> Cusum:
        """With the evidence of n more samples."""
        value = self.value + evidence
        return Cusum(value, self.samples + n) if value > 0 else Cusum()
