"""Who asks, as it is told beside what was asked."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from service.api.access import ANYBODY

ANONYMOUS: Final = "anybody"
"""Who asks where no keys are required and nobody says."""


def asker(request: Request, says: str | None) -> str | None:
    """The name of the key; where no keys are required, what whoever asks says of himself.

    Arguments:
        request: Let through by `service.api.access`.
        says: A name that came with it.
    """
    caller = request.state.caller
    return says if caller is ANYBODY else caller.name
