"""What may be chosen about an engine: plain values, so that a checkpoint can name them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields

from core.errors import InvalidSettings

PRESETS = ("flat", "paper")
DETECTORS = ("sequential", "paper", "none")
PACES = ("stream", "published")
REPLAYS = ("auto", "analytic", "constant", "proportional")


@dataclass(frozen=True)
class EngineConfig:
    """Settings of one engine. The service fills it from its own settings.

    Arguments:
        preset: Family and way of learning: "flat" or "paper".
        n_components: K, the budget of components, at least 1; constant for an endless stream.
        n_features: D, or None: the first batch fixes it.
        variance_floor: Smallest variance used to score (standardised units), above 0.
        detector: Which rule looks for boundaries: "sequential", "paper" or "none".
        warm_up: Samples after every reset before the detector may speak.
        outlier_c: A sample is an outlier below mean - c * deviation of the log-likelihood.
        pace: Of preset "paper": "stream" anneals within one pass over a few thousand samples,
            "published" is the paper's own schedule, made for tens of epochs.
        replay: "analytic" (flat), "constant" or "proportional" (paper); "auto" takes the
            preset's own.
        replay_factor: kappa, generated samples per new sample of constant replay.
        window: Most raw samples of the current sub-task held at a time.
        set_aside_limit: Most samples held while a change is suspected.
        max_classes: Most classes; labels that are unique by mistake must not fill the memory.
        seed: Of every random choice.
    """

    preset: str = "flat"
    n_components: int = 100
    n_features: int | None = None
    variance_floor: float = 0.05
    detector: str = "sequential"
    warm_up: int = 1000
    outlier_c: float = 2.0
    pace: str = "stream"
    replay: str = "auto"
    replay_factor: float = 2.0
    window: int = 4096
    set_aside_limit: int = 4096
    max_classes: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (
            ("preset", PRESETS),
            ("detector", DETECTORS),
            ("pace", PACES),
            ("replay", REPLAYS),
        ):
            if getattr(self, name) not in allowed:
                raise InvalidSettings(
                    f"{name} is {getattr(self, name)!r}, which does not exist. "
                    f"Choose one of {', '.join(allowed)}."
                )
        if self.replay not in ("auto", *self._replays_of_preset()):
            raise InvalidSettings(
                f"Preset {self.preset!r} has no {self.replay!r} replay. "
                f"Choose one of auto, {', '.join(self._replays_of_preset())}."
            )
        for name in (
            "n_components",
            "n_features",
            "warm_up",
            "window",
            "set_aside_limit",
            "max_classes",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSettings(f"{name} is {value}; it must be at least 1.")
        if not 0 < self.variance_floor < math.inf:
            raise InvalidSettings(
                f"variance_floor is {self.variance_floor}; it must be above 0 and finite."
            )
        for name in ("outlier_c", "replay_factor"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidSettings(
                    f"{name} is {getattr(self, name)}; it must be at least 0 and finite."
                )

    def _replays_of_preset(self) -> tuple[str, ...]:
        return ("analytic",) if self.preset == "flat" else ("constant", "proportional")

    @property
    def replay_mode(self) -> str:
        """The replay in force: "auto" resolved."""
        return self._replays_of_preset()[0] if self.replay == "auto" else self.replay

    def to_dict(self) -> dict[str, object]:
        """Every field, JSON-ready."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, object]) -> EngineConfig:
        """The inverse of `to_dict`; fields of later releases are ignored."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})  # type: ignore[arg-type]
