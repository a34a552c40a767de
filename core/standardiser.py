"""Features of any scale, brought to the scale that the model is made for.

Samples that were declared as images, lie in [0, 1] and fill it stay as they are: their
features share one unit. Everything else is a table. A table's features are shifted and
scaled one by one, by a running mean and deviation, so that the units of a feature change
neither classes nor p-values. In the first samples of every sub-task the scale moves with
every batch; the model follows exactly, because a diagonal Gaussian seen through
x' = a x + b is a diagonal Gaussian again. After that the scale rests. Log-likelihoods are
reported in the sender's units, so that they do not depend on the scaling.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

SETTLING_SAMPLES = 1000
"""Until this many samples of a sub-task the scale follows the data."""

LEAST_VARIANCE = 0.01
"""Images whose pixels vary less than this overall do not fill [0, 1]: the model's noise would
drown them."""

CLIP = 1000.0
"""Features are cut off here, once standardised: a broken sensor's 1e30 must not overflow."""

LEARNED_RANGE = (-20.0, 20.0)
LEARNED_RANGE_OF_IMAGES = (-1.0, 2.0)
"""Features are clipped to these to be learned, once standardised: one a thousand deviations away
marks an outlier, but a component that takes it at its word is no use for anything else any more."""

SMALLEST_DEVIATION = 1e-30
"""A feature that varies less does not vary: dividing by it would leave the float32 range."""


@dataclass(frozen=True, eq=False)
class Standardiser:
    """x' = (x - shift) / scale, learned from the stream.

    Arguments:
        identity: Whether samples are images that are left as they are.
        samples: Behind the running moments.
        fresh: Samples since the start or the last boundary.
        mean: Running mean, with shape (D,), float64.
        squares: Running sum of squared deviations, with shape (D,), float64.
        shift: In force, with shape (D,).
        scale: In force, with shape (D,), positive.
    """

    identity: bool
    samples: int
    fresh: int
    mean: Tensor
    squares: Tensor
    shift: Tensor
    scale: Tensor

    @classmethod
    def of(cls, x: Tensor, *, images: bool = False) -> Standardiser:
        """Choose by the first batch.

        Arguments:
            x: Samples, with shape (N, D).
            images: Whether the sender or the settings declare samples to be images. Their
                range tells nothing: a table may lie in [0, 1], too.
        """
        d = x.shape[1]
        identity = images and _inside(x) and _fills(x)
        zeros = torch.zeros(d, dtype=torch.float64, device=x.device)
        start = cls(identity, 0, 0, zeros, zeros, x.new_zeros(d), x.new_ones(d))
        # Only the scale is taken from it here: it is observed, like every batch, when learned.
        fitted = start.observed(x).refitted()
        return replace(start, shift=fitted.shift, scale=fitted.scale)

    def apply(self, x: Tensor) -> Tensor:
        """Standardised samples, with shape (N, D)."""
        if self.identity:
            return x.clamp(-CLIP, CLIP)
        return ((x - self.shift) / self.scale).clamp_(-CLIP, CLIP)

    def clipped(self, x: Tensor) -> Tensor:
        """Standardised samples as they may be learned; `x` itself where nothing is odd."""
        low, high = LEARNED_RANGE_OF_IMAGES if self.identity else LEARNED_RANGE
        least, most = torch.stack(x.aminmax()).tolist()
        if least >= low and most <= high:
            return x
        return x.clamp(low, high)

    def invert(self, x: Tensor) -> Tensor:
        """Samples in the sender's units, with shape (N, D)."""
        if self.identity:
            return x
        largest = torch.finfo(x.dtype).max
        return (x * self.scale + self.shift).clamp_(-largest, largest)

    def same_scale(self, other: Standardiser) -> bool:
        """Whether samples come out the same by the other."""
        if self.identity or other.identity:
            return self.identity is other.identity
        if self.shift is other.shift and self.scale is other.scale:
            return True
        return torch.equal(self.shift, other.shift) and torch.equal(self.scale, other.scale)

    @cached_property
    def log_volume(self) -> float:
        """What to subtract from a standardised log density for the sender's units, in nats."""
        return 0.0 if self.identity else float(self.scale.double().log().sum())

    @property
    def settling(self) -> bool:
        """Whether the scale should still follow every batch."""
        return self.fresh < SETTLING_SAMPLES

    def observed(self, x: Tensor) -> Standardiser:
        """Add N samples to the running moments; the scale in force stays."""
        n = x.shape[0]
        total = self.samples + n
        values = x.double()
        mean = values.mean(0)
        shift = mean - self.mean
        squares = (
            self.squares
            + (values - mean).square().sum(0)
            + shift.square() * (self.samples * n / total)
        )
        return replace(
            self,
            samples=total,
            fresh=self.fresh + n,
            mean=self.mean + shift * (n / total),
            squares=squares,
        )

    def eased(self) -> Standardiser:
        """At a boundary: what is known counts no more than what is about to come."""
        kept = min(self.samples, SETTLING_SAMPLES)
        squares = self.squares * (kept / max(1, self.samples))
        return replace(self, samples=kept, fresh=0, squares=squares)

    def outgrown(self, x: Tensor) -> Standardiser:
        """Leave the identity behind, if early samples lie outside [0, 1] after all."""
        if not self.identity or not self.settling:
            return self
        return self if _inside(x) else replace(self, identity=False)

    def refitted(self) -> Standardiser:
        """Take the scale that the running moments call for."""
        if self.identity or self.samples == 0:
            return self
        deviation = (self.squares / self.samples).sqrt()
        # A feature that has not varied yet is given the scale that is usual among the others.
        varies = deviation > (1e-12 * self.mean.abs()).clamp_min(SMALLEST_DEVIATION)
        usual = deviation[varies].median() if bool(varies.any()) else deviation.new_ones(())
        scale = torch.where(varies, deviation, usual)
        return replace(self, shift=self.mean.to(self.shift), scale=scale.to(self.scale))

    def change_from(self, old: Standardiser) -> tuple[Tensor, Tensor]:
        """Factor and offset, each (D,), from features under `old` to features under this one.

        Both are finite, and the factor is not zero, whatever a broken sensor sent.
        """
        factor, offset = old.scale / self.scale, (old.shift - self.shift) / self.scale
        largest = 1 / SMALLEST_DEVIATION
        return factor.clamp(SMALLEST_DEVIATION, largest), offset.clamp(-largest, largest)


def _inside(x: Tensor) -> bool:
    """Whether all of it lies in [0, 1]."""
    return bool(x.min() >= 0) and bool(x.max() <= 1)


def _fills(x: Tensor) -> bool:
    return float(x.double().var(correction=0)) >= LEAST_VARIANCE
