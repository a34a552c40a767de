"""Settings of a model."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, Self

from pydantic import (
    Field,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings

ERT_UNITS: Final[Mapping[str, float]] = {"min": 60.0, "s": 1.0, "h": 3600.0, "d": 86400.0}

ERT_PATTERN: Final = (
    "^([2-9]|[1-9][0-9]{1,17}|[1-9][0-9]?e(1[0-6]|[0-9])|"
    r"[0-9]{1,9}(\.[0-9]{1,3})?(s|min|h|d))$"
)


class ModelSettings(BaseSettings):
    """What a model is, and how it learns."""

    device: str = Field(
        "auto",
        pattern="^(auto|cpu|cuda(:[0-9]+)?)$",
        description="Where the model lives: cpu, cuda, cuda:N, or auto (CUDA where there is one).",
    )
    preset: str = Field(
        "mfa",
        description="Learner: mfa (factor analysers), flat (diagonal components), paper (SGD, as "
        "published), dcgmm (deep convolutional, for images), or one that the installation offers.",
    )
    n_components: int | None = Field(
        None,
        ge=1,
        le=100_000,
        description="Components of the mixture (K), at most; unset: 500 for mfa, 81 for dcgmm, "
        "else 100.",
    )
    n_factors: int = Field(
        20, ge=0, le=1000, description="Of preset mfa: directions in which a component stretches."
    )
    n_features: int | None = Field(
        None, ge=1, description="Features per sample (D); unset: the first batch decides."
    )
    variance_floor: float = Field(
        0.05, gt=0, le=1000, description="Smallest variance that scores, in standardised units."
    )
    detector: str = Field(
        "sequential",
        description="What finds boundaries: sequential, paper, adwin, page_hinkley, kswin, or one "
        "that the installation offers; none leaves them to POST /drift/boundary.",
    )
    shadow_detectors: str = Field(
        "",
        description="Detectors, separated by commas, that run beside it and decide nothing.",
    )
    ert: str = Field(
        "10000000",
        pattern=ERT_PATTERN,
        description="Expected run time between false alarms of detector sequential: samples, or "
        "a time at the observed rate, like 12h or 30d (units s, min, h, d).",
    )
    outlier_c: float = Field(
        2.0,
        gt=0,
        le=100,
        description="A sample is an outlier below the running mean minus c deviations. Decides "
        "where it is set and outlier_false_positive_rate is not, and while too little is known "
        "for p-values.",
    )
    outlier_false_positive_rate: float | None = Field(
        0.05,
        gt=0,
        lt=1,
        description="Share of inliers that may be called outliers, by their p-values; goes before "
        "outlier_c.",
    )
    image: str | None = Field(
        None,
        pattern=r"^\s*[0-9]+\s*(,\s*[0-9]+\s*){1,2}$",
        description="Declares samples as images in [0, 1], which keep their scale: HEIGHT,WIDTH "
        "or HEIGHT,WIDTH,CHANNELS. Unset: uint8 or the shape of what is sent declares them; "
        "dcgmm and shift take a square with one channel.",
    )
    shift: int = Field(
        0,
        ge=0,
        le=4,
        description="Of presets mfa and flat, where samples are images: pixels by which one may be "
        "shifted and still be the same; 0: samples may be anything.",
    )
    sharpening: int = Field(
        0,
        ge=0,
        le=1000,
        description="Of preset dcgmm: steps that sharpen every image that GET /sample draws.",
    )
    pace: Literal["stream", "published"] = Field(
        "stream",
        description="Of presets paper and dcgmm: stream anneals within one pass over a stream, "
        "published is the paper's own schedule, made for tens of epochs.",
    )
    replay: Literal["auto", "analytic", "constant", "proportional"] = Field(
        "auto",
        description="How earlier sub-tasks are kept alive: analytic (mfa, flat), constant or "
        "proportional (paper); auto: the preset's own.",
    )
    replay_factor: float = Field(
        2.0, ge=0, le=1000, description="Generated samples per new one, where samples are drawn."
    )
    window: int = Field(
        4096, ge=1, le=1_000_000, description="Samples held raw, at most, to learn from again."
    )
    set_aside_limit: int = Field(
        4096, ge=1, le=1_000_000, description="Samples kept apart, at most, while a change is open."
    )
    join_samples: int = Field(
        1,
        ge=1,
        le=1000,
        description="Samples up to which small batches that wait one after the other are learned "
        "as one; 1: each by itself.",
    )
    label_wait_samples: int = Field(
        10_000,
        ge=1,
        le=100_000_000,
        description="Samples of the stream that may pass before a sample with an id is learned "
        "without its label.",
    )
    label_wait_s: float = Field(
        3600.0,
        ge=0.05,
        le=31_536_000,
        description="Seconds that may pass before a sample with an id is learned without its "
        "label.",
    )
    awaiting_limit: int = Field(
        4096, ge=1, le=1_000_000, description="Samples that await their label at a time, at most."
    )
    proposal_samples: int = Field(
        50,
        ge=0,
        le=512,
        description="Unknown samples without a label that are proposed as a new class when they "
        "lie together, 10 or more; 0: never.",
    )
    experts: bool = Field(
        True,
        description="Of presets mfa and flat, where samples are no images: whether experts with a "
        "finite memory say beside the mixture what a sample is called.",
    )
    warm_up: int = Field(
        1000,
        ge=1,
        le=10_000_000,
        description="Samples of a sub-task before all bets of the detector are open; it is armed "
        "after a fifth of them.",
    )
    cooldown: int = Field(
        0,
        ge=0,
        le=1_000_000_000,
        description="Samples after a boundary in which no other is looked for; at their end the "
        "detector starts anew.",
    )
    seed: int = Field(0, ge=0, lt=2**63, description="Seed of everything random in the model.")

    @model_validator(mode="after")
    def _rule_by_name(self) -> Self:
        """Whoever sets `outlier_c`, and no rate, wants outliers by the likelihood."""
        given = self.model_fields_set
        if "outlier_c" in given and "outlier_false_positive_rate" not in given:
            object.__setattr__(self, "outlier_false_positive_rate", None)
        return self

    @field_validator("preset")
    @classmethod
    def _known_preset(cls, value: str) -> str:
        from core.config import presets

        if value not in presets():
            raise ValueError(f"expected one of {', '.join(presets())}")
        return value

    @field_validator("ert", mode="before")
    @classmethod
    def _as_text(cls, value: object) -> object:
        """Samples may be a number in a file or in JSON, where nobody would quote them."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return f"{value:.17g}" if number else value

    @field_validator("ert")
    @classmethod
    def _some_time(cls, value: str) -> str:
        if not re.search("[1-9]", value):
            raise ValueError("expected a time above zero, like 12h or 30d")
        return value

    @property
    def ert_seconds(self) -> float | None:
        """Expected run time between false alarms as a time; None where it is in samples."""
        for unit, seconds in ERT_UNITS.items():
            if self.ert.endswith(unit):
                return float(self.ert.removesuffix(unit)) * seconds
        return None
