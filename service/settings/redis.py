"""Settings of Redis and of what its keys are called."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from pydantic import (
    Field,
    SecretStr,
    field_validator,
)
from pydantic_settings import BaseSettings

from core.errors import InvalidSettings
from service.settings.paths import expanded

REDIS_SCHEMES: Final = (
    "redis",
    "rediss",
    "unix",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
)


class RedisSettings(BaseSettings):
    """Where Redis is, and what is asked of it."""

    redis_url: SecretStr | None = Field(
        None,
        description="redis://, rediss://, unix://, redis+cluster:// or redis+sentinel:// address "
        "of a Redis of your own (6.2 or newer); without it `gmr serve` runs the embedded one.",
    )
    redis_tls_ca: Path | None = Field(
        None,
        description="Certificates of those who may have signed that of rediss://; unset: the "
        "system's.",
    )
    redis_tls_certificate: Path | None = Field(
        None, description="Certificate that is shown to rediss://, where that wants one."
    )
    redis_tls_key: Path | None = Field(None, description="Key of that certificate.")
    redis_replicas: int = Field(
        0,
        ge=0,
        le=100,
        description="Replicas of that Redis that must have an entry before it is acknowledged.",
    )
    accept_weak_durability: bool = Field(
        False,
        description="Whether a Redis is taken that may lose what it has acknowledged.",
    )
    redis_binary: Path | None = Field(
        None, description="redis-server or valkey-server program to run as the embedded Redis."
    )
    redis_maxmemory_mib: int = Field(
        2048, ge=16, le=1_048_576, description="Memory of the embedded Redis, in MiB."
    )
    disk_reserve_mib: int = Field(
        64,
        ge=0,
        le=1_048_576,
        description="Room on the disk of the embedded Redis, in MiB, below which nothing more is "
        "accepted; 0 accepts until the disk is full.",
    )
    model: str = Field(
        "default",
        pattern=r"^[A-Za-z0-9._-]{1,64}(/[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$",
        description="Name of the service's own model; services whose names differ share a Redis "
        "without meeting.",
    )

    _expand_home = field_validator(
        "redis_binary", "redis_tls_ca", "redis_tls_certificate", "redis_tls_key"
    )(expanded)

    @field_validator("redis_url")
    @classmethod
    def _known_scheme(cls, value: SecretStr | None) -> SecretStr | None:
        if value is None:
            return None
        scheme, separator, rest = value.get_secret_value().partition("://")
        if not separator or scheme not in REDIS_SCHEMES or not rest:
            raise ValueError(f"expected an address that begins with one of {_schemes()}")
        place = re.match(r"[^/?#]*", rest)
        if not rest.startswith("/") and place is not None and "@" in rest[place.end() :]:
            # A part of the password would be taken for the port, or even be connected to.
            raise ValueError("expected / ? # and @ in user and password as %2F %3F %23 and %40")
        return value

    def redis_address(self) -> str | None:
        """The Redis URL in clear, or None for the embedded Redis."""
        return None if self.redis_url is None else self.redis_url.get_secret_value()

    def redis_address_of_ones_own(self) -> str:
        """The Redis URL in clear, for a process that brings no Redis.

        Raises:
            InvalidSettings: There is none.
        """
        address = self.redis_address()
        if address is None:
            raise InvalidSettings(
                "No Redis address is set, and only `gmr serve` brings an embedded Redis. Set "
                "GMR_REDIS_URL, or start the whole service by `gmr serve`."
            )
        return address


def _schemes() -> str:
    return ", ".join(f"{scheme}://" for scheme in REDIS_SCHEMES)
