"""Limits of requests, and of what each key may send."""

from __future__ import annotations

from pydantic import (
    Field,
)
from pydantic_settings import BaseSettings

from service.settings.units import MIB


class LimitSettings(BaseSettings):
    """What a request, and a key, may ask for."""

    max_body_bytes: int = Field(
        32 * MIB, ge=1024, le=512 * MIB, description="Largest request body, in bytes."
    )
    max_bodies_mib: int = Field(
        256,
        ge=1,
        le=1_048_576,
        description="Memory for the bodies of all requests at a time, in MiB for each API process; "
        "at least one body of max_body_bytes has room.",
    )
    max_checkpoint_bytes: int = Field(
        1024 * MIB,
        ge=1024,
        le=64 * 1024 * MIB,
        description="Largest checkpoint that PUT /model/checkpoint takes, in bytes.",
    )
    max_samples: int = Field(
        10_000, ge=1, le=10_000_000, description="Most samples in one request."
    )
    max_features: int = Field(
        100_000, ge=1, le=10_000_000, description="Most features per sample (D)."
    )
    max_sample_n: int = Field(
        10_000, ge=1, le=10_000_000, description="Most samples that GET /sample draws at once."
    )
    max_classes: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="Most classes; a batch that would bring more is refused.",
    )
    max_backlog: int = Field(
        2_000,
        ge=1,
        le=10_000_000,
        description="Entries accepted and not yet learned beyond which POST /ingest answers 429.",
    )

    key_requests_per_s: float | None = Field(
        None, gt=0, description="Requests that each key may send in a second, at an API process."
    )
    key_samples_per_s: float | None = Field(
        None, gt=0, description="Samples, or labels, that each key may send in a second, likewise."
    )
    key_bytes_per_s: float | None = Field(
        None, gt=0, description="Bytes of bodies that each key may send in a second, likewise."
    )

    class_series: int = Field(
        20,
        ge=0,
        le=256,
        description="Classes of which GET /drift and the metrics tell each by itself: those with "
        "most of the newest samples. The others are told together.",
    )
    max_key_share: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of the newest samples learned that one key may have sent; the trainer "
        "makes dead letters of batches beyond it.",
    )
    max_key_outliers: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="Share of a key's own newest samples that may be outliers while others send "
        "few; beyond it the trainer makes dead letters of its batches.",
    )

    @property
    def bodies_bytes(self) -> int:
        """Bytes that the bodies of all requests may hold at a time."""
        return max(self.max_bodies_mib * MIB, self.max_body_bytes)
