"""Tests for service.api.access: who may do what, with a real Redis and the real server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.http.client import GMRClient
from clients.http.errors import NotAuthorised, RequestRefused
from core.errors import InvalidRequest, InvalidSettings
from service.api import key_ring
from service.api.access import ACCESS, ANY_KEY, OPEN, role_for
from service.api.app import create_app
from service.api.hosts import TrustedHosts, name_of
from service.broker import keys as names
from service.broker.api_keys import ROLES, ApiKey
from service.broker.connection import connect
from service.settings import Settings
from tests.service.api.stack import make_settings, problem, serving, wait_until

OPERATOR = "operator-key-of-32-characters-0"


@pytest.fixture(scope="module")
def guarded(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A service that wants a key. Nobody has one but the operator."""
    directory = tmp_path_factory.mktemp("guarded")
    with serving(make_settings(redis_url, directory, admin_key=SecretStr(OPERATOR))) as client:
        yield client


@pytest.fixture(scope="module")
def keys(guarded: httpx2.Client) -> Mapping[str, str]:
    """A key for each role."""
    with GMRClient(str(guarded.base_url), api_key=OPERATOR) as admin:
        return {role: admin.make_api_key(f"one to {role}", [role]).key for role in ROLES}


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def path_of(template: str) -> str:
    return template.replace("{id}", "1-1").replace("{path}", "favicon.png").replace("{name}", "x")


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    service = create_app(Settings(redis_url=SecretStr("redis://127.0.0.1:1")))
    documented = {
        (method.upper(), path)
        for path, methods in service.openapi()["paths"].items()
        for method in methods
    }
    open_pages = ["/", "/static/{path}", "/docs", "/docs/assets/{path}", "/openapi.json"]
    open_pages += ["/problems", "/problems/{name}"]
    pages = {("GET", path) for path in open_pages}
    assert documented | pages == set(ACCESS)


@pytest.mark.parametrize(("method", "template"), sorted(ACCESS))
def test_each_role_may_do_what_the_table_says_and_nobody_else_may(
    guarded: httpx2.Client, keys: Mapping[str, str], method: str, template: str
) -> None:
    needed = ACCESS[method, template]
    path = path_of(template)
    if template == "/events":
        path += "?kinds=nonsense"  # answered at once: the list of kinds
    for role, key in [(None, None), *keys.items()]:
        headers = {} if key is None else bearer(key)
        answer = guarded.request(method, path, headers=headers)
        guarded.cookies.clear()
        if needed is OPEN or role in (needed, "admin") or (role and needed == ANY_KEY):
            assert answer.status_code not in (401, 403), (role, answer.text)
        elif role is None:
            if template.startswith("/v2"):
                assert answer.status_code == 401
                assert list(answer.json()) == ["error"]
            else:
                problem(answer, 401, "unauthorized")
            assert answer.headers["www-authenticate"].startswith("Bearer")
        elif template.startswith("/v2"):
            assert answer.status_code == 403
            assert f"this needs {needed}" in answer.json()["error"]
        else:
            assert problem(answer, 403, "forbidden")["needed"] == needed


@pytest.mark.parametrize(
    "headers",
    [
        bearer("gmr_000000000000_" + "x" * 43),
        bearer("nonsense"),
        bearer(OPERATOR + "0"),
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {OPERATOR}"},
        {"Authorization": OPERATOR},
        {"Cookie": "gmr_key=nonsense"},
        {"Cookie": "=;;gmr_key"},
        {"Authorization": "Bearer \xff\xfe"},
    ],
)
def test_what_is_no_key_opens_nothing(guarded: httpx2.Client, headers: dict[str, str]) -> None:
    raw = {name: value.encode("latin-1") for name, value in headers.items()}
    problem(guarded.get("/model", headers=raw), 401, "unauthorized")


def test_who_sends_samples_may_say_and_see_what_their_features_are_called() -> None:
    path = "/model/feature-names"
    assert [role_for(method, path) for method in ("PUT", "DELETE", "GET")] == [
        *("ingest", "ingest", ANY_KEY)
    ]


