"""Settings of what is published, kept and let go, and when."""

from __future__ import annotations

import re
from typing import Final, Literal

from pydantic import (
    Field,
    field_validator,
)
from pydantic_settings import BaseSettings

STORE_SCHEMES: Final = ("s3", "gs", "az", "file")
IN_REDIS: Final = "redis"


class KeepingSettings(BaseSettings):
    """What is published, kept and let go, and when."""

    snapshot_store: Literal["auto", "directory", "redis"] = Field(
        "auto",
        description="How snapshots reach the API: a file in the data dir, or a Redis key. auto: a "
        "file where Redis is local to this machine (embedded or unix://), else Redis.",
    )
    publish_interval_s: float = Field(
        1.0, ge=0, le=3600, description="Seconds between two published snapshots, at least."
    )
    checkpoint_interval_s: float = Field(
        5.0, ge=0, le=3600, description="Seconds between two checkpoints, at most, while learning."
    )
    checkpoints: str = Field(
        "dir",
        description="Where checkpoints are: dir (the data dir), or a store that several machines "
        "reach: s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX, file:///PATH, a "
        "shared folder, or redis, for small models. Credentials come from the store's own "
        "environment variables.",
    )
    checkpoints_mib: int = Field(
        4096,
        ge=1,
        le=1_048_576,
        description="What a model's checkpoints in a store may come to, in MiB; of those before "
        "boundaries the oldest go first. The newest are kept whatever they come to.",
    )
    checkpoint_mib: int = Field(
        256,
        ge=1,
        le=1_048_576,
        description="Learned entries held in the stream, in MiB, that bring a checkpoint forward.",
    )
    archive_mib: int | None = Field(
        None,
        ge=1,
        le=16_777_216,
        description="What a model's archive may take, in MiB: every entry that it reads, raw "
        "samples included, from which `gmr rebuild` makes it again. The oldest entries go first. "
        "Unset: none is kept.",
    )
    gate_max_forgetting: float | None = Field(
        None,
        ge=0,
        le=1,
        description="Largest fall of the retained accuracy on a past sub-task, 0 to 1, with which "
        "a version is served; else the last that passed goes on answering. Unset: all are served.",
    )
    gate_rollback: bool = Field(
        False,
        description="Whether the trainer goes back by itself to the version that passed last, "
        "where another does not.",
    )
    settle_after_s: float = Field(
        1.0,
        ge=0.05,
        le=3600,
        description="Quiet seconds after which samples that wait in a window are taken into the "
        "model; and batches set aside are decided about, where three usual gaps between batches "
        "are no longer.",
    )
    drain_timeout_s: float = Field(
        10.0, ge=0, le=3600, description="Seconds to learn what is in the stream when stopping."
    )
    history_length: int = Field(
        10_000, ge=1, le=10_000_000, description="Batches kept for GET /drift/history."
    )
    events_length: int = Field(
        10_000, ge=1, le=10_000_000, description="Events kept for GET /events to resume from."
    )
    dedupe_ttl_s: int = Field(
        86_400, ge=1, le=31_536_000, description="Seconds for which a batch_id is remembered."
    )
    dedupe_mib: int = Field(
        512,
        ge=1,
        le=1_048_576,
        description="MiB of Redis for remembered batch_ids; beyond, the oldest are forgotten.",
    )
    dead_letters_length: int = Field(
        1000, ge=1, le=100_000, description="Dead letters kept; the oldest go first."
    )
    dead_letters_mib: int = Field(
        64, ge=1, le=65_536, description="What these hold of batches, in MiB; the oldest go first."
    )
    deaths_per_minute: int = Field(
        8,
        ge=0,
        le=1_000_000,
        description="Deaths of one part within a minute beyond which `gmr serve` ends.",
    )
    stall_s: float = Field(
        120.0,
        ge=1,
        le=86_400,
        description="Seconds without progress, or without an answer, after which a part hangs: "
        "/health/ready says so, and `gmr serve` kills the part and starts it again.",
    )
    ledger_length: int = Field(
        10_000,
        ge=1,
        le=1_000_000,
        description="Batches of which GET /batches knows for long how they were split, where "
        "samples were quarantined or dropped.",
    )

    standby: bool = Field(
        False,
        description="Whether a trainer that finds another one at work waits to take over. All have "
        "the same data dir, on a disk that they share, or the same store (GMR_CHECKPOINTS); Redis "
        "alone decides who works.",
    )
    lease_s: float = Field(
        15.0,
        ge=2,
        le=600,
        description="Seconds after which a trainer that shows no sign of life may be replaced by "
        "one on another machine; on its own machine one sees that it is gone.",
    )
    accept_loss: int | None = Field(
        None,
        ge=1,
        description="Entries that a trainer may go on without, where no checkpoint holds them: "
        "exactly the number that it has named when it refused to start.",
    )

    @field_validator("checkpoints")
    @classmethod
    def _known_store(cls, value: str) -> str:
        if value in ("dir", IN_REDIS):
            return value
        scheme, separator, rest = value.partition("://")
        if not separator or scheme not in STORE_SCHEMES:
            schemes = ", ".join(f"{scheme}://" for scheme in STORE_SCHEMES)
            raise ValueError(
                f"expected dir, redis, or an address that begins with one of {schemes}"
            )
        if re.search(r"[@?#\s]", rest):
            raise ValueError(
                "expected an address without user, password, question mark and space: credentials "
                "come from the store's own environment variables alone"
            )
        if not rest.strip("/") or (scheme == "file") != rest.startswith("/"):
            raise ValueError("expected s3://BUCKET/PREFIX, or file:///PATH with three slashes")
        return value.rstrip("/")

    @property
    def checkpoints_in_store(self) -> bool:
        """Whether checkpoints are in a store that other machines reach, too."""
        return self.checkpoints != "dir"

    @property
    def checkpoints_in_redis(self) -> bool:
        """Whether that store is Redis itself."""
        return self.checkpoints == IN_REDIS
