"""Entity tags: whoever has an answer is told that it has not changed, and is not sent it again."""

from __future__ import annotations

import hashlib

import orjson
from fastapi import Request

BYTES = 16


def tag_of(content: bytes) -> str:
    """The tag of what an answer is made of, quoted, as HTTP has it.

    Example:
        >>> tag_of(b"a") == tag_of(b"a") != tag_of(b"b")
        True
    """
    return f'"{hashlib.sha256(content).digest()[:BYTES].hex()}"'


def tag_of_facts(*facts: object) -> str:
    """The tag of an answer that these facts decide: JSON-ready values and dataclasses."""
    return tag_of(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS))


def is_known(tag: str, request: Request) -> bool:
    """Whether whoever asks has the answer with this tag.

    What a proxy has marked as weak, because it compresses, counts, too.
    """
    told = request.headers.get("if-none-match", "")
    return tag in {one.strip().removeprefix("W/") for one in told.split(",")}