def test_a_sensors_key_sends_files_and_labels_by_commands(
    guarded: httpx2.Client,
    keys: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("GMR_API_KEY", keys["ingest"])
    monkeypatch.setenv("GMR_URL", str(guarded.base_url).rstrip("/"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "300")
    with GMRClient(os.environ["GMR_URL"], api_key=OPERATOR) as admin:
        admin.make_model("pump-7")
    table, verdicts = tmp_path / "a.csv", tmp_path / "verdicts.csv"
    rows = [f"{i % 7 / 8},{i % 5},{'ok' if i % 3 else 'worn'},s-{i}" for i in range(30)]
    table.write_text("\n".join(["load,speed,state,id", *rows]) + "\n")
    verdicts.write_text("id,label\ns-1,ok\ns-2,ok\n")
    np.savez(tmp_path / "a.npz", features=np.ones((4, 2), np.float32))
    fleet = tmp_path / "fleet.csv"
    fleet.write_text("load,speed,machine\n1,2,pump-7\n3,4,pump-7\n")

    def gmr(*typed: str, status: int = 0) -> str:
        result = CliRunner().invoke(app, [*typed])
        assert result.exit_code == status, result.output
        return " ".join(result.output.split())

    labelled = ("--label-column", "state", "--id-column", "id")
    said = gmr("ingest", str(table), *labelled)
    assert "30 samples in 1 batch" in said
    assert said.count("left unchecked: the key has not the role read") == 1
    with GMRClient(api_key=keys["read"]) as reader:
        assert reader.feature_names() == ("load", "speed")
        backlog = reader.model().backlog
    # A table in another order is not taken for the same, whatever the key may read.
    turned = tmp_path / "turned.csv"
    turned.write_text("speed,load\n1,2\n")
    assert "stand in another order" in gmr("ingest", str(turned))
    turned.write_text("speed,weight\n1,2\n")
    assert "calls feature 0 'speed', the service 'load'" in gmr("ingest", str(turned), status=2)
    assert "was sent completely before" in gmr("ingest", str(table), *labelled)
    assert "4 samples" in gmr("ingest", str(tmp_path / "a.npz"))
    assert "pump-7: 2 samples" in gmr("ingest", str(fleet), "--model-column", "machine")
    assert "2 labels in 1 request" in gmr("labels", str(verdicts), "--no-wait")

    for typed, advice in (
        (("ingest", str(table), *labelled, "--again", "--wait"), "Or leave out --wait."),
        (("labels", str(verdicts), "--again"), "Or send them with --no-wait."),
    ):
        refused = gmr(*typed, status=2)
        assert "needs a key that also has the role read; nothing was sent" in refused
        assert advice in refused
    with GMRClient(api_key=keys["read"]) as reader:
        assert reader.model().backlog == backlog + 3


def test_what_is_not_in_the_table_is_for_admins() -> None:
    assert role_for("GET", "/anything/else") == "admin"
    assert role_for("DELETE", "/model") == "admin"


@given(st.text(max_size=30), st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "X"]))
def test_only_rows_of_the_table_are_open(path: str, method: str) -> None:
    role = role_for(method, "/" + path)
    if role is OPEN:
        assert any(
            wanted == method and ("/" + path).startswith(template.split("{")[0])
            for (wanted, template), needed in ACCESS.items()
            if needed is OPEN
        )


