"""TLS to Redis and to the API, and least rights: a whole stream under what `deploy/` has ready."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from benchmarks._ports import free_port
from benchmarks._redis_cluster import RedisCluster
from clients.http import calls
from clients.http.client import GMRClient
from clients.http.connection import Connection
from clients.http.errors import ServiceUnreachable
from clients.http.faults import not_connected
from clients.http.retry import RetryPolicy
from core.errors import InvalidSettings
from service.api.probe import check
from service.broker.connection import connect
from service.broker.durability import Examiner, rights
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.settings import Settings
from service.trainer.heartbeat import Heartbeat, Pulse
from service.wire import RawBatch
from tests.service.api.stack import (
    learned,
    make_settings,
    samples,
    send,
    serving,
    teach,
    training,
    wait_until,
)
from tests.service.broker.servers import BINARIES, NEEDS_SYSTEM, STRONG, SYSTEM, running
from tests.service.broker.servers import Server as Redis
from tests.service.certificates import NEEDS_OPENSSL, Pair, authority, signed

USERS = Path(__file__).parents[2] / "deploy/redis/users.acl"


def acl_file(folder: Path) -> Path:
    """The file that is ready, with passwords."""
    text = USERS.read_text()
    assert text.count("CHANGE-THIS") == 2
    path = folder / "users.acl"
    path.write_text(re.sub(r">CHANGE-THIS-PASSWORD-OF-THE-(\w+)", r">of-the-\1", text))
    return path


def whole_stream(api: Settings, trainer: Settings) -> None:
    """Everything that a service does with Redis, but fail-over."""
    with training(trainer), serving(api) as client:
        teach(client, batches=6)
        assert client.post("/classify", json={"features": samples(2).tolist()}).status_code == 200
        named = RawBatch.of(samples(4, seed=9), sample_ids=[1, 2, 3, 4], batch_id="b")
        assert send(client, named).status_code == 202
        assert send(client, named).status_code == 200
        labelled = {"sample_ids": [1, 2], "labels": [3, "cat"]}
        assert client.post("/labels", json=labelled).status_code == 202
        learned(client)
        kept = client.get("/model/checkpoint")
        assert kept.status_code == 200
        binary = {"Content-Type": "application/vnd.safetensors"}
        put = client.put("/model/checkpoint", content=kept.content, headers=binary)
        assert put.status_code in (200, 202), put.text
        assert client.post("/drift/boundary").status_code in (202, 409)
        learned(client)
        assert client.post("/keys", json={"name": "x", "roles": ["read"]}).status_code == 201
        (key,) = client.get("/keys").json()["keys"]
        assert client.delete(f"/keys/{key['id']}").status_code == 204
        for path in ("/drift", "/drift/history", "/drift/boundaries", "/drift/quarantine"):
            assert client.get(path).status_code == 200
        for path in ("/model", "/model/versions", "/deadletters", "/metrics", "/health/ready"):
            assert client.get(path).status_code == 200
        # A named model, taught and taken down.
        assert client.put("/models/other").status_code == 201
        beside = client.post(
            "/models/other/ingest", json={"features": samples(3).tolist(), "batch_id": "o"}
        )
        assert beside.status_code == 202
        assert client.delete("/models/other").status_code == 202
        wait_until(lambda: client.get("/models/other").status_code == 404)
        # An entry that cannot be used, sent again, and dropped.
        with connect(trainer.redis_address() or "", identity=identity(trainer)) as other:
            other.xadd(f"{{gmr:{api.model}}}:in", {"v": "1", "kind": "batch", "x": "nonsense"})
        learned(client)
        (letter,) = client.get("/deadletters").json()["deadletters"]
        assert client.get(f"/deadletters/{letter['id']}").status_code == 200
        assert client.post(f"/deadletters/{letter['id']}").status_code in (202, 409, 422)
        learned(client)
        assert client.delete("/deadletters").status_code in (200, 204)


def identity(settings: Settings) -> Any:
    from service.broker.connection import identity_of

    return identity_of(settings)


def status_is_repeated(settings: Settings) -> None:
    """As while a step takes long."""
    keys = Keys("one-at-work")
    with connect(settings.redis_address() or "") as client, Heartbeat(client) as heartbeat:
        pulse = Pulse(Lease(client, keys), keys.status, 0.05)
        heartbeat.add(pulse)
        pulse.told({"state": "running"})
        wait_until(lambda: client.get(keys.status))


def denied(admin: redis.Redis) -> list[str]:
    """What users were not permitted, but how the client's library names itself."""
    entries: Any = admin.acl_log()
    return [one["object"] for one in entries if not one["object"].startswith("client")]


ADMIN = ("user", "admin", "on", ">admin", "~*", "&*", "+@all")


