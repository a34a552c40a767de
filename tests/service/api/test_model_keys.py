"""Tests for keys that count for some models only, with a real Redis and the real server."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
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
from clients.http.errors import NotAuthorised
from core.errors import InvalidRequest
from service.api.access import ACCESS, OPEN
from service.api.errors import Forbidden
from service.broker.api_keys import MOST_MODELS, ROLES, ApiKey, Role, covers
from service.broker.connection import connect
from service.broker.keys import Keys
from service.broker.registry import NAME
from service.settings import Settings
from tests.service.api.stack import (
    make_settings,
    of_model,
    problem,
    serving,
    teach,
    training,
    wait_until,
)

OPERATOR = "operator-key-of-32-characters-0"
OWN = "line-1"
THERE = ("pump-7", "pump-8", "press")

OF_NO_MODEL = {("GET", "/models"), ("GET", "/v2"), ("POST", "/session")}
OF_THE_SERVICE = {
    *(("GET", path) for path in ("/keys", "/audit", "/metrics")),
    *(("POST", "/keys"), ("DELETE", "/keys/{id}")),
}
NOT_BELOW_A_MODEL = re.compile(r"/models.*|/keys(/\{id\})?|/audit")
"""Paths that a model does not have."""

CLOSED = sorted(row for row, needed in ACCESS.items() if needed is not OPEN)


@pytest.fixture(scope="module")
def guarded(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A service that wants a key, with three named models."""
    directory = tmp_path_factory.mktemp("guarded")
    settings = make_settings(
        redis_url, directory, model=OWN, admin_key=SecretStr(OPERATOR), models_on_demand=True
    )
    with serving(settings) as client:
        for name in THERE:
            client.put(f"/models/{name}", headers=bearer(OPERATOR)).raise_for_status()
        yield client


@pytest.fixture(scope="module")
def key_for(guarded: httpx2.Client) -> Callable[..., dict[str, str]]:
    """Gives the header of a key for some models, which the process knows."""

    @cache
    def made(*models: str, roles: tuple[Role, ...] = ROLES) -> dict[str, str]:
        asked = {"name": "limited", "roles": roles, "models": models or None}
        answer = guarded.post("/keys", json=asked, headers=bearer(OPERATOR))
        header = bearer(answer.raise_for_status().json()["key"])
        # Known at once, but for one that is made while another one has just been looked for.
        wait_until(lambda: guarded.get("/nowhere", headers=header).status_code != 401)
        return header

    return made


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def path_of(template: str, name: str) -> str:
    path = template.replace("{name}", name).replace("{version}", "1").replace("{path}", "x")
    # Answered at once: the list of kinds.
    return re.sub(r"\{\w+\}", "1-1", path) + ("?kinds=nonsense" if path == "/events" else "")


def raw(client: httpx2.Client, head: str, key: Mapping[str, str]) -> tuple[int, bytes]:
    """Status and rest of the answer to a request of which no body ever comes."""
    lines = [head, "Host: localhost", "Connection: close", f"Authorization: {key['Authorization']}"]
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), 20) as line:
        line.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        answer = b""
        while chunk := line.recv(65536):
            answer += chunk
    return int(answer.split()[1]), answer


def refused(client: httpx2.Client, method: str, path: str, key: Mapping[str, str]) -> str:
    """Why a request is refused for its model, before any of its body has come."""
    head = f"{method} {path} HTTP/1.1"
    if method in ("POST", "PUT"):
        head += "\r\nContent-Length: 1000000\r\nContent-Type: application/json"
        head += "\r\nExpect: 100-continue"
    status, answer = raw(client, head, key)
    assert status == 403, (method, path, answer)
    document = json.loads(answer.partition(b"\r\n\r\n")[2])
    if "/v2" not in path:
        assert document["type"] == "/problems/forbidden"
        assert document["models"]
    return str(document["error"] if "/v2" in path else document["detail"])


# What a limited key may ask -----------------------------------------------------------------


