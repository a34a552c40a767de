"""Tests for service.trainer.takeover and a store of checkpoints, by trainers that are killed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.engine.checkpoint import dump, load
from core.errors import InvalidSettings
from service.broker.connection import connect
from service.broker.keys import Keys
from service.settings import Settings
from service.store.choice import objects_of
from service.store.in_objects import epoch_of, parse
from service.trainer.host import Trainer
from service.wire import RawBatch
from tests.service.conftest import MakeSettings
from tests.service.running import (
    learned_directly,
    send,
    sub_tasks,
    training,
    wait_for_backlog,
    wait_until,
)
from tests.service.trainer.test_instants import dies
from tests.service.trainer.test_standby import freeze_and_thaw, pid, trainer
from tests.service.trainer.test_writer import events, history

pytest.importorskip("obstore", reason="the extra store is not installed")

INSTANTS = {
    "an object is put": ("service.store.objects.Objects", "put_new", "after", 1),
    "it is to be pointed to": ("service.broker.pointer.Pointer", "set", "before", 1),
    "it is pointed to": ("service.broker.pointer.Pointer", "set", "after", 1),
    "objects are to be deleted": ("service.store.objects.Objects", "delete", "before", 2),
    "entries are to be released": ("service.broker.feed.Feed", "release", "before", 1),
    "the fence is taken": ("service.broker.pointer.Pointer", "take", "after", 1),
}
IN_REDIS = {
    f"{what}, in Redis": ("service.store.objects_in_redis.ObjectsInRedis", *INSTANTS[what][1:])
    for what in ("an object is put", "objects are to be deleted")
}


@pytest.fixture
def stored(settings: MakeSettings, tmp_path: Path) -> MakeSettings:
    """Settings of a service whose checkpoints are in a store."""

    def make(**given: Any) -> Settings:
        store = f"file://{tmp_path}/store"
        return settings(**{"checkpoints": store, **given})

    return make


def epochs(settings: Settings) -> list[int]:
    return sorted(map(epoch_of, objects_of(settings).names()))


def kept(settings: Settings) -> tuple[bytes, int]:
    """The state of the newest checkpoint, without what a service adds, and its entries."""
    with connect(str(settings.redis_address())) as client:
        found = parse(client.get(Keys(settings.model).checkpoints), objects_of(settings))
    assert found
    state, config, _ = load(found[0].read())
    return dump(state, config, {}), found[0].entries_applied


def plainly(settings: Settings, stream: Sequence[RawBatch]) -> tuple[bytes, int]:
    """What a lone engine comes to."""
    state = learned_directly(settings, stream)
    return dump(state, settings.engine_config(), {}), len(stream)


@pytest.mark.parametrize("store", ["file", "redis"])
def test_of_two_trainers_without_a_shared_disk_one_that_was_frozen_changes_nothing(
    stored: MakeSettings, tmp_path: Path, store: str
) -> None:
    given = {"standby": True, "lease_s": 2.0, "checkpoint_interval_s": 0.2}
    given |= {"snapshot_store": "redis"} | ({"checkpoints": "redis"} if store == "redis" else {})
    one, two = (stored(data_dir=tmp_path / name, **given) for name in ("one", "two"))
    stream = sub_tasks(0, 1)
    with trainer(one, tmp_path / "one.log") as first:
        send(one, *stream[:12])
        wait_for_backlog(one, 90)
        assert pid(one) == first.pid
        with trainer(two, tmp_path / "two.log") as second:
            wait_until(lambda: "standing by" in (tmp_path / "two.log").read_text("utf-8"), 90)
            freeze_and_thaw(one, stream[12:], first, second)
    assert kept(one) == plainly(one, stream)
    assert [row["batch_index"] for row in history(one)] == list(range(30))
    ids = [event["entry_id"] for event in events(one) if event["kind"] == "batch_learned"]
    assert len(set(ids)) == len(ids)
    assert not list(tmp_path.glob("*/checkpoints/*"))
    assert set(epochs(one)) <= {1, 2}


@pytest.mark.parametrize("instant", [*INSTANTS, *IN_REDIS])
def test_a_death_at_any_instant_of_a_store_costs_neither_model_nor_events(
    stored: MakeSettings, instant: str
) -> None:
    stream = sub_tasks(0, 1, batches=8)
    given = {"checkpoints": "redis"} if instant in IN_REDIS else {}
    one = stored(checkpoint_interval_s=0.0, lease_s=2.0, **given)
    send(one, *stream)
    dies(one, *{**INSTANTS, **IN_REDIS}[instant])
    with training(one):
        pass
    assert kept(one) == plainly(one, stream)
    assert [row["batch_index"] for row in history(one)] == list(range(len(stream)))
    with connect(str(one.redis_address())) as client:
        assert client.xlen(Keys(one.model).input) == 0  # all is held twice, and released


@pytest.mark.parametrize("store", ["file", "redis"])
def test_named_models_have_objects_of_their_own_which_go_with_them(
    stored: MakeSettings, store: str
) -> None:
    one = stored(**({"checkpoints": "redis"} if store == "redis" else {}))
    own, named = objects_of(one), objects_of(one.for_model("pump-7", {}))
    assert own.place != named.place
    own.put_new("a", b"1")
    named.put_new("b", b"2")
    assert set(own.names()) == {"a"}
    assert named.clear() == 1
    assert set(own.names()) == {"a"}


def test_a_store_that_lacks_what_was_released_is_told_from_a_new_one(
    stored: MakeSettings,
) -> None:
    one = stored()
    send(one, *sub_tasks(0, batches=3))
    with training(one):
        pass
    objects_of(one).clear()
    trainer = Trainer(one)
    with pytest.raises(InvalidSettings, match=r"3 entries .* no checkpoint in file:///.*_own"):
        trainer.run()
