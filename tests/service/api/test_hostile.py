"""Requests at random over the whole OpenAPI description: no fault of the service, and whatever is
refused has changed nothing."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import httpx2
import pytest
import redis

from service.broker.keys import Keys
from service.settings import Settings
from service.wire import pack
from tests.service.api.stack import SAFETENSORS, make_settings, samples, serving

TOO_LONG = {"download_checkpoint", "events"}
"""Which wait for a trainer, or have no end."""

NOT_STATE = ("audit", "counts")
"""What is counted and written down of requests that were refused, too."""

TEXTS = [
    "1",
    "-1",
    "0",
    "1-1",
    "nan",
    "1e9",
    "\u0661",
    "9" * 25,
    "../..",
    "%00",
    "x" * 300,
    "[",
    "",
]
TEXTS += ["true", "binary", "a b", "\u00e9\U0001f600"]
SCALARS = [None, True, 0, -1, 2**63, -(2**70), 1e39, float("nan"), 0.5, *TEXTS]
FORMS = ["application/json", SAFETENSORS, "application/octet-stream", "text/csv"]
BINARY = pack({"features": samples(3)}, {"batch_id": "binary"})


@pytest.fixture(scope="module")
def target(
    redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[httpx2.Client, Callable[[], dict[bytes, bytes | None]], Any]]:
    """A service without a trainer, what Redis holds of it, and its description."""
    made: Settings = make_settings(redis_url, tmp_path_factory.mktemp("hostile"), max_models=5)
    other = redis.Redis.from_url(redis_url)
    keys = Keys(made.model)

    def state() -> dict[bytes, bytes | None]:
        names = sorted(other.scan_iter(match=f"*{made.model}*", count=1000))
        left_out = {getattr(keys, name).encode() for name in NOT_STATE}
        return {name: other.dump(name) for name in names if name not in left_out}

    with serving(made) as client:
        yield client, state, client.get("/openapi.json").json()
    other.close()


def a_request(rng: random.Random, document: Any) -> dict[str, Any]:
    """One request, more or less as the description has it."""
    operations = [
        (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if operation["operationId"] not in TOO_LONG
    ]
    method, path, operation = rng.choice(operations)
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    for parameter in operation.get("parameters", ()):
        name, value = parameter["name"], rng.choice(TEXTS)
        if parameter["in"] == "path":
            path = path.replace(f"{{{name}}}", quote(value, safe="") or "x")
        elif rng.random() < 0.4:
            (query if parameter["in"] == "query" else headers)[name] = value
    if rng.random() < 0.1:
        query[rng.choice(TEXTS)] = rng.choice(TEXTS)
    content = b""
    body = operation.get("requestBody", {}).get("content", {})
    if body or rng.random() < 0.1:
        form = rng.choice([*body, *body, *FORMS])
        headers["Content-Type"] = form
        content = a_body(rng, body.get(form, {}), form)
    encoded = {name: value.encode() for name, value in headers.items()}
    return {"method": method, "url": path, "params": query, "headers": encoded, "content": content}


def a_body(rng: random.Random, described: Any, form: str) -> bytes:
    """An example with a part put otherwise, or anything at all."""
    if form == SAFETENSORS and rng.random() < 0.7:
        at = rng.randrange(len(BINARY))
        return BINARY[:at] + rng.randbytes(rng.randrange(4)) + BINARY[at + rng.randrange(4) :]
    examples = [described["example"]] if "example" in described else []
    examples += [one["value"] for one in described.get("examples", {}).values()]
    if examples and rng.random() < 0.7:
        example = dict(rng.choice(examples))
        example[rng.choice([*example])] = a_value(rng)
        return json.dumps(example).encode()
    return rng.randbytes(rng.randrange(40)) if rng.random() < 0.5 else json_of(a_value(rng))


def a_value(rng: random.Random, depth: int = 0) -> Any:
    """Any JSON, and some that is none."""
    kind = rng.random()
    if depth == 3 or kind < 0.5:
        return rng.choice(SCALARS)
    n = rng.randrange(4)
    if kind < 0.75:
        return [a_value(rng, depth + 1) for _ in range(n)]
    return {rng.choice(TEXTS): a_value(rng, depth + 1) for _ in range(n)}


def json_of(value: Any) -> bytes:
    return json.dumps(value).encode()


@pytest.mark.parametrize("seed", range(4))
def test_nothing_breaks_it_and_what_is_refused_has_changed_nothing(
    target: tuple[httpx2.Client, Callable[[], Any], Any], seed: int
) -> None:
    client, state, document = target
    rng, refused = random.Random(seed), 0
    for _ in range(150):
        request = a_request(rng, document)
        before = state()
        answer = client.request(**request)
        no_trainer = answer.status_code == 503 and "trainer" in answer.text
        assert answer.status_code < 500 or no_trainer, (request, answer.text)
        if answer.status_code >= 400:
            refused += 1
            assert state() == before, (request, answer.text)
            if "problem+json" in answer.headers.get("content-type", ""):
                assert answer.json()["detail"]
    assert refused > 40