@pytest.mark.parametrize(("method", "template"), CLOSED)
def test_a_key_for_another_model_is_refused_in_the_same_words_on_every_route(
    guarded: httpx2.Client, key_for: Callable[..., dict[str, str]], method: str, template: str
) -> None:
    key, words = key_for("press-2"), set()
    if (method, template) not in OF_NO_MODEL:
        for name in ("press", "none"):  # one is there, the other is not
            words.add(refused(guarded, method, path_of(template, name), key))
    if not NOT_BELOW_A_MODEL.fullmatch(template):
        for name in ("press", "none", OWN):
            path = f"/models/{name}" + path_of(template, "press-2")
            words.add(refused(guarded, method, path, key))
    assert words <= {
        "The key counts for the model press-2 alone; this concerns another, or the whole service. "
        "Ask for one of its models, below /models/NAME (--model NAME), or use a key that counts "
        "for this."
    }


@pytest.mark.parametrize(("method", "template"), CLOSED)
def test_a_key_for_a_model_may_do_there_what_its_roles_say(
    guarded: httpx2.Client, key_for: Callable[..., dict[str, str]], method: str, template: str
) -> None:
    needed = ACCESS[method, template]
    name = "none" if method == "DELETE" and template == "/models/{name}" else "pump-7"
    for role in ROLES:
        paths = []
        if not NOT_BELOW_A_MODEL.fullmatch(template):
            paths.append(f"/models/{name}{path_of(template, name)}")
        if "{name}" in template or (method, template) in OF_NO_MODEL:
            paths.append(path_of(template, name))
        for path in paths:
            answer = guarded.request(method, path, headers=key_for(name, roles=(role,)))
            guarded.cookies.clear()
            may = role in (needed, "admin") or needed == "any"
            assert (answer.status_code != 403) is may, (role, path, answer.text)


@pytest.mark.parametrize(("method", "template"), CLOSED)
def test_a_key_for_the_services_own_model_may_not_ask_what_concerns_all(
    guarded: httpx2.Client, key_for: Callable[..., dict[str, str]], method: str, template: str
) -> None:
    key = key_for(OWN)
    for before in ("", f"/models/{OWN}"):
        if before and NOT_BELOW_A_MODEL.fullmatch(template):
            continue
        path = before + path_of(template, OWN)
        if (method, template) in OF_THE_SERVICE:
            assert "or the whole service" in refused(guarded, method, path, key)
        else:
            answer = guarded.request(method, path, headers=key)
            guarded.cookies.clear()
            assert answer.status_code not in (401, 403), answer.text


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "path",
    [
        "/models/press",
        "/models/press/model",
        "/models/Pump-7/model",
        "/models/pump-70/model",
        "/models/pump-/model",
        "/models/pump-%2A/model",
        "/models/pr%65ss/model",
        "/models/pr%2565ss/model",
        "/models/press%2Fmodel",
        "/models/press//model",
        "/models//press/model",
        "//models/press/model",
        "/./models/press/model",
        "/models/pump-7%0A/model",
        "/models/pump-7%00/model",
        "/models/pump-7%20/model",
        "/models/pump-7%FF/model",
        "/models/pump-7;x/model",
        "/models/pump-7/models/press",
        "/models/pump-7/models/press/model",
        "/models/pump-7/keys",
        "/models/pump-7/audit",
        "/models/",
        "/models/../keys",
        "/v2/models/press",
        "/v2/models/press/ready",
        "/v2/models/pr%65ss/ready",
        "/v2/models//press/ready",
        "/v2/models/",
        "/models/pump-7/v2/models/press",
        f"/models/pump-7/v2/models/{OWN}/ready",
        "/models/press/v2/models/pump-7",
        f"/models/{OWN}/model",
        f"/models/{OWN}/v2/models/pump-7",
        "/model",
        "/model/",
        "/metrics",
        "/keys/",
        "/audit",
        "/nowhere",
        "http://localhost/models/press/model",
        "http://localhost/models/pump-7@press/model",
    ],
)
def test_there_is_no_way_around(
    guarded: httpx2.Client, key_for: Callable[..., dict[str, str]], method: str, path: str
) -> None:
    status, answer = raw(guarded, f"{method} {path} HTTP/1.1", key_for("pump-7"))
    assert status == 403, answer


