"""Tests for the service.trainer.named_models and host modules: many models in one trainer."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from core.engine.checkpoint import load
from core.engine.engine import Engine
from core.errors import InvalidSettings
from service.broker.connection import connect
from service.broker.entries import Entry
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.broker.reader import Readable, Reader
from service.broker.register import Register
from service.broker.registry import NamedModel, read_register
from service.broker.snapshots import SnapshotFiles
from service.broker.stream import Stream
from service.settings import Settings
from service.trainer import host
from service.trainer.fair_queue import FairQueue
from service.trainer.writer import ModelWriter
from tests.service.conftest import MakeSettings
from tests.service.forked import TRAINER, forked
from tests.service.running import (
    ask,
    batch,
    downloaded,
    learned_directly,
    published_position,
    send,
    snapshot_bytes,
    sub_tasks,
    training,
    wait_for_backlog,
    wait_until,
)
from tests.service.trainer.test_writer import events, history, status

ROOT = Path(__file__).parents[3]


def register(settings: Settings, name: str, **given: Any) -> Settings:
    """Register a model as the API does; its settings."""
    own = settings.for_model(name, given)
    model = NamedModel.made_now(name, {"preset": own.preset, **given}, "")
    assert ask(settings, lambda stream: Register(stream).add(model, 100)) == model
    return own


def take_down(settings: Settings, name: str) -> None:
    async def ask_for_it(stream: Stream) -> None:
        [model] = [one for one in (await Register(stream).all()).values() if one.name == name]
        assert await Register(stream).take_down(model)

    ask(settings, ask_for_it)


def states(settings: Settings) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = ask(settings, lambda stream: stream.reports.model_states())
    return found


def state(settings: Settings, name: str) -> str:
    return str(states(settings).get(name, {"state": "unloaded"})["state"])


def published(settings: Settings) -> bytes:
    notice = ask(settings, lambda stream: stream.reports.last_notice())
    from core.snapshot import Snapshot

    data = SnapshotFiles(settings.data_dir / "snapshots").read(notice.location)
    return Snapshot.from_bytes(data)[0].to_bytes({})


def test_models_learned_together_are_what_each_would_be_alone(settings: MakeSettings) -> None:
    service = settings()
    given = [{}, {"preset": "flat"}, {"seed": 3}]
    models = [register(service, f"m{i}", **own) for i, own in enumerate(given)]
    streams = {own: sub_tasks(i, i + 1, batches=10) for i, own in enumerate(models)}
    streams[service] = sub_tasks(7, 8, batches=10)
    order = [own for own, stream in streams.items() for _ in stream]
    random.Random(0).shuffle(order)
    waiting = {own: iter(stream) for own, stream in streams.items()}
    with training(service):
        for own in order:
            send(own, next(waiting[own]))
        for own in streams:
            wait_for_backlog(own)
    for own, stream in streams.items():
        assert published(own) == snapshot_bytes(own, learned_directly(own, stream))
        assert [row["batch_index"] for row in history(own)] == list(range(20))
        kinds = [event["kind"] for event in events(own)]
        assert kinds.count("boundary") == 1


def test_a_quiet_model_is_let_go_and_comes_back_with_its_next_entry(
    settings: MakeSettings,
) -> None:
    service = settings(unload_after_s=0.3, settle_after_s=0.1)
    own = register(service, "quiet")
    stream = sub_tasks(0, 1)
    with training(service) as trainer, connect(service.redis_address() or "") as client:
        send(own, *stream[:20])
        wait_for_backlog(own)
        wait_until(lambda: not trainer._named.loaded)
        wait_until(lambda: state(service, "quiet") == "unloaded")
        assert status(own)["state"] == "unloaded"
        keys = Keys(own.model)
        assert client.xlen(keys.input) == 0  # two checkpoints hold all of it
        assert not client.exists(keys.lease)
        send(own, *stream[20:])
        wait_for_backlog(own)
        seen = status(own)["samples_seen"]
        wait_until(lambda: not trainer._named.loaded)
        again, _, _ = load(ask(own, downloaded))  # which loads it again
        assert again.model.samples_seen == seen == 600


def test_what_came_while_no_trainer_was_there_is_learned(settings: MakeSettings) -> None:
    service = settings()
    own = register(service, "late")
    send(own, *sub_tasks(0))
    with training(service):
        wait_for_backlog(own)
    assert published(own) == snapshot_bytes(own, learned_directly(own, sub_tasks(0)))


def test_a_model_that_misbehaves_stops_nobody(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.named_models.FIRST_PAUSE_S", 0.05)
    service = settings()
    bad, good = register(service, "bad", n_components=3), register(service, "good")
    real = Engine.snapshot

    def snapshot(engine: Engine, *given: Any) -> Any:
        if engine.config.n_components == 3:
            raise ZeroDivisionError("a fault of one model")
        return real(engine, *given)

    with training(service):
        with monkeypatch.context() as patched:
            patched.setattr(Engine, "snapshot", snapshot)
            send(bad, *sub_tasks(0))
            send(good, *sub_tasks(0))
            send(service, *sub_tasks(1))
            wait_for_backlog(good)
            wait_for_backlog(service)
            found = wait_until(lambda: states(service).get("bad"))
            wait_until(lambda: state(service, "bad") == "failing")
            assert "a fault of one model" in states(service)["bad"]["error"] or found
        wait_for_backlog(bad)  # once the fault is gone, by itself
        wait_until(lambda: state(service, "bad") == "loaded")
    assert published(bad) == snapshot_bytes(bad, learned_directly(bad, sub_tasks(0)))


def test_what_is_read_for_a_model_that_is_let_go_meanwhile_is_read_again(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.named_models.FIRST_PAUSE_S", 0.01)
    service = settings()
    own = register(service, "unlucky")
    stream = sub_tasks(0)
    ask_for = Reader.ask

    def ask(reader: Reader, streams: Sequence[Readable], block_ms: int) -> None:
        ask_for(reader, streams, block_ms)
        for slot in trainer._named.loaded:  # while the read is under way
            if len(failed) < 2:
                failed.append(slot)
                trainer._named.failed(slot, ZeroDivisionError("of the model's own"))

    failed: list[object] = []
    monkeypatch.setattr(Reader, "ask", ask)
    with training(service) as trainer:
        for one in stream:
            send(own, one)
        wait_for_backlog(own)
    assert failed
    assert published(own) == snapshot_bytes(own, learned_directly(own, stream))


def test_a_model_that_another_trainer_works_on_waits_for_it(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.named_models.FIRST_PAUSE_S", 0.05)
    service = settings()
    own = register(service, "elsewhere")
    with connect(service.redis_address() or "") as client:
        lease = Lease(client, Keys(own.model))
        lease.acquire()
        with training(service):
            send(own, *sub_tasks(0))
            send(service, *sub_tasks(0))
            wait_for_backlog(service)
            wait_until(lambda: state(service, "elsewhere") == "failing")
            assert "Another trainer" in states(service)["elsewhere"]["error"]
            lease.release()
            wait_for_backlog(own)


def test_where_there_is_no_room_the_quietest_is_let_go(settings: MakeSettings) -> None:
    # Three models with experts need more.
    service = settings(loaded_models_mib=1, settle_after_s=0.1, unload_after_s=3600, experts=True)
    models = [register(service, f"m{i}") for i in range(3)]
    with training(service) as trainer:
        for own in models:
            send(own, *sub_tasks(0))
            wait_for_backlog(own)

        def held() -> int:
            return sum(slot.writer.nbytes for slot in trainer._named.loaded if slot.writer)

        wait_until(lambda: len(trainer._named.loaded) < len(models))
        wait_until(lambda: held() <= 2**20)


def test_a_model_that_is_taken_down_leaves_nothing(settings: MakeSettings) -> None:
    service = settings()
    own = register(service, "gone")
    other = register(service, "gone-2")  # whose name begins with the other's
    with training(service), connect(service.redis_address() or "") as client:
        for one in (own, other):
            send(one, *sub_tasks(0))
            wait_for_backlog(one)
        take_down(service, "gone")
        wait_until(lambda: "gone" not in read_register(client, Keys(service.model)))
        assert not own.data_dir.exists()
        assert not list(client.scan_iter(match=f"*{own.model}}}:*"))
        assert other.data_dir.exists()
        assert published_position(other) == (15, 15)
        again = register(service, "gone")
        send(again, batch(3, 0))
        wait_for_backlog(again)
        assert status(again)["samples_seen"] == 20


def test_what_was_sent_before_a_model_was_made_is_dropped_and_nothing_else(
    settings: MakeSettings,
) -> None:
    service = settings()
    own = service.for_model("pump", {})
    old = [appended.entry_id for appended in send(own, *sub_tasks(0))]

    async def make(stream: Stream) -> NamedModel:
        last = await Register(stream).last_sent(own.model)
        made = NamedModel.made_now("pump", {"preset": own.preset}, "", last)
        found = await Register(stream).add(made, 100)
        assert found is not None
        return found

    made = ask(service, make)
    assert made.after == old[-1]
    send(own, *sub_tasks(1)[:5])
    assert ask(service, make) == made  # another process, which came later, drops nothing
    with training(service):
        send(own, *sub_tasks(1)[5:])
        wait_for_backlog(own)
    assert published(own) == snapshot_bytes(own, learned_directly(own, sub_tasks(1)))
    with training(service):
        send(own, *sub_tasks(2))
        wait_for_backlog(own)
    assert published(own) == snapshot_bytes(own, learned_directly(own, sub_tasks(1, 2)))


def test_kills_lose_nothing_of_any_model(settings: MakeSettings) -> None:
    service = settings(unload_after_s=0.5, settle_after_s=3600, checkpoint_interval_s=0.2)
    models = [service, *(register(service, f"m{i}") for i in range(2))]
    streams = {own: sub_tasks(i) for i, own in enumerate(models)}
    for part in range(2):
        with forked(TRAINER, variables=service.environment()) as process:
            for own in models:
                send(own, *streams[own][8 * part : 8 * part + 8])
            some = 8 * part
            wait_until(lambda some=some: any(published_position(m)[1] > some for m in models), 60)
            process.send_signal(signal.SIGKILL)
    with training(service):
        for own in models:
            wait_for_backlog(own)
    for own, stream in streams.items():
        assert published(own) == snapshot_bytes(own, learned_directly(own, stream))
        assert [row["batch_index"] for row in history(own)] == list(range(15))


def test_a_loud_model_does_not_starve_a_quiet_one(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = settings()
    loud, quiet = register(service, "loud"), register(service, "quiet")
    send(loud, *(batch(0, i, n=200) for i in range(100)))
    send(quiet, batch(0, 1))
    learn, order = ModelWriter.learn, list[str]()

    def noted(writer: ModelWriter, entry: Entry, **how: bool) -> None:
        order.append(writer.model)
        learn(writer, entry, **how)

    monkeypatch.setattr(ModelWriter, "learn", noted)
    with training(service):
        wait_for_backlog(quiet)
    # In turns: when the one entry of the quiet model is served, most of the loud one's wait.
    before = order[: order.index(quiet.model)]
    assert before.count(loud.model) < 50


def test_writers_are_told_whether_entries_of_any_model_wait(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By that they put chores off: `tests/service/trainer/test_budget.py`."""
    service = settings()
    loud, quiet = register(service, "loud"), register(service, "quiet")
    send(loud, *(batch(0, i) for i in range(20)))
    send(quiet, batch(0, 1))
    told, queues = list[tuple[str, bool, bool]](), list[FairQueue[Any, Entry]]()

    class Seen(FairQueue[Any, Entry]):
        def __init__(self) -> None:
            super().__init__()
            queues.append(self)

    def telling(name: str) -> None:
        act = getattr(ModelWriter, name)

        def acted(writer: ModelWriter, *entry: Entry, crowded: bool = False, **how: bool) -> None:
            if writer.model != service.model:
                told.append((name, crowded, bool(queues[0])))
            act(writer, *entry, crowded=crowded, **how)

        monkeypatch.setattr(ModelWriter, name, acted)

    monkeypatch.setattr(host, "FairQueue", Seen)
    telling("learn")
    telling("idle")
    with training(service):
        wait_until(lambda: sum(name == "learn" for name, _, _ in told) >= 21)
        wait_until(lambda: ("idle", False, False) in told)

    assert all(crowded == waiting for _, crowded, waiting in told)
    assert ("learn", True, True) in told  # those of one read
    assert ("learn", False, False) in told  # the last one


