"""Features of any scale, brought to the scale that the model is made for.

Samples that were declared as images, lie in [0, 1] and fill it stay as they are: their
features share one unit. Everything else is a table. A table's features are shifted and
scaled one by one, by a running mean and deviation, so that the units of a feature change
neither classes nor p-values. In the first samples of every sub-task the scale moves with
every batch; the model follows exactly, because a diagonal Gaussian seen through
x' = a x + b is a diagonal Gaussian again. After that the scale rests. Log-likelihoods are
reported in the sender's units, so that they do not depend on the scaling.

Strays must not set a scale: one -999 that stands for "missing" among two hundred samples would
make a feature look thirty times as wide as it is, and all that matters in it would drown in the
model's noise. So single values far outside of what a feature has shown count as no farther out,
unless many of the newest are there; and where strays came so early that nothing had been shown,
later stretches that are far narrower take their place once they are half of all samples.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
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

OF_ITS_SIZE = 0.1
"""Deviation of a feature that has not varied yet, as part of its value, at most; of 0 it is 1."""

LEARNED_RANGE = (-20.0, 20.0)
LEARNED_RANGE_OF_IMAGES = (-1.0, 2.0)
"""Features are clipped to these to be learned, once standardised: one a thousand deviations away
marks an outlier, but a component that takes it at its word is no use for anything else any more."""

FAR = 10.0
"""Deviations beyond which a value may be a stray. By Chebyshev at most one in a hundred lies there
while the running moments are right."""

TRUSTED_SAMPLES = 100
"""Running moments of fewer samples tell nobody for a stray; as many make a stretch. The first ones
are held until there are as many, and tell their own strays, however they are cut into batches."""

WILD = 30.0
NEAR = 3.0
"""Deviations beyond which a stray is no part of a heavy tail, and what it counts as: counted as
`FAR`, as others are, one such value in a hundred would make the deviation grow and grow."""

MOST_STRAYS = 0.1
"""Share of a feature's newest values beyond which far ones are no strays: the feature has moved.
At such a rate running moments follow, though a value counts for `FAR` deviations at most ..."""

FEWEST_NEWEST = 50
"""... and of at least so many values, so that a few far ones are always strays: where one in thirty
is, three of ten are now and then."""

FEWEST_TOLD = 20
"""First samples, or samples of a window, that tell their own strays."""

WIDTHS = 3.9
"""Beyond the middle eight tenths of the first samples by so many of their widths lie strays: of a
normal feature `FAR` deviations, too."""

TOO_WIDE = 10.0
"""Running deviations so many times that of a later stretch were those of strays."""

ANYWHERE = 1e300
"""Beyond every float32, and a number all the same."""

ROUNDING = 0.01
"""What moments of samples in [0, 1] may seem to lie beyond their limits."""

SMALLEST_DEVIATION = 1e-30
"""A feature that varies less does not vary: dividing by it would leave the float32 range."""


@dataclass(frozen=True, eq=False)
class Stretch:
    """The newest samples: `TRUSTED_SAMPLES`, or the batch that makes them as many.

    Arguments:
        low: Lowest value of each feature, (D,), that is no stray for certain, by the running
            moments at its beginning; None where these told nothing. Likewise:
        high: The highest.
        narrow: Samples of earlier stretches that were far narrower than the running moments, with
            shape (D,), float64.
        samples: How many.
        far: Values below `low` or above `high`, with shape (D,), int64.
        mean: Plain mean of the samples, with shape (D,), float64.
        squares: Sum of squared deviations, with shape (D,), float64.
        first: The first samples of a stream, while these are fewer, with shape (n, D), float64;
            later, and of an earlier release, none: with shape (0,).
    """

    low: Tensor | None
    high: Tensor | None
    narrow: Tensor
    samples: int
    far: Tensor
    mean: Tensor
    squares: Tensor
    first: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))


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
        stretch: The newest samples; None before the first, and of an earlier release.
    """

    identity: bool
    samples: int
    fresh: int
    mean: Tensor
    squares: Tensor
    shift: Tensor
    scale: Tensor
    stretch: Stretch | None = None

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

    def within_reach(self, features: Tensor, x: Tensor | None = None) -> Tensor:
        """Samples in the sender's units with far values pulled in, as they are learned, (N, D).

        Arguments:
            features: Of samples, with shape (N, D).
            x: The same standardised, where that is known.
        """
        x = self.apply(features) if x is None else x
        clipped = self.clipped(x)
        if clipped is x:
            return features
        return torch.where(clipped == x, features, self.invert(clipped))

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

    @cached_property
    def beyond_unit_range(self) -> bool:
        """Whether the samples it is fitted to cannot all have lain in [0, 1]."""
        if self.identity:
            return False
        # In [0, 1] no deviation is above a half. All are 1 where nothing has varied yet.
        outside = (self.shift < -ROUNDING) | (self.shift > 1 + ROUNDING)
        return bool((outside | ((self.scale > 0.5 + ROUNDING) & (self.scale != 1))).any())

    @property
    def deviation(self) -> Tensor:
        """Running deviation, with shape (D,), float64; 0 where nothing varies but by rounding."""
        found = (self.squares / max(1, self.samples)).sqrt()
        return torch.where(self._varies(self.mean, found), found, 0.0)

    @property
    def settling(self) -> bool:
        """Whether the scale should still follow every batch."""
        return self.fresh < SETTLING_SAMPLES

    def observed(self, x: Tensor, *, rests: bool = False) -> Standardiser:
        """Add N samples to the running moments; the scale in force stays.

        Arguments:
            x: With shape (N, D).
            rests: Whether a feature that moves for good is followed after a boundary only. Then far
                values are cut off, however many they are, once the scale has settled.
        """
        values, before, nothing = x.double(), self, torch.zeros_like(self.mean)
        stretch = self.stretch or self._begun(nothing)
        early = len(stretch.first) == self.samples < TRUSTED_SAMPLES
        if early:
            # As if all of them came now.
            values = torch.cat([stretch.first.reshape(-1, x.shape[1]), values])
            before = replace(self, samples=0, fresh=0, mean=nothing, squares=nothing)
            stretch = before._begun(nothing)
        samples = before.samples + len(values)
        if rests and not self.settling and stretch.low is not None and stretch.high is not None:
            values = values.clamp(stretch.low, stretch.high)
        else:
            first = values if early and samples < TRUSTED_SAMPLES else stretch.first[:0]
            stretch, values = before._without_strays(stretch, values)
            stretch = replace(stretch, first=first)
        mean, squares = _joined(before.samples, before.mean, before.squares, values)
        new = replace(
            self,
            samples=samples,
            fresh=self.fresh + len(x),
            mean=mean,
            squares=squares,
            stretch=stretch,
        )
        return new if stretch.samples < TRUSTED_SAMPLES else new._checked(stretch)

    def _without_strays(self, stretch: Stretch, values: Tensor) -> tuple[Stretch, Tensor]:
        """The stretch with N values more, and these with strays pulled in, (N, D)."""
        if stretch.low is None or stretch.high is None:
            low, high = _range_of(values)
        else:
            low, high = stretch.low, stretch.high
        outside = (values < low) | (values > high)
        far = stretch.far + outside.sum(0)
        samples = stretch.samples + len(values)
        moments = stretch.mean, stretch.squares
        if self._may_have_strayed:
            moments = _joined(stretch.samples, *moments, values)
        few = far <= MOST_STRAYS * max(samples, FEWEST_NEWEST)
        middle, reach = (low + high) / 2, (high - low) / 2
        wild = (values - middle).abs() > reach * (WILD / FAR)
        reach = torch.where(wild, reach * (NEAR / FAR), reach)
        pulled = torch.where(outside & few, values.clamp(middle - reach, middle + reach), values)
        return Stretch(
            stretch.low, stretch.high, stretch.narrow, samples, far, *moments, stretch.first
        ), pulled

    @property
    def _may_have_strayed(self) -> bool:
        """Whether the running moments may still be those of strays: in the first sub-task."""
        return self.samples == self.fresh and self.settling

    def _begun(self, narrow: Tensor) -> Stretch:
        """A stretch of no samples, after narrow ones as told, (D,)."""
        nothing = torch.zeros_like(self.mean)
        none = 0, nothing.long(), nothing, nothing
        if self.samples < TRUSTED_SAMPLES:
            return Stretch(None, None, narrow, *none, nothing[:0])
        deviation = (self.squares / self.samples).sqrt()
        # What a feature that has not varied shows first is news.
        away = torch.where(self._varies(self.mean, deviation), FAR * deviation, ANYWHERE)
        return Stretch(self.mean - away, self.mean + away, narrow, *none, nothing[:0])

    def _checked(self, stretch: Stretch) -> Standardiser:
        """The first sub-task's moments without those of strays, by the stretch that is full now."""
        if not self._may_have_strayed:
            return replace(self, stretch=self._begun(stretch.narrow))
        deviation = (stretch.squares / stretch.samples).sqrt()
        too_wide = (self.squares / self.samples).sqrt() > TOO_WIDE * deviation
        is_narrow = self._varies(stretch.mean, deviation) & too_wide
        narrow = stretch.narrow + stretch.samples * is_narrow
        strayed = is_narrow & (2 * narrow >= self.samples)
        squares = stretch.squares * (self.samples / stretch.samples)
        new = replace(
            self,
            mean=torch.where(strayed, stretch.mean, self.mean),
            squares=torch.where(strayed, squares, self.squares),
        )
        return replace(new, stretch=new._begun(narrow))

    @staticmethod
    def _varies(mean: Tensor, deviation: Tensor) -> Tensor:
        """Whether features vary by more than rounding."""
        return deviation > (1e-12 * mean.abs()).clamp_min(SMALLEST_DEVIATION)

    def without_raw(self) -> Standardiser:
        """The same without the first samples, if these are held."""
        if self.stretch is None or not len(self.stretch.first):
            return self
        return replace(self, stretch=replace(self.stretch, first=self.stretch.first[:0].clone()))

    def discounted(self) -> Standardiser:
        """At a boundary: what is known counts no more than what is about to come."""
        kept = min(self.samples, SETTLING_SAMPLES)
        squares = self.squares * (kept / max(1, self.samples))
        return replace(self, samples=kept, fresh=0, squares=squares, stretch=None)

    def without_unit_range(self, x: Tensor) -> Standardiser:
        """Leave the identity behind, if early samples lie outside [0, 1] after all."""
        if not self.identity or not self.settling:
            return self
        return self if _inside(x) else replace(self, identity=False)

    def refitted(self) -> Standardiser:
        """Take the scale that the running moments call for."""
        if self.identity or self.samples == 0:
            return self
        deviation = (self.squares / self.samples).sqrt()
        # A feature that has not varied yet is given the scale that is usual among the others, or
        # one of its own where that is smaller: the others may be in bytes, and it a flag.
        varies = self._varies(self.mean, deviation)
        if bool(varies.any()):
            size = self.mean.abs()
            own = torch.where(size > SMALLEST_DEVIATION, size * OF_ITS_SIZE, 1.0)
            usual = torch.minimum(deviation[varies].median(), own)
        else:
            usual = torch.ones_like(deviation)
        scale = torch.where(varies, deviation, usual)
        return replace(self, shift=self.mean.to(self.shift), scale=scale.to(self.scale))

    def change_from(self, old: Standardiser) -> tuple[Tensor, Tensor]:
        """Factor and offset, each (D,), from features under `old` to features under this one.

        Both are finite, and the factor is not zero, whatever a broken sensor sent.
        """
        factor, offset = old.scale / self.scale, (old.shift - self.shift) / self.scale
        largest = 1 / SMALLEST_DEVIATION
        return factor.clamp(SMALLEST_DEVIATION, largest), offset.clamp(-largest, largest)


