"""Who asks, as it is told beside what was asked."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field
from starlette.requests import Request

from service.api.access import ANYBODY
from service.wire import MOST_BY

ANONYMOUS: Final = "anybody"
"""Who asks where no keys are required and nobody says."""

By = Annotated[
    str | None,
    Field(
        max_length=MOST_BY,
        description="Who asks, where no keys are required; otherwise it is the name of the key.",
    ),
]
"""What a body says of whoever sends it."""


def asker(request: Request, says: str | None) -> str | None:
    """The name of the key; where no keys are required, what whoever asks says of himself.

    Arguments:
        request: Let through by `service.api.access`.
        says: A name that came with it.
    """
    caller = request.state.caller
    return says if caller is ANYBODY else caller.name
