"""What settings are called: variables, flags, and the files that hold secrets."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

PREFIX: Final = "GMR_"

CONFIG_VARIABLE: Final = "GMR_CONFIG"
"""Names the TOML file when `--config` does not."""

SECRET_FILE_VARIABLE: Final = "GMR_REDIS_URL_FILE"
"""Names a file that holds `redis_url`, as container platforms hand out secrets."""

SECRET_FILES: Final[Mapping[str, str]] = {
    SECRET_FILE_VARIABLE: "redis_url",
    "GMR_WEBHOOK_URL_FILE": "webhook_url",
    "GMR_WEBHOOK_SECRET_FILE": "webhook_secret",
    "GMR_ADMIN_KEY_FILE": "admin_key",
}
"""Variables that name a file with the value of a setting, and which one it is."""

CLIENT_VARIABLES: Final[Mapping[str, str]] = {
    "GMR_DATASETS": "Folder in which the clients look for data sets.",
    "GMR_URL": "Where the clients reach the service.",
    "GMR_API_KEY": "The key that the clients bring.",
}
"""Variables that are legal but belong to the clients, not to the service."""


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def flag(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


def suggestion(name: str, known: set[str]) -> str:
    """What to do about a name that no setting has."""
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else "Remove it, or check its spelling."