def strays(x: Tensor) -> Tensor | None:
    """Single samples far out in some feature, with shape (N,), bool; None where there are none.

    Where they are more than a tenth of all, they are no strays.

    Arguments:
        x: Standardised samples, with shape (N, D).
    """
    far = torch.linalg.vector_norm(x, torch.inf, dim=1) > FAR
    n_far = int(far.sum())
    most = min(MOST_STRAYS * max(len(x), FEWEST_TOLD), len(x) - 1)
    return far if 0 < n_far <= most else None


def _joined(n: int, mean: Tensor, squares: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and sum of squared deviations of n samples and of N more, (N, D)."""
    more = len(values)
    total = n + more
    middle = values.mean(0)
    shift = middle - mean
    squares = squares + (values - middle).square().sum(0) + shift.square() * (n * more / total)
    return torch.add(mean, shift, alpha=more / total), squares


def _range_of(values: Tensor) -> tuple[Tensor, Tensor]:
    """The same, told by N samples alone, (N, D)."""
    n = len(values)
    if n < FEWEST_TOLD:
        return values[0] - torch.inf, values[0] + torch.inf
    ordered = values.sort(0).values
    low, high = ordered[n // 10], ordered[n - 1 - n // 10]
    away = torch.where(high > low, WIDTHS * (high - low), torch.inf)
    return low - away, high + away


def _inside(x: Tensor) -> bool:
    """Whether all of it lies in [0, 1]."""
    return bool(x.min() >= 0) and bool(x.max() <= 1)


def _fills(x: Tensor) -> bool:
    return float(x.double().var(correction=0)) >= LEAST_VARIANCE
