"""Bounded calibration rows: conformity scores of inliers before they were learned.

A batch is scored by the model of before; while nothing is suspected, that makes its samples
held-out inliers. Of every batch some rows of conformity scores are kept, spread evenly over it: the
last ones of the current sub-task, because the model goes on learning and its scores with it, and
fewer of each earlier sub-task. No sample is kept, and nothing is drawn: the same stream gives the
same rows.

The model moves on, and earlier sub-tasks' samples look different to it: at the least, what comes
later takes its share of the mixture. So each sub-task that ends leaves conformity scores of a few
samples that the model itself drew then (`core.memory.retention`); what has happened to theirs
since, on average, is taken to have happened to the rows. Likewise where the current sub-task's
samples are fitted anew, because a window is full or the stream is quiet: until later batches have
left other rows, its own are of components that are gone. A fit may change nothing for most samples
and move a rare category away from them by dozens of nats; so rows that lie where drawn samples go
their own way go it with them.

Throughout: S conformity scores, `core.density.conformity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from core.outliers.p_values import Typicality

PER_BATCH = 50
"""Rows of one batch, at most: more cost time and say little more."""

RECENT = 2048
"""Rows of the current sub-task, at most ..."""

NEWEST = 4
"""... and no more than one in so many that it has had ..."""

FEWEST = 200
"""... but for these: rows of a model that knew less make the samples of today look too good ..."""

FEWEST_OF_FIRST = 400
"""... and of the first sub-task these, as there are no others."""

CURRENT = 0.5
"""Weight of the current sub-task, at least, once it has `FULL` rows: samples that come now are
of it, however many came before. The p-values of either half keep to twice what was asked."""

FULL = 100
"""Rows that make that weight full; it grows with them."""

PAST = 2048
"""Rows of all earlier sub-tasks together, at most."""

DRAWN = 64
"""Drawn samples that a sub-task leaves, at most ..."""

DRAWN_IN_ALL = 256
"""... and of all sub-tasks that are looked at for a snapshot."""

DIFFERENT = 0.9
"""Part of the rows of continuous features, at least, that are different ones."""

MOVED = 0.1
"""Deviations by which some conformity score of drawn samples moves, on average, by a fit that rows
have to follow: less is chance."""

MOST_APART = 0.3
"""Share of drawn samples that may go apart, and half of that of rows: beyond it none does."""

APART = 6.0
"""Usual differences between changes by which a drawn sample's is another one."""

NEIGHBOURS = 5
"""Drawn samples that say together whether a row goes apart with them."""

MOST_GROUPS = 64
"""Sub-tasks that are told apart; the oldest two become one where there are more."""


@dataclass(frozen=True, eq=False)
class SubTaskRows:
    """Rows of one sub-task.

    Arguments:
        rows: Conformity scores, with shape (n, S), oldest first.
        samples: Inliers that they stand for.
        seen: Rows that there have been, those let go included.
        sub_task: Whose they are.
        drawn: Conformity scores of samples drawn when it ended, at that moment, with shape (m, S);
            none while it goes on.
    """

    rows: Tensor
    samples: int
    seen: int
    sub_task: int
    drawn: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    def thinned(self, most: int) -> SubTaskRows:
        """At most so many rows, spread evenly."""
        if len(self) <= most:
            return self
        return replace(self, rows=self.rows[_spread(len(self), most)])

    def moved(self, now: Tensor) -> SubTaskRows:
        """As its samples look by now.

        Arguments:
            now: Conformity scores of the first samples that were drawn, with shape (at most m, S).
        """
        if not len(now):
            return self
        shift = now.float().cpu().mean(0) - self.drawn[: len(now)].mean(0)
        return replace(self, rows=self.rows + shift)


