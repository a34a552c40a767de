"""Tests for the audit trail and the access log: who did what, and how one finds it in logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator

import httpx2
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.http.client import GMRClient
from service.broker.audit_trail import AuditTrail
from service.broker.connection import StreamUnavailable
from service.broker.stream import Stream
from service.logs import JsonFormatter, TextFormatter
from service.settings import Settings
from tests.service.api.stack import problem, serving, wait_until

OPERATOR = "operator-key-of-32-characters-0"
AS_OPERATOR = {"Authorization": f"Bearer {OPERATOR}"}


@pytest.fixture
def guarded(settings: Callable[..., Settings]) -> Iterator[httpx2.Client]:
    """A service that wants keys and logs requests; the client has the operator's."""
    with serving(settings(admin_key=SecretStr(OPERATOR), access_log=True)) as client:
        client.headers.update(AS_OPERATOR)
        yield client


def actions(client: httpx2.Client) -> list[dict[str, object]]:
    found: list[dict[str, object]] = client.get("/audit").json()["actions"]
    return found


def test_what_administrators_do_is_kept_with_who_when_and_what_became_of_it(
    guarded: httpx2.Client,
) -> None:
    made = guarded.post("/keys", json={"name": "ann", "roles": ["admin"]}).json()
    ann = {"Authorization": f"Bearer {made['key']}", "X-Request-ID": "r-1"}
    guarded.post("/ingest", json={"features": [[1, 2]], "batch_id": "x"})
    entry = guarded.post("/drift/boundary", headers=ann).json()["entry_id"]
    guarded.post("/model/rollback", json={"version": 7}, headers=ann)
    guarded.put("/models/other")
    guarded.delete(f"/keys/{made['id']}")
    found = actions(guarded)
    told = [(one["by"], one["method"], one["path"], one["status"]) for one in found]
    assert told == [
        ("operator", "POST", "/keys", 201),
        ("ann", "POST", "/drift/boundary", 202),
        ("ann", "POST", "/model/rollback", 404),
        ("operator", "PUT", "/models/other", 201),
        ("operator", "DELETE", f"/keys/{made['id']}", 204),
    ]
    assert found[0]["made"] == made["id"]
    assert found[0]["asked"] == {"name": "ann", "roles": ["admin"]}
    assert found[1]["entry_id"] == entry
    assert found[1]["request_id"] == "r-1"
    assert found[2]["asked"] == {"version": 7}
    times = [one["time"] for one in found]
    assert times == sorted(times)  # type: ignore[type-var]
    assert made["key"] not in json.dumps(found), "the secret of a key is nobody's business"


def test_nobody_but_administrators_sees_or_fills_it(guarded: httpx2.Client) -> None:
    key = guarded.post("/keys", json={"name": "x", "roles": ["ingest", "read"]}).json()["key"]
    other = {"Authorization": f"Bearer {key}"}
    before = actions(guarded)
    problem(guarded.get("/audit", headers=other), 403, "forbidden")
    problem(guarded.post("/drift/boundary", headers=other), 403, "forbidden")
    problem(guarded.post("/drift/boundary", headers={"Authorization": ""}), 401, "unauthorized")
    guarded.post("/ingest", json={"features": [[1]]}, headers=other)
    guarded.post("/nonsense")
    guarded.get("/keys")
    assert actions(guarded) == before