@pytest.mark.parametrize(
    "path",
    [
        *("/../press/model", "/..%2Fpress/model", "//model", "/nowhere", "/model/", "/%2e%2e"),
        "/v2/models/pump-7%2F..%2Fpress/ready",
    ],
)
def test_a_path_within_a_model_stays_there(
    guarded: httpx2.Client, key_for: Callable[..., dict[str, str]], path: str
) -> None:
    status, answer = raw(guarded, f"GET /models/pump-7{path} HTTP/1.1", key_for("pump-7"))
    assert status == 404
    assert b"No route has this path" in answer


def test_the_list_has_the_models_that_the_key_counts_for(
    guarded: httpx2.Client, key_for: Callable[..., dict[str, str]]
) -> None:
    def listed(**headers: str) -> tuple[str | None, list[str]]:
        document = guarded.get("/models", headers=headers).json()
        there = (model for model in document["models"] if model["state"] != "leaving")
        return document["default"], [model["name"] for model in there]

    assert listed(**bearer(OPERATOR)) == (OWN, [*THERE])
    assert listed(**key_for()) == (OWN, [*THERE])
    assert listed(**key_for("*")) == (OWN, [*THERE])
    assert listed(**key_for("pump-*")) == (None, ["pump-7", "pump-8"])
    assert listed(**key_for(OWN, "press")) == (OWN, ["press"])
    assert listed(**key_for("none")) == (None, [])


def test_an_error_tells_of_no_model_that_the_key_does_not_count_for(
    guarded: httpx2.Client, key_for: Callable[..., dict[str, str]]
) -> None:
    key = key_for("pump-*", "presses")
    for method, path in (
        ("GET", "/models/pump-9"),
        ("GET", "/models/pump-9/model"),
        ("GET", "/v2/models/pump-9"),
        ("DELETE", "/models/pump-9"),
        ("POST", "/models/pump-9/classify"),
    ):
        answer = guarded.request(method, path, headers=key)
        assert answer.status_code == 404
        assert "There are 2 for this key, such as pump-" in answer.text
        assert not re.search(r"press|line", answer.text.replace("expressed", ""))
    told = guarded.get("/models/presses", headers=key_for("presses")).text
    assert "There is none for this key." in told
    # Probes and pages need no key, and tell of no other model either.
    for path in (
        "/models/pump-9/health/ready",
        "/models/pump-9/",
        "/models/pump-9/v2/health/ready",
    ):
        answer = guarded.get(path)
        assert answer.status_code == 404
        assert not re.search(r"press|pump-[78]|There (is|are)", answer.text)


def test_a_first_batch_makes_a_model_that_the_key_counts_for_and_no_other(
    guarded: httpx2.Client, key_for: Callable[..., dict[str, str]]
) -> None:
    sender, batch = key_for("new-*", roles=("ingest",)), {"features": [[1.0, 2.0]]}
    problem(guarded.post("/models/other/ingest", json=batch, headers=sender), 403, "forbidden")
    assert guarded.get("/models/other", headers=bearer(OPERATOR)).status_code == 404
    assert guarded.post("/models/new-1/ingest", json=batch, headers=sender).status_code == 202
    made = guarded.get("/models/new-1", headers=bearer(OPERATOR)).json()
    assert made["made_by"] == "limited"
    guarded.delete("/models/new-1", headers=bearer(OPERATOR))


def test_a_browser_with_a_limited_key_is_as_limited(
    guarded: httpx2.Client, key_for: Callable[..., dict[str, str]]
) -> None:
    key = key_for("pump-7", roles=("read",))
    with httpx2.Client(base_url=guarded.base_url) as browser:
        problem(browser.post("/models/press/session", headers=key), 403, "forbidden")
        assert browser.post("/session", headers=key).status_code == 204
        assert browser.get("/models/pump-7/model").status_code == 200
        for path in ("/model", "/models/press/model", "/metrics"):
            problem(browser.get(path), 403, "forbidden")
        assert browser.delete("/session").status_code == 204


