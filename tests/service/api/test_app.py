"""Tests for what holds on every route: errors, headers of safety, pages, and the stop."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable

import httpx2
import pytest
from fastapi import FastAPI
from pydantic import SecretStr

from benchmarks._ports import free_port
from core import errors as core_errors
from service.api import errors as edge_errors
from service.api import problems
from service.api.app import main
from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import (
    learned,
    problem,
    samples,
    send,
    serving,
    training,
    wait_until,
)
from tests.service.running import LONGEST_S


def test_an_unknown_path_and_a_wrong_method_are_problems_too(blank: httpx2.Client) -> None:
    problem(blank.get("/nowhere"), 404, "not-found")
    # Not sent elsewhere: the host that an address would need is the sender's word.
    found = blank.post("/ingest/", headers={"Host": "localhost:1"}, follow_redirects=False)
    assert "Leave the slash out" in problem(found, 404, "not-found")["detail"]
    assert "location" not in found.headers
    response = blank.delete("/model")
    problem(response, 405, "method-not-allowed")
    assert response.headers["Allow"] == "GET, HEAD"


def test_every_kind_of_error_is_explained_where_its_type_says(blank: httpx2.Client) -> None:
    kinds = blank.get("/problems").json()["problems"]
    assert len(kinds) == len({kind["type"] for kind in kinds})
    for kind in kinds:
        assert blank.get(kind["type"]).json() == kind
        assert kind["advice"]
    problem(blank.get("/problems/none-such"), 404, "not-found")


def test_every_error_that_core_or_the_edge_can_raise_has_a_row() -> None:
    raised = {
        error
        for module in (core_errors, edge_errors)
        for error in vars(module).values()
        if isinstance(error, type) and issubclass(error, core_errors.GMRError)
    }
    # A setting that cannot work stops the start, so that nobody is there to be answered.
    raised -= {core_errors.GMRError, core_errors.InvalidSettings}
    assert raised <= problems.PROBLEMS.keys()


def test_an_unexpected_error_tells_nothing_of_the_inside(
    settings: Callable[..., Settings],
) -> None:
    app = FastAPI()
    problems.install(app)

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("the secret is 42")

    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)

    async def ask() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get("/broken")

    response = asyncio.run(ask())
    document = problem(response, 500, "internal-error")
    assert "42" not in str(document)


def test_the_instance_of_a_problem_is_a_uri_reference_whatever_was_asked_for() -> None:
    app = FastAPI()
    problems.install(app)
    transport = httpx2.ASGITransport(app)

    async def ask(path: str) -> httpx2.Response:
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get(path)

    for path in ("/nothing/%C3%AE%0F%20%22", "/a:b/c@d"):
        assert asyncio.run(ask(path)).json()["instance"] == path


def test_answers_carry_the_headers_of_safety(blank: httpx2.Client) -> None:
    for path in ("/", "/model", "/nowhere", "/docs"):
        headers = blank.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"


def test_a_new_process_answers_from_the_model_of_before_at_once(
    settings: Callable[..., Settings],
) -> None:
    made = settings(max_backlog=3)
    with training(made):
        with serving(made) as client:
            for i in range(5):
                send(client, RawBatch.of(samples(50, seed=i))).raise_for_status()
                learned(client)
        with serving(made) as client:
            # More was accepted than may wait: it must not look as if it still did.
            assert send(client, RawBatch.of(samples(50, seed=9))).status_code == 202
            response = client.post("/outliers", json={"features": samples(2).tolist()})
            assert response.status_code == 200


def test_two_processes_serve_the_same_model(settings: Callable[..., Settings]) -> None:
    made = settings(snapshot_store="redis")
    with training(made), serving(made) as one, serving(made) as other:
        first = send(one, RawBatch.of(samples(50), batch_id="a")).json()
        again = send(other, RawBatch.of(samples(50), batch_id="a")).json()
        assert again == {**first, "duplicate": True, "backlog": again["backlog"]}
        assert learned(one) == learned(other)
        assert one.get("/sample?seed=3").json() == other.get("/sample?seed=3").json()


def test_a_page_of_another_site_cannot_change_anything(api: httpx2.Client) -> None:
    for site in ("cross-site", "same-site"):
        response = api.post("/drift/boundary", headers={"Sec-Fetch-Site": site})
        problem(response, 403, "cross-site-request")
    assert api.get("/model").json()["backlog"] == 0
    for site in ("same-origin", "none"):
        response = api.post("/drift/boundary", headers={"Sec-Fetch-Site": site})
        assert response.status_code == 202
    # Reading is harmless: the page that asks cannot see the answer.
    assert api.get("/model", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200


def test_the_first_page_names_the_model_and_every_route(
    settings: Callable[..., Settings], blank: httpx2.Client
) -> None:
    response = blank.get("/")
    assert response.headers["content-type"].startswith("text/html")
    page = response.text
    assert "default-src 'none'" in response.headers["content-security-policy"]
    routes = blank.get("/openapi.json").json()["paths"]
    for path in routes:
        if path not in ("/drift/boundary", "/model/rollback") and not path.startswith("/v2/"):
            assert path in page, path
    told = re.findall(r"<code>([A-Z]+) (/[^<]+)</code>", page)
    assert len(told) > 4
    for method, path in told:
        assert method.lower() in routes.get(path, {}), f"{method} {path} is no route"


def test_no_page_loads_anything_from_elsewhere(blank: httpx2.Client) -> None:
    for path in ("/", "/docs"):
        page = blank.get(path).text
        assert "https://" not in page
        assert "http://" not in page
    for name in ("swagger-ui-bundle.js", "swagger-ui.css", "favicon.png"):
        assert f"/docs/assets/{name}" in blank.get("/docs").text
        assert len(blank.get(f"/docs/assets/{name}").content) > 1000


def test_a_client_that_hangs_up_in_the_middle_harms_nobody(
    blank: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    host, port = blank.base_url.host, blank.base_url.port
    with socket.create_connection((host, port)) as connection:
        connection.sendall(
            b"POST /ingest HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n{"
        )
    wait_until(lambda: 'status="400"' in blank.get("/metrics").text)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_settings_that_cannot_work_end_the_process_with_status_2(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("service.api.app.configure_logs", lambda *_: None)
    monkeypatch.delenv("GMR_REDIS_URL", raising=False)
    assert main(Settings()) == 2
    assert "No Redis address is set" in caplog.text
    caplog.clear()
    assert main(Settings(redis_url=SecretStr("redis://127.0.0.1:1"), device="cuda:99")) == 2
    assert "cuda:99" in caplog.text


def test_the_process_stops_with_status_0_and_finishes_what_it_has_begun(
    settings: Callable[..., Settings],
) -> None:
    made = settings(port=free_port())
    command = "from service.api.app import main; from service.settings import Settings as S;"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{command} main(S.load())"],
        env={**os.environ, **made.environment()},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{made.port}", timeout=LONGEST_S) as client:

            def up() -> bool:
                try:
                    return client.get("/health/live").status_code == 200
                except httpx2.ConnectError:
                    return False

            wait_until(up, 60)
            # A listener, whose answer has no end, and a body that is still on its way.
            answers: list[httpx2.Response] = []
            body = RawBatch.of(samples(20)).to_safetensors()
            halfway, told = threading.Event(), threading.Event()

            def slowly():
                yield body[:100]
                halfway.set()
                told.wait(20)
                yield body[100:]

            def ingest() -> None:
                headers = {"Content-Type": "application/vnd.safetensors"}
                answers.append(client.post("/ingest", content=slowly(), headers=headers))

            with client.stream("GET", "/events"):
                sender = threading.Thread(target=ingest)
                sender.start()
                assert halfway.wait(20)
                # Answered after what the server had got before: it has begun that request.
                assert client.get("/health/live").status_code == 200
                process.send_signal(signal.SIGTERM)
                wait_until(lambda: _refuses(client))
                told.set()
                sender.join(LONGEST_S)
            assert answers[0].status_code == 202
        assert process.wait(20) == 0
    finally:
        process.kill()
        log = process.communicate()[1]
    assert "Traceback" not in log


def _refuses(client: httpx2.Client) -> bool:
    try:
        with httpx2.Client(base_url=client.base_url) as fresh:
            fresh.get("/health/live")
    except httpx2.ConnectError:
        return True
    except httpx2.TransportError:  # connected just before the server stopped listening
        return False
    return False