def test_it_is_bounded_and_read_in_pages_that_fit(
    guarded: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.broker.audit_trail.LENGTH", 3)
    for n in range(5):
        guarded.delete(f"/keys/{n}")
    assert [one["path"] for one in actions(guarded)] == ["/keys/2", "/keys/3", "/keys/4"]
    assert [one["path"] for one in guarded.get("/audit", params={"last": 1}).json()["actions"]] == [
        "/keys/4"
    ]
    problem(guarded.get("/audit", params={"last": 1001}), 422, "out-of-range")
    long = {"name": "x" * 3000, "roles": ["read"]}
    assert guarded.post("/keys", json=long).status_code == 422
    assert actions(guarded)[-1]["asked"] is None


def test_what_cannot_be_written_down_is_not_done(
    api: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.post("/keys", json={"name": "x", "roles": ["read"]})
    (action,) = actions(api)
    assert action["by"] == "anybody"

    async def away(*_: object) -> str:
        raise StreamUnavailable("Redis is away.")

    monkeypatch.setattr(AuditTrail, "begin", away)
    answer = api.post("/keys", json={"name": "y", "roles": ["read"]})
    problem(answer, 503, "stream-unavailable")
    assert [key["name"] for key in api.get("/keys").json()["keys"]] == ["x"]


@pytest.mark.anyio
async def test_an_action_whose_process_died_has_no_status(
    settings: Callable[..., Settings],
) -> None:
    async with Stream.open(settings()) as stream:
        trail = AuditTrail(stream)
        first, second = await trail.begin({"by": "a"}), await trail.begin({"by": "b"})
        await trail.end(second, {"status": 202})
        one, two = await trail.newest(2)
        assert (one["id"], "status" in one) == (first, False)
        assert (two["id"], two["status"]) == (second, 202)


def test_clients_and_the_command_line_read_it(
    guarded: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    guarded.post("/keys", json={"name": "ann", "roles": ["read"]})
    with GMRClient(str(guarded.base_url), api_key=OPERATOR) as client:
        (action,) = client.audit()
        assert (action.by, action.path, action.status) == ("operator", "/keys", 201)
        assert action.asked == {"name": "ann", "roles": ["read"]}
    monkeypatch.setenv("GMR_API_KEY", OPERATOR)
    monkeypatch.setenv("COLUMNS", "200")
    shown = CliRunner().invoke(app, ["audit", "--url", str(guarded.base_url)])
    assert shown.exit_code == 0, shown.output
    assert "POST /keys" in shown.output
    assert "1 actions" in shown.output
    plain = CliRunner().invoke(app, ["audit", "--json", "--url", str(guarded.base_url)])
    assert json.loads(plain.stdout)["made"] == action.made


def test_every_request_has_a_line_in_the_access_log_if_that_is_wanted(
    guarded: httpx2.Client, blank: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "service.access"):
        guarded.get("/model", params={"secret": "s3cret"}, headers={"X-Request-ID": "r-9"})
        guarded.get("/a%0Ab", headers={"Authorization": ""})
        blank.get("/model")
        wait_until(lambda: sum(one.name == "service.access" for one in caplog.records) == 2)
    lines = [record for record in caplog.records if record.name == "service.access"]
    assert len(lines) == 2, "it is off unless it is set"
    assert lines[0].getMessage().startswith("GET /model 422 in ")
    assert lines[0].getMessage().endswith("by operator")
    assert "/a\\nb 401" in lines[1].getMessage()
    assert lines[1].getMessage().endswith("by nobody")
    assert "s3cret" not in caplog.text
    written = json.loads(JsonFormatter("api").format(lines[0]))
    assert written["path"] == "/model"
    assert written["status"] == 422
    assert written["by"] == "operator"
    assert written["client"] == "127.0.0.1"


def test_every_record_of_a_request_bears_its_id(
    guarded: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    lines: dict[str, list[str]] = {"json": [], "text": []}

    class Both(logging.Handler):
        """Formats where the record is made, as a handler of the process does."""

        def emit(self, record: logging.LogRecord) -> None:
            lines["json"].append(JsonFormatter("api").format(record))
            lines["text"].append(TextFormatter("api").format(record))

    handler, log = Both(), logging.getLogger("service")
    log.addHandler(handler)
    try:
        with caplog.at_level("INFO", "service"):
            guarded.delete("/keys/x", headers={"X-Request-ID": "r-7"})
            wait_until(lambda: len(lines["text"]) == 2)
    finally:
        log.removeHandler(handler)
    assert len(lines["json"]) == 2  # audit and access
    assert all(json.loads(line)["request_id"] == "r-7" for line in lines["json"])
    assert all(line.endswith("[r-7]") for line in lines["text"])
    record = logging.LogRecord("x", logging.INFO, "", 1, "alone", (), None)
    assert "request_id" not in json.loads(JsonFormatter("api").format(record))


@pytest.mark.parametrize("depth", [16, 17, 250, 253, 400])
def test_a_body_of_many_levels_is_left_out(api: httpx2.Client, depth: int) -> None:
    """What is read of a thousand levels can be written of a quarter of them."""
    body = b'{"note": %b}' % (b"[" * (depth - 1) + b"]" * (depth - 1))
    answer = api.post("/drift/boundary", content=body, headers={"Content-Type": "application/json"})
    problem(answer, 422, "invalid-request")
    (action,) = actions(api)
    assert action["status"] == 422
    assert (action["asked"] is not None) is (depth == 16)
