"""Tests for what a rollback or an upload leaves behind: boundaries, batch ids, sub-tasks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from typer.testing import CliRunner

from clients.commands.cli import app
from core.engine.checkpoint import load
from core.engine.engine import Engine
from core.errors import UnknownVersion
from service.api import control
from service.broker.connection import connect
from service.broker.keys import Keys
from service.broker.reports import Reports
from service.settings import Settings
from service.trainer.checkpoint_schedule import CheckpointSchedule
from service.trainer.saver import Saver
from service.trainer.standing import Standing
from service.wire import RawBatch
from tests.service.api.stack import (
    SAFETENSORS,
    labels,
    learned,
    problem,
    samples,
    send,
    serving,
    teach,
    training,
    wait_until,
)

MakeSettings = Callable[..., Settings]


@pytest.fixture
def quiet(settings: MakeSettings) -> Settings:
    """Boundaries by hand only, and checkpoints at once."""
    return settings(detector="none", checkpoint_interval_s=0.05)


def batch(name: str, seed: int = 1) -> RawBatch:
    return RawBatch.of(samples(20, seed=seed), labels(20), name)


def declare(client: httpx2.Client, *batches: RawBatch) -> None:
    """Send batches, then end their sub-task."""
    for one in batches:
        send(client, one).raise_for_status()
    client.post("/drift/boundary").raise_for_status()
    learned(client)


def boundaries(client: httpx2.Client) -> list[tuple[int, int, bool]]:
    rows = client.get("/drift/boundaries").json()["boundaries"]
    return [(row["boundary"], row["sub_task"], row["dropped"]) for row in rows]


def in_force(client: httpx2.Client) -> dict[str, int]:
    drift = client.get("/drift").json()
    return {name: drift[name] for name in ("boundaries", "boundaries_dropped", "sub_task")}


def before(client: httpx2.Client, boundary: int) -> int:
    """The version that was kept before a boundary."""

    def find() -> list[int]:
        kept = client.get("/model/versions").json()["versions"]
        return [one["version"] for one in kept if one.get("before_boundary") == boundary]

    [version] = wait_until(find)
    return int(version)


def roll_back(client: httpx2.Client, version: int) -> dict[str, Any]:
    answer = client.post("/model/rollback", json={"version": version})
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_boundaries_of_a_dropped_branch_are_marked_and_no_number_comes_twice(
    quiet: Settings,
) -> None:
    with training(quiet), serving(quiet) as client:
        for i in range(3):
            declare(client, batch(f"{i}", i))
        assert boundaries(client) == [(1, 1, False), (2, 2, False), (3, 3, False)]
        roll_back(client, before(client, 2))
        assert boundaries(client) == [(1, 1, False), (2, 2, True), (3, 3, True)]
        assert in_force(client) == {"boundaries": 1, "boundaries_dropped": 2, "sub_task": 1}
        declare(client, batch("again", 9))
        assert boundaries(client)[3:] == [(4, 2, False)]
        assert in_force(client) == {"boundaries": 2, "boundaries_dropped": 2, "sub_task": 2}
        assert "gmr_boundaries_total 4.0" in client.get("/metrics").text
        rows = client.get("/drift/boundaries").json()["boundaries"]
        for row in rows:
            whole = client.get(f"/drift/boundaries/{row['id']}").json()
            assert whole["dropped"] == row["dropped"]
        # Forward again, to before the third: what led there is no longer dropped.
        roll_back(client, before(client, 3))
        assert boundaries(client) == [(1, 1, False), (2, 2, False), (3, 3, True), (4, 2, True)]
        assert in_force(client) == {"boundaries": 2, "boundaries_dropped": 2, "sub_task": 2}
    with training(quiet), serving(quiet) as client:
        wait_until(lambda: client.get("/health/ready").status_code == 200)
        assert in_force(client) == {"boundaries": 2, "boundaries_dropped": 2, "sub_task": 2}
        assert [dropped for *_, dropped in boundaries(client)] == [False, False, True, True]


def test_what_a_rollback_dropped_is_learned_again_and_what_it_kept_is_not(
    quiet: Settings,
) -> None:
    with training(quiet), serving(quiet) as client:
        declare(client, batch("kept", 1))
        declare(client, batch("kept too", 2))
        version = before(client, 2)
        send(client, batch("dropped", 3)).raise_for_status()
        learned(client)
        restored = roll_back(client, version)
        model = client.get("/model").json()
        assert (model["samples_seen"], model["sub_task"]) == (40, 1)
        assert model["restored_entry_id"] == restored["entry_id"]
        for name, seed, status in (("kept", 1, 200), ("kept too", 2, 200), ("dropped", 3, 202)):
            assert send(client, batch(name, seed)).status_code == status, name
        assert learned(client)["samples_seen"] == 60
        # A repeat on the network is still one.
        repeat = send(client, batch("dropped", 3)).json()
        assert (repeat["duplicate"], repeat["rejected"]) == (True, None)
        assert learned(client)["samples_seen"] == 60


def test_batches_that_were_set_aside_in_what_is_served_again_are_learned_again(
    settings: MakeSettings,
) -> None:
    made = settings(checkpoint_interval_s=0.05, settle_after_s=3600, experts=True)
    with training(made), serving(made) as client:
        teach(client)
        moved = [
            RawBatch.of(np.clip(1 - samples(20, seed=i, level=0.4), 0, 1), None, f"moved {i}")
            for i in range(20)
        ]
        for one in moved:
            send(client, one).raise_for_status()
        learned(client)
        [(number, sub_task, _)] = boundaries(client)
        assert (number, sub_task) == (1, 1)
        [found] = client.get("/drift/boundaries").json()["boundaries"]
        assert found["explanation"]["samples"] > 20  # the batch that decided it, and those before
        roll_back(client, before(client, 1))
        first = client.get("/model").json()["samples_seen"]
        again = [send(client, one).status_code for one in moved]
        # Those that are in the model come first and stay; everything since is taken again.
        n_kept = again.count(200)
        assert again == [200] * n_kept + [202] * (20 - n_kept)
        assert first == 600 + 20 * n_kept
        model = learned(client)
        assert model["samples_seen"] + model["set_aside"] == 1000


def test_samples_since_the_boundary_are_those_of_the_version_that_came_back(
    quiet: Settings,
) -> None:
    def since(client: httpx2.Client) -> tuple[int, int]:
        drift = client.get("/drift").json()
        return drift["samples_since_boundary"], drift["batches_since_boundary"]

    with serving(quiet) as client:
        with training(quiet):
            declare(client, batch("a", 1))
            declare(client, batch("b", 2), batch("c", 3))
            send(client, batch("d", 4)).raise_for_status()
            learned(client)
            assert since(client) == (20, 1)
            roll_back(client, before(client, 2))
            wait_until(lambda: since(client) == (40, 2))
            send(client, batch("e", 5)).raise_for_status()
            learned(client)
            wait_until(lambda: since(client) == (60, 3))
        with training(quiet):
            wait_until(lambda: client.get("/health/ready").status_code == 200)
            assert since(client) == (60, 3)


def test_versions_stay_until_the_rollbacks_that_ask_for_them_are_done(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(detector="none", checkpoint_interval_s=0, experts=True)
    monkeypatch.setattr(control, "APPLY_TIMEOUT_S", 0.0)
    with serving(made) as client:
        with training(made):
            for i in range(3):
                send(client, batch(f"{i}", i)).raise_for_status()
                learned(client)
        kept = [one["version"] for one in client.get("/model/versions").json()["versions"]]
        newer, oldest = kept[-2:]
        # What waits before the rollbacks brings checkpoints that would take the versions' places.
        for i in range(3, 30):
            send(client, batch(f"{i}", i)).raise_for_status()
        for version in (oldest, newer, oldest):
            answer = client.post("/model/rollback", json={"version": version})
            assert answer.status_code == 202, answer.text
        with training(made):
            model = learned(client)
            assert (model["model_version"], model["backlog"]) == (oldest, 0)
            assert client.get("/deadletters").json()["deadletters"] == []


def test_a_trainer_says_which_versions_are_kept_before_it_writes_any(quiet: Settings) -> None:
    with training(quiet), serving(quiet) as client:
        declare(client, batch("a", 1))
        before(client, 1)
    key = Keys(quiet.model).kept_versions
    with connect(quiet.redis_address() or "") as redis:
        redis.delete(key)  # as before the first start of this release
        with training(quiet), serving(quiet) as client:
            wait_until(lambda: client.get("/health/ready").status_code == 200)
            kept = client.get("/model/versions").json()["versions"]
            assert {int(version) for version in redis.hgetall(key)} == {
                one["version"] for one in kept
            }


def test_a_version_that_was_let_go_since_the_list_was_made_is_unknown(
    quiet: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with training(quiet), serving(quiet) as client:
        declare(client, batch("a", 1))
        kept = before(client, 1)
        real = Reports.versions

        async def stale(reports: Reports) -> list[dict[str, Any]]:
            return [{"version": 10**6}, *await real(reports)]

        monkeypatch.setattr(Reports, "versions", stale)
        refused = client.post("/model/rollback", json={"version": 10**6})
        document = problem(refused, 404, "unknown-version")
        assert document["unknown"] == 10**6
        assert kept in document["known"]
        assert 10**6 not in document["known"]
        # Nothing was accepted that could end as a dead letter.
        assert "entry_id" not in document
        assert client.get("/deadletters").json()["deadletters"] == []


def test_a_version_that_the_trainer_does_not_find_is_unknown_too(
    quiet: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with training(quiet), serving(quiet) as client:
        declare(client, batch("a", 1))
        gone = before(client, 1)

        def find(saver: Saver, version: int) -> None:
            """Its file was taken away by hand."""
            raise UnknownVersion.among(version, [one["version"] for one in saver.versions()][:1])

        monkeypatch.setattr(Saver, "find", find)
        refused = client.post("/model/rollback", json={"version": gone})
        document = problem(refused, 404, "unknown-version")
        assert document["unknown"] == gone
        assert gone not in document["known"]
        [letter] = client.get("/deadletters").json()["deadletters"]
        assert letter["entry_id"] == document["entry_id"]


def test_the_running_accuracy_is_that_of_the_version_that_came_back(quiet: Settings) -> None:
    def accuracy(client: httpx2.Client) -> float | None:
        found: float | None = client.get("/drift").json()["prequential_accuracy_mean"]
        return found

    def restored(client: httpx2.Client) -> bool:
        return client.get("/drift").json()["log_likelihood_mean"] is None

    def swapped(n: int) -> list[int | str]:
        return labels(n + 1)[1:]

    with serving(quiet) as client:
        with training(quiet):
            declare(client, batch("a", 1), batch("b", 2))
            kept = accuracy(client)
            send(client, RawBatch.of(samples(20, seed=3), swapped(20), "c")).raise_for_status()
            learned(client)
            assert kept is not None
            wait_until(lambda: (accuracy(client) or 1) < kept)
            roll_back(client, before(client, 1))
            wait_until(lambda: restored(client))
            assert accuracy(client) == kept
        with training(quiet):
            wait_until(lambda: client.get("/health/ready").status_code == 200)
            assert (accuracy(client), restored(client)) == (kept, True)
        assert client.get("/drift").json()["prequential_accuracy"] is None  # no batch since


def test_after_an_upload_everything_may_be_sent_again(quiet: Settings) -> None:
    with training(quiet), serving(quiet) as client:
        declare(client, batch("first", 1))
        content = client.get("/model/checkpoint").content
        headers = {"Content-Type": SAFETENSORS}
        answer = client.put("/model/checkpoint", content=content, headers=headers)
        assert answer.status_code == 200, answer.text
        assert boundaries(client) == [(1, 1, True)]
        assert in_force(client) == {"boundaries": 0, "boundaries_dropped": 1, "sub_task": 1}
        assert send(client, batch("first", 1)).status_code == 202
        assert send(client, batch("first", 1)).status_code == 200
        declare(client)
        assert boundaries(client) == [(1, 1, True), (2, 2, False)]


def test_a_boundary_can_be_declared_right_after_a_rollback_or_an_upload(quiet: Settings) -> None:
    with training(quiet), serving(quiet) as client:
        declare(client, batch("a", 1))
        declare(client, batch("b", 2))
        roll_back(client, before(client, 2))  # sub-task 1, which "b" was learned in
        declare(client)
        assert boundaries(client)[-1] == (3, 2, False)
        problem(client.post("/drift/boundary"), 409, "empty-sub-task")
        send(client, batch("c", 3)).raise_for_status()
        learned(client)
        content = client.get("/model/checkpoint").content
        client.put(
            "/model/checkpoint", content=content, headers={"Content-Type": SAFETENSORS}
        ).raise_for_status()
        declare(client)
        assert boundaries(client)[-1] == (4, 3, False)


def test_what_a_rollback_left_behind_outlives_a_trainer_and_a_lost_key(quiet: Settings) -> None:
    with serving(quiet) as client:
        with training(quiet):
            declare(client, batch("kept", 1))
            declare(client, batch("dropped", 2))
            roll_back(client, before(client, 1))
        with training(quiet):
            wait_until(lambda: client.get("/drift").json()["boundaries"] == 0)
            assert boundaries(client) == [(1, 1, True), (2, 2, True)]
            assert send(client, batch("kept", 1)).status_code == 200
            assert send(client, batch("dropped", 2)).status_code == 202
            assert learned(client)["samples_seen"] == 40


def test_gmr_ingest_sends_what_a_rollback_dropped(
    quiet: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "a.npz"
    np.savez(path, features=samples(100), labels=np.arange(100) % 2)
    with training(quiet), serving(quiet) as client:
        declare(client, batch("before", 7))
        command = ["ingest", str(path), "--url", str(client.base_url), "--batch-size", "10"]
        assert CliRunner().invoke(app, [*command, "--wait"]).exit_code == 0
        assert learned(client)["samples_seen"] == 120
        assert "completely before" in CliRunner().invoke(app, command).output
        roll_back(client, before(client, 1))
        assert client.get("/model").json()["samples_seen"] == 20
        result = CliRunner().invoke(app, [*command, "--wait"])
        assert result.exit_code == 0, result.output
        assert "100 samples in 10 batches, 0 of them there before" in result.output
        assert learned(client)["samples_seen"] == 120
        assert "completely before" in CliRunner().invoke(app, command).output


@contextlib.contextmanager
def forgetful(settings: Settings, version: list[int]) -> Iterator[None]:
    """A trainer that keeps nothing any more from the moment on that `version` is filled."""
    save = CheckpointSchedule.save

    def unless_asked(schedule: CheckpointSchedule, now: Standing, *, twin: bool = False) -> None:
        if not version:
            save(schedule, now, twin=twin)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CheckpointSchedule, "save", unless_asked)
        with training(settings):
            yield


def test_a_rollback_that_is_read_again_from_the_log_leaves_the_same_behind(
    quiet: Settings,
) -> None:
    with serving(quiet) as client:
        version: list[int] = []
        with forgetful(quiet, version):
            declare(client, batch("a", 1))
            declare(client, batch("b", 2))
            version.append(before(client, 2))
            roll_back(client, version[0])
            send(client, batch("c", 3)).raise_for_status()
            learned(client)
            steady, marks = client.get("/model/checkpoint").content, boundaries(client)
            applied = client.get("/model").json()["last_entry_id"]
        with training(quiet) as trainer:
            wait_until(lambda: trainer.default.position.last_entry_id == applied)
            recovered = client.get("/model/checkpoint").content
            assert marks == [(1, 1, False), (2, 2, True)]
            wait_until(lambda: boundaries(client) == marks)
            assert [
                send(client, batch(name, i)).status_code for i, name in enumerate("abc", 1)
            ] == [
                200,
                200,
                200,
            ]
    one, config, said = load(steady)
    other, _, said_again = load(recovered)
    assert said["branch"] == said_again["branch"]
    assert (one.past.boundaries, one.sub_task.number) == (2, 1)
    engine = Engine(config)
    assert engine.snapshot(one).to_bytes({}) == engine.snapshot(other).to_bytes({})
