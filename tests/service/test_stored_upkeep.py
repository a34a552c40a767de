"""Tests for service.upkeep where checkpoints are in a store."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from clients.commands.cli import app
from core.engine.checkpoint import load
from service.broker.connection import connect
from service.broker.keys import Keys
from service.settings import Settings
from service.store.choice import objects_of
from service.trainer.host import Trainer
from tests.service.conftest import MakeSettings
from tests.service.running import send, sub_tasks, training

pytest.importorskip("obstore", reason="the extra store is not installed")

Gmr = Callable[..., Any]


@pytest.fixture
def gmr() -> Gmr:
    return lambda *arguments: CliRunner().invoke(app, arguments)


@pytest.fixture(params=["file", "redis"])
def kept(
    request: pytest.FixtureRequest,
    settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Settings:
    """A service that was stopped after three batches, and the environment that leads to it."""
    store = "redis" if request.param == "redis" else f"file://{tmp_path}/store"
    made = settings(checkpoints=store, checkpoint_interval_s=3600)
    send(made, *sub_tasks(0, batches=3))
    with training(made):
        pass
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    return made


def found(gmr: Gmr) -> tuple[dict[str, Any], str]:
    """The one model of a report, and all that was found."""
    report = json.loads(gmr("doctor", "--json").output)
    [model] = report["models"]
    return model, " ".join(f"{one['subject']}: {one['found']}" for one in report["findings"])


def test_the_doctor_reads_what_the_pointer_names(gmr: Gmr, kept: Settings) -> None:
    model, said = found(gmr)
    assert model["version"] is not None
    assert (model["checkpoints"], model["entries_applied"], model["beyond"]) == (2, 3, 0)
    assert f"2 in {objects_of(kept).place} can be read" in said
    assert "epoch 1" in said
    [newest, _] = sorted(objects_of(kept).names(), reverse=True)
    objects_of(kept).delete([newest])
    objects_of(kept).put_new(newest, b"")
    model, said = found(gmr)
    assert model["checkpoints"] == 1
    assert model["unreadable"] == [newest]


def test_the_doctor_says_when_nothing_points_to_what_there_is(gmr: Gmr, kept: Settings) -> None:
    with connect(str(kept.redis_address())) as client:
        client.delete(Keys(kept.model).checkpoints)
    model, said = found(gmr)
    assert model["checkpoints"] == 2
    assert "nothing in Redis points to what" in said
    assert "2 checkpoints" in said


def test_the_doctor_misses_no_checkpoint_that_was_let_go_of_meanwhile(
    gmr: Gmr, kept: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, [_, older] = Keys(kept.model), sorted(objects_of(kept).names(), reverse=True)

    def while_a_trainer_works(data: bytes) -> Any:
        with connect(str(kept.redis_address())) as client:
            text: Any = client.get(keys.checkpoints)
            client.set(keys.checkpoints, json.dumps(json.loads(text)[:1]))
        objects_of(kept).delete([older])
        return load(data)

    monkeypatch.setattr("service.upkeep.stored.load", while_a_trainer_works)
    model, said = found(gmr)
    assert (model["checkpoints"], model["unreadable"]) == (1, [])
    assert older not in said


def test_the_doctor_says_which_models_are_failing(gmr: Gmr, kept: Settings) -> None:
    keys = Keys(kept.model)
    states = {
        "pump-7": {"state": "failing", "error": "a later release made it"},
        "a": {"state": "loaded", "error": None},
    }
    with connect(str(kept.redis_address())) as client:
        client.set(keys.model_states, json.dumps(states))
        assert "failing" not in gmr("doctor").output  # by a trainer that is gone
        client.set(keys.lease, "{}")
    _, said = found(gmr)
    assert "model pump-7: state: failing" in said
    assert "a later release made it" in said
    assert "model a: state" not in said


def test_a_reset_forgets_objects_and_keeps_the_epoch(gmr: Gmr, kept: Settings) -> None:
    kept.data_dir.mkdir(exist_ok=True)
    done = gmr("reset", "--data-dir", str(kept.data_dir), "--yes")
    assert done.exit_code == 0, done.output
    assert not objects_of(kept).names()
    with connect(str(kept.redis_address())) as client:
        assert client.get(Keys(kept.model).epoch) == b"1"  # a later writer is still a later one
        assert not client.exists(Keys(kept.model).checkpoints)
    trainer = Trainer(kept)
    trainer.stop()
    trainer.run()


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (("backup", "/nowhere"), "by its own means"),
        (("restore", "/nowhere.tar"), "a prefix of that store in which there is nothing yet"),
    ],
)
def test_what_knows_no_store_says_so_and_what_to_do(
    gmr: Gmr, kept: Settings, command: tuple[str, ...], advice: str
) -> None:
    refused = gmr(*command)
    assert refused.exit_code != 0
    assert advice in " ".join((str(refused.exception) + refused.output).split())