def test_two_processes_know_a_new_key_at_once_and_a_revoked_one_no_more(
    redis_url: str, tmp_path: Path, guarded: httpx2.Client
) -> None:
    settings = make_settings(redis_url, tmp_path, admin_key=SecretStr(OPERATOR))
    with serving(settings) as one, serving(settings) as other:
        with GMRClient(str(one.base_url), api_key=OPERATOR) as admin:
            made = admin.make_api_key("camera", ["read"])
            for client in (one, other):
                assert client.get("/model", headers=bearer(made.key)).status_code == 200
            assert [key.name for key in admin.api_keys()] == ["camera"]
            assert made.key not in repr(made)
            # (The secret may hold underscores of its own.)
            assert made.key.split("_", 2)[2] not in one.get("/keys", headers=bearer(OPERATOR)).text
            admin.revoke_api_key(made.id)
            with pytest.raises(RequestRefused, match="No key has the id"):
                admin.revoke_api_key(made.id)

        def refused(client: httpx2.Client) -> bool:
            return client.get("/model", headers=bearer(made.key)).status_code == 401

        for client in (one, other):
            assert wait_until(lambda client=client: refused(client))


def test_a_key_of_a_later_release_counts_for_no_more_than_is_known_of_it(
    settings: Callable[..., Settings],
) -> None:
    own = settings(admin_key=SecretStr(OPERATOR))
    kept = names.Keys(own.model).api_keys
    with connect(own.redis_address() or "") as redis:
        made = {}
        for name, more in (
            ("expires", {"expires": 0.0}),
            ("role", {"roles": ["read", "invented"]}),
            ("now", {}),
        ):
            one, made[name] = ApiKey.mint(name, ["read"])
            redis.hset(kept, one.id, json.dumps(json.loads(one.to_json()) | more))
        with serving(own) as client:
            status = {
                name: client.get("/model", headers=bearer(key)).status_code
                for name, key in made.items()
            }
            assert status == {"expires": 401, "role": 200, "now": 200}
            assert client.get("/ingest", headers=bearer(made["expires"])).status_code == 401
            listed = client.get("/keys", headers=bearer(OPERATOR)).json()["keys"]
            roles = {key["name"]: key["roles"] for key in listed}
            assert roles == {"expires": [], "role": ["read"], "now": ["read"]}


