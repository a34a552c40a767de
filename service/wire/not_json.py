"""Text that is nearly JSON: with NaN and Infinity in it, as Python's own `json.dumps` writes them.

It is refused like everything else that is no JSON. It is read once more, by a parser that takes
it, only so that the error can say which row and column is meant.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import orjson

from core.errors import GMRError, InvalidBatch

CONSTANTS: Final = (b"NaN", b"Infinity")
"""What other writers put where JSON has no number."""


def refusal(
    body: bytes | bytearray | memoryview,
    error: orjson.JSONDecodeError,
    advice: str,
    read: Callable[[Any], object],
) -> GMRError:
    """The error for a body that is no JSON, with the position of what is no finite number.

    Arguments:
        body: The whole body.
        error: What the parser said of it.
        advice: What to send, for people.
        read: Reads a document, and raises an error for what cannot be used in it.

    Example:
        >>> def read(document):
        ...     raise InvalidBatch(f"{document['features'][1]} cannot be used.")
        >>> body = b'{"features": [1, NaN]}'
        >>> try:
        ...     orjson.loads(body)
        ... except orjson.JSONDecodeError as error:
        ...     print(refusal(body, error, "Send numbers.", read))
        nan cannot be used.
    """
    text = bytes(body)
    if any(constant in text for constant in CONSTANTS) or "infinity" in str(error):
        try:
            read(json.loads(text))
        except GMRError as found:
            return found
        except (ValueError, RecursionError):
            pass  # no JSON in other ways, too
    return InvalidBatch(
        f"The body is no JSON: {error}. {advice}; NaN and Infinity do not exist in JSON."
    )
