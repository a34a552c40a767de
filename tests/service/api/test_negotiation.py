"""Tests for service.api.negotiation: which form of answer a client prefers."""

from __future__ import annotations

import pytest

from service.api.errors import NotAcceptable
from service.api.negotiation import JSON, NPY, PNG, SAFETENSORS, choose, choose_coding

OFFERED = (JSON, SAFETENSORS, NPY, PNG)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, JSON),
        ("", JSON),
        ("*/*", JSON),
        ("application/*", JSON),
        ("image/png", PNG),
        ("IMAGE/PNG", PNG),
        ("image/*", PNG),
        ("application/json;q=0.5, image/png", PNG),
        ("image/png;q=0.1, */*;q=0.2", JSON),
        ("text/html, */*;q=0.1", JSON),
        ("application/json;q=0, */*", SAFETENSORS),
        ("application/x-npy, application/vnd.safetensors", SAFETENSORS),
        ("text/html;q=1, application/x-npy ; q=0.3", NPY),
    ],
)
def test_the_preferred_form_is_chosen(accept: str | None, chosen: str) -> None:
    assert choose(accept, OFFERED) == chosen


@pytest.mark.parametrize("accept", ["text/html", "image/png;q=0", "*/*;q=0", "image/png;q=x", ","])
def test_a_client_that_accepts_nothing_on_offer_is_told(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="application/json or"):
        choose(accept, OFFERED)


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        (None, "identity"),
        ("", "identity"),
        ("gzip", "gzip"),
        ("GZIP, deflate, br", "gzip"),
        ("x-gzip", "gzip"),
        ("*", "gzip"),
        ("gzip;q=0.5", "gzip"),
        ("gzip, identity", "gzip"),
        ("gzip;q=0", "identity"),
        ("gzip; q=0.000, *", "identity"),
        ("gzip;q=0.5, identity", "identity"),
        ("br, deflate", "identity"),
        ("not-gzip", "identity"),
        ("identity;q=0, gzip", "gzip"),
        ("identity;q=0, *", "gzip"),
        ("*;q=0, gzip", "gzip"),
        ("*;q=0, identity", "identity"),
    ],
)
def test_the_preferred_coding_is_chosen(accept: str | None, chosen: str) -> None:
    assert choose_coding(accept) == chosen


@pytest.mark.parametrize("accept", ["*;q=0", "identity;q=0", "gzip;q=0, *;q=0", "br, identity;q=0"])
def test_a_client_that_wants_content_neither_packed_nor_plain_is_told(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="gzip or identity"):
        choose_coding(accept)
