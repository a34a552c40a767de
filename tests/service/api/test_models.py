"""Tests for named models over HTTP: a real Redis, a real trainer, the real server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner, Result

from clients.commands.cli import app
from clients.http.async_client import AsyncGMRClient
from clients.http.client import GMRClient
from clients.http.errors import HasLearned, InputError, RequestRefused
from service.api.drift_state import DriftState
from service.api.of_model import path_within
from service.api.work import Workers
from service.broker.connection import connect
from service.broker.keys import Keys
from service.settings import Settings
from tests.service.api.stack import (
    labels,
    learned,
    make_settings,
    of_model,
    problem,
    samples,
    serving,
    teach,
    training,
    wait_until,
)

OPERATOR = "operator-key-of-32-characters-0"


@pytest.fixture(scope="module")
def service(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A service with a trainer and two named models, of which one was taught."""
    settings = make_settings(redis_url, tmp_path_factory.mktemp("models"), max_models=5)
    with training(settings), serving(settings) as client:
        assert client.put("/models/taught").status_code == 201
        assert client.put("/models/empty", json={"settings": {"preset": "flat"}}).status_code == 201
        with of_model(client, "taught") as taught:
            teach(taught)
        yield client


def names(client: httpx2.Client) -> list[str]:
    return [model["name"] for model in client.get("/models").json()["models"]]


def test_a_model_answers_below_its_name_as_the_services_own_does_at_the_root(
    service: httpx2.Client,
) -> None:
    with of_model(service, "taught") as taught:
        model = taught.get("/model").json()
        assert model["name"].endswith("/taught")
        assert (model["samples_seen"], model["features"]) == (600, 16)
        rows = samples(20, seed=9).tolist()
        answer = taught.post("/classify", json={"features": rows}).json()
        assert answer["labels"] == labels(20)
        assert taught.post("/outliers", json={"features": rows}).status_code == 200
        drawn = taught.get("/sample", params={"classes": labels(1)[0], "n": 3}).json()
        assert len(drawn["features"]) == 3

        def versions() -> set[int]:
            return {taught.get(path).json()["model_version"] for path in ("/drift", "/model")}

        # A quiet trainer may publish once more between two questions.
        wait_until(lambda: len(versions()) == 1)
        assert len(taught.get("/drift/history").json()["history"]) == 6
        assert taught.get("/health/ready").status_code == 200
        wait_until(lambda: "gmr_samples_learned_total 600.0" in taught.get("/metrics").text)
        page = taught.get("/")
        assert page.status_code == 200
        assert "/taught" in page.text
        assert taught.get("/static/main.js").status_code == 200
        told = taught.get("/model/checkpoint").headers["content-disposition"]
        assert told.endswith('-taught.safetensors"')
        assert "/" not in told


def test_models_know_nothing_of_each_other(service: httpx2.Client) -> None:
    assert service.get("/model").json()["samples_seen"] == 0
    with of_model(service, "empty") as empty:
        assert empty.get("/model").json()["preset"] == "flat"
        problem(empty.post("/classify", json={"features": [[0.0] * 16]}), 409, "model-not-ready")


def test_the_list_says_what_was_set_and_where_each_stands(service: httpx2.Client) -> None:
    listed = {model["name"]: model for model in service.get("/models").json()["models"]}
    assert listed["empty"]["settings"]["preset"] == "flat"
    assert listed["taught"]["state"] in ("loaded", "unloaded")
    one = service.get("/models/taught").json()
    assert (one["samples_seen"], one["backlog"], one["classes"]) == (600, 0, 2)
    assert 'gmr_models{state="' in service.get("/metrics").text


def test_making_a_model_again_changes_nothing_and_other_settings_are_a_conflict(
    service: httpx2.Client,
) -> None:
    flat = {"settings": {"preset": "flat"}}
    again = service.put("/models/empty", json=flat)
    assert (again.status_code, again.json()["settings"]["preset"]) == (200, "flat")
    other = {"settings": {"preset": "flat", "seed": 5}}
    found = problem(service.put("/models/empty", json=other), 409, "model-conflict")
    assert found["settings"]["preset"] == "flat"


