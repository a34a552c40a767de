"""River's detectors (ADWIN, PageHinkley, KSWIN) on the log-likelihood, behind our protocol.

For comparison, not as the default: each watches one number per sample and knows nothing of
components or batches. Their settings follow from the run time between false alarms that is
asked for, by each one's own theory, for independent samples; the log-likelihoods of a model
that learns are not, so that they alarm more often.

The library is optional (`pip install gmr-stream[river]`) and imported when a detector is
made. Its objects cannot go through a checkpoint. So what is kept is a *tape*, the values fed
since the last alarm, cut to a part when it grows too long; a River object is, by definition,
what comes of feeding the tape to a new one. It is made anew from the tape whenever that is
cut, live as after a recovery, and only cached in between: a restart changes no bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from core.drift.detector import Arming, Level, Observation, UnarmedReason, Verdict
from core.errors import InvalidSettings
from core.running import Running

RIVER = ("adwin", "page_hinkley", "kswin")
"""Names, as in `EngineConfig.detector`."""

FARTHEST = 30.0
"""Deviations at which a value is cut off: one broken sample must not fill a window."""

SHIFT = 0.25
"""Deviations by which PageHinkley's mean may move unnoticed."""

CLOCK = 32
"""Samples between two looks of ADWIN, River's own default."""

WINDOW = 100
"""Samples that KSWIN looks at, River's own default."""


class Reach(NamedTuple):
    """The limits of a tape's length."""

    longest: int  # values; one more, and it is cut
    kept: int  # of the newest, when it is cut


REACH = {
    "adwin": Reach(8192, 4096),
    "page_hinkley": Reach(8192, 4096),
    # One short of a window, so that the next value is the first to be tested.
    "kswin": Reach(2 * (WINDOW - 1), WINDOW - 1),
}


@dataclass(frozen=True, eq=False)
class RiverState:
    """The state of one of River's detectors."""

    samples: int  # since the last reset
    reference: Running  # log-likelihood of the second half of the warm-up; then it stays
    tape: Tensor  # (n,) float64, standardised values since the last alarm


class _Cache:
    """The River object that belongs to one tape; a shortcut, never the truth."""

    def __init__(self) -> None:
        self.tape: Tensor | None = None
        self.tool: Any = None