@dataclass(frozen=True, eq=False)
class Rescored:
    """Drawn samples whose conformity scores two models tell.

    By medians and the middle two thirds, because a model that has learned outliers draws some.

    Arguments:
        before: By the model of before, with shape (m, S), m at least 2.
        now: The same samples' by the model of now.
    """

    before: Tensor
    now: Tensor

    def __len__(self) -> int:
        return len(self.before)

    def only(self, some: Tensor) -> Rescored:
        """Some of them, as a mask (m,), bool, says."""
        return Rescored(self.before[some], self.now[some])

    @property
    def spread(self) -> Tensor:
        """Deviation of each conformity score before, with shape (S,); 0 where nearly all agree."""
        before = self.before.float().cpu()
        spread = _half_width(before)
        least = torch.finfo(before.dtype).eps * (1 + before.abs().amax(0))
        return torch.where(spread > least, spread, 0.0)

    @property
    def moved(self) -> Tensor:
        """How far each conformity score has moved, with shape (S,); 0 where it had no spread."""
        moved = self.now.float().cpu().quantile(0.5, 0) - self.before.float().cpu().quantile(0.5, 0)
        return torch.where(self.spread > 0, moved, 0.0)

    @property
    def widened(self) -> Tensor:
        """Factor by which each one's spread has grown, with shape (S,); 1 where it had or has none.

        Rows that all became one value would call every sample strange.
        """
        before, now = self.spread, replace(self, before=self.now).spread
        return torch.where((before > 0) & (now > 0), now / before, 1.0)