def test_keys_that_are_known_count_while_redis_is_away(
    own: tuple[Settings, Callable[[], None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_ring, "FRESH_S", 0.0)
    settings, stop = own
    with serving(settings) as client, GMRClient(str(client.base_url), api_key=OPERATOR) as admin:
        made = admin.make_api_key("camera", ["read"])
        assert client.post("/session", headers=bearer(made.key)).status_code == 204
        stop()
        assert client.post("/session", headers=bearer(made.key)).status_code == 204
        problem(client.post("/session", headers=bearer("nonsense")), 401, "unauthorized")


class Keys:
    """A Redis that holds one key, and may hang."""

    def __init__(self, key: ApiKey) -> None:
        self.key, self.hangs, self.asked = key, False, 0

    async def all(self) -> list[ApiKey]:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        return [self.key]


def test_a_redis_that_hangs_holds_up_no_question_and_is_not_asked_by_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_ring, "PATIENCE_S", 0.01)
    kept, key = ApiKey.mint("camera", ["read"])

    async def ask() -> None:
        redis = Keys(kept)
        ring = key_ring.KeyRing(Settings(), redis)  # type: ignore[arg-type]
        assert await ring.caller(key)
        redis.hangs = True
        with monkeypatch.context() as old:
            old.setattr(key_ring, "FRESH_S", -1.0)
            assert await ring.caller(key)
        assert redis.asked == 2
        for _ in range(5):
            assert await ring.caller(key)
        assert redis.asked == 2

    asyncio.run(asyncio.wait_for(ask(), 20))


def test_a_new_key_counts_at_once_whatever_others_ask_meanwhile() -> None:
    known, key = ApiKey.mint("camera", ["read"])
    new, new_key = ApiKey.mint("new", ["read"])

    class Slow(Keys):
        """Holds a second key from a moment on, and takes a while to answer."""

        async def all(self) -> list[ApiKey]:
            self.asked += 1
            there = [known, new] if self.has_new else [known]
            await asyncio.sleep(0.02)
            return there

        has_new = False

    async def ask() -> None:
        redis = Slow(known)
        ring = key_ring.KeyRing(Settings(), redis)  # type: ignore[arg-type]
        assert await ring.caller(key)
        # Somebody brings a key that nobody has while the new one is made.
        stranger = asyncio.create_task(ring.caller(ApiKey.mint("nobody", ["read"])[1]))
        while redis.asked < 2:
            await asyncio.sleep(0)
        redis.has_new = True
        found = await asyncio.gather(*(ring.caller(new_key) for _ in range(20)))
        assert [caller and caller.name for caller in found] == ["new"] * 20
        assert await stranger is None
        assert redis.asked == 3
        # However many strangers come, the list is read a few times only.
        ids = [ApiKey.mint("nobody", ["read"])[1] for _ in range(100)]
        assert not any(await asyncio.gather(*map(ring.caller, ids)))
        assert redis.asked == 4

    asyncio.run(asyncio.wait_for(ask(), 20))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[tuple[Settings, Callable[[], None]]]:
    """Settings with a Redis that may be stopped."""
    from tests.service.api.stack import redis_server

    with redis_server(tmp_path / "redis") as server:
        settings = make_settings(server.url, tmp_path / "data", admin_key=SecretStr(OPERATOR))
        yield settings, server.stop


def test_a_browser_keeps_its_key_in_a_cookie_that_scripts_cannot_read(
    guarded: httpx2.Client, keys: Mapping[str, str]
) -> None:
    with httpx2.Client(base_url=guarded.base_url) as browser:
        assert browser.get("/model").status_code == 401
        cookie = browser.post("/session", headers=bearer(keys["read"])).headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert browser.get("/model").status_code == 200
        problem(browser.post("/drift/boundary"), 403, "forbidden")
        assert browser.delete("/session").status_code == 204
        assert browser.get("/model").status_code == 401


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "x", "roles": ["read"], "more": 1}, 422),
        ({"name": "", "roles": ["read"]}, 422),
        ({"name": "x" * 65, "roles": ["read"]}, 422),
        ({"name": "a\nb", "roles": ["read"]}, 422),
        ({"name": "x", "roles": []}, 422),
        ({"name": "x", "roles": ["root"]}, 422),
        ({"name": "x"}, 422),
    ],
)
def test_a_key_that_cannot_be_is_not_made(
    guarded: httpx2.Client, body: dict[str, object], status: int
) -> None:
    before = guarded.get("/keys", headers=bearer(OPERATOR)).json()
    answer = guarded.post("/keys", json=body, headers=bearer(OPERATOR))
    assert answer.status_code == status
    assert guarded.get("/keys", headers=bearer(OPERATOR)).json() == before


@given(st.text(min_size=1, max_size=64).filter(str.isprintable), st.sets(st.sampled_from(ROLES)))
def test_what_is_kept_fits_its_key_alone_and_does_not_hold_it(name: str, roles: set[str]) -> None:
    if not roles:
        with pytest.raises(InvalidRequest):
            ApiKey.mint(name, roles)
        return
    kept, key = ApiKey.mint(name, roles)
    other, another = ApiKey.mint(name, roles)
    assert kept.fits(key)
    assert not kept.fits(another)
    assert not other.fits(key)
    assert ApiKey.from_json(kept.to_json()) == kept
    assert key.split("_", 2)[2].encode() not in kept.to_json()
    assert set(kept.roles) == roles


