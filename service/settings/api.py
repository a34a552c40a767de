"""Settings of the API's address, its keys, its logs, and of the data folder."""

from __future__ import annotations

import ipaddress
import re
import socket
from pathlib import Path
from typing import Literal

from pydantic import (
    Field,
    SecretStr,
    field_validator,
)
from pydantic_settings import BaseSettings

from core.errors import InvalidSettings
from service.settings.paths import expanded


class ApiSettings(BaseSettings):
    """Where the service listens, to whom, and where it keeps its things."""

    host: str = Field(
        "127.0.0.1", min_length=1, description="Address that the API listens on; 0.0.0.0 for all."
    )
    port: int = Field(
        8000, ge=0, le=65535, description="Port that the API listens on; 0 picks a free one."
    )
    tls_certificate: Path | None = Field(
        None,
        description="Certificate, with those that lead to its authority, by which the API speaks "
        "HTTPS; needs tls_key.",
    )
    tls_key: Path | None = Field(None, description="Key of that certificate.")
    admin_key: SecretStr | None = Field(
        None,
        description="Key that may do anything, 24 characters or more; makes every request need a "
        "key. Required for an address other than loopback, unless insecure.",
    )
    insecure: bool = Field(
        False,
        description="Whether an address other than loopback is served to anybody, without keys.",
    )
    allowed_hosts: str = Field(
        "",
        description="Names by which the service may be asked, separated by commas; by those of "
        "loopback it always may. Empty: on loopback by no other, elsewhere by any.",
    )
    data_dir: Path = Field(
        Path(".gmr"), description="Folder for checkpoints, snapshots and the embedded Redis."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The least severe log record that is written."
    )
    access_log: bool = Field(
        False, description="Whether the API writes a log record for every request."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="Log records as text for people or JSON, one per line, for collectors."
    )

    _expand_home = field_validator("data_dir", "tls_certificate", "tls_key")(expanded)

    @field_validator("admin_key")
    @classmethod
    def _long_key(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not re.fullmatch(r"[!-~]{24,256}", value.get_secret_value()):
            raise ValueError(
                "expected 24 to 256 printable characters without spaces, such as those that "
                "`openssl rand -hex 32` prints"
            )
        return value

    @property
    def on_loopback(self) -> bool:
        """Whether the API listens where only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    @property
    def scheme(self) -> str:
        """Of the API's addresses."""
        return "http" if self.tls_certificate is None else "https"

    @property
    def on_all_addresses(self) -> bool:
        """Whether the API listens on every address of this machine."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    def url(self, port: int) -> str:
        """An address by which the API is reached from this machine.

        Where it listens on all, a browser takes `localhost`; a certificate is for a name that
        others use, too.

        Arguments:
            port: That it listens on.
        """
        host = self.host
        if self.on_all_addresses:
            host = "localhost" if self.tls_certificate is None else socket.gethostname()
        return f"{self.scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def requires_keys(self) -> bool:
        """Whether a request needs a key."""
        return self.admin_key is not None or not (self.on_loopback or self.insecure)

    def check_exposure(self) -> None:
        """Refuse to listen to others without keys, unless that is asked for by name.

        Raises:
            InvalidSettings: There would be no key by which anybody could ask.
        """
        if self.requires_keys and self.admin_key is None:
            raise InvalidSettings(
                f"The API would listen on {self.host}, where others reach it, and there is no "
                f"key. Set GMR_ADMIN_KEY to what `openssl rand -hex 32` prints and make further "
                f"keys with `gmr keys`; or set GMR_HOST=127.0.0.1; or, where something in front "
                f"asks who they are, say --insecure.",
                setting="admin_key",
            )