@dataclass(frozen=True, eq=False)
class Calibration:
    """Rows of all sub-tasks.

    Arguments:
        past: Of earlier sub-tasks, oldest first.
        current: Of the current one; none or one.
        n_scales: Of the conformity scores, how many are of other scales.
    """

    past: tuple[SubTaskRows, ...] = ()
    current: tuple[SubTaskRows, ...] = ()
    n_scales: int = 0

    def observed(self, rows: Tensor, samples: int, sub_task: int, n_scales: int = 0) -> Calibration:
        """Add rows of a batch of inliers.

        Arguments:
            rows: Conformity scores of some of its samples, with shape (n, S).
            samples: That they stand for.
            sub_task: The current one.
            n_scales: Of the conformity scores, how many are of other scales.
        """
        rows = rows.float().cpu()
        seen = len(rows)
        for old in self.current:
            rows, samples, seen = (
                torch.cat([old.rows, rows]),
                old.samples + samples,
                old.seen + seen,
            )
        fewest = FEWEST if sub_task else FEWEST_OF_FIRST
        newest = min(RECENT, max(fewest, seen // NEWEST))
        group = SubTaskRows(rows[-newest:].clone(), samples, seen, sub_task, rows[:0])
        return replace(self, current=(group,), n_scales=n_scales)

    def refitted(self, by_before: Rescored, by_now: Rescored) -> Calibration:
        """The current sub-task's samples have been fitted anew: other components look otherwise.

        What a model draws fits it better than data do, and any other model worse. So samples that
        the model of before drew lose by a fit, those that the model of now draws gain, and what has
        become of data lies between them: half way, noise in the two models cancels.

        Arguments:
            by_before: Samples that the model of before drew.
            by_now: Samples that the model of now draws.
        """
        if not all(_differ(group.rows) for group in self.current):
            return self  # samples of few values, which drawn ones are not like
        return replace(
            self,
            current=tuple(
                replace(one, rows=_followed(one.rows, by_before, by_now)) for one in self.current
            ),
        )

    def crossed(self, drawn: Tensor) -> Calibration:
        """A sub-task has ended.

        Arguments:
            drawn: Conformity scores of samples drawn from the model as it stands, for the sub-task,
                with shape (m, S); none will do.
        """
        ended = (replace(group, drawn=drawn[:DRAWN].float().cpu()) for group in self.current)
        groups = (*self.past, *ended)
        if len(groups) > MOST_GROUPS:
            first, second, *others = groups
            joined = replace(
                second,
                rows=torch.cat([first.rows, second.rows]),
                samples=first.samples + second.samples,
            )
            groups = (joined, *others)
        if not groups:
            return Calibration()
        most = PAST // len(groups)
        return Calibration(tuple(group.thinned(most) for group in groups), (), self.n_scales)

    @property
    def wanted(self) -> dict[int, int]:
        """Sub-task -> how many of its drawn samples to look at again, the first ones."""
        each = max(1, DRAWN_IN_ALL // max(1, len(self.past)))
        return {group.sub_task: min(each, len(group.drawn)) for group in self.past}

    def typicality(self, now: Mapping[int, Tensor], n_features: int = 0) -> Typicality:
        """What follows from it: every sub-task counts by its samples, the current one for more.

        Arguments:
            now: Sub-task -> conformity scores of its first drawn samples, as they are by now.
            n_features: Of the samples.
        """
        past = tuple(
            group.moved(now[group.sub_task]) if group.sub_task in now else group
            for group in self.past
        )
        groups = (*past, *self.current)
        if not groups:
            return Typicality.none()
        weights = [
            torch.full((len(group),), stands_for / len(group), dtype=torch.float32)
            for group, stands_for in zip(groups, self._stand_for(), strict=True)
        ]
        rows = torch.cat([group.rows for group in groups])
        return Typicality(rows, torch.cat(weights), self.n_scales, n_features)

    def _stand_for(self) -> list[float]:
        """Samples for which each group counts, past ones first."""
        past = [float(group.samples) for group in self.past]
        equal = sum(past) * CURRENT / (1 - CURRENT)
        return past + [
            max(group.samples, equal * min(1.0, len(group) / FULL)) for group in self.current
        ]


def chosen(n: int) -> Tensor:
    """Places of the samples of a batch of n whose scores are kept, with shape (m,), int64."""
    return torch.arange(n) if n <= PER_BATCH else _spread(n, PER_BATCH)


def _differ(rows: Tensor) -> bool:
    """Whether nearly all rows are different."""
    return len(torch.unique(rows, dim=0)) >= DIFFERENT * len(rows)


def _half_width(rows: Tensor) -> Tensor:
    """Half of the distance between quantiles that lie a normal distribution's deviation out."""
    low, high = rows.quantile(0.1587, 0), rows.quantile(0.8413, 0)
    return (high - low) / 2


def _followed(rows: Tensor, by_before: Rescored, by_now: Rescored) -> Tensor:
    """Rows as they look once the model has been fitted, with shape (n, S)."""
    before = torch.cat([by_before.before, by_now.before]).float().cpu()
    change = torch.cat([by_before.now, by_now.now]).float().cpu() - before
    spread = _half_width(before)
    usual = torch.maximum(_half_width(change), MOVED * spread)
    far = ((change - change.quantile(0.5, 0)).abs() > APART * usual).any(1)
    scale = torch.where(spread > 0, spread, 1.0)
    neighbours = min(NEIGHBOURS, len(before))
    near = torch.cdist(rows / scale, before / scale).topk(neighbours, largest=False).indices
    apart = 2 * far[near].sum(1) > neighbours
    others = by_before.only(~far[: len(by_before)]), by_now.only(~far[len(by_before) :])
    share = float(far.double().mean())
    if share > MOST_APART or float(apart.double().mean()) > 2 * share:
        # No way is that of most, or rows do not lie where drawn samples do.
        return _moved(rows, by_before, by_now)
    followed = rows.clone()
    followed[~apart] = _moved(rows[~apart], *others)
    changes = torch.where(far[near][..., None], change[near], torch.nan)[apart]
    followed[apart] += changes.nanmedian(1).values
    return followed


def _moved(rows: Tensor, by_before: Rescored, by_now: Rescored) -> Tensor:
    """Rows, moved and widened as drawn samples say together."""
    moved = (by_before.moved + by_now.moved) / 2
    if not bool((moved.abs() > MOVED * by_before.spread).any()):
        return rows  # drawn samples say a little more than data would
    wider = (by_before.widened * by_now.widened).sqrt()
    centre = _middle(rows)
    return (rows - centre) * wider + centre + moved


def _middle(rows: Tensor) -> Tensor:
    """Mean of rows, of which none counts as farther than three deviations from their median."""
    median, far = rows.quantile(0.5, 0), 3 * _half_width(rows)
    return rows.maximum(median - far).minimum(median + far).mean(0)


def _spread(n: int, most: int) -> Tensor:
    """`most` places out of n, evenly, the last one among them."""
    return (torch.arange(1, most + 1) * n).div(most, rounding_mode="floor") - 1
