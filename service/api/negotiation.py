"""Which of the forms that a route offers does the client prefer? (RFC 9110, section 12.5)

Rules of this module:

1. No `Accept`, or `*/*`, means the first form on offer; for every route that is JSON.
2. For each form the most specific matching range decides its weight, so that
   `image/png;q=0, */*` never answers a picture.
3. Of equal weights the earlier form on offer wins.
"""

from __future__ import annotations

from collections.abc import Sequence

from service.api.errors import NotAcceptable

JSON = "application/json"
SAFETENSORS = "application/vnd.safetensors"
NPY = "application/x-npy"
OCTETS = "application/octet-stream"
PNG = "image/png"

GZIP = "gzip"
IDENTITY = "identity"
"""Codings of content: packed, and as it is."""


def choose(accept: str | None, offered: Sequence[str]) -> str:
    """The form of `offered` that the header `accept` prefers.

    Raises:
        NotAcceptable: the client accepts none of them.

    Example:
        >>> choose("image/*, */*;q=0.8", (JSON, PNG))
        'image/png'
        >>> choose(None, (JSON, PNG))
        'application/json'
    """
    if not accept or accept == "*/*":
        return offered[0]
    ranges = _ranges(accept)
    # `max` keeps the first of equals, which is the order of preference of the route.
    best = max(offered, key=lambda form: _weight(form, ranges))
    if _weight(best, ranges) <= 0:
        raise NotAcceptable.of(accept, offered)
    return best


def choose_coding(accept: str | None) -> str:
    """The coding that the header `accept`, an `Accept-Encoding`, prefers: gzip or none.

    Content as it is needs not be named to be accepted; it is refused by `identity;q=0`, or by
    `*;q=0` where identity has no weight of its own (RFC 9110, section 12.5.3).

    Raises:
        NotAcceptable: the client accepts neither.

    Example:
        >>> choose_coding("gzip, deflate"), choose_coding("gzip;q=0"), choose_coding(None)
        ('gzip', 'identity', 'identity')
    """
    weights = _ranges(accept or "")
    packed = weights.get(GZIP, weights.get("x-gzip", weights.get("*", 0.0)))
    if packed > 0 and packed >= weights.get(IDENTITY, 0.0):
        return GZIP
    if weights.get(IDENTITY, weights.get("*", 1.0)) <= 0:
        raise NotAcceptable.coding(accept or "", (GZIP, IDENTITY))
    return IDENTITY


def _ranges(accept: str) -> dict[str, float]:
    """Media range, or coding -> weight; what cannot be read weighs nothing."""
    ranges: dict[str, float] = {}
    for part in accept.split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        weight = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip().lower() == "q":
                try:
                    weight = min(max(float(value), 0.0), 1.0)
                except ValueError:
                    weight = 0.0
        ranges[name.lower()] = weight
    return ranges


def _weight(form: str, ranges: dict[str, float]) -> float:
    family = form.partition("/")[0]
    for candidate in (form, f"{family}/*", "*/*"):
        if candidate in ranges:
            return ranges[candidate]
    return 0.0
