"""Fingerprints of the samples that a sub-task has learned: does the stream send them again?

A model fits what it has learned better than what is new. Samples that come a second time are
therefore likelier than any detector expects, and by that alone look like a change: a file that is
sent twice, or in several epochs, would begin a new sub-task. Whether they are the same is a matter
of fact, and told by fingerprints.

Where samples repeat each other anyway (categories, switches, a sensor at rest) nothing follows from
that. So they tell of a repetition only where they have hardly ever come twice before, and each no
more often than in a stream that begins anew.

Rules of this module:

1. No sample can be made again from its fingerprint: 32 bits are kept of all its features.
2. The size of what is kept does not depend on the length of the stream. When there are too many,
   those that a power of two divides are kept: a fair choice, the same for a sample whenever it
   comes.

Throughout: N samples, D features, M fingerprints; on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.compiled.loops import Array, compiled

MOST = 4096
"""Fingerprints kept."""

FEWEST = 4
"""Samples in a row, of those whose fingerprints are kept, by which a repetition is told."""

NEARLY_ALL = 0.9
"""Share of samples that must have come before; a file may have been changed a little."""

ROWS = 1024
"""Samples that are hashed at a time, at most: there are eight bytes for each feature of theirs."""

LEAST = 30
"""Samples that a stream must have brought, for it to be known that they come once each."""

BY_CHANCE = 0.1
"""Share of a stream's samples that may have come before without a repetition."""

SEED = 22
"""Of the numbers that features are multiplied by."""


def _none() -> Array:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Fingerprints:
    """How often samples have been learned, by their fingerprints.

    Arguments:
        marks: Fingerprints of features, each once, in rising order, with shape (M,), int64, 0 to
            2^32 - 1.
        counts: Samples of each, with shape (M,), int64.
        codes: Class that each was called first, with shape (M,), int64; -1 for none so far.
        level: Those that 2^level divides are kept.
        in_a_row: Of these the last that came again, without any other in between.
        twice: Of these all that came before, while the stream was not repeating.

    Example:
        >>> x, codes = torch.arange(120.0).view(40, 3), torch.full((40,), -1)
        >>> once = Fingerprints().learned(fingerprints(x), codes)
        >>> once.heard(fingerprints(x), codes).repeating
        True
        >>> once.heard(fingerprints(x + 1), codes).repeating
        False
    """

    marks: Array = field(default_factory=_none)
    counts: Array = field(default_factory=_none)
    codes: Array = field(default_factory=_none)
    level: int = 0
    in_a_row: int = 0
    twice: int = 0

    @property
    def repeating(self) -> bool:
        """Whether the samples heard last come again."""
        return self.in_a_row >= FEWEST

    @property
    def tells(self) -> bool:
        """Whether it would mean anything that samples come again."""
        return len(self.marks) >= LEAST and self.twice <= BY_CHANCE * len(self.marks)

    def with_merged_classes(self, merge: ClassMerge) -> Fingerprints:
        """Two classes in one."""
        return replace(self, codes=merge.codes(torch.from_numpy(self.codes)).numpy())

    def learned(self, own: Array, codes: Tensor) -> Fingerprints:
        """Add samples.

        Arguments:
            own: Their `fingerprints`.
            codes: Their classes, with shape (N,), int64; -1 where there is none.
        """
        if not len(own):
            return self
        kept = self._kept(own, codes, self.level)
        marks, counts, named = _merged(self.marks, self.counts, self.codes, *kept)
        level, twice = self.level, self.twice
        if not self.repeating:
            twice += len(kept[0]) - (len(marks) - len(self.marks))
        while len(marks) > MOST:
            level, twice = level + 1, twice // 2
            stay = marks % 2**level == 0
            marks, counts, named = marks[stay], counts[stay], named[stay]
        return Fingerprints(marks, counts, named, level, self.in_a_row, twice)

    def heard(self, own: Array, codes: Tensor) -> Fingerprints:
        """The same after samples that are not learned yet.

        Samples come again if nearly all of them have come before, by the same name where they had
        one, and with this time no more often than once in each round that the stream can have
        made; and if samples of this stream do not do so anyway.

        Arguments:
            own, codes: See `learned`.
        """
        if not len(own):
            return self
        if not self.tells:
            return replace(self, in_a_row=0)
        n, known = self._known(own, codes)
        if not n:
            return self
        return replace(self, in_a_row=self.in_a_row + n if known >= NEARLY_ALL * n else 0)

    def told(self) -> Fingerprints:
        """The same where it is known otherwise that the samples heard last come again."""
        return replace(self, in_a_row=max(FEWEST, self.in_a_row))

    def share_known(self, own: Array, codes: Tensor) -> float | None:
        """The share of samples that come again, 0 to 1; None if that cannot be told.

        Arguments:
            own, codes: See `learned`.
        """
        n, known = self._known(own, codes)
        return known / n if self.tells and n >= FEWEST else None

    def _known(self, own: Array, codes: Tensor) -> tuple[int, int]:
        """Samples whose fingerprints would be kept, and those of them that come again."""
        marks, named = self._kept(own, codes, self.level)
        rounds = int(self.counts.sum()) // max(1, len(self.marks)) + 1
        known = _again(self.marks, self.counts, self.codes, marks, named, rounds)
        return len(marks), int(known)

    @staticmethod
    def _kept(own: Array, codes: Tensor, level: int) -> tuple[Array, Array]:
        """Fingerprints that are kept at a level, in rising order, and the classes with them."""
        named = codes.cpu().numpy()
        if level:
            stay = own % 2**level == 0
            own, named = own[stay], named[stay]
        order = np.argsort(own, kind="stable")
        return own[order], named[order]