def test_the_same_again_changes_nothing_whatever_the_services_own_model_is_by_then(
    settings: Callable[..., Settings],
) -> None:
    flat, seeded = {"settings": {"preset": "flat"}}, {"settings": {"seed": 5}}
    made = settings()
    with serving(made) as client:
        for name, body in (("a", flat), ("b", seeded), ("c", None)):
            assert client.put(f"/models/{name}", json=body).status_code == 201
    with serving(made.model_copy(update={"n_components": 40, "preset": "flat"})) as client:
        for name, body in (("a", flat), ("b", seeded), ("c", None)):
            assert client.put(f"/models/{name}", json=body).status_code == 200
        there = client.get("/models/a").json()["settings"]
        for name, own in (
            ("a", {"preset": "flat", "n_components": 40}),
            ("a", {"preset": "mfa"}),
            ("a", {"preset": "flat", "seed": 1}),
            ("b", {"seed": 6}),
            ("b", {}),
        ):
            found = client.put(f"/models/{name}", json={"settings": own})
            problem(found, 409, "model-conflict")
        assert client.get("/models/a").json()["settings"] == there


@pytest.mark.parametrize(
    ("name", "body", "said"),
    [
        ("x", {"settings": {"prest": "flat"}}, "Did you mean preset"),
        ("x", {"settings": {"n_components": 0}}, "n_components is 0"),
        ("x", {"settings": {"redis_url": "redis://elsewhere"}}, "no setting of a model"),
        ("x", {"settings": {"data_dir": "/etc"}}, "no setting of a model"),
        ("x", {"setings": {}}, "setings"),
        ("-x", None, "no name for a model"),
        (".x", None, "no name for a model"),
        ("a%20b", None, "no name for a model"),
        ("x" * 65, None, "no name for a model"),
    ],
)
def test_what_cannot_be_made_is_refused_with_the_reason(
    service: httpx2.Client, name: str, body: Any, said: str
) -> None:
    before = names(service)
    answer = service.put(f"/models/{name}", **({} if body is None else {"json": body}))
    assert said in problem(answer, 422, "invalid-request")["detail"]
    assert names(service) == before


def test_a_name_that_is_not_known_is_told_with_the_nearest(service: httpx2.Client) -> None:
    for answer in (
        service.get("/models/tought"),
        service.get("/models/tought/model"),
        service.post("/models/tought/ingest", json={"features": [[1.0]]}),
        service.delete("/models/tought"),
    ):
        found = problem(answer, 404, "unknown-model")
        assert found["known"] == ["taught"]
        assert "PUT" in found["detail"]


def test_the_services_own_model_is_none_of_the_named_ones(service: httpx2.Client) -> None:
    own = service.get("/models").json()["default"]
    for answer in (
        service.get(f"/models/{own}"),
        service.delete(f"/models/{own}"),
    ):
        detail = problem(answer, 404, "unknown-model")["detail"]
        assert f"{own!r} is the service's own model" in detail
        assert f"Leave /models/{own} out of the path" in detail
    detail = problem(service.put(f"/models/{own}"), 422, "invalid-request")["detail"]
    assert "leave /models/{name} out of its paths" in detail


def test_a_model_has_no_models_no_keys_and_no_audit_trail(service: httpx2.Client) -> None:
    for path in ("/models/taught/models", "/models/taught/keys", "/models/taught/audit"):
        assert service.get(path).status_code == 404


def test_a_model_is_taken_down_and_can_be_made_anew(service: httpx2.Client) -> None:
    service.put("/models/passing").raise_for_status()
    with of_model(service, "passing") as passing:
        teach(passing, batches=2)
        gone = service.delete("/models/passing")
        assert (gone.status_code, gone.json()["state"]) == (202, "leaving")
        wait_until(lambda: "passing" not in names(service))
        wait_until(lambda: passing.get("/model").status_code == 404)
        assert service.put("/models/passing").status_code == 201
        wait_until(lambda: passing.get("/model").status_code == 200)
        assert passing.get("/model").json()["samples_seen"] == 0
        teach(passing, batches=1)
        assert passing.get("/model").json()["samples_seen"] == 100
    service.delete("/models/passing")
    wait_until(lambda: "passing" not in names(service))


