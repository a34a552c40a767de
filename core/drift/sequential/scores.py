"""The scores that a version of the model gives samples, and the components on which they fall.

The loops here and in `core.drift.sequential.features` make it from one forward pass.

Throughout: N samples, K components, C classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from core.compiled.loops import Array, compiled, vectorised
from core.drift.sequential.record import record

LIKELIHOOD, LIKELIHOOD_MARGIN, LIKELIHOOD_MARGIN_IN_CLASS, MARGIN_IN_CLASS, LIKELIHOOD_IN_CLASS = (
    range(5)
)
"""Scores. The log-likelihood in nats, in the sender's units; it and the margin added up, twice;
the margin, the nats by which the class of the best component stands above all others together,
at a temperature T: T log (sum of its e^(joint / T) / theirs); and the log-likelihood once more.
The last three are kept as numbers that sort `within` classes, that of the best component first:
what is usual differs between classes. Where no classes are told apart, the margin is that of
the best component, and nothing is kept within classes."""

N_SCORES = 5

OVERALL = 2
"""The first scores, whose numbers are those of all classes together."""

RANKED = 4
"""The first scores, on whose ranks there are bets; the others are ranked when that is asked for."""

FARTHEST = 2.0**30
"""Nats at which a score within a class is cut off."""

BLOCK = 2.0**32
"""Between the scores of one class and the next."""

_FLOATS = 2**23
"""From one power of two to the next, in single precision."""
_FAINTEST = np.float32(-125 * _FLOATS)
"""Exponent that is as good as nothing, the least but one of single precision, times `_FLOATS`."""

_ONE = np.int32(127 * _FLOATS)
"""The bits of 1, as an integer."""

_SIGN = np.int32(31)
"""Bits of a float32 below that of its sign."""

_NONE, _ALL = np.int32(0), np.int32(-1)
_LOWEST, _HIGHEST = np.int32(-(2**31)), np.int32(2**31 - 1)
"""Integers: of no bits and of all, and the ends of their range."""


@compiled
def within(one: int, score: float) -> float:
    """A number that sorts by class first, then by score; what is no number at all is lowest.

    Arguments:
        one: The class, 0 or above.
    """
    return one * BLOCK + (min(score, FARTHEST) if score > -FARTHEST else -FARTHEST)


@record
class FrozenScores:
    """A frozen model's scores of samples, in stream order."""

    scores: Array  # (5, N) float64
    components: Array  # (N,) int64, the component with the largest log-joint
    labels: Array  # (N,) int64, classes that samples are said to be of; `UNTOLD` where none is
    bins: Array  # (N, R) uint8, of features; R is 2 D, or 0 where they are not looked at

    def __len__(self) -> int:
        return len(self.components)

    @property
    def log_likelihoods(self) -> Array:
        """The log-likelihoods, with shape (N,), float64."""
        log_likelihoods: Array = self.scores[LIKELIHOOD]
        return log_likelihoods

    def pieces(self, n: int) -> Iterator[FrozenScores]:
        """The scores in pieces of n samples; the last piece may have fewer."""
        for begin in range(0, len(self), n):
            rows = slice(begin, begin + n)
            # Loops are compiled for arrays in one piece.
            scores = np.ascontiguousarray(self.scores[:, rows])
            yield FrozenScores(scores, self.components[rows], self.labels[rows], self.bins[rows])

    @classmethod
    def joined(cls, *parts: FrozenScores) -> FrozenScores:
        """All of them, at least one, one after the other."""
        return cls(
            np.concatenate([part.scores for part in parts], 1),
            np.concatenate([part.components for part in parts]),
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.bins for part in parts]),
        )

    @classmethod
    def nothing(cls) -> FrozenScores:
        """No samples."""
        none = np.zeros(0, np.int64)
        return cls(np.zeros((N_SCORES, 0)), none, none, np.zeros((0, 0), np.uint8))