def test_a_model_is_copied_with_a_key_that_counts_for_both(
    settings: Callable[..., Settings],
) -> None:
    own = settings(admin_key=SecretStr(OPERATOR))
    with training(own), serving(own) as client:
        url = str(client.base_url)
        with GMRClient(url, api_key=OPERATOR) as admin:
            admin.make_model("pump-7")
            keys = {
                models: admin.make_api_key("limited", ["admin"], models).key
                for models in (("pump-7",), ("pump-8",), ("pump-*",))
            }
        with of_model(client, "pump-7") as pump:
            pump.headers.update(bearer(keys["pump-*",]))
            teach(pump, batches=3)
        for models in (("pump-7",), ("pump-8",)):
            with GMRClient(url, api_key=keys[models]) as half, pytest.raises(NotAuthorised):
                half.copy_model("pump-7", "pump-8", replace=True)
        with GMRClient(url, api_key=keys["pump-*",]) as both:
            with pytest.raises(NotAuthorised):
                both.copy_model(None, "pump-8", replace=True)
            both.copy_model("pump-7", "pump-8", replace=True)
            assert both.named_model("pump-8").samples_seen == 300


# What is kept of a key ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "models",
    [
        [],
        [f"pump-{i}" for i in range(65)],
        [""],
        ["*pump"],
        ["pu*mp"],
        ["pump-**"],
        ["pump 7"],
        ["../x"],
        ["a/b"],
        ["-a"],
        ["x" * 65],
        ["x" * 65 + "*"],
        ["ümp"],
        ["pump-7\n"],
        "pump-7",
        {"pump-7": 1},
        [7],
        [None],
    ],
)
def test_a_key_for_what_is_no_model_is_not_made(guarded: httpx2.Client, models: Any) -> None:
    before = guarded.get("/keys", headers=bearer(OPERATOR)).json()
    asked = {"name": "x", "roles": ["read"], "models": models}
    told = problem(
        guarded.post("/keys", json=asked, headers=bearer(OPERATOR)), 422, "invalid-request"
    )
    assert "Expected" in told["detail"]
    assert guarded.get("/keys", headers=bearer(OPERATOR)).json() == before


def test_earlier_keys_count_for_all_models_and_what_is_not_known_counts_for_none(
    settings: Callable[..., Settings],
) -> None:
    own = settings(admin_key=SecretStr(OPERATOR))
    kept = Keys(own.model).api_keys
    forms: dict[str, dict[str, Any]] = {
        "earlier": {},
        "null": {"models": None},
        "limited": {"models": ["m"]},
        "nobody": {"models": []},
        "text": {"models": "m"},
        "odd": {"models": ["m", "a?"]},
        "later": {"models": {"m": ["read"]}},
    }
    with connect(own.redis_address() or "") as redis, serving(own) as client:
        client.put("/models/m", headers=bearer(OPERATOR)).raise_for_status()
        keys = {}
        for name, more in forms.items():
            one, keys[name] = ApiKey.mint(name, ["read"])
            text = json.loads(one.to_json())
            assert "models" not in text, "an older release takes no key that says more"
            redis.hset(kept, one.id, json.dumps(text | more))
        statuses = {
            name: tuple(
                client.get(path, headers=bearer(key)).status_code
                for path in ("/model", "/models/m/model")
            )
            for name, key in keys.items()
        }
        assert statuses == {
            "earlier": (200, 200),
            "null": (200, 200),
            "limited": (403, 200),
            "nobody": (403, 403),
            "text": (401, 401),
            "odd": (401, 401),
            "later": (401, 401),
        }
        listed = client.get("/keys", headers=bearer(OPERATOR)).json()["keys"]
        models = {key["name"]: key["models"] for key in listed}
        assert models["earlier"] is None
        assert models["limited"] == ["m"]
        assert models["later"] == []


letters = st.text(alphabet="ab7-._*/ ", max_size=6)


@given(letters, letters)
def test_a_name_matches_as_the_shells_pattern_does_and_only_where_it_can_be_one(
    model: str, name: str
) -> None:
    try:
        kept, _ = ApiKey.mint("x", ["read"], [model])
    except InvalidRequest:
        assert model != "*"
        assert not NAME.fullmatch(model.removesuffix("*"))
        return
    assert ApiKey.from_json(kept.to_json()) == kept
    assert kept.models is not None
    assert covers(kept.models, name) == bool(NAME.fullmatch(name) and fnmatchcase(name, model))