@dataclass(frozen=True)
class RiverDetector:
    """One of River's detectors, fed with standardised log-likelihoods, sample by sample.

    Arguments:
        name: Of `RIVER`.
        ert: Samples between false alarms that are asked for, above 100.
        warm_up: Samples after a reset before it is fed. The second half of them tells mean
            and deviation.
        seed: Of the samples that KSWIN picks.

    Raises:
        InvalidSettings: River is not installed.
    """

    name: str
    ert: float = 50_000.0
    warm_up: int = 1000
    seed: int = 0
    _cache: _Cache = field(default_factory=_Cache, compare=False, repr=False)

    def __post_init__(self) -> None:
        self._new([])

    @property
    def state_type(self) -> type[RiverState]:
        return RiverState

    def start(self) -> RiverState:
        return RiverState(0, Running(), torch.empty(0, dtype=torch.float64))

    def observe(
        self, state: RiverState, seen: Observation, converged: bool
    ) -> tuple[RiverState, Verdict]:
        scores = seen.log_likelihoods.double().cpu()
        n, mean = len(scores), float(scores.mean())
        reference = state.reference
        armed = converged and state.samples >= self.warm_up and reference.weight > 0
        inlier_rate = None
        if armed:
            limit = reference.mean - reference.deviation
            inlier_rate = float((scores >= limit).double().mean())
        before = reference.mean if armed else None
        spoke, statistic, since, tape = False, 0.0, n, state.tape
        if armed:
            spoke, statistic, since, tape = self._fed(state.tape, scores, reference)
        elif state.samples + n > self.warm_up / 2:
            reference = reference.updated(n, mean, float(scores.var(correction=0)))
        verdict = Verdict(
            level=Level.ALARM if spoke else Level.NORMAL,
            names=(self.name,),
            values=(statistic,),
            threshold=self.threshold,
            armed=armed,
            inlier_rate=inlier_rate,
            inlier_rate_mean=None,
            change_samples=since,
            log_likelihood_before=before,
            log_likelihood_now=mean,
        )
        return RiverState(state.samples + n, reference, tape), verdict

    def arming(self, state: RiverState, since_boundary: int, converged: bool) -> Arming:
        if not converged:
            return Arming.unknown(UnarmedReason.ANNEALING)
        # With a single batch as long as the warm-up there is no second half to go by.
        least = 0 if state.reference.weight else 1
        return Arming.after(max(least, self.warm_up - state.samples))

    def typical(self, state: RiverState, x: Tensor) -> Tensor:
        return torch.ones(len(x), dtype=torch.bool)

    def accept(self, state: RiverState) -> RiverState:
        return self.start()

    def dismiss(self, state: RiverState) -> RiverState:
        return replace(state, tape=state.tape[:0])

    @property
    def threshold(self) -> float:
        """What the statistic is compared with.

        PageHinkley has its sum of deviations, KSWIN minus the decadic logarithm of its
        p-value; ADWIN tests many cuts at once and tells only whether one passed: 1 or 0.
        """
        if self.name == "page_hinkley":
            return page_hinkley_threshold(self.ert)
        return 1.0 if self.name == "adwin" else math.log10(self.ert)

    def _fed(
        self, tape: Tensor, scores: Tensor, reference: Running
    ) -> tuple[bool, float, int, Tensor]:
        """Whether it spoke, its statistic, samples since the change, and the next tape."""
        deviation = max(reference.deviation, 1e-12)
        values = ((scores - reference.mean) / deviation).clamp(-FARTHEST, FARTHEST)
        cache = self._cache
        tool = cache.tool if cache.tape is tape else self._new(tape.tolist())
        cache.tape = None  # while it is fed it belongs to no tape
        for index, value in enumerate(values.tolist()):
            tool.update(value)
            if tool.drift_detected:
                rest = len(values) - index - 1
                since = max(len(values), int(getattr(tool, "width", 1)) + rest)
                return True, self._statistic(tool), since, tape[:0]
        tape = torch.cat([tape, values])
        reach = REACH[self.name]
        statistic = self._statistic(tool)
        if len(tape) > reach.longest:
            tape = tape[-reach.kept :].clone()
            tool = self._new(tape.tolist())
        cache.tape, cache.tool = tape, tool
        return False, statistic, len(values), tape

    def _statistic(self, tool: Any) -> float:
        if self.name == "adwin":
            return float(tool.drift_detected)
        if self.name == "kswin":
            return -math.log10(max(float(tool.p_value), 1e-300)) if tool.p_value else 0.0
        # River gives these no public name; a test holds that they pass the threshold as it speaks.
        rise = tool._sum_increase - tool._min_increase
        return float(max(rise, tool._max_decrease - tool._sum_decrease, 0.0))

    def _new(self, tape: list[float]) -> Any:
        """The River object that a tape stands for."""
        try:
            from river import drift
        except ImportError as error:
            raise InvalidSettings(
                f"The detector {self.name!r} is River's, which is not installed. Install it with "
                f"pip install 'gmr-stream[river]', or choose the detector sequential."
            ) from error
        library: Any = drift  # of its own types only half are written down
        if self.name == "kswin":
            start = tape[: WINDOW - 1]
            tool = library.KSWIN(1 / self.ert, WINDOW, seed=self.seed, window=start)
            tape = tape[len(start) :]
        elif self.name == "adwin":
            # It looks every `CLOCK` samples, and errs with probability delta at most each time.
            tool = library.ADWIN(delta=min(1.0, CLOCK / self.ert), clock=CLOCK)
        else:
            # River's default forgetting of 0.9999 pulls the sums back to zero and so eats up the
            # allowance: at ert = 50,000 it alarmed ten times as often as the theory says.
            tool = library.PageHinkley(delta=SHIFT, threshold=self.threshold, alpha=1.0)
        for value in tape:
            tool.update(value)
        return tool


def page_hinkley_threshold(ert: float) -> float:
    """Threshold of a two-sided sum of standardised deviations, `SHIFT` taken off each.

    Siegmund's approximation (1985) for normal values: one side alone runs
    (exp(2ab) - 2ab - 1) / 2a^2 samples, a being the allowance and b the threshold plus 1.166;
    both sides together half of that.

    Example:
        >>> round(page_hinkley_threshold(50_000), 2)
        17.7
    """
    wanted = 2 * ert * 2 * SHIFT**2
    power = 1.0
    for _ in range(60):
        power = math.log(wanted + power + 1)
    return power / (2 * SHIFT) - 1.166