def test_a_model_of_a_later_release_waits_for_that_and_the_others_go_on(
    settings: Callable[..., Settings],
) -> None:
    own = settings()
    keys = Keys(own.model)
    with (
        training(own),
        serving(own) as client,
        connect(own.redis_address() or "") as redis,
    ):
        client.put("/models/now").raise_for_status()
        data = json.loads(redis.hget(keys.models, "now") or b"")
        for name, more in (
            ("field", {"invented": 1}),
            ("setting", {"settings": {**data["settings"], "invented": 1}}),
        ):
            redis.hset(keys.models, name, json.dumps({**data, "name": name, **more}))
            told = problem(client.get(f"/models/{name}/model"), 503, "unavailable")
            assert "invented, which this release does not know" in told["detail"]
        assert sorted(names(client)) == ["field", "now", "setting"]
        redis.xadd(keys.named("field").input, {"v": "1", "kind": "boundary"})
        redis.xadd(keys.doorbell, {"input": "field"})

        def found() -> dict[str, Any]:
            return {one["name"]: one for one in client.get("/models").json()["models"]}

        wait_until(lambda: found()["field"]["state"] == "failing")
        assert "a later one made it" in found()["field"]["error"]
        assert redis.xlen(keys.named("field").input) == 1
        with of_model(client, "now") as now:
            teach(now, batches=1)
        # It can be taken down, for which nothing of it has to be understood.
        assert client.delete("/models/field").status_code == 202
        wait_until(lambda: "field" not in names(client))


def test_there_are_at_most_so_many(service: httpx2.Client) -> None:
    made = [f"one-more-{i}" for i in range(5 - len(names(service)))]
    for name in made:
        service.put(f"/models/{name}").raise_for_status()
    found = problem(service.put("/models/too-many"), 409, "too-many-models")
    assert found["limit"] == 5
    for name in made:
        service.delete(f"/models/{name}")
    wait_until(lambda: not set(made) & set(names(service)))


def test_whoever_learns_is_left_a_processor(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each model's follower tells the workers, which all models share."""
    news: list[Workers] = []
    monkeypatch.setattr(Workers, "learns", lambda workers: news.append(workers))
    settings = make_settings(redis_url, tmp_path, max_models=5)
    with training(settings), serving(settings) as client:
        teach(client)
        of_own = len(news)
        assert of_own
        assert client.put("/models/named").status_code == 201
        with of_model(client, "named") as named:
            teach(named)
        assert len(news) > of_own
        assert len(set(map(id, news))) == 1


def test_a_first_batch_makes_a_model_only_where_that_is_allowed(
    settings: Callable[..., Settings],
) -> None:
    allowed = settings(models_on_demand=True)
    with training(allowed), serving(allowed) as client:
        with of_model(client, "new") as new:
            problem(new.get("/model"), 404, "unknown-model")
            teach(new, batches=1)
        assert names(client) == ["new"]
        with of_model(client, "a b") as bad:
            problem(bad.post("/ingest", json={"features": [[1.0]]}), 404, "unknown-model")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"features": [[None, 1]]}, 422),
        ({"features": [[1, 2], [3]]}, 422),
        ({"features": [[1, 2]], "labels": ["a", "b"]}, 422),
        (b"no JSON", 415),
    ],
)
def test_a_batch_that_is_refused_makes_no_model(
    settings: Callable[..., Settings], body: Any, status: int
) -> None:
    with serving(settings(models_on_demand=True)) as client, of_model(client, "new") as new:
        sent = {"content": body} if isinstance(body, bytes) else {"json": body}
        assert new.post("/ingest", **sent).status_code == status
        assert names(client) == []
        problem(new.get("/model"), 404, "unknown-model")
        assert new.post("/ingest", json={"features": [[1, 2]]}).status_code == 202
        assert names(client) == ["new"]


def test_snapshots_that_are_asked_for_rarely_make_room(
    settings: Callable[..., Settings],
) -> None:
    few = settings(api_models=2)
    with training(few), serving(few) as client:
        for i in range(4):
            client.put(f"/models/m{i}").raise_for_status()
            with of_model(client, f"m{i}") as own:
                teach(own, batches=1 + i)
        for i in (0, 1, 2, 3, 0):
            with of_model(client, f"m{i}") as own:
                assert learned(own)["samples_seen"] == 100 * (1 + i)


