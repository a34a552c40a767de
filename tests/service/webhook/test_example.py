"""Tests for the receiver of docs/operations.md: it runs, and takes what we send."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.signature import key_of, signature
from service.webhook.envelope import cloud_event

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
RECORD = {"kind": "boundary", "time": 1.7e9, "boundary": 1}


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    section = OPERATIONS.read_text("utf-8").split("\n## Webhook\n")[1].split("\n## ")[0]
    (code,) = re.findall(r"(?ms)^```python\n(.*?)^```", section)
    names: dict[str, Any] = {}
    exec(compile(code, "operations.md", "exec"), names)
    return names


def test_the_receiver_in_the_documentation_takes_each_message_once_and_no_forgery(
    example: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    body, key = cloud_event("m", "5-0", RECORD), key_of("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    now = int(time.time())

    def post(sent: int, signed: str) -> int:
        headers = {"webhook-id": "5-0", "webhook-timestamp": str(sent), "webhook-signature": signed}
        with TestClient(example["app"]) as client:
            return client.post("/hook", content=body, headers=headers).status_code

    assert post(now, signature(key, "5-0", now, body)) == 204
    assert post(now, signature(key, "5-0", now, body)) == 204
    assert capsys.readouterr().out.count("gmr.boundary") == 1
    assert post(now, signature(bytes(24), "5-0", now, body)) == 401
    assert post(now - 3600, signature(key, "5-0", now - 3600, body)) == 401
