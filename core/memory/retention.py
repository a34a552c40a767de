"""Live forgetting: how well each past sub-task is still held, without any of its data.

When a sub-task has ended, and what was learned of it stands, a small set of labelled samples
is drawn from the components that learned it, and what the model says of them is noted ("then").
Whatever is learned later, the same samples can be asked about again ("now"): where they are named
less well, the model has forgotten.

Whether the sub-task's *data* have become less likely can be told by such samples as long as the
components that drew them stand: then all that moves likelihoods are the shares of the mixture,
for data and samples alike. Components that are merged, or learned further, fit their own former
samples worse even where they fit data as well or better. From then on the change is not known.

Rules of this module:

1. What is kept was generated, from nothing but the model: it tells no more of the stream
   than the model itself does.
2. Memory is bounded, however long the stream and however wide a sample: sets are thinned
   evenly as sub-tasks are added.
3. Randomness is its own, made from the seed and the sub-task: a model learns the same,
   bit for bit, whether or not anybody looks.
4. Asking is left to the caller, who knows what time it may take; the answer names the
   version of the model that gave it.
5. Classes are those that are served: where others name samples beside the model, they are asked
   too, and a class that goes by another name is named right by that name.

Throughout: N samples, D features; features in the sender's units, so that a later change
of the scaling does not touch them; log-likelihoods in nats, in the sender's units.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from core.batch import UNLABELLED, Label
from core.class_merge import ClassMerge
from core.memory.marginals import Marginals
from core.model.model import Model
from core.model.readout import at_most_one
from core.running import Running
from core.standardiser import Standardiser

MOST_SAMPLES = 1024
"""Of all sub-tasks together."""

MOST_PER_SUB_TASK = 256
"""At 256 samples an accuracy of 0.98 has a standard error of 0.009. A sub-task of more
classes than that may have one of each."""

MOST_SUB_TASKS = 64

MOST_BYTES = 4 * 2**20
"""Of all samples together: at 100,000 features there are ten."""

STANDING = 1.0
"""Nats by which the density of a sample under its nearest component may have changed, on average,
for the components to be those that drew it."""

OWN = 0.5
"""A component is of a class that has this much of it, beside the class that has most."""

AT_HOME = 0.25
"""Part of an even share of the sub-task's samples that makes a class one of its own."""


# What is told -----------------------------------------------------------------------------


@dataclass(frozen=True)
class ClassRetention:
    """The retention of one class of a past sub-task."""

    label: Label
    samples: int
    accuracy_then: float  # 0 to 1
    accuracy_now: float
    probability_then: float  # mean that the model gives the right class, 0 to 1
    probability_now: float
    log_likelihood_then: float  # mean, nats
    log_likelihood_now: float | None  # None where components that drew them have changed since


@dataclass(frozen=True)
class SubTaskRetention:
    """The retention of a past sub-task, by samples that the model drew when it ended.

    A model's own samples are easier than data, so that fewer are mistaken than of the data
    themselves; the probability falls before the accuracy does, and tells more.
    """

    sub_task: int
    samples: int
    classes: tuple[ClassRetention, ...]  # that it showed; empty where nothing was labelled
    accuracy_then: float | None  # 0 to 1; None where nothing was labelled
    accuracy_now: float | None
    probability_then: float | None  # mean that the model gives the right class, likewise
    probability_now: float | None
    log_likelihood_then: float  # mean, nats
    log_likelihood_now: float | None  # None where components that drew them have changed since
    model_version: int  # that "now" is about