@pytest.mark.parametrize(
    ("models", "told"),
    [
        (["pump-7"], "The key counts for the model pump-7 alone; "),
        (["pump-*"], "The key counts for the models pump-* alone; "),
        (["a", "b"], "The key counts for the models a, b alone; "),
        ([f"m{i}" for i in range(MOST_MODELS)], " m6, m7 and 56 more alone; "),
    ],
)
def test_a_refusal_names_the_first_models_of_a_key(models: list[str], told: str) -> None:
    kept, _ = ApiKey.mint("x", ["read"], [*models, models[0]])  # one, said again
    assert kept.models == tuple(models)
    refusal = Forbidden.beyond(kept.models)
    assert told in str(refusal)
    assert refusal.context == {"models": models}


# Clients ------------------------------------------------------------------------------------


def test_limited_keys_are_made_and_listed_from_the_command_line_and_send_files(
    guarded: httpx2.Client,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("GMR_URL", str(guarded.base_url).rstrip("/"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("GMR_API_KEY", OPERATOR)

    def gmr(*typed: str, status: int = 0) -> str:
        result = CliRunner().invoke(app, [*typed])
        assert result.exit_code == status, result.output
        return " ".join(result.output.split())

    made = CliRunner().invoke(
        app, ["keys", "add", "pump 7", "--role", "ingest", "--model", "pump-7", "--model", "b-*"]
    )
    assert "for ingest, of pump-7, b-*." in made.stderr
    key = made.stdout.strip()
    assert re.search(r"pump 7 ingest pump-7, b-\* ", gmr("keys", "list"))
    assert "names no model" in gmr("keys", "add", "x", "--model", "*x", status=2)
    with GMRClient(api_key=OPERATOR) as admin:
        reader = admin.make_api_key("reader", ["ingest", "read"], ["pump-7"])
        assert reader.models == ("pump-7",)
        assert admin.make_api_key("one", ["read"], "pump-7").models == ("pump-7",)
        assert admin.make_api_key("all", ["read"]).models is None
        by_name = {one.name: one.models for one in admin.api_keys()}
        assert by_name["pump 7"] == ("pump-7", "b-*")
        assert by_name["all"] is None

    table = tmp_path / "a.csv"
    table.write_text("a,b\n" + "0.5,1\n" * 5)
    fleet = tmp_path / "fleet.csv"
    fleet.write_text("a,b,machine\n1,2,pump-7\n3,4,press\n")
    for own in (key, reader.key):
        monkeypatch.setenv("GMR_API_KEY", own)
        assert "5 samples" in gmr("ingest", str(table), "--model", "pump-7", "--again")
        said = gmr("ingest", str(table), "--again", status=1)
        assert "The key counts for the model" in said
        said = gmr("ingest", str(fleet), "--model-column", "machine", status=1)
        assert "The key counts for the model" in said
        assert "sent" not in said
    with GMRClient(api_key=OPERATOR) as admin:
        monkeypatch.setenv("GMR_API_KEY", admin.make_api_key("crew", ["admin"], ["mk-*"]).key)
        fleet.write_text("a,b,machine\n1,2,mk-1\n3,4,press\n")
        said = gmr("ingest", str(fleet), "--model-column", "machine", "--make-models", status=1)
        assert "The key counts for the models mk-* alone" in said
        assert "mk-1" not in {model.name for model in admin.models()}
    monkeypatch.setenv("GMR_API_KEY", reader.key)
    # A key that may read, but not of this model, is not told that it needs the role `read`.
    verdicts = tmp_path / "verdicts.csv"
    verdicts.write_text("id,label\ns-1,ok\n")
    said = gmr("labels", str(verdicts), "--model", "press", status=1)
    assert "The key counts for the model pump-7 alone" in said
    assert gmr("models", "list").startswith("name")
    assert "press" not in gmr("models", "list")
    np.savez(tmp_path / "a.npz", features=np.ones((4, 2), np.float32))
    assert "4 samples" in gmr("ingest", str(tmp_path / "a.npz"), "--model", "pump-7", "--again")
