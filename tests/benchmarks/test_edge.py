"""Tests for the benchmarks.edge module: its attacks do what they say."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest

from benchmarks import edge
from tests.service.api.stack import make_settings, redis_server, serving


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory):
    directory: Path = tmp_path_factory.mktemp("attacked")
    with (
        redis_server(directory / "redis") as redis,
        serving(make_settings(redis.url, directory)) as client,
    ):
        yield client


@pytest.mark.parametrize(
    ("name", "status"),
    [("header", None), ("half-open", None), ("JSON", 409), ("rows", 422), ("NaN", 422)],
)
def test_an_attack_is_what_it_says_and_others_are_answered_meanwhile(
    service: httpx2.Client, name: str, status: int | None
) -> None:
    address = edge.Address(str(service.base_url.host), int(service.base_url.port or 0))
    before = classified(service)
    taken = edge._ask_meanwhile(address, edge.attacks(1)[name], 0.3)
    assert len(taken) > 1
    new = {code for code, n in classified(service).items() if n > before.get(code, 0)}
    assert new == (set() if status is None else {status})


def classified(service: httpx2.Client) -> dict[int, float]:
    """POST /classify, by status."""
    row = re.compile(
        r'^gmr_http_requests_total\{method="POST",route="/classify",status="(\d+)"\} (\S+)$', re.M
    )
    return {int(code): float(n) for code, n in row.findall(service.get("/metrics").text)}
