"""The settings of an engine: plain values, so that a checkpoint can name them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields, replace

from core import extensions
from core.errors import InvalidSettings
from core.extensions import offered

DRAWN = ("constant", "proportional")
"""Ways of replay that draw samples."""

SHORT_RUN_TIME = 1000
"""Samples between two false alarms below which a detector hardly gets to know a sub-task."""


@dataclass(frozen=True)
class Preset:
    """What the settings of an engine need to know of a preset.

    Arguments:
        budget: K where nothing else is asked for.
        replays: Ways of replay that it has, its own first.
        experts: Whether experts beside the mixture answer classes: `EngineConfig.experts`.
        shifts: Whether it learns samples under shifts: `EngineConfig.shift`.
        images: Whether its samples are always images.
        factors: Whether its components stretch in directions: `EngineConfig.n_factors`.
        grid: Whether its components lie on a grid of K for ever.
    """

    budget: int = 100
    replays: tuple[str, ...] = ("analytic",)
    experts: bool = False
    shifts: bool = False
    images: bool = False
    factors: bool = False
    grid: bool = False


PRESETS = {
    "mfa": Preset(500, experts=True, shifts=True, factors=True),
    "flat": Preset(100, experts=True, shifts=True),
    "paper": Preset(100, DRAWN, grid=True),
    "dcgmm": Preset(81, DRAWN, images=True, grid=True),
}
"""Presets of this project; an installation may offer more: `core.extensions`."""

DETECTORS = ("sequential", "paper", "adwin", "page_hinkley", "kswin", "none")
"""Detectors of this project; an installation may offer more: `core.extensions`."""

PACES = ("stream", "published")
REPLAYS = ("auto", "analytic", *DRAWN)
MOST_SHIFT = 4
"""Pixels."""


LEAST_PROPOSAL = 10
"""Samples that a proposed class has at least: its prototype is their mean."""


def presets() -> tuple[str, ...]:
    """Names of all presets, those that the installation offers included."""
    return (*PRESETS, *offered(extensions.LEARNERS))


@dataclass(frozen=True)
class EngineConfig:
    """Settings of one engine. The service fills it from its own settings.

    Arguments:
        preset: Family and way of learning: "mfa", "flat", "paper", "dcgmm", or one that the
            installation offers (`core.extensions`).
        n_components: K, the budget of components, at least 1; constant for an endless stream.
            None: what suits the preset.
        n_factors: L, of preset "mfa": directions in which a component stretches, 0 or more;
            at most half of the features are used.
        n_features: D, or None: the first batch fixes it.
        variance_floor: Smallest variance used to score (standardised units), above 0.
        detector: Which rule looks for boundaries: "sequential", "paper", River's "adwin",
            "page_hinkley" or "kswin", which need that library, "none", or one that the
            installation offers (`core.extensions`).
        shadow_detectors: Names of rules, separated by commas, that run beside it on the same
            signals and decide nothing.
        ert: Expected run time between false alarms, in samples, above 1.
        warm_up: Samples after every reset before the detector may speak; "sequential" needs them
            before all of its bets are open, and a fifth of them before it speaks at all.
        cooldown: Samples after a boundary in which no other is looked for, 0 or more; at their
            end the detector starts anew.
        outlier_c: A sample is an outlier below mean - c * deviation of the log-likelihood.
        outlier_false_positive_rate: Share of inliers, above 0 and below 1, that may be called
            outliers, by their p-values; None, or while too little is known: `outlier_c` decides.
        image: Declares that samples are images of this shape, "HEIGHT,WIDTH" or
            "HEIGHT,WIDTH,CHANNELS", with values in [0, 1], which keep their scale. Preset
            "dcgmm" and `shift` take a square with one channel where it is None.
        shift: Of presets "mfa" and "flat", where samples are images: pixels by which they may
            be shifted and still be the same, 0 to 4; 0: samples may be anything.
        sharpening: Steps of sharpening of every image that preset "dcgmm" draws for a reader.
        pace: Of presets "paper" and "dcgmm": "stream" anneals within one pass over a few
            thousand samples, "published" is the paper's own schedule, made for tens of epochs.
        replay: "analytic" (mfa, flat), "constant" or "proportional" (paper, dcgmm); "auto" takes
            the first that the preset has.
        replay_factor: kappa, generated samples per new sample of constant replay.
        window: Most raw samples of the current sub-task held at a time.
        set_aside_limit: Most samples held while a change is suspected.
        label_wait_samples: Samples of the stream that may pass before a sample that awaits its
            label is learned without one.
        awaiting_limit: Most samples that await their label at a time.
        proposal_samples: Unknown samples without a label that make a proposal of a new class
            when they lie together, 10 or more; 0: none is made.
        experts: Of presets "mfa" and "flat", where samples are no images: whether experts with a
            finite memory say beside the mixture what a sample is called; see `core.experts`.
        max_classes: Most classes; labels that are unique by mistake must not fill the memory.
        seed: Of every random choice.
    """

    preset: str = "mfa"
    n_components: int | None = None
    n_factors: int = 20
    n_features: int | None = None
    variance_floor: float = 0.05
    detector: str = "sequential"
    shadow_detectors: str = ""
    ert: float = 1e7
    warm_up: int = 1000
    cooldown: int = 0
    outlier_c: float = 2.0
    outlier_false_positive_rate: float | None = 0.05
    image: str | None = None
    shift: int = 0
    sharpening: int = 0
    pace: str = "stream"
    replay: str = "auto"
    replay_factor: float = 2.0
    window: int = 4096
    set_aside_limit: int = 4096
    label_wait_samples: int = 10_000
    awaiting_limit: int = 4096
    proposal_samples: int = 50
    experts: bool = True
    max_classes: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (
            ("preset", presets()),
            ("detector", (*DETECTORS, *offered(extensions.DETECTORS))),
            ("pace", PACES),
            ("replay", REPLAYS),
        ):
            if getattr(self, name) not in allowed:
                raise InvalidSettings(
                    f"{name} is {getattr(self, name)!r}, which does not exist. "
                    f"Choose one of {', '.join(allowed)}."
                )
        for name in self.shadows:
            known = (*DETECTORS[:-1], *offered(extensions.DETECTORS))
            if name not in known or name == self.detector:
                raise InvalidSettings(
                    f"shadow_detectors names {name!r}, which does not exist or decides already. "
                    f"Choose among {', '.join(known)}, without {self.detector}."
                )
        replays = self.facts.replays
        if self.replay not in ("auto", *replays):
            reason = "It merges components in closed form and draws no sample."
            if replays != ("analytic",):
                reason = "It learns from samples, so that it has to draw them."
            raise InvalidSettings(
                f"Preset {self.preset!r} has no {self.replay!r} replay. {reason} "
                f"Choose one of auto, {', '.join(replays)}."
            )
        for name in (
            "n_components",
            "n_features",
            "warm_up",
            "window",
            "set_aside_limit",
            "label_wait_samples",
            "awaiting_limit",
            "max_classes",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidSettings(f"{name} is {value}; it must be at least 1.")
        if not 0 < self.variance_floor < math.inf:
            raise InvalidSettings(
                f"variance_floor is {self.variance_floor}; it must be above 0 and finite."
            )
        if not 1 < self.ert < math.inf:
            raise InvalidSettings(f"ert is {self.ert}; it must be above 1 sample and finite.")
        if self.proposal_samples != 0 and self.proposal_samples < LEAST_PROPOSAL:
            raise InvalidSettings(
                f"proposal_samples is {self.proposal_samples}; it must be at least "
                f"{LEAST_PROPOSAL}, so that a mean shows no single sample, or 0 for no proposals."
            )
        for name in ("cooldown", "outlier_c", "replay_factor", "n_factors", "sharpening"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InvalidSettings(
                    f"{name} is {getattr(self, name)}; it must be at least 0 and finite."
                )
        rate = self.outlier_false_positive_rate
        if rate is not None and not 0 < rate < 1:
            raise InvalidSettings(
                f"outlier_false_positive_rate is {rate}; it must be above 0 and below 1."
            )
        if not 0 <= self.shift <= MOST_SHIFT:
            raise InvalidSettings(
                f"shift is {self.shift}; it must be from 0, for none, to {MOST_SHIFT} pixels."
            )
        if self.shift and not self.facts.shifts:
            able = (name for name, preset in PRESETS.items() if preset.shifts)
            raise InvalidSettings(
                f"shift is {self.shift}, which preset {self.preset!r} cannot do. Set it to 0, or "
                f"choose one of the presets {', '.join(able)}."
            )
        if self.image is not None:
            _shape(self.image)

    @property
    def facts(self) -> Preset:
        """Of the preset."""
        if self.preset in PRESETS:
            return PRESETS[self.preset]
        found: Preset = getattr(
            extensions.load(extensions.LEARNERS, self.preset), "preset", Preset()
        )
        return found

    @property
    def shadows(self) -> tuple[str, ...]:
        """Names in `shadow_detectors`, each once."""
        names = (name.strip() for name in self.shadow_detectors.split(","))
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """Height, width and channels of `image`; None where it is not set."""
        return None if self.image is None else _shape(self.image)

    @property
    def images(self) -> bool:
        """Whether the settings declare samples as images, however they are sent."""
        return self.image is not None or self.shift > 0 or self.facts.images

    @property
    def advised(self) -> bool:
        """Whether tables have experts."""
        return self.experts and self.facts.experts

    @property
    def budget(self) -> int:
        """K in force."""
        return self.facts.budget if self.n_components is None else self.n_components

    @property
    def replay_mode(self) -> str:
        """The replay in force: "auto" resolved."""
        return self.facts.replays[0] if self.replay == "auto" else self.replay

    def to_dict(self) -> dict[str, object]:
        """Every field, JSON-ready."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, object]) -> EngineConfig:
        """The inverse of `to_dict`; fields of later releases are ignored."""
        known = {field.name for field in fields(cls)}
        values = {name: value for name, value in values.items() if name in known}
        made = cls(**{**values, "replay": "auto"})  # type: ignore[arg-type]
        replay = values.get("replay", "auto")
        # Presets of earlier releases had ways of replay that they do not have today.
        gone = replay in DRAWN and replay not in made.facts.replays
        return made if gone else replace(made, replay=str(replay))