@pytest.mark.parametrize("binary", BINARIES)
def test_a_whole_stream_runs_with_the_least_rights(binary: str, tmp_path: Path) -> None:
    users = acl_file(tmp_path)
    users.write_text(users.read_text() + " ".join(ADMIN) + "\n")
    options = ("--aclfile", str(users), *STRONG)
    login = {"username": "admin", "password": "admin"}
    with running(binary, tmp_path / "redis", *options, **login) as server:
        at = f"127.0.0.1:{server.port}"
        api = make_settings(f"redis://gmr-api:of-the-API@{at}", tmp_path / "data")
        trainer = make_settings(
            f"redis://gmr-trainer:of-the-TRAINER@{at}", tmp_path / "data", model=api.model
        )
        whole_stream(api, trainer)
        status_is_repeated(trainer)
        assert denied(server.client) == []
        # What is tried at the start is all there, and nothing else may be done.
        for settings, end in ((api, "api"), (trainer, "trainer")):
            has = rights_of(USERS, f"gmr-{end}")
            tried = {command[0].lower() for command in rights(api.model, end)}  # type: ignore[arg-type]
            assert tried <= {name.split("|")[0] for name in has}
            with connect(settings.redis_address() or "") as client:
                for command in (("KEYS", "*"), ("FLUSHALL",), ("CONFIG", "SET", "save", "")):
                    with pytest.raises(redis.ResponseError, match=r"(?i)permission"):
                        client.execute_command(*command)
                with pytest.raises(redis.ResponseError, match=r"(?i)permission|keys"):
                    client.get("another:key")


def test_a_whole_stream_runs_with_the_least_rights_on_a_cluster_of_replicas(
    tmp_path: Path,
) -> None:
    users = acl_file(tmp_path)
    users.write_text(users.read_text() + " ".join(ADMIN) + "\n")
    login = {"username": "admin", "password": "admin"}
    options = ("--aclfile", str(users), "--masteruser", "admin", "--masterauth", "admin")
    with RedisCluster(tmp_path / "redis", 1, options=options, login=login) as cluster:
        at = cluster.members[0].name
        api, trainer = (
            make_settings(
                f"redis+cluster://{user}@{at}", tmp_path / "data", model="m", redis_replicas=1
            )
            for user in ("gmr-api:of-the-API", "gmr-trainer:of-the-TRAINER")
        )
        whole_stream(api, trainer)
        assert [denied(one.client) for one in cluster.members] == [[], []]


def rights_of(path: Path, user: str) -> set[str]:
    (line,) = [line for line in path.read_text().splitlines() if line.startswith(f"user {user} ")]
    return {word[1:] for word in line.split() if word.startswith("+")}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    folder = tmp_path_factory.mktemp("certificates")
    ours, others = authority(folder), authority(folder, "others")
    return {
        "authority": ours,
        "others": others,
        "server": signed(folder, "server", ours),
        "client": signed(folder, "client", ours),
        "stranger": signed(folder, "stranger", others),
    }


@pytest.fixture
def encrypted(tmp_path: Path, certificates: dict[str, Pair]) -> Iterator[Redis]:
    """A Redis that takes TLS only, and wants certificates of clients."""
    server, ours = certificates["server"], certificates["authority"]
    files = ("--tls-cert-file", str(server.certificate), "--tls-key-file", str(server.key))
    files += ("--tls-ca-cert-file", str(ours.certificate), "--tls-auth-clients", "yes")
    port, client = free_port(), certificates["client"]
    options: dict[str, Any] = {
        "ssl": True,
        "ssl_ca_certs": str(ours.certificate),
        "ssl_certfile": str(client.certificate),
        "ssl_keyfile": str(client.key),
    }
    assert SYSTEM is not None
    listening = ("--tls-port", str(port), "--port", "0", *files)
    with running(SYSTEM, tmp_path / "redis", *listening, *STRONG, port=port, **options) as one:
        yield one


@NEEDS_SYSTEM
@NEEDS_OPENSSL
def test_both_ends_speak_tls_with_redis_and_know_each_other(
    encrypted: Redis, certificates: dict[str, Pair], tmp_path: Path
) -> None:
    ours, client = certificates["authority"], certificates["client"]
    files = {
        "redis_tls_ca": ours.certificate,
        "redis_tls_certificate": client.certificate,
        "redis_tls_key": client.key,
    }
    url = f"rediss://127.0.0.1:{encrypted.port}"
    settings = make_settings(url, tmp_path / "data", **files)
    with training(settings), serving(settings) as api:
        teach(api, batches=1)
        assert api.get("/model").json()["durability"]["promise"] == "disk"
        assert check("trainer", settings) is None
    for wrong in ({"redis_tls_ca": certificates["others"].certificate}, STRANGER(certificates)):
        with (
            connect(url, Examiner("m", "trainer"), identity(Settings(**{**files, **wrong}))) as no,
            pytest.raises(redis.ConnectionError),
        ):
            no.ping()