def test_roles_count_for_named_models_as_for_the_services_own(
    settings: Callable[..., Settings],
) -> None:
    guarded = settings(admin_key=SecretStr(OPERATOR))
    with serving(guarded) as client:
        problem(client.put("/models/m"), 401, "unauthorized")
        with GMRClient(str(client.base_url), api_key=OPERATOR) as admin:
            admin.make_model("m")
            key = admin.make_api_key("reader", ["read"]).key
        reader = {"Authorization": f"Bearer {key}"}
        # Whoever may not ask does not learn which models there are.
        problem(client.get("/models/m/model"), 401, "unauthorized")
        problem(client.get("/models/other/model"), 401, "unauthorized")
        assert client.get("/models/m/model", headers=reader).status_code == 200
        for method, path in (
            ("POST", "/models/m/ingest"),
            ("POST", "/models/m/model/rollback"),
            ("GET", "/models/m/model/checkpoint"),
            ("PUT", "/models/other"),
            ("DELETE", "/models/m"),
        ):
            problem(client.request(method, path, headers=reader), 403, "forbidden")
        assert client.get("/models/m/health/live").status_code == 200


def test_a_copy_goes_on_with_other_settings(service: httpx2.Client) -> None:
    url = str(service.base_url)
    more = {"features": samples(10).tolist(), "labels": [*range(10)]}
    with GMRClient(url) as client:
        client.make_model("narrow", {"max_classes": 3, "preset": "flat"})
        with of_model(service, "narrow") as narrow:
            teach(narrow, batches=1)
            told = problem(narrow.post("/ingest", json=more), 422, "invalid-labels")
            assert "gmr settings max_classes=N" in told["detail"]
        other = {"settings": {"max_classes": 30, "preset": "flat"}}
        told = problem(service.put("/models/narrow", json=other), 409, "model-conflict")
        assert "gmr models copy NEW --from narrow --set NAME=VALUE" in told["detail"]
        command = ["models", "copy", "wide", "--from", "narrow", "--set", "max_classes=30"]
        assert CliRunner().invoke(app, [*command, "--url", url]).exit_code == 0
        with of_model(service, "wide") as wide:
            learned(wide)
            wide.post("/ingest", json=more).raise_for_status()
            assert learned(wide)["samples_seen"] == 110

        async def twin() -> Mapping[str, Any]:
            async with AsyncGMRClient(url) as one:
                made = await one.copy_model("narrow", "twin", settings={"max_classes": 20})
                return made.settings

        assert asyncio.run(twin())["max_classes"] == 20
        for name in ("narrow", "wide", "twin"):
            client.take_down_model(name)
    wait_until(lambda: not {"narrow", "wide", "twin"}.intersection(names(service)))


def test_a_copy_takes_along_what_was_asked_of_its_source(service: httpx2.Client) -> None:
    url = str(service.base_url)
    ten = {"features": samples(10).tolist(), "labels": [*range(10)]}
    with GMRClient(url) as client:
        client.make_model("strict", {"max_classes": 3, "preset": "flat"})
        with of_model(service, "strict") as strict:
            teach(strict, batches=1)
            asked = {"max_classes": 30, "outlier_c": 2.5}
            put = strict.patch("/model/settings", json={"settings": asked})
            put.raise_for_status()
            strict.post("/ingest", json=ten).raise_for_status()
            assert learned(strict)["samples_seen"] == 110  # more classes than it was made for
        client.copy_model("strict", "loose", settings={"outlier_c": 4.0})

        async def twin() -> None:
            async with AsyncGMRClient(url) as one:
                await one.copy_model("strict", "twin")

        asyncio.run(twin())
        for name, outlier_c in (("loose", 4.0), ("twin", 2.5)):
            with of_model(service, name) as copied:
                now = copied.get("/model/settings").raise_for_status().json()["settings"]
            assert now["max_classes"] == {"value": 30, "asked": True}
            assert now["outlier_c"] == {"value": outlier_c, "asked": name == "twin"}
        for name in ("strict", "loose", "twin"):
            client.take_down_model(name)
    wait_until(lambda: not {"strict", "loose", "twin"}.intersection(names(service)))


def test_a_copy_that_its_settings_do_not_fit_leaves_no_model(service: httpx2.Client) -> None:
    url = str(service.base_url)
    other = {"preset": "flat"}
    with GMRClient(url) as client:
        for name in ("askew", "bent"):  # one that was there before stays
            if name == "bent":
                client.make_model(name, {**client.named_model("taught").settings, **other})
            with pytest.raises(RequestRefused, match="preset"):
                client.copy_model("taught", name, settings=other)
        wait_until(lambda: "askew" not in names(service))
        assert "bent" in names(service)

        async def refused() -> None:
            async with AsyncGMRClient(url) as one:
                with pytest.raises(RequestRefused, match="preset"):
                    await one.copy_model("taught", "askew", settings=other)

        asyncio.run(refused())
        wait_until(lambda: "askew" not in names(service))
        client.copy_model("taught", "askew")
        for name in ("askew", "bent"):
            client.take_down_model(name)
    wait_until(lambda: not {"askew", "bent"}.intersection(names(service)))