def too_short(ert: float) -> str | None:
    """What is wrong with a run time between false alarms that is allowed and of no use.

    Example:
        >>> too_short(3)
        'One false alarm in 3 samples is asked for: ...
        >>> too_short(50_000)
    """
    if ert >= SHORT_RUN_TIME:
        return None
    return (
        f"One false alarm in {ert:,.0f} samples is asked for: boundaries will be found where "
        f"nothing changes, one after the other, before the detector knows a sub-task. Expected "
        f"{SHORT_RUN_TIME:,} samples or more; ask for what may pass between two false alarms, "
        f"like 1,000,000."
    )


def _shape(image: str) -> tuple[int, int, int]:
    """Height, width and channels from text.

    Example:
        >>> _shape("28, 28")
        (28, 28, 1)
    """
    parts = image.split(",")
    if len(parts) not in (2, 3) or not all(part.strip().isdecimal() for part in parts):
        raise InvalidSettings(
            f"image is {image!r}; it must be HEIGHT,WIDTH or HEIGHT,WIDTH,CHANNELS, such as "
            f"28,28 or 32,32,3."
        )
    height, width, channels = (*map(int, parts), 1)[:3]
    if not height * width * channels:
        raise InvalidSettings(f"image is {image!r}; every side must be at least 1.")
    return height, width, channels
