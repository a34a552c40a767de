"""Tests for service.cluster: what is decided without Ray."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from clients.commands.cli import app
from core.errors import InvalidSettings
from service.broker.connection import connect
from service.broker.keys import Keys
from service.broker.registry import NamedModel
from service.cluster import answer
from service.cluster.buckets import bucket_of, service_of
from service.cluster.plan import agree, begun, check
from service.settings import Settings
from service.supervisor.embedded import EmbeddedRedis
from tests.service.cluster.simulated_ray import SimulatedRay

REACHED = {"redis_url": "redis://redis.example:6379", "checkpoints": "s3://bucket/models"}


def test_models_are_spread_over_all_buckets_by_their_names_alone() -> None:
    counts = [0] * 16
    for number in range(1600):
        counts[bucket_of(f"pump-{number}", 16)] += 1
    assert sum(counts) == 1600
    assert 60 < min(counts) <= max(counts) < 140
    # For ever: another answer would be another service, which does not know the model.
    assert [bucket_of(name, 16) for name in ("pump-7", "a", "\u00e4")] == [15, 7, 9]


def test_the_service_of_a_bucket_may_be_the_name_of_a_service() -> None:
    assert Settings(model=service_of("plant", 255)).model == "plant-b255"


@pytest.mark.parametrize(
    ("changes", "environment", "missing"),
    [
        ({"redis_url": None}, {"RAY_REDIS_ADDRESS": "r"}, "GMR_REDIS_URL"),
        ({"checkpoints": "dir"}, {"RAY_REDIS_ADDRESS": "r"}, "GMR_CHECKPOINTS"),
        ({}, {}, "--accept-gcs-in-memory"),
    ],
)
def test_a_cluster_that_could_lose_itself_is_refused(
    changes: dict[str, str], environment: dict[str, str], missing: str
) -> None:
    settings = Settings.load({**REACHED, **changes})
    with pytest.raises(InvalidSettings, match=missing):
        check(settings, environment, accept_gcs=False)
    check(Settings.load(REACHED), {"RAY_REDIS_ADDRESS": "r"}, accept_gcs=False)
    check(Settings.load(REACHED), {}, accept_gcs=True)


def test_the_number_of_buckets_is_fixed_when_a_cluster_is_first_begun(
    redis_server: EmbeddedRedis,
) -> None:
    model = uuid.uuid4().hex
    with connect(redis_server.url) as client:
        assert agree(client, model, None, 8) == 8
        assert agree(client, model, 8, 4) == 8
        with pytest.raises(InvalidSettings, match="has 8 buckets, and 9 were asked for"):
            agree(client, model, 9, 8)


@pytest.mark.parametrize("asked", [["models", "pump-7"], ["status"]])
def test_to_ask_after_a_cluster_that_was_never_begun_begins_none(
    redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    if asked == ["status"]:
        pytest.importorskip("ray", reason="Ray is not installed")
    model = uuid.uuid4().hex
    monkeypatch.setenv("GMR_REDIS_URL", redis_server.url)
    monkeypatch.setenv("GMR_MODEL", model)
    result = CliRunner().invoke(app, ["cluster", *asked])
    assert (result.exit_code, f"No cluster '{model}' was begun" in result.output) == (2, True)
    with connect(redis_server.url) as client:
        assert begun(client, model) is None
        agree(client, model, 4, 8)
        assert begun(client, model) == 4
    found = CliRunner().invoke(app, ["cluster", "models", "pump-7"])
    assert found.output == f"pump-7: bucket 3, service {model}-b003\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["drain"], "was given 0 arguments (none); expected NODE"),
        (["move", "1"], "was given 1 arguments (1); expected BUCKET NODE"),
        (["status", "--standby", "1"], "--standby is of `gmr cluster up`, not of status"),
        (["down", "--buckets", "3"], "--buckets is of `gmr cluster up`, not of down"),
        (["up", "--json"], "--json is of `gmr cluster status` and `models`, not of up"),
        (["up", "--local", "1", "--address", "a:1"], "--address is of a Ray that runs"),
    ],
)
def test_what_an_action_does_not_take_is_refused(arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(app, ["cluster", *arguments])
    assert (result.exit_code, told in " ".join(result.output.split())) == (2, True), result.output


def test_a_redis_that_is_not_there_is_told_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GMR_REDIS_URL", "redis://127.0.0.1:1")
    result = CliRunner().invoke(app, ["cluster", "models", "pump-7"])
    assert (result.exit_code, "Redis cannot be reached" in result.output) == (1, True)


def test_without_names_all_models_are_told_with_their_buckets(
    redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = uuid.uuid4().hex
    monkeypatch.setenv("GMR_REDIS_URL", redis_server.url)
    monkeypatch.setenv("GMR_MODEL", model)
    names = ["pump-1", "pump-2", "pump-9"]
    with connect(redis_server.url) as client:
        agree(client, model, 4, 8)
        assert CliRunner().invoke(app, ["cluster", "models"]).exit_code == 0
        for name in names:
            made = NamedModel(name)
            client.hset(Keys(service_of(model, bucket_of(name, 4))).models, name, made.to_json())
    found = CliRunner().invoke(app, ["cluster", "models"])
    assert found.output == CliRunner().invoke(app, ["cluster", "models", *names]).output
    rows = json.loads(CliRunner().invoke(app, ["cluster", "models", "--json"]).output)
    assert [row["name"] for row in rows] == names
    assert rows[0] == {"name": "pump-1", "bucket": 1, "service": f"{model}-b001"}
    assert CliRunner().invoke(app, ["cluster", "models", "a b"]).exit_code == 2


def test_a_bucket_that_no_host_leads_is_named(
    redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    ray = SimulatedRay({"a": 1})
    ray.install(monkeypatch)
    model = uuid.uuid4().hex
    for name, value in {"GMR_REDIS_URL": redis_server.url, "GMR_MODEL": model}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with connect(redis_server.url) as client:
        agree(client, model, 3, 8)
    from service.cluster.fleet import Fleet

    Fleet(Settings(model=model), 2).up()
    found = CliRunner().invoke(app, ["cluster", "status"])
    assert found.exit_code == 1
    assert "Led by no host: bucket 2. " in found.output
    # As where a host of another Ray leads it, in an upgrade.
    with connect(redis_server.url) as client:
        client.set(Keys(service_of(model, 2)).lease, "{}")
    found = CliRunner().invoke(app, ["cluster", "status"])
    assert found.exit_code == 1
    assert "a trainer has the lease: bucket 2. " in found.output
    assert "begun by" not in found.output
    Fleet(Settings(model=model), 3).up()
    assert "Led by no host" not in CliRunner().invoke(app, ["cluster", "status"]).output


@pytest.mark.parametrize("frozen", ["init", "list"])
@pytest.mark.parametrize("asked", [["status"], ["down"], ["drain", "a"], ["move", "0", "a"]])
def test_a_head_of_ray_that_answers_nothing_is_told(
    redis_server: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch, asked: list[str], frozen: str
) -> None:
    """As where it is stopped: it takes connections."""
    SimulatedRay({"a": 1, "b": 1}, frozen={frozen}).install(monkeypatch)
    monkeypatch.setattr(answer, "HEAD_S", 0.1)
    ended: list[int] = []

    def end_with(work: Callable[[], int]) -> NoReturn:
        ended.append(work())
        raise SystemExit(ended[-1])

    monkeypatch.setattr("service.ending.end_with", end_with)
    model = uuid.uuid4().hex
    monkeypatch.setenv("GMR_REDIS_URL", redis_server.url)
    monkeypatch.setenv("GMR_MODEL", model)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with connect(redis_server.url) as client:
        agree(client, model, 1, 1)
    found = CliRunner().invoke(app, ["cluster", *asked])
    assert (found.exit_code, ended) == (1, [1])
    assert "Ray has not answered for 0 s" in found.output
    assert "give the command again" in found.output
    # What is known without Ray is told without it.
    assert CliRunner().invoke(app, ["cluster", "models"]).exit_code == 0
