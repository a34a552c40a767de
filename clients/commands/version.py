"""`gmr version`: what is installed."""

from __future__ import annotations

import typer

from clients.evaluation.environment import versions


def version_command() -> None:
    """Print the versions of what is installed.

    Example: gmr version
    """
    for name, version in versions().items():
        typer.echo(f"{name} {version}")
