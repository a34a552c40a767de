"""Whatever characters a secret has, and however wrong it is, no part of it is ever shown."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import InvalidSettings
from service.broker.connection import connect, connect_async
from service.settings import Settings, mask_url

PARTS = ("KQXJWV", "ZBPFHG", "QJZXVK", "WGFPBZ")
"""Of every secret here: nothing else that is shown has them."""

BETWEEN = st.text(max_size=3) | st.sampled_from(
    ["/", "?", "#", "@", ":", "%2F", "&", "=", "[", " "]
)
SECRETS = st.tuples(BETWEEN, BETWEEN, BETWEEN, BETWEEN, BETWEEN).map(
    lambda between: (
        between[0] + "".join(part + more for part, more in zip(PARTS, between[1:], strict=True))
    )
)
FORMS = [
    ("redis_url", "redis://user:{}@host:6379/0"),
    ("redis_url", "redis://:{}@host:6379/0"),
    ("redis_url", "rediss://user:{}@host"),
    ("redis_url", "redis+cluster://user:{}@[::1]:7000"),
    ("redis_url", "redis+cluster://user:{}@one:7000,two:7001"),
    ("redis_url", "redis+sentinel://user:{}@one:26379,two/orders/0"),
    ("redis_url", "redis+sentinel://one,two/orders?sentinel_password={}"),
    ("redis_url", "redis://user:{}@host:port/0"),
    ("redis_url", "unix:///run/redis.sock?password={}"),
    ("redis_url", "unix:///run/redis.sock?db=0&password={}&x=1"),
    ("redis_url", "unix://user:{}@/run/redis.sock"),
    ("redis_url", "http://user:{}@host"),
    ("redis_url", "{}"),
    ("checkpoints", "s3://id:{}@bucket/models"),
    ("checkpoints", "az://container/models?sig={}"),
    ("webhook_url", "https://user:{}@host/hook"),
    ("webhook_url", "https://host/{}"),
    ("webhook_url", "https://host?token={}"),
    ("webhook_url", "{}"),
    ("webhook_secret", "whsec_{}"),
    ("webhook_secret", "{}"),
    ("admin_key", "{}"),
]


def shown(name: str, value: str) -> str:
    """All that a process says of a setting, whether it will do or not."""
    said = []
    values: dict[str, object] = {name: value}
    if name == "webhook_url":
        values["webhook_secret"] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    try:
        loaded = Settings.load(values)
    except InvalidSettings as error:
        said += [str(error), repr(error.context)]
    else:
        said += [repr(loaded), str(loaded), *(row.value for row in loaded.describe())]
        address = loaded.redis_address()
        if address is not None and "cluster" not in address:
            said += [connected(address)]
    return "\n".join(said)


def leaked(text: str) -> list[str]:
    """Where a part of the secret is shown."""
    lower = text.lower()
    places = [lower.find(part.lower()) for part in PARTS]
    return [text[max(0, place - 60) : place + 60] for place in places if place >= 0]


def connected(address: str) -> str:
    said = [mask_url(address)]
    for make in (connect, connect_async):
        try:
            said.append(repr(make(address).connection_pool.connection_class))
        except InvalidSettings as error:
            said.append(str(error))
    return "\n".join(said)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(secret=SECRETS, form=st.sampled_from(FORMS))
def test_no_part_of_a_secret_is_shown(secret: str, form: tuple[str, str]) -> None:
    name, template = form
    text = shown(name, template.format(secret))
    assert not leaked(text)


@pytest.mark.parametrize("between", ["/", "?", "#", "@", ":", "%", "]", "[", "&", " "])
@pytest.mark.parametrize(("name", "template"), FORMS)
def test_each_character_that_means_something_in_an_address_is_tried(
    name: str, template: str, between: str
) -> None:
    text = shown(name, template.format(between.join(PARTS)))
    assert not leaked(text)


def test_what_is_masked_still_says_where() -> None:
    assert mask_url("rediss://user:a/b@c@redis.example:6380/0") == (
        "rediss://user:***@redis.example:6380/0"
    )
    assert mask_url("redis://redis.example:6380/0") == "redis://redis.example:6380/0"