def test_the_client_takes_its_key_from_the_environment(
    guarded: httpx2.Client, keys: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with GMRClient(str(guarded.base_url)) as nobody, pytest.raises(NotAuthorised):
        nobody.boundaries()
    monkeypatch.setenv("GMR_API_KEY", keys["read"])
    with GMRClient(str(guarded.base_url)) as somebody:
        somebody.boundaries()
        with pytest.raises(NotAuthorised, match="needs admin"):
            somebody.declare_boundary()


# Where keys are wanted ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "required", "starts"),
    [
        ({}, False, True),
        ({"host": "localhost"}, False, True),
        ({"host": "::1"}, False, True),
        ({"host": "127.0.0.9"}, False, True),
        ({"admin_key": OPERATOR}, True, True),
        ({"host": "0.0.0.0"}, True, False),
        ({"host": "::"}, True, False),
        ({"host": "192.168.1.7"}, True, False),
        ({"host": "gmr.example"}, True, False),
        ({"host": "0.0.0.0", "insecure": True}, False, True),
        ({"host": "0.0.0.0", "admin_key": OPERATOR}, True, True),
        ({"host": "0.0.0.0", "admin_key": OPERATOR, "insecure": True}, True, True),
    ],
)
def test_only_loopback_is_served_without_keys(
    values: dict[str, object], required: bool, starts: bool
) -> None:
    settings = Settings(**values)  # type: ignore[arg-type]
    assert settings.requires_keys is required
    with contextlib.nullcontext() if starts else pytest.raises(InvalidSettings, match="GMR_ADMIN"):
        settings.check_exposure()


def test_a_service_that_listens_on_all_addresses_names_one_that_can_be_opened() -> None:
    def url(**given: Any) -> str:
        return Settings(
            redis_url=SecretStr("redis://h"), admin_key=SecretStr(OPERATOR), **given
        ).url(8812)

    files = {"tls_certificate": Path(__file__), "tls_key": Path(__file__)}
    assert url(host="0.0.0.0") == url(host="::") == "http://localhost:8812"
    assert url(host="0.0.0.0", **files) == f"https://{socket.gethostname()}:8812"
    assert url(host="::1") == "http://[::1]:8812"
    assert url(host="gmr.example") == "http://gmr.example:8812"


