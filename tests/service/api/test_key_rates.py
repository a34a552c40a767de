"""Tests for service.api.key_rates: how much each key may ask and send."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from service.api.errors import RateLimited
from service.api.key_rates import BURST_S, MOST_KEYS, KeyRates, rates_of
from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import SAFETENSORS, problem, samples, serving

OPERATOR = "operator-key-of-32-characters-0"
Ask = Callable[..., httpx2.Response]


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    rate=st.floats(0.5, 1000),
    asked=st.lists(st.tuples(st.floats(0, 20), st.integers(1, 5000)), min_size=1, max_size=60),
)
def test_no_key_ever_uses_more_than_its_rate_and_one_burst(
    rate: float, asked: list[tuple[float, int]]
) -> None:
    clock = Clock()
    rates, used, last = KeyRates({"samples": rate}, clock), 0, 0
    for pause, n in asked:
        clock.now += pause
        try:
            rates.admit("key")
        except RateLimited as error:
            wait = float(str(error.context["retry_after_s"]))
            assert wait >= 0
            clock.now += wait + 0.001
            rates.admit("key")  # what it was told to wait for is enough
        rates.charge("key", "samples", n)
        used, last = used + n, n
        assert used - last <= rate * (clock.now + BURST_S) * 1.001 + 1


def test_what_is_not_limited_is_not_counted_and_few_keys_are_remembered() -> None:
    nothing = KeyRates({})
    nothing.charge("key", "samples", 10**9)
    nothing.admit("key")
    rates = KeyRates({"requests": 1.0}, Clock())
    for n in range(MOST_KEYS + 50):
        rates.admit(str(n))
    assert len(rates._left) == MOST_KEYS
    assert rates_of(Settings()) == {}
    assert rates_of(Settings(key_bytes_per_s=5)) == {"bytes": 5}


@pytest.fixture
def ask(settings: Callable[..., Settings], request: pytest.FixtureRequest) -> Iterator[Ask]:
    """Asks as one of two keys, or as the operator; a key may use 100 of one kind at once."""
    limits = {f"key_{request.param}_per_s": 100 / BURST_S}
    with serving(settings(admin_key=SecretStr(OPERATOR), **limits)) as client:
        keys = {"operator": OPERATOR}
        for name in ("one", "two"):
            body = {"name": name, "roles": ["ingest", "read"]}
            made = client.post("/keys", json=body, headers={"Authorization": f"Bearer {OPERATOR}"})
            keys[name] = made.json()["key"]

        def asked(who: str, method: str, path: str, **options: Any) -> httpx2.Response:
            headers = {"Authorization": f"Bearer {keys[who]}", **options.pop("headers", {})}
            return client.request(method, path, headers=headers, **options)

        yield asked


def send(ask: Ask, who: str, n: int) -> httpx2.Response:
    content = RawBatch.of(samples(n)).to_safetensors()
    return ask(who, "POST", "/ingest", content=content, headers={"Content-Type": SAFETENSORS})


@pytest.mark.parametrize("ask", ["samples"], indirect=True)
def test_each_key_has_limits_of_its_own(ask: Ask) -> None:
    assert send(ask, "one", 60).status_code == 202
    assert send(ask, "one", 150).status_code == 202  # something was left, now there is a debt
    refused = send(ask, "one", 1)
    document = problem(refused, 429, "rate-limited")
    assert (document["kind"], document["rate"]) == ("samples", 10)
    assert 1 <= int(refused.headers["retry-after"]) <= 12
    assert ask("one", "GET", "/health/live").status_code == 200
    assert send(ask, "two", 60).status_code == 202
    for _ in range(3):
        assert send(ask, "operator", 200).status_code == 202


@pytest.mark.parametrize("ask", ["samples"], indirect=True)
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/classify", {"features": samples(120).tolist()}),
        ("/outliers", {"features": samples(120).tolist()}),
        ("/labels", {"sample_ids": list(range(120)), "labels": [1] * 120}),
        ("/ingest", {"features": samples(120).tolist()}),
    ],
)
def test_every_route_that_takes_samples_counts_them(ask: Ask, path: str, body: Any) -> None:
    ask("one", "POST", path, json=body)
    problem(ask("one", "GET", "/model"), 429, "rate-limited")


@pytest.mark.parametrize("ask", ["requests"], indirect=True)
def test_requests_are_counted_before_they_are_answered(ask: Ask) -> None:
    answered = 0
    while ask("one", "GET", "/model").status_code == 200:
        answered += 1
        assert answered < 1000
    assert answered >= 100
    assert ask("two", "GET", "/model").status_code == 200


@pytest.mark.parametrize("ask", ["bytes"], indirect=True)
def test_bytes_are_counted_also_of_a_body_that_is_refused(ask: Ask) -> None:
    refused = ask(
        "one", "POST", "/ingest", content=b"x" * 200, headers={"Content-Type": SAFETENSORS}
    )
    assert refused.status_code == 422
    assert problem(ask("one", "GET", "/model"), 429, "rate-limited")["kind"] == "bytes"