def fingerprints(x: Tensor) -> Array:
    """A hash of the features of each sample, with shape (N,), int64, 0 to 2^32 - 1.

    The bits of its features, as integers, times odd numbers and added up modulo 2^64; then mixed so
    that every bit of the sum counts (Steele, Lea and Flood 2014). Integers, so that neither the
    device nor the size of a batch makes a difference.

    Arguments:
        x: With shape (N, D), float32, on any device.
    """
    bits, factors = x.contiguous().view(torch.int32), _factors(x.shape[1], x.device)
    parts = [(part * factors).sum(1) for part in torch.split(bits, ROWS)]
    sums = parts[0] if len(parts) == 1 else torch.cat(parts)
    return _mixed(sums.cpu().numpy())


@lru_cache(maxsize=64)
def _factors(n: int, device: torch.device) -> Tensor:
    """Odd numbers with shape (n,), int64, always the same."""
    drawn = np.random.default_rng(SEED).integers(-(2**62), 2**62, n)
    return torch.from_numpy(2 * drawn + 1).to(device)


@compiled
def _mixed(sums: Array) -> Array:
    marks = np.empty(len(sums), np.int64)
    for i in range(len(sums)):
        bits = np.uint64(sums[i])
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        marks[i] = np.int64(bits >> np.uint64(32))
    return marks


@compiled
def _merged(
    marks: Array, counts: Array, codes: Array, own: Array, named: Array
) -> tuple[Array, Array, Array]:
    """What is known with some more samples; marks and own ones in rising order."""
    size = len(marks) + len(own)
    together, times = np.empty(size, np.int64), np.empty(size, np.int64)
    called = np.empty(size, np.int64)
    i = j = n = 0
    while j < len(own):
        # What lies before the next of the own is as it was.
        at = i + np.searchsorted(marks[i:], own[j])
        upto = n + at - i
        together[n:upto], times[n:upto], called[n:upto] = marks[i:at], counts[i:at], codes[i:at]
        i, n = at, upto
        together[n], times[n], called[n] = own[j], 0, -1
        if i < len(marks) and marks[i] == own[j]:
            times[n], called[n] = counts[i], codes[i]
            i += 1
        while j < len(own) and own[j] == together[n]:
            times[n] += 1
            if called[n] < 0:
                called[n] = named[j]
            j += 1
        n += 1
    upto = n + len(marks) - i
    together[n:upto], times[n:upto], called[n:upto] = marks[i:], counts[i:], codes[i:]
    return together[:upto].copy(), times[:upto].copy(), called[:upto].copy()


@compiled
def _again(marks: Array, counts: Array, codes: Array, own: Array, named: Array, rounds: int) -> int:
    """How many of some samples, in rising order, have come before; see `Fingerprints.heard`."""
    found = first = 0
    for i in range(len(own)):
        if i and own[i] != own[i - 1]:
            first = i
        at = np.searchsorted(marks, own[i])
        if at == len(marks) or marks[at] != own[i]:
            continue
        alike = named[i] < 0 or codes[at] < 0 or named[i] == codes[at]
        found += alike and counts[at] + i - first + 1 <= rounds
    return found
