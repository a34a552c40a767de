"""Settings as the command line gives them: NAME=VALUE."""

from __future__ import annotations

from collections.abc import Iterable

from clients.http.errors import InputError


def assignments(given: Iterable[str]) -> dict[str, str]:
    """The values of NAME=VALUE, by name, as settings are called.

    Raises:
        InputError: One is none.

    Example:
        >>> assignments(["n-components=20", "preset = flat"])
        {'n_components': '20', 'preset': 'flat'}
    """
    found = dict[str, str]()
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not name.strip():
            raise InputError(
                f"{one!r} sets nothing; expected NAME=VALUE, for example variance_floor=0.1. "
                f"`gmr serve --help` lists the names."
            )
        found[name.strip().replace("-", "_").lower()] = value.strip()
    return found
