"""Detectors that run beside the deciding one, to be compared with it on the same stream.

Rules: a shadow sees what the deciding detector sees, starts anew when that does and when
it has spoken itself, and decides nothing; what it says is reported under its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from core.drift.detector import Detector, Level, Observation, Verdict


@dataclass(frozen=True, eq=False)
class Shadow:
    """The state of one shadow."""

    detector: str
    state: Any


class ShadowVerdicts(NamedTuple):
    """The shadows' verdicts on one batch."""

    states: tuple[Shadow, ...]
    verdicts: dict[str, Verdict]

    @property
    def statistics(self) -> dict[str, float]:
        """Name of the detector -> the statistic that decides."""
        return {name: verdict.statistic for name, verdict in self.verdicts.items()}

    @property
    def thresholds(self) -> dict[str, float]:
        """Name of the detector -> what its statistic is compared with."""
        return {name: verdict.threshold for name, verdict in self.verdicts.items()}

    @property
    def alarms(self) -> dict[str, Verdict]:
        """Verdicts of those that would have called it a boundary."""
        return {
            name: verdict for name, verdict in self.verdicts.items() if verdict.level is Level.ALARM
        }


@dataclass(frozen=True)
class Shadows:
    """The detectors themselves.

    Arguments:
        detectors: By name; each of its own kind.
    """

    detectors: dict[str, Detector[Any]]

    @classmethod
    def of(cls, names: tuple[str, ...], make: Callable[[str], Detector[Any]]) -> Shadows:
        """Make the shadows of some names."""
        return cls({name: make(name) for name in names})

    def start(self) -> tuple[Shadow, ...]:
        """Nothing is known, to any of them."""
        return tuple(Shadow(name, one.start()) for name, one in self.detectors.items())

    def observe(
        self, shadows: tuple[Shadow, ...], seen: Observation, converged: bool
    ) -> ShadowVerdicts:
        """Let every one judge a batch.

        Arguments:
            shadows: What they remember; of other detectors than these is left out, and those
                that are missing start, so that settings may change between two runs.
        """
        known = {shadow.detector: shadow.state for shadow in shadows}
        after, verdicts = [], {}
        for name, one in self.detectors.items():
            state = known[name] if name in known else one.start()
            state, verdict = one.observe(state, seen, converged)
            if verdict.level is Level.ALARM:
                state = one.start()
            after.append(Shadow(name, state))
            verdicts[name] = verdict
        return ShadowVerdicts(tuple(after), verdicts)