def STRANGER(certificates: dict[str, Pair]) -> dict[str, Path]:
    pair = certificates["stranger"]
    return {"redis_tls_certificate": pair.certificate, "redis_tls_key": pair.key}


@NEEDS_OPENSSL
def test_the_api_speaks_https_by_its_certificate(
    certificates: dict[str, Pair], redis_server: Any, tmp_path: Path
) -> None:
    pair = certificates["server"]
    files = {"tls_certificate": pair.certificate, "tls_key": pair.key}
    port = free_port()
    settings = make_settings(redis_server.url, tmp_path, port=port, **files)
    with serving(settings):
        trusted = ssl.create_default_context(cafile=str(certificates["authority"].certificate))
        with httpx2.Client(base_url=f"https://localhost:{port}", verify=trusted) as client:
            assert client.get("/health/live").status_code == 200
            cookie = client.post("/session", headers={"Authorization": "Bearer x"})
            assert "Secure" in cookie.headers["set-cookie"]
        assert check("live", settings) is None
        with (
            httpx2.Client(base_url=f"https://localhost:{port}") as stranger,
            pytest.raises(httpx2.ConnectError),
        ):
            stranger.get("/health/live")
        with (
            httpx2.Client(base_url=f"http://localhost:{port}") as plain,
            pytest.raises(httpx2.TransportError),
        ):
            plain.get("/health/live")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"tls_certificate": __file__}, "without tls_key"),
        ({"tls_key": __file__}, "without tls_certificate"),
        ({"redis_tls_key": __file__}, "without redis_tls_certificate"),
        ({"tls_certificate": "/nowhere", "tls_key": __file__}, "cannot be read"),
        ({"redis_tls_ca": __file__, "redis_url": "redis://h"}, "rediss://"),
        ({"redis_tls_ca": __file__}, "rediss://"),
    ],
)
def test_files_that_would_not_do_are_refused_at_the_start(
    values: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidSettings, match=message):
        Settings.load(values)


@NEEDS_OPENSSL
def test_who_asks_by_the_wrong_name_or_trusts_nobody_is_told_what_to_do(
    certificates: dict[str, Pair],
    redis_server: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = certificates["authority"]
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    patient = RetryPolicy(total_s=60)  # a certificate is not asked for again
    once = RetryPolicy(total_s=0)

    def told(url: str, *parts: str, retry: RetryPolicy = patient) -> None:
        for client in (GMRClient, Connection):
            with client(url, retry=retry) as asking, pytest.raises(ServiceUnreachable) as error:
                asking.send(calls.ingest_state())
            said = str(error.value)  # whichever library asks
            assert all(part in said for part in parts), said
            assert "gmr serve" not in said

    pair, port = certificates["server"], free_port()
    files = {"tls_certificate": pair.certificate, "tls_key": pair.key}
    with serving(make_settings(redis_server.url, tmp_path / "tls", port=port, **files)):
        untrusted = ("its certificate is not trusted (", "by the variable SSL_CERT_FILE")
        told(f"https://localhost:{port}", *untrusted)
        told(f"http://localhost:{port}", "its address begins with https://", retry=once)
        monkeypatch.setenv("SSL_CERT_FILE", str(ours.certificate))
        with GMRClient(f"https://localhost:{port}") as client:
            assert client.ingest_state().features is None
        if _resolves():
            told(f"https://localhost.localdomain:{port}", "is for another name (")
    with serving(make_settings(redis_server.url, tmp_path / "plain", port=free_port())) as http:
        told(str(http.base_url).replace("http:", "https:").rstrip("/"), "speaks no TLS")


def _resolves() -> bool:
    """Whether this machine has another name of loopback."""
    try:
        return socket.gethostbyname("localhost.localdomain").startswith("127.")
    except OSError:
        return False


def test_a_certificate_for_another_name_is_told_as_that() -> None:
    error = ssl.SSLCertVerificationError("no fit")
    error.verify_code, error.verify_message = 62, "Hostname mismatch"
    wrapped = httpx2.ConnectError("no fit")
    wrapped.__cause__ = error
    told = str(not_connected(wrapped, "https://gmr:1"))
    assert "its certificate is for another name (Hostname mismatch)" in told
    error.verify_code = 10
    assert "does not count at this time" in str(not_connected(wrapped, "https://gmr:1"))
    assert "No service answers" in str(not_connected(OSError("refused"), "https://gmr:1"))