def summary(rows: Sequence[SubTaskRetention]) -> dict[str, float]:
    """The few numbers that a metric or an event shows; without what is not known.

    Returns:
        `sub_tasks`; over those with labels `accuracy_mean` and `accuracy_min`,
        `probability_mean`, and `probability_loss_max`, the largest loss since a sub-task's
        end (a gain counts as a negative loss); where it is known of all,
        `log_likelihood_change_mean`, in nats.

    Example:
        >>> summary([])
        {'sub_tasks': 0}
        >>> kept, lost = (
        ...     SubTaskRetention(0, 9, (), 1, 1, 0.9, now, -2, -2, 7) for now in (0.9, 0.5)
        ... )
        >>> summary([kept, lost])["probability_loss_max"]
        0.4
    """
    numbers: dict[str, float] = {"sub_tasks": len(rows)}
    accuracies = [row.accuracy_now for row in rows if row.accuracy_now is not None]
    if accuracies:
        numbers["accuracy_mean"] = sum(accuracies) / len(accuracies)
        numbers["accuracy_min"] = min(accuracies)
    pairs = [
        (row.probability_then, row.probability_now)
        for row in rows
        if row.probability_then is not None and row.probability_now is not None
    ]
    if pairs:
        numbers["probability_mean"] = sum(now for _, now in pairs) / len(pairs)
        numbers["probability_loss_max"] = max(then - now for then, now in pairs)
    changes = [
        row.log_likelihood_now - row.log_likelihood_then
        for row in rows
        if row.log_likelihood_now is not None
    ]
    # Those of which it is not known have changed most.
    if changes and len(changes) == len(rows):
        numbers["log_likelihood_change_mean"] = sum(changes) / len(changes)
    return numbers


# What is kept -----------------------------------------------------------------------------


class Marks(NamedTuple):
    """A model's scores of drawn samples."""

    right: Tensor  # (N,) bool, whether the class they were drawn for is named
    probability: Tensor  # (N,) that it gives that class; 0 where there is none
    log_likelihood: Tensor  # (N,)


class Answers(NamedTuple):
    """A model's answers on samples, and their nearness to its components."""

    marks: Marks
    nearest: Tensor  # (N,) largest log density under one component, without its weight, nats


class Named(NamedTuple):
    """The classes that are served for samples, of C that can be answered."""

    probabilities: Tensor  # (N, C)
    names: Tensor  # (C, C) bool, row by row: which answers name a class right


Served = Callable[[Tensor, Tensor], Named]
"""Says what is served for samples in the sender's units, (N, D), of which the mixture gives its
classes, the first ones, these probabilities, with rows that sum to one."""