def test_a_copy_begins_at_a_kept_version(service: httpx2.Client) -> None:
    url = str(service.base_url)
    with GMRClient(url) as client, GMRClient(url, model="past") as past:
        client.make_model("past")
        past.ingest(samples(100, seed=1), labels=labels(100))
        past.declare_boundary()
        past.ingest(samples(100, seed=2), labels=labels(100))
        past.wait_until_learned()
        [then] = wait_until(lambda: [one for one in past.versions() if one.before_boundary == 1])
        client.copy_model("past", "branch", version=then.version)
        with GMRClient(url, model="branch") as branch:
            branch.wait_until_learned()
            assert branch.model().samples_seen == 100
            branch.ingest(samples(100, seed=3), labels=labels(100))
            branch.wait_until_learned()
            assert branch.model().samples_seen == 200
        assert past.model().samples_seen == 200
        with pytest.raises(RequestRefused, match="is not kept"):
            client.copy_model("past", "nowhere", version=10**9)

        async def twin() -> int:
            async with AsyncGMRClient(url) as one:
                with pytest.raises(RequestRefused, match="is not kept"):
                    await one.copy_model("past", "nowhere", version=10**9)
                await one.copy_model("past", "twin", version=then.version)
            async with AsyncGMRClient(url, model="twin") as other:
                await other.wait_until_learned()
                return (await other.model()).samples_seen

        assert asyncio.run(twin()) == 100
        wait_until(lambda: "nowhere" not in names(service))
        for name in ("past", "branch", "twin"):
            client.take_down_model(name)
    wait_until(lambda: not {"past", "branch", "twin"}.intersection(names(service)))


def test_a_model_is_no_copy_of_itself(service: httpx2.Client) -> None:
    url = str(service.base_url)
    with GMRClient(url) as client, GMRClient(url, model="taught") as taught:
        before = taught.wait_until_learned()
        with pytest.raises(InputError, match="a copy of itself"):
            client.copy_model("taught", "taught", replace=True)

        async def refused() -> None:
            async with AsyncGMRClient(url) as one:
                with pytest.raises(InputError, match="a copy of itself"):
                    await one.copy_model("taught", "taught", replace=True)

        asyncio.run(refused())
        command = ["models", "copy", "taught", "--from", "taught", "--yes", "--url", url]
        told = CliRunner().invoke(app, command)
        assert told.exit_code != 0
        assert "a copy of itself" in f"{told.output} {told.exception}"
        assert taught.model().raw["restored_entry_id"] == before.raw["restored_entry_id"] is None


def test_the_client_asks_a_model_by_name(service: httpx2.Client) -> None:
    url = str(service.base_url)
    with GMRClient(url) as client, GMRClient(url, model="taught") as taught:
        assert {model.name for model in client.models()} == {"taught", "empty"}
        summary = client.named_model("taught")
        assert (summary.samples_seen, summary.backlog) == (600, 0)
        assert list(taught.classify(samples(2)).labels) == labels(2)
        with pytest.raises(RequestRefused, match="No model has the name"):
            client.named_model("nobody")

        copied = client.copy_model("taught", "copied")
        assert copied.name == "copied"
    with GMRClient(url, model="copied") as copy:
        copy.wait_until_learned()
        assert copy.model().samples_seen == 600
        assert list(copy.classify(samples(2)).labels) == labels(2)

    async def the_same() -> None:
        async with AsyncGMRClient(url) as client:
            assert len(await client.models()) == 3
            called = [f"sensor {i}" for i in range(16)]
            async with AsyncGMRClient(url, model="copied") as one:
                await one.name_features(called)
                assert await one.feature_names() == tuple(called)
            await client.copy_model("copied", "twin")
            async with AsyncGMRClient(url, model="twin") as other:
                assert await other.feature_names() == tuple(called)
                await other.name_features(None)
                assert await other.feature_names() is None
            for name in ("copied", "twin"):
                await client.take_down_model(name)

    asyncio.run(the_same())
    wait_until(lambda: not {"copied", "twin"} & {*names(service)})


