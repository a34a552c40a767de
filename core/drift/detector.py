"""The protocol of a boundary detector.

A detector sees each batch as the model of *before* the batch saw it, and answers
with a verdict; it never changes the model. Its settings are its own fields, its
state goes in and out, so that a checkpoint holds it and tests can replay it.

While a change is suspected (level `WARNING`) the engine sets batches aside, and the model
does not learn them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from torch import Tensor

from core.density.density import Parts
from core.model.model import Model
from core.standardiser import Standardiser

S = TypeVar("S")


class ForwardPass(NamedTuple):
    """One forward pass over some samples, in which versions of a model share what they can."""

    standardiser: Standardiser  # by which the samples were scored
    parts: Parts  # what parts of mixtures said of them

    def of(self, rows: slice) -> ForwardPass:
        """The pass of some of the samples."""
        return ForwardPass(
            self.standardiser, {part: values[rows] for part, values in self.parts.items()}
        )


@dataclass(frozen=True, eq=False)
class ModelVersion:
    """One version of the model at rest, and of the scale of its features.

    Arguments:
        model: As it was served.
        standardiser: Of the same moment.
        taken_at: Samples of the sub-task when it was taken.
    """

    model: Model
    standardiser: Standardiser
    taken_at: int


class Cause(StrEnum):
    """The cause of a change, as far as a detector can tell; it decides what may follow."""

    UNKNOWN = "unknown"  # the detector watches the likelihood alone
    NOVELTY = "novelty"  # samples are of none of the known: old ones may come between them
    SHARES = "shares"  # samples fall in other shares on what is known
    FEATURES = "features"  # single features lie elsewhere
    LABELS = "labels"  # labels mean something else


class Observation(NamedTuple):
    """One batch, as the model scored it before learning from it."""

    log_likelihoods: Tensor  # (N,) nats, by the model as it was just before the batch
    features: Tensor  # (N, D) in the sender's units
    version: Callable[[int], ModelVersion]  # that model at rest, taken after so many samples
    ert: float | None = None  # run time between false alarms asked for by now; None: as set
    codes: Tensor | None = None  # (N,) int64, on the CPU; -1: no label, or a new class
    passed: ForwardPass | None = None  # the forward pass that it took
    since_boundary: int = 0  # samples of the sub-task before the batch, learned or set aside


class Level(StrEnum):
    """How sure a detector is of a change."""

    NORMAL = "normal"
    WARNING = "warning"  # suspicious: set the batch aside, decide later
    ALARM = "alarm"  # a boundary, unless the engine finds that the sub-task absorbs the change


class Probe(NamedTuple):
    """A second, much lower threshold, passed so often that its false alarms can be counted.

    Batches that may be of a change are left out.
    """

    ert: float  # asked of the probe, in samples
    samples: int  # of this batch, 0 where it may be of a change
    alarms: int  # of the probe in this batch


class Verdict(NamedTuple):
    """A detector's verdict on one batch.

    Arguments:
        level: What follows from it.
        names: Of signals, if there are several, and at the end of what decides.
        values: Their statistics, in this order.
        threshold: Of every statistic; where the last is above (or at) it, it is a boundary.
        armed: Whether a boundary could have been reported at all.
        inlier_rate: Share of inliers of this batch, 0 to 1; None before there is anything to tell
            them by.
        inlier_rate_mean: What it is compared with; None before there is anything.
        change_samples: Samples, this batch included, since the change is estimated to have begun.
        signal: Name of the signal that contributes most to what decides.
        cause: What that signal says the change is about.
        burst: Whether an alarm has just gone away: there were outliers, and there are none.
        log_likelihood_before: Mean that this batch's is compared with, in nats; None before there
            is one.
        log_likelihood_now: Mean of this batch, in nats.
        statistic_highest: Largest statistic of the change; None where that says nothing of chance.
        samples: Among which it is the largest.
        feature_shares: Share of each feature in the evidence, where it is about single
            features.
        probe: What shows whether the asked run time between false alarms is kept.
        early: Whether so little is known yet that every sample is wanted, learned before or not.
    """

    level: Level
    names: tuple[str, ...]
    values: Sequence[float]
    threshold: float
    armed: bool
    inlier_rate: float | None
    inlier_rate_mean: float | None
    change_samples: int
    signal: str = ""
    burst: bool = False
    log_likelihood_before: float | None = None
    log_likelihood_now: float | None = None
    statistic_highest: float | None = None
    samples: int = 1
    probe: Probe | None = None
    feature_shares: Sequence[float] = ()
    cause: Cause = Cause.UNKNOWN
    early: bool = False

    def unheard(self) -> Verdict:
        """The same where the batch says nothing of a change, whatever it looks like."""
        silent = [0.0] * len(self.values)
        return self._replace(level=Level.NORMAL, values=silent, burst=False, probe=None)

    @property
    def statistic(self) -> float:
        """What decides."""
        return self.values[-1]

    @property
    def statistics(self) -> dict[str, float]:
        """The statistics of all signals, by name."""
        return dict(zip(self.names, self.values, strict=True))

    @property
    def thresholds(self) -> dict[str, float]:
        """What each statistic is compared with, by name."""
        return dict.fromkeys(self.names, self.threshold)

    @property
    def p_value(self) -> float | None:
        """Largest chance that it would be as high at any of the samples if nothing had changed."""
        if self.statistic_highest is None:
            return None
        return min(1.0, max(1, self.samples) * math.exp(-self.statistic_highest))

    @property
    def evidence(self) -> dict[str, float]:
        """Further numbers, as far as there are any."""
        numbers = {
            "log_likelihood_before": self.log_likelihood_before,
            "log_likelihood_now": self.log_likelihood_now,
            "statistic_highest": self.statistic_highest,
            "p_value": self.p_value,
        }
        return {name: number for name, number in numbers.items() if number is not None}


class UnarmedReason(StrEnum):
    """The reason why a detector may not speak."""

    WARM_UP = "warm_up"  # the sub-task has too few samples
    ANNEALING = "annealing"  # the learner has yet to converge
    DEPENDENCE = "dependence"  # samples depend on each other, so that more of them are needed
    AWAITING_LABELS = "awaiting_labels"  # all samples so far wait for labels: none is learned yet
    COOLDOWN = "cooldown"  # a boundary was a short while ago, and a pause was asked for
    NO_DETECTOR = "no_detector"  # it never speaks


class Arming(NamedTuple):
    """When a detector may speak, and why not before.

    Arguments:
        samples: Until then, as far as can be expected, 0 or more; None: not known, or never.
        reason: None where it may speak, which is where `samples` is 0.
    """

    samples: int | None
    reason: UnarmedReason | None

    @classmethod
    def after(cls, samples: int) -> Arming:
        """For a detector that waits for so many samples and for nothing else.

        Example:
            >>> Arming.after(0).reason is None
            True
            >>> Arming.after(120).reason.value
            'warm_up'
        """
        return cls(samples, UnarmedReason.WARM_UP if samples else None)

    @classmethod
    def unknown(cls, reason: UnarmedReason) -> Arming:
        """For a detector of which nobody knows when it may speak."""
        return cls(None, reason)


class Detector(Protocol[S]):
    """One rule for finding boundaries."""

    @property
    def state_type(self) -> type[S]:
        """Class of the state, for the checkpoint."""
        ...

    @property
    def name(self) -> str:
        """As in `EngineConfig.detector`."""
        ...

    def start(self) -> S:
        """The state after a boundary, or at the very start: nothing is known."""
        ...

    def observe(self, state: S, seen: Observation, converged: bool) -> tuple[S, Verdict]:
        """Judge one batch.

        Arguments:
            converged: Whether the learner's likelihood can be trusted at all yet.
        """
        ...

    def arming(self, state: S, since_boundary: int, converged: bool) -> Arming:
        """When it may speak, and why not before.

        Batches are judged as they come: it may speak from the first that begins after so many
        samples.

        Arguments:
            since_boundary: Samples of the sub-task so far.
            converged: See `observe`.
        """
        ...

    def typical(self, state: S, x: Tensor) -> Tensor:
        """Which samples, with shape (N, D), look like those before the change: (N,) bool."""
        ...

    def accept(self, state: S) -> S:
        """What has changed is usual from now on: the same classes, in other shares."""
        ...

    def dismiss(self, state: S) -> S:
        """Forget the evidence gathered so far, and keep what is usual: it was no change."""
        ...