@pytest.mark.parametrize("key", ["short", "x" * 23, "with space " * 4, "x" * 257, "ü" * 30])
def test_the_operators_key_is_long_and_plain(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GMR_ADMIN_KEY", key)
    with pytest.raises(InvalidSettings, match="24 to 256") as raised:
        Settings.load()
    assert f"is {key}" not in str(raised.value)


# Names and sites ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "served"),
    [
        ("127.0.0.1:8000", True),
        ("localhost", True),
        ("LOCALHOST:1", True),
        ("[::1]:80", True),
        ("gmr.localhost:8000", True),
        ("localhost.", True),
        ("evil.example", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:8000", False),
        ("evil.example@localhost", True),  # the name is what stands behind the @
        ("localhost@evil.example", False),
        ("", False),
        ("[", False),
    ],
)
def test_a_name_that_leads_here_is_not_enough(
    blank: httpx2.Client, host: str, served: bool
) -> None:
    answer = blank.get("/model", headers={"Host": host})
    if served:
        assert answer.status_code == 200
    else:
        problem(answer, 421, "untrusted-host")


@pytest.mark.parametrize(
    ("headers", "taken"),
    [
        ({}, True),
        ({"Origin": "http://localhost:8000", "Host": "localhost:8000"}, True),
        ({"Origin": "http://evil.example", "Host": "localhost:8000"}, False),
        ({"Origin": "http://localhost:3000", "Host": "localhost:8000"}, False),
        ({"Origin": "null", "Host": "localhost:8000"}, False),
        ({"Origin": "http://localhost:8000", "Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "same-origin"}, True),
    ],
)
def test_only_its_own_pages_change_the_service(
    api: httpx2.Client, headers: dict[str, str], taken: bool
) -> None:
    answer = api.post("/drift/boundary", headers=headers)
    if taken:
        assert answer.status_code != 403
    else:
        problem(answer, 403, "cross-site-request")


def test_names_that_are_allowed_are_served_and_their_pages_trusted() -> None:
    hosts = TrustedHosts(Settings(allowed_hosts="gmr.example, other.example"))
    assert hosts.serves("gmr.example:443")
    assert hosts.trusts("https://gmr.example", "127.0.0.1:8000")
    assert not hosts.trusts("https://evil.example", "127.0.0.1:8000")
    public = TrustedHosts(Settings(host="0.0.0.0", admin_key=OPERATOR, allowed_hosts="gmr.example"))
    assert public.serves("127.0.0.1:8000"), "health checks of a container ask by it"
    assert not public.serves("evil.example")
    elsewhere = TrustedHosts(Settings(host="0.0.0.0", insecure=True))
    assert elsewhere.serves("whatever.example")


@given(st.text(max_size=40))
def test_any_host_is_read_without_an_error(host: str) -> None:
    assert isinstance(name_of(host), str)
    TrustedHosts(Settings()).trusts(host, host)


def test_roles_are_what_the_command_line_offers() -> None:
    from clients.commands.keys import Role

    assert tuple(role.value for role in Role) == ROLES


def test_keys_are_made_listed_and_revoked_from_the_command_line(
    guarded: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gmr(*arguments: str, status: int = 0) -> Any:
        typed = ["keys", *arguments, "--url", str(guarded.base_url)]
        result = CliRunner().invoke(app, typed)
        assert result.exit_code == status, result.output
        return result

    refused = gmr("list", status=1).output
    assert "brings no key" in refused
    assert "in GMR_API_KEY" in refused
    monkeypatch.setenv("GMR_API_KEY", OPERATOR)
    monkeypatch.setenv("COLUMNS", "200")
    key = gmr("add", "camera 7", "--role", "ingest", "--role", "read").stdout.strip()
    (listed,) = [line for line in gmr("list").stdout.splitlines() if "camera 7" in line]
    assert "ingest, read" in listed
    assert guarded.get("/model", headers=bearer(key)).status_code == 200
    id = listed.split()[0]
    assert "no longer counts" in gmr("revoke", id).output
    assert "No key has the id" in gmr("revoke", id, status=2).output
    assert "Expected a name" in gmr("add", status=2).output


def test_files_are_sent_with_the_key_of_the_environment(
    guarded: httpx2.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("a,b,label\n" + "0.5,1,x\n" * 5)
    verdicts = tmp_path / "verdicts.csv"
    verdicts.write_text("id,label\n1,x\n")
    commands = (
        ["ingest", str(table), "--label-column", "label", "--by-place"],
        ["labels", str(verdicts), "--label-column", "label", "--id-column", "id", "--no-wait"],
    )
    for command in commands:
        typed = [*command, "--url", str(guarded.base_url)]
        monkeypatch.delenv("GMR_API_KEY", raising=False)
        assert "brings no key" in CliRunner().invoke(app, typed).output
        monkeypatch.setenv("GMR_API_KEY", OPERATOR)
        sent = CliRunner().invoke(app, typed)
        assert sent.exit_code == 0, sent.output


def test_every_answer_bears_the_id_of_its_request_and_the_audit_names_it(
    guarded: httpx2.Client, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"X-Request-ID": "camera-7.42", **bearer(OPERATOR)}
    with caplog.at_level("INFO", "service.audit"):
        answer = guarded.post("/drift/boundary", headers=given)
    assert answer.headers["x-request-id"] == "camera-7.42"
    assert "POST /drift/boundary by operator, request camera-7.42" in caplog.text
    for odd in ("x" * 65, "a b", "", '"quoted"'):
        made = guarded.get("/model", headers={"X-Request-ID": odd}).headers["x-request-id"]
        assert made != odd
        assert len(made) == 16
    one, other = (guarded.get("/nowhere").headers["x-request-id"] for _ in range(2))
    assert one != other


def test_keys_that_are_made_at_the_same_time_have_the_same_limit(
    api: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.routes.keys.MOST_KEYS", 3)

    def made(number: int) -> int:
        asked = {"name": f"key {number}", "roles": ["read"]}
        return api.post("/keys", json=asked).status_code

    with ThreadPoolExecutor(12) as threads:
        statuses = sorted(threads.map(made, range(12)))
    assert statuses == [201] * 3 + [409] * 9
    assert len(api.get("/keys").json()["keys"]) == 3
