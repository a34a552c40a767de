"""An S3 on loopback (moto), before which answers can be changed, lost or held up."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

App = Callable[[dict[str, Any], Any], Iterable[bytes]]
Fault = Callable[[App, dict[str, Any], Any], Iterable[bytes]]


class Faulty:
    """Passes requests on, unless a fault is set for their method.

    Arguments:
        app: What answers.
    """

    def __init__(self, app: App) -> None:
        self.asked: list[str] = []
        self.faults: dict[str, Fault] = {}
        self._app = app

    def __call__(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        method = environ["REQUEST_METHOD"]
        self.asked.append(method)
        fault = self.faults.get(method)
        return self._app(environ, start) if fault is None else fault(self._app, environ, start)


def refuses(status: str) -> Fault:
    """Nothing is done, and the answer says so."""

    def fault(app: App, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start(status, [("Content-Type", "text/plain")])
        return [b"no: AKIDSECRETOFATEST"]

    return fault


def loses_the_first_answer() -> Fault:
    """All is done, and the first answer says that it was not."""
    lost: list[str] = []

    def fault(app: App, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        if lost:
            return app(environ, start)
        lost.append(environ["PATH_INFO"])
        list(app(environ, lambda *_: lambda _: None))
        start("503 Slow Down", [])
        return [b""]

    return fault


def held_up(until: threading.Event) -> Fault:
    """All is done, later."""

    def fault(app: App, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        until.wait(30)
        return app(environ, start)

    return fault


@contextlib.contextmanager
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    """A server with the bucket `models`, and the environment that leads there."""
    moto = pytest.importorskip("moto.server", reason="the extra dev brings moto")
    serving = pytest.importorskip("werkzeug.serving")
    app = Faulty(moto.DomainDispatcherApplication(moto.create_backend_app))
    server = serving.make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    for name, value in {
        "AWS_ENDPOINT_URL": url,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIDSECRETOFATEST",
        "AWS_SECRET_ACCESS_KEY": "a-secret-key-of-a-test",
    }.items():
        monkeypatch.setenv(name, value)
    import httpx2

    assert httpx2.put(f"{url}/models").status_code == 200
    app.asked.clear()
    try:
        yield app
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