def test_commands_ask_a_model_by_name(service: httpx2.Client) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, [*arguments, "--url", str(service.base_url)])
        assert result.exit_code == 0, result.output
        return result.output

    assert "taught" in run("models")
    assert "flat" in run("models", "make", "by-hand", "--set", "preset=flat", "--set", "seed=7")
    assert "samples_seen" in run("models", "show", "taught")
    assert '"samples_seen":600' in run("status", "--model", "taught", "--json").replace(" ", "")
    assert run("sample", "--model", "taught", "--n", "2").count("\n") >= 2
    unasked = CliRunner().invoke(app, ["models", "drop", "by-hand", "--url", str(service.base_url)])
    assert unasked.exit_code != 0
    assert "Add --yes" in f"{unasked.output} {unasked.exception}"
    assert "by-hand" in names(service)
    assert "taken down" in run("models", "drop", "by-hand", "--yes")
    wait_until(lambda: "by-hand" not in names(service))


def test_a_model_that_received_nothing_waits_for_its_first_samples(
    redis_url: str, tmp_path: Path
) -> None:
    settings = make_settings(redis_url, tmp_path, max_models=2)
    with training(settings), serving(settings) as client:
        wait_until(lambda: client.get("/drift").status_code == 200)
        assert client.put("/models/fresh").status_code == 201
        found = client.get("/models/fresh/drift")
        assert found.status_code == 200
        fresh, own = found.json(), client.get("/drift").json()
        DriftState.model_validate(fresh)
        assert fresh.keys() == own.keys()
        assert (fresh["stream_samples"], fresh["phase"], fresh["loaded"]) == (0, "learning", False)
        assert (fresh["ert"], fresh["detector"]) == (own["ert"], own["detector"])
        assert time.time() - fresh["heartbeat_time"] < 30
        typed = ["status", "--model", "fresh", "--url", str(client.base_url)]
        said = CliRunner().invoke(app, typed)
        assert said.exit_code == 0, said.output
        assert "waits for the model's first samples" in " ".join(said.output.split())


def test_a_model_for_which_batches_wait_is_not_said_to_wait_for_samples(
    redis_url: str, tmp_path: Path
) -> None:
    settings = make_settings(redis_url, tmp_path, max_models=2)
    with serving(settings) as client:
        with training(settings):
            wait_until(lambda: client.get("/drift").status_code == 200)
            assert client.put("/models/fresh").status_code == 201
            wait_until(lambda: client.get("/models/fresh/drift").json().get("loaded") is False)
        with of_model(client, "fresh") as model:  # which its trainer has not come to
            assert model.post("/ingest", json={"features": [[0.0, 1.0]]}).status_code == 202
        typed = ["status", "--model", "fresh", "--url", str(client.base_url)]
        said = " ".join(CliRunner().invoke(app, typed).output.split())
        assert "1 entry" in said
        assert "waits for the model's first samples" not in said
        assert "has not come to this model yet, for which batches wait" in said


def test_without_a_trainer_a_named_model_is_not_said_to_wait(
    redis_url: str, tmp_path: Path
) -> None:
    with serving(make_settings(redis_url, tmp_path, max_models=2)) as client:
        assert client.put("/models/fresh").status_code == 201
        problem(client.get("/models/fresh/drift"), 503, "unavailable")


