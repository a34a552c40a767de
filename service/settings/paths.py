"""Paths among the settings."""

from __future__ import annotations

from pathlib import Path


def expanded(value: Path | None) -> Path | None:
    """A path whose `~` is the home of whoever runs the service."""
    return None if value is None else value.expanduser()
