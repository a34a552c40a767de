"""Limits of one request."""

from __future__ import annotations

from typing import Final, NamedTuple

from core.errors import InvalidBatch, ShapeMismatch


class Limits(NamedTuple):
    """What one request may hold at most."""

    max_samples: int
    max_features: int

    def check(self, n: int, d: int) -> None:
        """Refuse `n` samples of `d` features when that is too much.

        Raises:
            InvalidBatch: Too many samples.
            ShapeMismatch: Too many features per sample.
        """
        if n > self.max_samples:
            raise InvalidBatch(
                f"The request has {n} samples; at most {self.max_samples} are accepted at once. "
                f"Send smaller batches, or raise GMR_MAX_SAMPLES.",
                samples=n,
                max_samples=self.max_samples,
            )
        if d > self.max_features:
            raise self.too_many_features(d)

    def check_begun(self, n: int) -> None:
        """Refuse a request of which `n` samples were read, and more may come.

        Raises:
            InvalidBatch: Too many samples.
        """
        if n > self.max_samples:
            raise InvalidBatch(
                f"The request has more samples than are taken; at most {self.max_samples} are "
                f"accepted at once. Send smaller batches, or raise GMR_MAX_SAMPLES.",
                max_samples=self.max_samples,
            )

    def too_many_features(self, d: int) -> ShapeMismatch:
        """The error for `d` features per sample."""
        return ShapeMismatch(
            f"Each sample has {d} features; at most {self.max_features} are accepted. Check "
            f"that samples are rows, or raise GMR_MAX_FEATURES.",
            features=d,
            max_features=self.max_features,
        )


NO_LIMITS: Final = Limits(max_samples=2**62, max_features=2**62)