def test_models_cost_no_command_while_they_are_quiet(settings: MakeSettings) -> None:
    service = settings()
    for i in range(30):
        register(service, f"m{i}")
    with training(service) as trainer, connect(service.redis_address() or "") as client:
        wait_until(lambda: len(trainer._named) == 30)
        assert not trainer._named.loaded  # to be made is no reason to be loaded

        def commands() -> int:
            return int(client.info("commandstats").get("cmdstat_xreadgroup", {}).get("calls", 0))

        wait_until(lambda: status(service))
        before, began = commands(), time.monotonic()
        time.sleep(1.0)
        per_second = (commands() - before) / (time.monotonic() - began)
        assert per_second < 30  # one read for all of them, not one each


def test_the_settings_of_a_model_are_the_services_but_for_its_own(settings: MakeSettings) -> None:
    service = settings(ert="12h", outlier_false_positive_rate=0.01)
    own = service.for_model("m", {"preset": "flat", "n_components": 7})
    assert (own.preset, own.n_components, own.ert) == ("flat", 7, "12h")
    assert own.outlier_false_positive_rate == 0.01
    assert own.data_dir == service.data_dir / "models" / "m"
    assert service.for_model("m", {"preset": "flat"}).n_components is None
    with pytest.raises(InvalidSettings, match="Did you mean preset"):
        service.for_model("m", {"prest": "flat"})
    with pytest.raises(InvalidSettings, match="the model's own"):
        service.for_model("m", {"seed": -1})
