"""Tests for the service.signature module."""

from __future__ import annotations

import base64

import pytest

from service.signature import key_of, signature
from tests.service.webhook.listening import SECRET, is_signed


def test_a_message_is_signed_as_the_standard_says() -> None:
    key = key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    signed = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("changed", ["id", "timestamp", "body", "secret"])
def test_whatever_is_changed_the_signature_does_not_fit(changed: str) -> None:
    headers = {"webhook-id": "1-0", "webhook-timestamp": "1700000000"}
    headers["webhook-signature"] = signature(key_of(SECRET), "1-0", 1700000000, b"{}")
    assert is_signed(SECRET, headers, b"{}")
    if changed in ("id", "timestamp"):
        headers[f"webhook-{changed}"] += "1"
    secret = "whsec_" + base64.b64encode(bytes(32)).decode() if changed == "secret" else SECRET
    assert not is_signed(secret, headers, b"{ }" if changed == "body" else b"{}")


@pytest.mark.parametrize(
    "secret",
    [
        "hunter2",
        base64.b64encode(bytes(32)).decode(),
        "whsec_",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        "whsec_!" + base64.b64encode(bytes(32)).decode(),
        "whsec_schön",
    ],
)
def test_what_is_no_secret_is_refused_without_repeating_it(secret: str) -> None:
    with pytest.raises(ValueError, match="openssl rand") as error:
        key_of(secret)
    assert secret.removeprefix("whsec_")[:8] not in str(error.value) or secret == "whsec_"
