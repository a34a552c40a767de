"""The status of `gmr batch` where the service refuses."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from clients.commands.cli import app
from tests.clients.scripted import ScriptedServer


def refusal(kind: str) -> bytes:
    body = json.dumps({"type": f"/problems/{kind}", "title": "Not there", "status": 404}).encode()
    head = (
        "HTTP/1.1 404 Not Found\r\nContent-Type: application/problem+json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


@pytest.mark.parametrize(("kind", "status"), [("unknown-batch", 1), ("unknown-model", 2)])
def test_an_id_that_is_not_remembered_is_no_mistake_in_the_command(kind: str, status: int) -> None:
    with ScriptedServer(refusal(kind)) as server:
        done = CliRunner().invoke(app, ["batch", "7f3a", "--url", server.url])
    assert done.exit_code == status
    assert "Error: Not there" in done.stderr