@dataclass(frozen=True, eq=False)
class RetentionSet:
    """Samples drawn when a sub-task ended, and what else is remembered of it.

    Classes take turns, so that the first samples are a smaller set of the same kind.

    Arguments:
        sub_task: 0 for the first.
        features: With shape (N, D); float16 where all data lie in [0, 1], else float32.
        codes: The class that each was drawn for, with shape (N,), int64; `UNLABELLED` where
            the sub-task had no labels.
        then: What the model said of them at that moment.
        version: Of that model.
        level: Log-likelihood of the sub-task's data, before they were learned.
        nearest: Log density of each sample under its nearest component at that moment, with
            shape (N,); none in a checkpoint of an earlier release, as of the next two.
        marginals: Moments of the sub-task's data, feature by feature.
        class_counts: Labelled samples of each class of the sub-task, in the order of codes.
    """

    sub_task: int
    features: Tensor
    codes: Tensor
    then: Marks
    version: int
    level: Running = Running()
    nearest: Tensor = field(default_factory=lambda: torch.zeros(0))
    marginals: Marginals = field(default_factory=Marginals)
    class_counts: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.codes)

    def first(self, n: int) -> RetentionSet:
        """The first samples, at most n; nothing else is held on to."""
        if n >= len(self):
            return self
        then = Marks(*(mark[:n].clone() for mark in self.then))
        features, codes = self.features[:n].clone(), self.codes[:n].clone()
        nearest = self.nearest[:n].clone()
        return replace(self, features=features, codes=codes, then=then, nearest=nearest)

    def with_merged_classes(self, merge: ClassMerge) -> RetentionSet:
        """Two classes in one; what the model said at that moment stays."""
        codes = merge.codes(self.codes)
        shown = sorted(set(self.codes.tolist()) - {UNLABELLED})
        counts = dict.fromkeys(map(merge.code, shown), 0)
        for code, count in zip(shown, self.class_counts, strict=False):
            counts[merge.code(code)] += count
        kept = tuple(counts[code] for code in sorted(counts)) if self.class_counts else ()
        return replace(self, codes=codes, class_counts=kept)

    def compared(self, now: Answers, classes: Sequence[Label], version: int) -> SubTaskRetention:
        """Then and now side by side.

        Arguments:
            now: What a model says of the same samples.
            classes: Labels in the order of their codes.
            version: Of the model.
        """
        pairs = zip(self.then, now.marks, strict=True)
        values = torch.stack([mark.double() for pair in pairs for mark in pair]).cpu()  # (6, N)
        codes, moved = self.codes.cpu(), torch.full((len(self),), math.inf)
        if len(self.nearest):
            moved = (now.nearest - self.nearest).abs().cpu()
        rows = []
        for code in sorted(set(codes.tolist()) - {UNLABELLED}):
            own = codes == code
            right, right_now, sure, sure_now, likely, likely_now = values[:, own].mean(1).tolist()
            stands = float(moved[own].mean()) <= STANDING
            rows.append(
                ClassRetention(
                    label=classes[code],
                    samples=int(own.sum()),
                    accuracy_then=right,
                    accuracy_now=right_now,
                    probability_then=sure,
                    probability_now=sure_now,
                    log_likelihood_then=likely,
                    log_likelihood_now=likely_now if stands else None,
                )
            )
        *certain, likelihood_then, likelihood_now = values.mean(1).tolist()
        right_then, right_now, probability_then, probability_now = (
            certain if rows else (None,) * len(certain)
        )
        return SubTaskRetention(
            sub_task=self.sub_task,
            samples=len(self),
            classes=tuple(rows),
            accuracy_then=right_then,
            accuracy_now=right_now,
            probability_then=probability_then,
            probability_now=probability_now,
            log_likelihood_then=likelihood_then,
            log_likelihood_now=likelihood_now if float(moved.mean()) <= STANDING else None,
            model_version=version,
        )