def test_a_copy_replaces_what_is_there_only_where_that_is_said(
    service: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(service.base_url)

    def copy(*options: str, typed: str = "") -> Result:
        command = ["models", "copy", "full", "--from", "taught", "--url", url, *options]
        return CliRunner().invoke(app, command, input=typed)

    with GMRClient(url) as client, GMRClient(url, model="full") as full:
        client.make_model("full", client.named_model("taught").settings)
        full.ingest(samples(10), labels(10))
        # Accepted, and perhaps not learned yet.
        with pytest.raises(HasLearned, match="The model full is there"):
            client.copy_model("taught", "full")
        full.wait_until_learned()
        refused = copy()
        assert refused.exit_code != 0
        assert "--yes" in f"{refused.output} {refused.exception}"
        monkeypatch.setattr("clients.commands.models.on_terminal", lambda: True)
        asked = copy(typed="n\n")
        assert asked.exit_code == 1
        assert "Drop all that it holds" in asked.output
        assert full.model().samples_seen == 10

        async def twice() -> None:
            async with AsyncGMRClient(url) as one:
                with pytest.raises(HasLearned):
                    await one.copy_model("taught", "full")
                await one.copy_model("taught", "full", replace=True)
                with pytest.raises(HasLearned, match="600 samples"):
                    await one.copy_model("taught", "full")

        asyncio.run(twice())
        full.wait_until_learned()
        assert full.model().samples_seen == 600
        assert copy(typed="y\n").exit_code == 0
        assert copy("--yes").exit_code == 0
        client.take_down_model("full")
    wait_until(lambda: "full" not in names(service))


def test_the_path_within_a_model_is_that_of_a_route() -> None:
    assert path_within({"path": "/drift"}) == "/drift"
    assert path_within({"path": "/models/a/drift", "root_path": "/models/a"}) == "/drift"


def test_a_process_that_follows_many_models_still_reaches_redis(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.followed.FIRST_SNAPSHOT_S", 0.01)
    settings, n = make_settings(redis_url, tmp_path), 52  # redis-py bears 100 connections
    assert n < settings.api_models
    with training(settings), serving(settings) as client:
        wait_until(lambda: client.get("/health/ready").status_code == 200)
        for i in range(n):
            client.put(f"/models/m{i}").raise_for_status()
            assert client.get(f"/models/m{i}/model").status_code == 200
        with connect(redis_url) as redis:
            # Each with two reads that wait, for notices and for events.
            wait_until(lambda: redis.info("clients")["blocked_clients"] >= 2 * n)
        assert client.get("/health/ready").status_code == 200
        assert client.get("/model").status_code == 200


def test_a_model_made_anew_learns_nothing_that_was_sent_to_the_old_one(
    settings: Callable[..., Settings], redis_url: str
) -> None:
    made = settings()
    with training(made), serving(made) as client, connect(redis_url) as redis:
        client.put("/models/pump").raise_for_status()
        with of_model(client, "pump") as pump:
            teach(pump, batches=1)
            key = f"{{gmr:{made.model}/pump}}:in"
            sent = b"".join(np.full((2, 3), 0.5, "<f4"))
            fields = {"v": "1", "kind": "batch", "x": sent, "dtype": "f4", "shape": "2,3"}
            client.delete("/models/pump").raise_for_status()
            wait_until(lambda: names(client) == [])
            for _ in range(3):  # a producer that does not know
                redis.xadd(key, fields)
            client.put("/models/pump").raise_for_status()
            teach(pump, batches=2)
            assert learned(pump)["samples_seen"] == 200
            assert pump.get("/deadletters").json()["deadletters"] == []
            redis.xadd(key, {**fields, "x": samples(2).tobytes(), "shape": "2,16"})
            wait_until(lambda: learned(pump)["samples_seen"] == 202)


def test_the_log_says_which_model_is_let_go(
    settings: Callable[..., Settings], caplog: pytest.LogCaptureFixture
) -> None:
    made = settings(unload_after_s=0.1, settle_after_s=0.1)
    with caplog.at_level("INFO", "service.trainer"), training(made), serving(made) as client:
        client.put("/models/pump").raise_for_status()
        with of_model(client, "pump") as pump:
            teach(pump, batches=1)
        wait_until(lambda: f"model '{made.model}/pump' is unloaded" in caplog.text)
        assert f"model '{made.model}' is" not in caplog.text  # the trainer goes on
    assert f"model '{made.model}' is stopped" in caplog.text


def test_settings_and_times_of_a_model_are_shown_as_people_write_them(
    service: httpx2.Client,
) -> None:
    def run(*arguments: str) -> str:
        result = CliRunner().invoke(app, ["models", *arguments, "--url", str(service.base_url)])
        return f"{result.output} {result.exception}"

    shown = run("show", "empty")
    assert "preset = flat" in shown
    assert str(time.localtime().tm_year) in shown
    assert "(preset = flat" in run("make", "empty", "--set", "preset=mfa")
    assert "{" not in shown


def test_labels_whose_samples_went_elsewhere_are_told(service: httpx2.Client) -> None:
    with of_model(service, "taught") as taught:
        assert taught.get("/drift").json()["labels_early"] == 0
        sent = {"sample_ids": ["of-another-1", "of-another-2"], "labels": ["cat", "cat"]}
        taught.post("/labels", json=sent).raise_for_status()
        wait_until(lambda: taught.get("/drift").json()["labels_early"] == 2)
        url = str(taught.base_url)
    found = CliRunner().invoke(app, ["status", "--url", url])
    assert "2 waiting for their sample" in found.stdout
