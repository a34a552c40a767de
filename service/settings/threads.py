"""Threads, and who gets the processor first."""

from __future__ import annotations

from pydantic import (
    Field,
)
from pydantic_settings import BaseSettings


class ThreadSettings(BaseSettings):
    """How many threads there are, and who comes first."""

    trainer_threads: int = Field(
        1, ge=1, le=256, description="Threads of the trainer's tensor kernels."
    )
    trainer_niceness: int = Field(
        10,
        ge=0,
        le=19,
        description="How far the trainer steps back where others want the processor, the API "
        "among them; 0: not at all, 19: as far as can be.",
    )
    api_threads: int = Field(1, ge=1, le=256, description="Threads of the API's tensor kernels.")
    micro_batch_rows: int = Field(
        256,
        ge=0,
        le=65_536,
        description="Rows of small requests that come together and are scored in one pass, at "
        "most; 0: each by itself.",
    )