@dataclass(frozen=True, eq=False)
class RetentionSets:
    """The sets of all past sub-tasks, and where the current one began.

    Arguments:
        sets: Oldest first.
        class_counts: Labelled samples learned per class when the current sub-task began.
        samples_seen: Samples learned by then.
    """

    sets: tuple[RetentionSet, ...] = ()
    class_counts: tuple[int, ...] = ()
    samples_seen: int = 0

    def crossed(
        self,
        model: Model | None,
        standardiser: Standardiser,
        *,
        sub_task: int,
        class_counts: tuple[int, ...],
        samples_seen: int,
        version: int,
        seed: int,
        level: Running = Running(),
        marginals: Marginals | None = None,
        latest: Tensor | None = None,
        served: Served | None = None,
    ) -> RetentionSets:
        """A sub-task has ended: draw its set from the model as it stands.

        Nothing is drawn for a sub-task of which nothing was learned.

        Arguments:
            model: After the end of the sub-task; None if there is none.
            standardiser: Of the same moment.
            sub_task: The one that has ended.
            class_counts: Labelled samples learned per class, by now.
            samples_seen: Samples learned, by now.
            version: Of the model.
            seed: Of the engine.
            level: Log-likelihood of the sub-task's data, before they were learned.
            marginals: Moments of the sub-task's data.
            latest: Which components learned the sub-task, with shape (K,), bool; None: all.
            served: What others say beside the model; None where nobody does.
        """
        moved = self.passed(class_counts, samples_seen)
        if model is None or samples_seen <= self.samples_seen:
            return moved
        dtype = torch.float16 if standardiser.identity else torch.float32
        total = min(MOST_SAMPLES, MOST_BYTES // (model.density.n_features * dtype.itemsize))
        if total < 1:
            return moved
        earlier = (*self.class_counts, *(0 for _ in class_counts[len(self.class_counts) :]))
        shown = [
            code
            for code, (before, now) in enumerate(zip(earlier, class_counts, strict=True))
            if now > before
        ]
        came = [now - before for before, now in zip(earlier, class_counts, strict=True)]
        shown = _held(model, shown, came, latest)
        sets = _with_room(self.sets, min(MOST_SUB_TASKS, total), set(shown or [UNLABELLED]))
        each = total // (len(sets) + 1)
        n = min(each, max(MOST_PER_SUB_TASK, len(shown)))
        generator = torch.Generator().manual_seed(zlib.crc32(f"held {seed} {sub_task}".encode()))
        drawn = _drawn(model, standardiser, n, shown, latest, generator, dtype)
        then = _answers(model, standardiser, *drawn, served)
        new = RetentionSet(
            sub_task,
            *drawn,
            then.marks,
            version,
            level,
            then.nearest,
            Marginals() if marginals is None else marginals.compact(),
            tuple(class_counts[code] - earlier[code] for code in shown),
        )
        return replace(moved, sets=(*(one.first(each) for one in sets), new))

    def with_merged_classes(self, merge: ClassMerge) -> RetentionSets:
        """Two classes in one, in every set."""
        sets = tuple(one.with_merged_classes(merge) for one in self.sets)
        counts = merge.added(torch.tensor(self.class_counts, dtype=torch.int64), 0)
        return replace(self, sets=sets, class_counts=tuple(counts.tolist()))

    def passed(self, class_counts: tuple[int, ...], samples_seen: int) -> RetentionSets:
        """A sub-task has ended that leaves no set of its own: it was there before.

        Arguments:
            class_counts: Labelled samples learned per class, by now.
            samples_seen: Samples learned, by now.
        """
        return RetentionSets(self.sets, class_counts, samples_seen)

    def report(
        self,
        model: Model,
        standardiser: Standardiser,
        classes: Sequence[Label],
        version: int,
        served: Served | None = None,
    ) -> tuple[SubTaskRetention, ...]:
        """How well a model holds every past sub-task, oldest first.

        Arguments:
            model: That is asked.
            standardiser: Of the same moment.
            classes: Labels in the order of their codes.
            version: Of the model.
            served: What others say beside the model; None where nobody does.
        """
        if not self.sets:
            return ()
        # In one pass, which costs half of many small ones.
        features = torch.cat([one.features.float() for one in self.sets])
        codes = torch.cat([one.codes for one in self.sets])
        marks, nearest = _answers(model, standardiser, features, codes, served)
        sizes = [len(one) for one in self.sets]
        parts = zip(*(torch.split(values, sizes) for values in (*marks, nearest)), strict=True)
        return tuple(
            one.compared(Answers(Marks(*values), near), classes, version)
            for one, (*values, near) in zip(self.sets, parts, strict=True)
        )

    def carried(
        self, rows: Sequence[SubTaskRetention], classes: Sequence[Label]
    ) -> tuple[SubTaskRetention, ...]:
        """What is known without asking, oldest sub-task first.

        Arguments:
            rows: What was reported in the same life. Sub-tasks that are not among them, or have
                other classes there, are held as they were when they ended.
            classes: Labels in the order of their codes.
        """
        reported = {row.sub_task: row for row in rows}
        found = []
        for one in self.sets:
            then = one.compared(Answers(one.then, one.nearest), classes, one.version)
            row = reported.get(one.sub_task, then)
            # Of classes that have become one since it says nothing.
            same = [own.label for own in row.classes] == [own.label for own in then.classes]
            found.append(row if same else then)
        return tuple(found)


def at_home(came: Tensor) -> Tensor:
    """Which classes are a sub-task's own, with shape (C,), bool: none while no label came.

    A class that trickles in is none yet: its first few samples are learned before any alarm.

    Arguments:
        came: Labelled samples of the sub-task per class, with shape (C,), floating point.
    """
    there = came > 0
    return there & (came * int(there.sum()) >= AT_HOME * came.sum())


def _held(model: Model, shown: list[int], came: Sequence[int], latest: Tensor | None) -> list[int]:
    """The classes that the components of a sub-task hold, of those that it showed.

    The few samples of a class that trickles in fall on components of other classes, from which none
    of its samples can be drawn. So such a class is left out where it has components elsewhere: the
    sub-task that they learned it from holds it.

    Arguments:
        shown: Codes of classes.
        came: Labelled samples of each class.
        latest: Which components learned the sub-task, with shape (K,), bool; None: all.
    """
    kinds = model.readout.kinds if len(shown) > 1 else None
    if latest is None or kinds is None:
        return shown
    kinds = kinds[:, :-1].cpu()  # without that of components that no label named
    largest = kinds.amax(1, keepdim=True)
    named = (kinds > 0) & (kinds >= OWN * largest)
    here, anywhere = named[latest.cpu()].any(0).tolist(), named.any(0).tolist()
    own = at_home(torch.tensor(came, dtype=torch.float32)).tolist()
    return [code for code in shown if here[code] or own[code] or not anywhere[code]] or shown


def _with_room(
    sets: tuple[RetentionSet, ...], most: int, coming: set[int]
) -> tuple[RetentionSet, ...]:
    """The sets that stay when one more comes, of the codes in `coming`; at most `most` then.

    A set goes whose classes newer ones show too, or else the oldest.
    """
    while len(sets) >= most:
        codes = [set(one.codes.tolist()) for one in sets]
        doubled = (
            index for index, own in enumerate(codes) if own <= coming.union(*codes[index + 1 :])
        )
        leaving = next(doubled, 0)
        sets = sets[:leaving] + sets[leaving + 1 :]
    return sets


def _drawn(
    model: Model,
    standardiser: Standardiser,
    n: int,
    shown: Sequence[int],
    latest: Tensor | None,
    generator: torch.Generator,
    dtype: torch.dtype,
) -> tuple[Tensor, Tensor]:
    """Samples (n, D) in the sender's units and their codes (n,); classes take turns.

    As they come: what the model would reject lies where classes meet, and that is where
    forgetting begins.
    """
    codes = torch.full((n,), UNLABELLED, dtype=torch.int64)
    chances = model.density.log_weights.exp().cpu()[None]  # (1, K), or (C, K)
    if shown:
        codes = torch.tensor(shown)[torch.arange(n) % len(shown)]
        chances = model.readout.control_signal(model.density.log_weights).cpu()
    if latest is not None:
        own = chances * latest.cpu()
        # A class whose samples share the components of others has none of its own.
        chances = torch.where(own.sum(1, keepdim=True) > 0, own, chances)
    rows = chances[codes.clamp_min(0)] if shown else chances.expand(n, -1)
    components = torch.multinomial(rows, 1, generator=generator)[:, 0]
    x = model.sample(components, generator)
    largest = torch.finfo(dtype).max
    features = standardiser.invert(x).clamp(-largest, largest).to(dtype)
    return features, codes.to(features.device)


def _answers(
    model: Model,
    standardiser: Standardiser,
    features: Tensor,
    codes: Tensor,
    served: Served | None,
) -> Answers:
    features = features.float()
    joint, log_likelihood = model.density.score(standardiser.apply(features))
    right, probability = torch.zeros_like(codes, dtype=torch.bool), torch.zeros_like(log_likelihood)
    if model.n_classes:
        probabilities, mine = model.readout.class_probabilities(joint), codes.clamp_min(0)
        if served is None:
            right = probabilities.argmax(-1) == codes
            own = probabilities.gather(1, mine[:, None])[:, 0]
        else:
            named = served(features, probabilities)
            answers, names = (part.to(codes.device) for part in named)
            right = names[mine, answers.argmax(-1)] & (codes != UNLABELLED)
            own = (answers * names[mine]).sum(1).to(probability)
        # Where there is no class, that of another must not be told.
        probability = torch.where(codes == UNLABELLED, probability, at_most_one(own))
    nearest = (joint - model.density.log_weights).amax(-1) - standardiser.log_volume
    log_likelihood = log_likelihood - standardiser.log_volume
    return Answers(Marks(right, probability.float(), log_likelihood.float()), nearest.float())
