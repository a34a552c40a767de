"""The reliability of answers: how accurate is the model just now, where no label comes?

Every answer has a *confidence*, the probability of the class that was named. How often answers of
a confidence are right is counted where labels come, prequentially, in bins of confidence, the
newest labelled samples counting most. The accuracy of samples without labels is then expected to
be the mean of their bins' shares (average confidence, calibrated by histogram: Zadrozny and Elkan
2001; Guillory et al. 2021 compare such estimates). What all bins share moves faster than what tells
one from another: an *offset* of their log-odds follows the newest labels, as the state of a filter
that returns to zero (for outcomes of 0 or 1, by the posterior's mode; Fahrmeir 1992). How far it
may move is found out: several filters are weighed by how well they said what labels told next.

Answers of one confidence are not right as often in every stretch of a stream. Then a stretch of
sure answers is right more often than others, but less so than its bins promise. By how much less is
found out as well: the *slope* is that of a line through the blocks of labelled samples, from what
bins and offset promised of a block beyond the share of all that were right, to what came of it. The
estimate keeps so much of the promise (shrinkage, by ridge regression with the slope expected at 1).

Three things would make that wrong, and are seen to:

* Components that no label named give every class an even share, and so lower the confidence in a
  class that is as well told as ever. Confidence is that of the components that labels named
  (`core.engine.naming`).
* A model that has just met a sub-task errs as it never will again: of the first samples of a
  sub-task, and of labels that were no class yet, nothing is counted.
* A class that no label has named is named wrongly for certain, however confident the answer. Its
  samples lie on components without a name. Of the unlabelled samples that are called c, some do.
  Where these are more than labelled samples called c lead to expect (or, while no labels come, the
  number of unlabelled ones ever called c), they are taken to be *unseen*: their accuracy is 0.

* Known classes may move together. Then all samples lie on components without a name, but are called
  by each class as often as labelled ones were; a new class is called by one, or by a few. Whether
  what moved keeps its class cannot be known without labels. The estimate takes it to do so, but for
  the answers of classes that come more often than they did, and the interval holds both.

* Samples that are held back as unknown lie on no component. Those of open proposals count as wrong,
  but for the share of them that samples with a label lead to expect of known classes; others may be
  rare samples of known classes, and lower no more than the end of the interval. Its upper end
  stays: what is proposed may be a known class that has moved.

What no label ever tells cannot be seen: that labels mean something else (docs/labels.md).

Rules of this module:

1. Counts in bins and per class are all that is kept; never a sample. Their size does not depend
   on the length of the stream.
2. No randomness and no clock: the same stream gives the same estimate, bit for bit.

Throughout: N samples, B bins, C classes; float64, on the CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from core.class_merge import ClassMerge
from core.compiled.loops import Array
from core.memory.tallies import (
    add_answers,
    array,
    as_before,
    expected_hits,
    follow,
    mean_shares,
    unseen_shares,
)

EDGES: Final = (0.5, 0.6, 0.7, 0.8, 0.87, 0.92, 0.95, 0.97, 0.985, 0.993, 0.997, 0.999)
"""Confidences between which bins lie: narrow where answers crowd."""

_EDGES: Final = np.array(EDGES)

BINS: Final = len(EDGES) + 1

FADING: Final = 2000.0
"""Labelled samples over which what was counted fades to 1/e: answers change as the model learns."""

RECENT: Final = 500.0
"""Samples, labelled or not, over which the newest fade to 1/e: their mean age is that of the newest
thousand, which the estimate is of."""

PRIOR: Final = 10.0
"""Samples of the mean accuracy that each bin begins with."""

FOLLOWING: Final = 250.0
"""Labelled samples over which the offset of all bins is forgotten to 1/e."""

OFFSETS: Final = np.array((1e-6, 0.05, 0.2))
"""Variance of the offset by each filter, in squared log-odds, where no label has told of it: none
to speak of, for accuracy that stays, and two for accuracy that moves."""

FEWEST: Final = 100.0
"""Labelled samples below which nothing is said."""

EXCESS: Final = 0.3
"""Share of a class's answers that must lie on unnamed components beyond what their number
explains, so that those that do count as unseen: by chance, or where unlabelled samples crowd in
one class, up to 0.2 do."""

COMPARABLE: Final = 10.0
"""Labelled samples that the number of unlabelled ones counts as, beside the newest labelled samples
of the class: these lie there as often as unlabelled ones of the same kind."""

SURE: Final = 0.5
"""Part of `EXCESS` that is asked for where many labelled samples tell what is to be expected."""

REMEMBERED: Final = 100.0
"""Labelled samples of a class over which the share of them that lies there fades to 1/e, ..."""

GAP: Final = 200.0
"""... and samples without any label after which it fades, ..."""

STALE: Final = 100.0
"""... over so many to 1/e: what labelled samples were like is no measure of what comes later."""

ALONE: Final = 100.0
"""Samples without any label after which known classes may have moved unseen: where labels come,
these tell."""

SPREAD: Final = 0.25
"""Part of the distance between the classes' shares of answers, now and by labelled samples, that a
single new class would make, up to which known classes may have moved together."""

CHANCES: Final = 2.0
"""How many times the distance that chance makes is no distance."""

BLOCK: Final = 100.0
"""Labelled samples after which expectation and outcome are compared."""

CALIBRATED: Final = 20.0
"""Such comparisons over which their mean fades to 1/e."""

COMPARED: Final = 50.0
"""Such comparisons over which what they tell of the slope fades to 1/e."""

LEAST_VARIANCE: Final = 1e-6
"""Of the accuracy of a block: answers that were all right tell no slope for certain."""

SLOPE_SPREAD: Final = 0.5
"""Deviation that the slope is expected to have from 1 before anything is compared."""

Z: Final = 1.959964
"""Standard errors on either side: 95 %."""

TAIL: Final = 0.025
"""Probability beyond either end of an interval: 95 % again."""


class Answered(NamedTuple):
    """The answers to a batch before it was learned.

    Arguments:
        confidence: Probability of the class that was named, by named components, with shape (N,).
        codes: The class, with shape (N,), int64.
        unnamed: How far each lies on components without a name, 0 to 1, with shape (N,).
        weight: Samples that each stands for.
        labelled: Which came with a label, with shape (N,), bool.
        counted: Of those, which say how reliable answers are, with shape (N,), bool.
        hits: Which were named as their label says, with shape (N,), bool.
        truths: The class by the label, with shape (N,), int64; below 0 without a known one.
        log_likelihoods: Log-likelihoods, clipped from below, with shape (N,).
    """

    confidence: Tensor
    codes: Tensor
    unnamed: Tensor
    weight: float
    labelled: Tensor
    counted: Tensor
    hits: Tensor
    truths: Tensor
    log_likelihoods: Tensor


class Estimate(NamedTuple):
    """The expected accuracy of the newest samples.

    Arguments:
        accuracy: 0 to 1.
        low: Lower end of its 95 % interval.
        high: Upper end.
        unseen: Share of the samples that are taken to be of no known class.
    """

    accuracy: float
    low: float
    high: float
    unseen: float


def _at_rest() -> Tensor:
    """Filters that no label has moved, with shape (F, 3)."""
    even = np.full(len(OFFSETS), 1 / len(OFFSETS))
    return torch.from_numpy(np.stack([np.zeros(len(OFFSETS)), OFFSETS, even], 1))


@dataclass(frozen=True, eq=False)
class Reliability:
    """What is known of it.

    Arguments:
        counts: Labelled samples per bin, fading, with shape (B,).
        hits: Of those, the ones that were named rightly, with shape (B,).
        recent: The newest samples per bin, fading, with shape (B,).
        answers: Per class the newest answers to unlabelled samples and how far these lie on
            components without a name, both fading; how many such answers there ever were; the
            newest to labelled samples and how far these lie there, both fading; with shape (C, 5).
        block: Labelled samples since expectation and outcome were last compared; hits among them;
            hits expected; variance of the hits.
        spread: Sum of squared differences of accuracy beyond chance, and of comparisons; fading.
        share_right: Of all labelled samples before the block, those that were named rightly; None
            before the first one.
        shares: How often an answer of each bin was right by then, with shape (B,).
        promised: Hits of the block by these.
        unlabelled: Samples since the last one with a label.
        slope: What blocks say of the slope: sums of squares of promises and of their products with
            outcomes, each over its variance; fading.
        offsets: What the newest labels add to the log-odds of every bin, its variance and the
            weight, per filter, with shape (F, 3).
        usual: The newest labelled samples that were called by each class, fading over `RECENT` of
            them, with shape (C,); of fewer classes where no label came since.
    """

    counts: Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.float64))
    hits: Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.float64))
    recent: Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.float64))
    answers: Tensor = field(default_factory=lambda: torch.zeros(0, 5, dtype=torch.float64))
    block: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    spread: tuple[float, float] = (0.0, 0.0)
    # Checkpoints of earlier releases have none of these.
    share_right: float | None = None
    shares: Tensor = field(default_factory=lambda: torch.zeros(BINS, dtype=torch.float64))
    promised: float = 0.0
    unlabelled: float = 0.0
    slope: tuple[float, float] = (0.0, 0.0)
    offsets: Tensor = field(default_factory=_at_rest)
    usual: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.float64))

    @property
    def labelled(self) -> float:
        """Labelled samples behind it, by their weight today."""
        return float(self.counts.sum())

    def observed(self, seen: Answered) -> Reliability:
        """Add the answers to a batch, and what labels say of them."""
        n = len(seen.codes)
        if not n:
            return self
        fading = math.exp(-seen.weight * n / RECENT)
        answers = self._answers(int(seen.codes.max()) + 1)
        answers[:, :2] *= fading
        unlabelled = 0.0 if bool(seen.labelled.any()) else self.unlabelled + seen.weight * n
        beyond = max(0.0, unlabelled - GAP) - max(0.0, self.unlabelled - GAP)
        answers[:, 3:] *= math.exp(-max(0.0, beyond) / STALE)
        bins = np.zeros((3, BINS))
        add_answers(
            array(seen.confidence.double()),
            _EDGES,
            array(seen.codes),
            array(seen.unnamed.double()),
            array(seen.labelled),
            array(seen.counted),
            array(seen.hits),
            seen.weight,
            math.exp(-1 / REMEMBERED),
            bins,
            answers,
        )
        came, counted, hits = torch.from_numpy(bins)
        return replace(
            self._counted(counted, hits),
            recent=self.recent * fading + seen.weight * came,
            answers=torch.from_numpy(answers),
            unlabelled=unlabelled,
            usual=self._called(seen.codes[seen.labelled], seen.weight),
        )

    def with_merged_classes(self, merge: ClassMerge) -> Reliability:
        """Two classes in one."""
        return replace(self, answers=merge.added(self.answers, 0), usual=merge.added(self.usual, 0))

    def _called(self, codes: Tensor, weight: float) -> Tensor:
        """Labelled samples called by each class, with those of newer ones, with shape (C,).

        Arguments:
            codes: Classes by which newer ones were called, with shape (N,), int64.
            weight: Samples that each stands for.
        """
        if not len(codes):
            return self.usual
        came = codes.cpu().bincount(minlength=len(self.usual)).double() * weight
        came[: len(self.usual)] += self.usual * math.exp(-weight * len(codes) / RECENT)
        return came

    def tested(self, bins: Tensor, hits: Tensor) -> Reliability:
        """Add labelled samples whose answers are known.

        Arguments:
            bins: Of their confidence, with shape (N,), int64.
            hits: Whether the answers were right, with shape (N,), bool.
        """
        both = [one.bincount(minlength=BINS).double() for one in (bins, bins[hits])]
        return self._counted(*both)

    def _counted(self, counts: Tensor, hits: Tensor) -> Reliability:
        """Add labelled samples per bin, with shape (B,), and those that were named rightly."""
        n = float(counts.sum())
        if not n:
            return self
        fading = math.exp(-n / FADING)
        return replace(
            self._followed(n, counts, hits),
            counts=self.counts * fading + counts,
            hits=self.hits * fading + hits,
        )

    def estimate(
        self,
        class_counts: tuple[int, ...],
        proposed: Sequence[int] = (),
        unknown: Sequence[int] = (),
        known_share: float = 0.0,
    ) -> Estimate | None:
        """The expected accuracy of the newest samples; None while too little is known.

        Arguments:
            class_counts: Labelled samples learned of each class, C numbers.
            proposed: Of each sample that is held back in an open proposal, how many samples came
                since, 0 or more.
            unknown: Likewise of those that are held back and in none.
            known_share: Of both, the share that is taken to be of known classes, 0 to 1.
        """
        n, labelled = float(self.recent.sum()), self.labelled
        if labelled < FEWEST or n < 1:
            return None
        recent, counts = array(self.recent), array(self.counts)
        # By bins and offsets, by chance among so many samples, and by what these leave out.
        seen, variance, of_one = expected_hits(
            recent, counts, self._shares(), PRIOR, array(self.offsets)
        )
        usual = self._share_right()
        # The variance is that of the whole promise: more than that of the part that is believed.
        seen = usual + self._slope() * (seen - usual)
        variance += of_one / n + self._beyond_chance()
        margin = Z * math.sqrt(max(variance, 0.0))
        least, unseen, most = self._unseen(class_counts)
        # No component has learned these. One may be a rare sample of a known class.
        in_proposals = _newest(proposed, n) * (1 - known_share)
        held = _newest((*proposed, *unknown), n)
        unseen = 1 - (1 - unseen) * (1 - in_proposals)
        most = 1 - (1 - most) * (1 - held)
        low, high = max(0.0, seen - margin), min(1.0, seen + margin)
        # Where every answer was right, or none, no variance is seen, and some is possible all the
        # same: the exact interval of Clopper and Pearson (1934).
        rare = 1 - TAIL ** (1 / min(labelled, n))
        right = float(self.hits.sum())
        if right >= labelled:
            low = min(low, 1 - rare)
        elif right <= 0:
            high = max(high, rare)
        return Estimate(seen * (1 - unseen), low * (1 - most), high * (1 - least), unseen)

    def _unseen(self, class_counts: tuple[int, ...]) -> tuple[float, float, float]:
        """Share of the newest samples that is of no known class: at least, taken to be, at most."""
        learned = np.zeros(len(self.answers))
        known = class_counts[: len(learned)]
        learned[: len(known)] = known
        total, answers = float(self.recent.sum()), self._answers()
        least, may = unseen_shares(answers, learned, total, EXCESS, COMPARABLE, SURE)
        usual = np.zeros(len(answers))
        usual[: len(self.usual)] = array(self.usual)
        possible, spread, beyond = as_before(answers, usual, learned, COMPARABLE, SPREAD, CHANCES)
        if self.unlabelled < ALONE or not possible:
            return least, may, may
        taken = min(may, beyond * float(answers[:, 0].sum()) / total) if spread else may
        return 0.0, taken, may

    def _answers(self, least: int = 0) -> Array:
        """A copy of `answers` of so many classes at least, with shape (C, 5)."""
        answers = np.zeros((max(len(self.answers), least), 5))
        # An earlier release had the first three columns.
        rows, columns = self.answers.shape
        answers[:rows, :columns] = self.answers.numpy()
        return answers

    def _shares(self) -> Array:
        """How often an answer of each bin is right just now, with shape (B,)."""
        return mean_shares(array(self.counts), array(self.hits), PRIOR, array(self.offsets))

    def _share_right(self) -> float:
        """Of the labelled samples, those that were named rightly, 0 to 1."""
        return float(self.hits.sum()) / self.labelled

    def _slope(self) -> float:
        """How much of what bins and offset promise of a stretch comes true, 0 to 1."""
        precision = 1 / SLOPE_SPREAD**2
        squares, products = self.slope
        return min(1.0, max(0.0, (products + precision) / (squares + precision)))

    def _beyond_chance(self) -> float:
        """Variance of accuracy that chance does not explain; a negative one is none."""
        total, times = self.spread
        return max(0.0, total / times) if times else 0.0

    def _followed(self, came: float, counts: Tensor, hits: Tensor) -> Reliability:
        """The same, with what new labels say against what was expected of them.

        Arguments:
            came: How many they are.
            counts: The same per bin, with shape (B,).
            hits: Of those, the ones that were named rightly.
        """
        if self.labelled < FEWEST:
            return self
        shares, new = self._shares(), array(counts)
        begun = self
        if not self.block[0]:
            # What labels of a block tell of its later ones is no promise.
            share_right, of_bins = self._share_right(), torch.from_numpy(shares)
            begun = replace(self, share_right=share_right, shares=of_bins)
        if begun.share_right is not None:
            begun = replace(begun, promised=begun.promised + float(new @ array(begun.shares)))
        expected, chance = float(new @ shares), float(new @ (shares * (1 - shares)))
        offsets = self.offsets.clone()
        follow(
            new,
            array(hits),
            array(self.counts),
            array(self.hits),
            PRIOR,
            array(offsets),
            OFFSETS,
            math.exp(-came / FOLLOWING),
            math.exp(-came / FADING),
        )
        compared = begun._compared(came, float(hits.sum()), expected, chance)
        return replace(compared, offsets=offsets)

    def _compared(self, came: float, right: float, expected: float, chance: float) -> Reliability:
        """The same, with expectation and outcome compared if there are enough labels for it."""
        n, all_right, all_expected, variance = (
            one + more
            for one, more in zip(self.block, (came, right, expected, chance), strict=True)
        )
        if n < BLOCK:
            return replace(self, block=(n, all_right, all_expected, variance))
        by_chance = variance / n**2
        beyond = ((all_right - all_expected) / n) ** 2 - by_chance
        fading = math.exp(-1 / CALIBRATED)
        total, times = self.spread
        # The sum may fall below zero for a while.
        spread = (total * fading + beyond, times * fading + 1)
        slope = self.slope
        if self.share_right is not None:
            promise, outcome = (
                self.promised / n - self.share_right,
                all_right / n - self.share_right,
            )
            certain = max(by_chance + self._beyond_chance(), LEAST_VARIANCE)
            squares, products = (one * math.exp(-1 / COMPARED) for one in slope)
            slope = (squares + promise**2 / certain, products + promise * outcome / certain)
        none = (0.0, 0.0, 0.0, 0.0)
        return replace(self, block=none, promised=0.0, spread=spread, slope=slope)


def _newest(ages: Sequence[int], total: float) -> float:
    """Share of the newest samples that some of them are, 0 to 1.

    Arguments:
        ages: How many samples came since each.
        total: The newest samples, fading with each batch and so more where batches are large.
    """
    fading = sum(math.exp(-max(0, age) / RECENT) for age in ages)
    return min(1.0, fading / min(total, RECENT))


def bins_of(confidence: Tensor) -> Tensor:
    """Bins of confidences (N,), with shape (N,), int64.

    Example:
        >>> bins_of(torch.tensor([0.3, 0.5, 0.9995])).tolist()
        [0, 1, 12]
    """
    edges = torch.tensor(EDGES, dtype=torch.float64)
    return torch.bucketize(confidence.double().cpu(), edges, right=True)