@compiled
def look(
    scores: Array,
    winners: Array,
    joint: Array,
    log_likelihoods: Array,
    lens: tuple[float, Array, Array, bool, float],
) -> None:
    """Fills `scores`, with shape (5, N), and `winners`, the best component of each: (N,), int64.

    Arguments:
        joint: Log-joint values with shape (N, K), of single precision, K at least 1.
        log_likelihoods: In standardised units, with shape (N,).
        lens: What is taken off them for the sender's units; the classes of components, with shape
            (K,); what is told apart: these classes, or, if all are the same, components; whether
            there is more than one class; the temperature T.
    """
    log_volume, classes, kinds, several, temperature = lens
    n, n_components = joint.shape
    if len(log_likelihoods) != n or len(classes) != n_components or len(kinds) != n_components:
        # The loops that follow do not look.
        raise ValueError("the frozen model has other components")
    find_largest(winners, joint)
    margins = np.zeros(n)
    if n_components > 1:
        compare(margins, joint, winners, kinds, temperature)
    for i in range(n):
        log_likelihood, margin = log_likelihoods[i] - log_volume, margins[i]
        scores[LIKELIHOOD, i] = log_likelihood
        scores[LIKELIHOOD_MARGIN, i] = log_likelihood + margin if n_components > 1 else 0.0
        one = classes[winners[i]]
        scores[LIKELIHOOD_MARGIN_IN_CLASS, i] = (
            within(one, log_likelihood + margin) if several else 0.0
        )
        scores[MARGIN_IN_CLASS, i] = within(one, margin) if several else 0.0
        scores[LIKELIHOOD_IN_CLASS, i] = within(one, log_likelihood) if several else 0.0


@vectorised
def find_largest(places: Array, table: Array) -> None:
    """Fills `places`, (N,), int64, with the first of the largest numbers of each row, (N, K).

    Floats are not compared several at a time, for one might be no number. But their bits can be,
    as integers, once those of negative ones are turned round; no number at all is the largest.
    """
    n = table.shape[1]
    for i in range(len(table)):
        row, largest = table[i], _LOWEST
        for k in range(n):
            bits = np.float32(row[k]).view(np.int32)
            largest = max(largest, np.int32(bits ^ ((bits >> _SIGN) & _HIGHEST)))
        places[i] = largest ^ ((largest >> _SIGN) & _HIGHEST)
    for i in range(len(table)):
        row, largest, first = table[i], np.int32(places[i]), _HIGHEST
        for k in range(n):
            same = np.float32(row[k]).view(np.int32) == largest
            first = min(first, np.int32(k) if same else _HIGHEST)
        places[i] = first


@vectorised
def compare(margins: Array, joint: Array, winners: Array, kinds: Array, temperature: float) -> None:
    """Fills `margins` (N,), from log-joint values (N, K), float32, winners and kinds (K,).

    Fifty thousand exponentials a batch would cost more than all else that the detector does. So
    the bits of a float, which as an integer grow by as much from each power of two to the next, are
    taken for its logarithm (Schraudolph 1999): straight lines between powers of two, up to a
    sixteenth too large, and margins that much of T off. What is fainter than `_FAINTEST` counts as
    that: margins end at 86 T.
    """
    scale = np.float32(_FLOATS / (temperature * math.log(2)))
    for i in range(len(joint)):
        row, best, one = joint[i], joint[i, winners[i]], kinds[winners[i]]
        own = others = np.float32(0)
        for k in range(len(row)):
            power = (row[k] - best) * scale
            bits = np.int32(_ONE + np.int32(power if power > _FAINTEST else _FAINTEST))
            # Bits are masked: two sums that choose are not added up several numbers at a time.
            mine = _ALL if kinds[k] == one else _NONE
            own += np.int32(bits & mine).view(np.float32)
            others += np.int32(bits & ~mine).view(np.float32)
        margins[i] = temperature * (np.log(own) - np.log(others))


@compiled
def hear(labels: Array, winners: Array, codes: Array, spoken_for: Array, known: Array) -> None:
    """Fills `labels` where they are known, and the component stands for a class.

    Arguments:
        labels: With shape (N,), `UNTOLD`.
        codes: Labels with shape (N,), -1 where there is none.
        spoken_for: Which components stand for a class, with shape (K,), bool.
        known: For which classes, with shape (C,), bool.
    """
    for i in range(len(labels)):
        if 0 <= codes[i] < len(known) and known[codes[i]] and spoken_for[winners[i]]:
            labels[i] = codes[i]
