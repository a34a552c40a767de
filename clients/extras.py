"""Extras: what a plain installation leaves out, and what to say where it is missing.

`pip install gmr-stream` brings what speaks HTTP. The rest comes with an extra, and whoever
asks for it without is told which one in one sentence.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from clients.http.errors import InputError

_ENGINE: Final = ("torch", "numba", "cattrs", "safetensors", "sklearn")

_SERVE: Final = (
    *_ENGINE,
    "fastapi",
    "starlette",
    "anyio",
    "fastapi_offline",
    "uvicorn",
    "pydantic",
    "pydantic_settings",
    "redis",
    "prometheus_client",
    "PIL",
    "cloudevents",
    "scipy",
    "matplotlib",
    "jinja2",
)

LIBRARIES: Final[Mapping[str, tuple[str, ...]]] = {
    "engine": _ENGINE,
    "serve": _SERVE,
    "images": ("PIL",),
    "river": (*_ENGINE, "river"),
    "cluster": (*_SERVE, "obstore", "ray"),
}
"""Extra -> the names under which what it brings is imported."""


class MissingExtra(InputError, ImportError):
    """A library that is needed is not installed."""

    @classmethod
    def of(cls, asked: str, extra: str, library: str) -> MissingExtra:
        """The error for what needs an extra, by a library of it that is missing."""
        return cls(
            f"{asked} needs the extra {extra!r}, of which {library} is not installed: "
            f"pip install 'gmr-stream[{extra}]'",
            extra=extra,
            library=library,
        )


def require(asked: str, extra: str) -> None:
    """Return when all libraries of an extra are installed; none is imported.

    Arguments:
        asked: What needs them, as the message calls it.
        extra: Of `LIBRARIES`.

    Raises:
        MissingExtra: One is not.
    """
    for library in LIBRARIES[extra]:
        if importlib.util.find_spec(library) is None:
            raise MissingExtra.of(asked, extra, library)


@contextmanager
def naming_the_extra(asked: str, extra: str) -> Iterator[None]:
    """Turn the failed import of a library of an extra into `MissingExtra`; no other error."""
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in LIBRARIES[extra]:
            raise
        raise MissingExtra.of(asked, extra, library) from error
