"""Tests for the service.trainer.writer module: a real trainer on a real Redis, killed for real."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from core.engine.checkpoint import load
from core.engine.engine import Engine
from core.errors import InvalidSettings
from core.snapshot import Snapshot
from service.broker.connection import StreamUnavailable, connect
from service.broker.dead_letters import DeadLetters
from service.broker.fenced import LeaseLost
from service.broker.keys import Keys
from service.broker.records import Record
from service.broker.snapshots import SnapshotFiles
from service.settings import Settings
from service.supervisor.embedded import EmbeddedRedis
from service.trainer.host import Trainer
from service.wire import Control, RawBatch, Upload
from tests.service.conftest import MakeSettings
from tests.service.forked import TRAINER, Forked, forked
from tests.service.metrics_text import read
from tests.service.running import (
    D,
    ask,
    batch,
    downloaded,
    learned_directly,
    published_position,
    send,
    snapshot_bytes,
    sub_tasks,
    training,
    upload,
    wait_for_backlog,
    wait_until,
)

ROOT = Path(__file__).parents[3]


def events(settings: Settings) -> list[dict[str, Any]]:
    """All of them; a Redis that is slow to answer is asked again."""

    def answered() -> tuple[list[Record]] | None:
        with suppress(StreamUnavailable):
            return (ask(settings, lambda one: one.reports.events("0", count=10_000, block_ms=1)),)
        return None

    (records,) = wait_until(answered)
    return [record.data for record in records]


def kinds(settings: Settings) -> list[str]:
    return [event["kind"] for event in events(settings)]


def history(settings: Settings) -> list[dict[str, Any]]:
    return [record.data for record in ask(settings, lambda stream: stream.reports.history(10_000))]


def status(settings: Settings) -> dict[str, Any]:
    found: dict[str, Any] = ask(settings, lambda stream: stream.reports.status())
    return found


def versions(settings: Settings) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ask(settings, lambda stream: stream.reports.versions())
    return found


def published(settings: Settings) -> Snapshot:
    notice = ask(settings, lambda stream: stream.reports.last_notice())
    data = SnapshotFiles(settings.data_dir / "snapshots").read(notice.location)
    return Snapshot.from_bytes(data)[0]


def add_by_hand(settings: Settings, fields: dict[str, Any]) -> None:
    with connect(settings.redis_address() or "") as client:
        client.xadd(Keys(settings.model).input, fields)


# Learning -----------------------------------------------------------------------------


def test_what_is_sent_is_learned_and_published(settings: MakeSettings) -> None:
    stream = sub_tasks(0, 1)
    with training(settings()):
        send(settings(), *stream)
        wait_for_backlog(settings())
        expected = learned_directly(settings(), stream)
        assert published(settings()).to_bytes({}) == snapshot_bytes(settings(), expected)
        [boundary] = ask(settings(), lambda stream: stream.reports.boundaries())
        assert 15 <= boundary.data["batch_index"] <= 18


def test_every_batch_is_reported_once_in_order_and_with_its_entry(settings: MakeSettings) -> None:
    with training(settings()):
        sent = send(settings(), *sub_tasks(0, 1))
        wait_for_backlog(settings())
    rows = history(settings())
    assert [row["batch_index"] for row in rows] == list(range(30))
    assert [row["entry_id"] for row in rows] == [one.entry_id for one in sent]
    assert all(abs(row["time"] - time.time()) < 60 for row in rows)
    seen = kinds(settings())
    assert {"class_discovered", "batch_learned", "boundary", "replay", "model_published"} <= set(
        seen
    )


def test_whoever_sees_no_backlog_finds_every_event_reported(settings: MakeSettings) -> None:
    with training(settings()):
        for seed in range(10):
            [sent] = send(settings(), batch(0, seed))
            wait_for_backlog(settings())
            assert history(settings())[-1]["entry_id"] == sent.entry_id
            assert status(settings())["entries_applied"] == seed + 1
            text = ask(settings(), lambda stream: stream.reports.trainer_metrics()).decode()
            assert f"gmr_samples_learned_total {20.0 * (seed + 1)}" in text


def test_the_status_tells_where_the_trainer_is(settings: MakeSettings) -> None:
    with training(settings()):
        wait_until(lambda: ask(settings(), lambda stream: stream.reports.status()))
        assert status(settings())["state"] == "running"
        [*_, last] = send(settings(), *sub_tasks(0, 1))
        wait_for_backlog(settings())
        found = status(settings())
        expected = {
            "entries_applied": 30,
            "last_entry_id": last.entry_id,
            "stream_batches": 30,
            "stream_samples": 600,
            "samples_seen": 600,
            "batches_seen": 30,
            "sub_task": 1,
            "boundaries": 1,
            "n_features": D,
            "detector": "sequential",
            "set_aside_batches": 0,
            "error": None,
        }
        assert {name: found[name] for name in expected} == expected
        assert found["samples_since_boundary"] == 20 * found["batches_since_boundary"] <= 300
        assert found["threshold"] > 0
        first = found["time"]
        wait_until(lambda: status(settings())["time"] > first)  # a heartbeat without work
    assert status(settings())["state"] == "stopped"


def test_the_first_batch_fixes_d_for_the_api(settings: MakeSettings) -> None:
    with training(settings()):
        add_by_hand(settings(), dict(batch(0, 0).to_entry()))  # past the API
        wait_for_backlog(settings())
        restarted = settings()
    with training(restarted):
        wait_until(lambda: ask(settings(), lambda stream: stream.n_features()) == D)


def test_a_setting_fixes_d_before_anything_comes(settings: MakeSettings) -> None:
    with training(settings(n_features=9)):
        wait_until(lambda: ask(settings(), lambda stream: stream.n_features()) == 9)


def test_models_are_published_no_more_often_than_asked(settings: MakeSettings) -> None:
    slow = settings(publish_interval_s=0.5)
    with training(slow):
        started = time.monotonic()
        for seed in range(60):
            send(slow, batch(0, seed))
        wait_for_backlog(slow)
        seconds = time.monotonic() - started
    n_published = kinds(slow).count("model_published")
    assert 2 <= n_published <= seconds / 0.5 + 2


def test_snapshots_can_travel_through_redis(settings: MakeSettings) -> None:
    remote = settings(snapshot_store="redis")
    stream = sub_tasks(0)
    with training(remote):
        send(remote, *stream)
        wait_for_backlog(remote)
        data = ask(remote, lambda stream: stream.reports.snapshot())
        expected = learned_directly(remote, stream)
        assert Snapshot.from_bytes(data)[0].to_bytes({}) == snapshot_bytes(remote, expected)
    assert not (remote.data_dir / "snapshots").exists()


@pytest.mark.parametrize("dtype", ["f2", "u1"])
def test_small_types_are_learned_as_what_they_mean(settings: MakeSettings, dtype: str) -> None:
    features = np.random.default_rng(0).random((50, D))
    sent = (features * 255).astype("u1") if dtype == "u1" else features.astype("f2")
    raw = RawBatch.of(sent, [0] * 50)
    with training(settings()):
        send(settings(), raw)
        wait_for_backlog(settings())
        expected = learned_directly(settings(), [raw])
        assert published(settings()).to_bytes({}) == snapshot_bytes(settings(), expected)


# Bad entries --------------------------------------------------------------------------


def test_a_bad_entry_is_set_aside_and_the_stream_goes_on(settings: MakeSettings) -> None:
    wrong_d = RawBatch.of(np.ones((2, D + 1)))
    damaged = {**batch(0, 1).to_entry(), "x": b"\x00" * 4 * D * 20}
    good = [batch(0, 0), batch(0, 2)]
    with training(settings()) as trainer:
        send(settings(), good[0])
        wait_for_backlog(settings())
        add_by_hand(settings(), {"hello": "world"})
        add_by_hand(settings(), dict(wrong_d.to_entry()))
        add_by_hand(settings(), damaged)
        send(settings(), Control("rollback", version=77), good[1])
        wait_for_backlog(settings())
        expected = learned_directly(settings(), good)
        assert published(settings()).to_bytes({}) == snapshot_bytes(settings(), expected)
        rejected = [one.facts for one in ask(settings(), lambda s: DeadLetters(s).page())]
        assert [one["reason"] for one in rejected] == [
            "invalid_batch",
            "shape_mismatch",
            "invalid_batch",
            "unknown_version",
        ]
        assert "checksum" in rejected[2]["detail"]
        assert status(settings())["rejected"] == {
            "invalid_batch": 2,
            "shape_mismatch": 1,
            "unknown_version": 1,
        }
        assert kinds(settings()).count("entry_rejected") == 4
        assert trainer is not None
    # The count outlives the process.
    with training(settings()):
        wait_until(lambda: status(settings())["state"] == "running")
        families = text_string_to_metric_families(
            ask(settings(), lambda stream: stream.reports.trainer_metrics()).decode()
        )
        [rejections] = [one for one in families if one.name == "gmr_batches_rejected"]
        assert sum(sample.value for sample in rejections.samples) == 4


def test_an_error_that_nobody_foresaw_costs_one_entry_only(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step = Engine.step

    def fragile(self: Engine, state: Any, one: Any) -> Any:
        if len(one) == 13:
            raise ZeroDivisionError("a bug of ours")
        return step(self, state, one)

    monkeypatch.setattr(Engine, "step", fragile)
    good = [batch(0, 0), batch(0, 2)]
    with training(settings()):
        send(settings(), good[0], batch(0, 1, n=13), good[1])
        wait_for_backlog(settings())
        expected = learned_directly(settings(), good)
        assert published(settings()).to_bytes({}) == snapshot_bytes(settings(), expected)
        [rejected] = ask(settings(), lambda stream: DeadLetters(stream).page())
        assert rejected.facts["reason"] == "internal_error"
        assert "a bug of ours" in rejected.facts["detail"]
    assert "Traceback" in caplog.text


def test_nothing_but_bad_entries_leaves_no_backlog(settings: MakeSettings) -> None:
    with training(settings()):
        add_by_hand(settings(), {"hello": "world"})
        wait_for_backlog(settings())
        assert published_position(settings()) == (0, 1)


def test_what_is_shown_of_a_model_outlives_its_trainer(settings: MakeSettings) -> None:
    made = settings()

    def shown() -> dict[str, float]:
        return read(ask(made, lambda stream: stream.reports.trainer_metrics()))

    names = [f"s{row}" for row in range(20)]
    with training(made):
        send(made, *sub_tasks(0))
        send(made, RawBatch.of(batch(0, 99).to_float32(), sample_ids=names))
        wait_for_backlog(made)
    before = shown()
    with training(made):
        wait_until(lambda: status(made)["state"] == "running")
        after = shown()
    same = ("prequential_accuracy", "log_likelihood_mean", "drift_armed", "sub_task", "classes")
    for name in (*(f"gmr_{one}" for one in same), "gmr_components", "gmr_awaiting_samples"):
        assert after[name] == before[name], name
    assert after["gmr_awaiting_samples"] == 20
    assert after["gmr_prequential_accuracy"] > 0.5


# Control ------------------------------------------------------------------------------


def test_a_boundary_can_be_declared(settings: MakeSettings) -> None:
    with training(settings(detector="none")):
        send(settings(), *sub_tasks(0), Control("boundary"), *sub_tasks(1))
        wait_for_backlog(settings())
        [boundary] = ask(settings(), lambda stream: stream.reports.boundaries())
        assert boundary.data["detector"] == "declared"
        assert boundary.data["batch_index"] == 15
        assert published(settings()).info.sub_task == 1


def test_the_version_before_a_boundary_is_kept_and_can_come_back(settings: MakeSettings) -> None:
    settings = partial(settings, experts=True)  # whose single samples do not come back
    stream = sub_tasks(0, 1)
    with training(settings()):
        send(settings(), *stream)
        wait_for_backlog(settings())
        [boundary] = ask(settings(), lambda stream: stream.reports.boundaries())
        before = boundary.data["version_before"]
        kept = wait_until(
            lambda: [one for one in versions(settings()) if one.get("before_boundary") == 1]
        )
        assert [one["version"] for one in kept] == [before]

        send(settings(), Control("rollback", version=before))
        wait_for_backlog(settings())
        assert published(settings()).version == before
        # Experts hear labels of what is set aside, each batch in a version of its own.
        expected = learned_directly(settings(), stream[:before])
        assert expected.model.version == before
        assert published(settings()).classify(_features(0)).codes.tolist() == [0] * 20
        engine = Engine(settings().engine_config())
        bare = engine.snapshot(engine.without_raw(expected))  # the same model, its window empty
        assert bare.info.window == 0
        assert published(settings()).to_bytes({}) == bare.to_bytes({})
        assert kinds(settings()).count("model_restored") == 1

        # It goes on from there, under versions that were never used.
        send(settings(), *sub_tasks(2))
        wait_for_backlog(settings())
        assert published(settings()).version > boundary.data["version_after"]
    after = published(settings())
    with training(settings()):
        wait_for_backlog(settings())
        assert published(settings()).to_bytes({}) == after.to_bytes({})


def _features(label: int) -> Any:
    import torch

    return torch.from_numpy(batch(label, 99).to_float32())


def test_a_checkpoint_can_be_downloaded_and_given_to_another_service(
    settings: MakeSettings,
) -> None:
    stream = sub_tasks(0, 1)
    with training(settings()):
        send(settings(), *stream)
        wait_for_backlog(settings())
        data = ask(settings(), downloaded)
        state, config, _ = load(data)
        expected = learned_directly(settings(), stream)
        assert snapshot_bytes(settings(), state) == snapshot_bytes(settings(), expected)
        assert config == settings().engine_config()

    other = settings(
        model=f"{settings().model}-other", data_dir=settings().data_dir.with_name("other")
    )
    with training(other):
        send(other, Control("restore", checkpoint=data))
        wait_for_backlog(other)
        taken = published(other)
        assert taken.classes == (0, 1)
        assert taken.info.samples_seen == 600
        assert ask(other, lambda stream: stream.n_features()) == D
        send(other, batch(0, 50))
        wait_for_backlog(other)


def test_an_upload_lies_beside_the_stream_until_a_checkpoint_holds_it(
    settings: MakeSettings,
) -> None:
    with training(settings()):
        send(settings(), *sub_tasks(0))
        wait_for_backlog(settings())
        data = ask(settings(), downloaded)

    other = settings(
        model=f"{settings().model}-other", data_dir=settings().data_dir.with_name("other")
    )
    keys = Keys(other.model)
    made = upload(other, data)
    with connect(other.redis_address() or "") as client:
        assert client.ttl(keys.upload(made.id)) == -1  # for as long as the entry
        with training(other):
            wait_for_backlog(other)
            assert published(other).info.samples_seen == 300
            wait_until(lambda: not client.exists(keys.upload(made.id)))
            assert client.hlen(keys.uploads) == 0
        # What no entry names goes by itself.
        unnamed = upload(other, data, entry=False)
        assert 0 < client.ttl(keys.upload(unnamed.id)) <= 600


def test_an_upload_is_found_again_by_a_trainer_that_had_no_time_to_keep_it(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    with training(settings()):
        send(settings(), *sub_tasks(0))
        wait_for_backlog(settings())
        data = ask(settings(), downloaded)

    other = settings(
        model=f"{settings().model}-other", data_dir=settings().data_dir.with_name("other")
    )
    made = upload(other, data)
    with monkeypatch.context() as broken, training(other):
        # As if it had been killed before its first checkpoint: none reaches the disk.
        broken.setattr("service.store.in_folder.write_atomically", no_room)
        wait_for_backlog(other)
        assert published(other).info.samples_seen == 300
    send(other, batch(0, 77))
    with training(other), connect(other.redis_address() or "") as client:
        wait_for_backlog(other)
        assert published(other).info.samples_seen == 320
        wait_until(lambda: not client.exists(Keys(other.model).upload(made.id)))


def test_an_upload_that_is_gone_or_another_is_set_aside(settings: MakeSettings) -> None:
    with training(settings()):
        send(settings(), *sub_tasks(0))
        wait_for_backlog(settings())
        data = ask(settings(), downloaded)
        with connect(settings().redis_address() or "") as client:
            keys = Keys(settings().model)
            gone = Control("restore", upload=Upload("0", 1, 5, ""))
            with pytest.raises(StreamUnavailable, match="Pieces of the checkpoint are gone"):
                send(settings(), gone)
            made = upload(settings(), data, entry=False)
            client.hset(keys.upload(made.id), "0", data[:-1] + b"?")
            send(settings(), Control("restore", upload=made))
        wait_for_backlog(settings())
        (rejected,) = ask(settings(), lambda stream: DeadLetters(stream).page())
        assert rejected.facts["reason"] == "invalid_checkpoint"
        assert rejected.facts["whole"] is False  # its pieces go with the entry
        assert "upload it again" in rejected.facts["detail"]


def no_room(*_: object, **__: object) -> None:
    raise OSError("no space left on device")


def test_a_quiet_stream_is_settled_once(settings: MakeSettings) -> None:
    quick = settings(settle_after_s=0.1)
    # A few strange samples at the end look like a change that then does not come.
    with training(quick):
        send(quick, *sub_tasks(0), batch(1, 0, n=10))
        wait_until(lambda: "set_aside_released" in kinds(quick))
        assert history(quick)[-1]["kind"] == "batch_set_aside"
        time.sleep(3 * quick.settle_after_s)
        assert ask(quick, lambda stream: stream.accepted()) == 17
        wait_for_backlog(quick)
        assert status(quick)["set_aside_batches"] == 0
        assert status(quick)["samples_seen"] == 310
        assert published(quick).classes == (0, 1)


def test_what_waits_is_taken_in_once_when_the_stream_is_quiet(settings: MakeSettings) -> None:
    quick = settings(settle_after_s=0.1)
    with training(quick):
        send(quick, *sub_tasks(0)[:3])
        wait_until(lambda: "windows_settled" in kinds(quick))
        wait_for_backlog(quick)
        info = published(quick).info
        [told] = [one for one in events(quick) if one["kind"] == "windows_settled"]
        assert told["model_version"] == info.model_version == 4
        assert (info.waiting, info.samples_seen) == (0, 60)
        assert told["samples"] > 0
        time.sleep(3 * quick.settle_after_s)
    with training(quick):  # and a restart is no reason to do so again
        time.sleep(3 * quick.settle_after_s)
        assert ask(quick, lambda stream: stream.accepted()) == 4
        send(quick, *sub_tasks(0)[3:6])
        wait_until(lambda: kinds(quick).count("windows_settled") == 2)
        wait_for_backlog(quick)
        assert published(quick).info.model_version == 8


# Stopping and starting ------------------------------------------------------------------


def test_a_restart_goes_on_where_it_was_bit_for_bit(settings: MakeSettings) -> None:
    stream = sub_tasks(0, 1, 2)
    quiet = settings(settle_after_s=3600)
    for part in (stream[:7], stream[7:20], stream[20:]):
        with training(quiet):
            send(quiet, *part)
            wait_for_backlog(quiet)
    expected = learned_directly(quiet, stream)
    assert published(quiet).to_bytes({}) == snapshot_bytes(quiet, expected)
    assert [row["batch_index"] for row in history(quiet)] == list(range(45))


def test_what_is_in_the_stream_is_learned_before_the_end(settings: MakeSettings) -> None:
    trainer = Trainer(settings())
    send(settings(), *sub_tasks(0))
    trainer.stop()
    trainer.run()
    assert published_position(settings()) == (15, 15)


def test_without_time_to_drain_the_rest_stays_in_the_stream(settings: MakeSettings) -> None:
    hasty = settings(drain_timeout_s=0)
    trainer = Trainer(hasty)
    send(hasty, *sub_tasks(0))
    trainer.stop()
    trainer.run()
    assert ask(hasty, lambda stream: stream.reports.status())["entries_applied"] == 0
    with training(hasty):
        wait_for_backlog(hasty)
        assert published_position(hasty) == (15, 15)


def test_entries_are_let_go_once_two_checkpoints_hold_them(settings: MakeSettings) -> None:
    eager = settings(checkpoint_interval_s=0.05)
    with training(eager), connect(eager.redis_address() or "") as client:
        send(eager, *sub_tasks(0))
        wait_until(lambda: client.xlen(Keys(eager.model).input) == 0)
        [group] = client.xinfo_groups(Keys(eager.model).input)
        assert group["pending"] == 0
        assert ask(eager, lambda stream: stream.accepted()) == 15
        newest = max(
            (eager.data_dir / "checkpoints").glob("*.safetensors"), key=lambda p: p.stat().st_mtime
        )
        _, _, metadata = load(newest.read_bytes())
        assert metadata["entries_applied"] == "15"


def test_a_lot_of_learned_bytes_brings_the_checkpoint_forward(settings: MakeSettings) -> None:
    patient = settings(checkpoint_interval_s=3600, checkpoint_mib=1)
    large = RawBatch.of(np.random.default_rng(0).random((2000, 300)))
    with training(patient), connect(patient.redis_address() or "") as client:
        send(patient, RawBatch.of(large.features[:10]), large)
        wait_until(lambda: client.xlen(Keys(patient.model).input) == 0)


def test_a_damaged_checkpoint_is_named_and_costs_nothing(
    settings: MakeSettings, caplog: pytest.LogCaptureFixture
) -> None:
    stream = sub_tasks(0)
    for part in (stream[:5], stream[5:10]):
        # However slow the machine, no checkpoint comes in between.
        with training(settings(checkpoint_interval_s=3600)):
            send(settings(), *part)
            wait_for_backlog(settings())
    folder = settings().data_dir / "checkpoints"
    newest = folder / "10-10-twin.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    with caplog.at_level(logging.ERROR), training(settings()):
        send(settings(), *stream[10:])
        wait_for_backlog(settings())
        assert status(settings())["samples_seen"] == 300
    assert "10-10-twin.safetensors" in caplog.text
    assert (folder / "10-10-twin.damaged").exists()


def test_a_full_disk_stops_neither_learning_nor_the_trainer(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with training(settings()):
        with monkeypatch.context() as patched:
            patched.setattr("service.broker.snapshots.write_atomically", full)
            patched.setattr("service.store.in_folder.write_atomically", full)
            send(settings(), *sub_tasks(0))
            wait_until(lambda: (status(settings()) or {}).get("entries_applied") == 15)
            wait_until(lambda: status(settings())["error"])
            assert published_position(settings())[0] == 0
        wait_for_backlog(settings())
        wait_until(lambda: status(settings())["error"] is None)
        assert published_position(settings()) == (15, 15)


# One at a time ----------------------------------------------------------------------------


def test_a_second_trainer_is_refused(settings: MakeSettings) -> None:
    with training(settings()):
        wait_until(lambda: ask(settings(), lambda stream: stream.reports.status()))
        with pytest.raises(InvalidSettings, match="in use by another trainer"):
            Trainer(settings())
        elsewhere = Trainer(settings(data_dir=settings().data_dir.with_name("elsewhere")))
        with pytest.raises(InvalidSettings, match="Another trainer works on this model"):
            elsewhere.run()


def test_a_trainer_that_was_replaced_stops(settings: MakeSettings) -> None:
    trainer = Trainer(settings())

    def replace_it() -> None:
        wait_until(lambda: ask(settings(), lambda stream: stream.reports.status()))
        with connect(settings().redis_address() or "") as client:
            client.set(Keys(settings().model).fence, "someone else")
        send(settings(), batch(0, 0))

    other = threading.Thread(target=replace_it)
    other.start()
    with pytest.raises(LeaseLost):
        trainer.run()
    other.join()
    assert published_position(settings()) == (0, 0)


# Killing ----------------------------------------------------------------------------------


def process(settings: Settings) -> AbstractContextManager[Forked]:
    """A trainer in a process of its own; killed at the end if it still lives."""
    return forked(TRAINER, variables=settings.environment())


def applied(settings: Settings) -> int:
    found = ask(settings, lambda stream: stream.reports.status())
    return 0 if found is None else int(found["entries_applied"])


def test_a_killed_trainer_loses_nothing_and_learns_nothing_twice(settings: MakeSettings) -> None:
    quiet = settings(settle_after_s=3600, checkpoint_interval_s=0.05)
    stream = sub_tasks(0, 1, 2, 3, batches=20)
    send(quiet, *stream)
    for enough in (10, 35):
        with process(quiet) as trainer:
            wait_until(lambda enough=enough: applied(quiet) >= enough)
            trainer.kill()
    with process(quiet) as trainer:
        wait_for_backlog(quiet)
        trainer.send_signal(signal.SIGTERM)
        assert trainer.wait(20) == 0
    expected = learned_directly(quiet, stream)
    assert published(quiet).to_bytes({}) == snapshot_bytes(quiet, expected)
    assert [row["batch_index"] for row in history(quiet)] == list(range(80))
    boundaries = ask(quiet, lambda stream: stream.reports.boundaries())
    assert [record.data["boundary"] for record in boundaries] == [1, 2, 3]


def test_a_trainer_waits_for_redis_and_survives_its_restart(
    settings: MakeSettings, own_redis: EmbeddedRedis
) -> None:
    quiet = settings(redis_url=own_redis.url, settle_after_s=3600, checkpoint_interval_s=0.2)
    stream = sub_tasks(0, 1)
    with training(quiet):
        time.sleep(0.1)
        own_redis.start()
        send(quiet, *stream[:10])
        wait_until(lambda: applied(quiet) >= 5)
        for part in (stream[10:20], stream[20:]):
            assert own_redis.pid is not None
            os.kill(own_redis.pid, signal.SIGKILL)
            wait_until(lambda: own_redis.poll() is not None)
            own_redis.start()
            send(quiet, *part)
        wait_for_backlog(quiet)
        assert status(quiet)["redis_errors"] > 0
    expected = learned_directly(quiet, stream)
    assert published(quiet).to_bytes({}) == snapshot_bytes(quiet, expected)
    assert [row["batch_index"] for row in history(quiet)] == list(range(30))


def test_a_trainer_can_stop_while_redis_is_away(
    settings: MakeSettings, own_redis: EmbeddedRedis
) -> None:
    own_redis.start()
    quiet = settings(redis_url=own_redis.url, settle_after_s=3600)
    with training(quiet):
        send(quiet, *sub_tasks(0))
        wait_for_backlog(quiet)
        own_redis.stop()
        started = time.monotonic()
    assert time.monotonic() - started < 8
    own_redis.start()
    with connect(own_redis.url) as client:
        # A trainer in another process would see that the holder is gone.
        client.delete(Keys(quiet.model).lease)
    with training(quiet):
        send(quiet, *sub_tasks(1))
        wait_for_backlog(quiet)
    assert [row["batch_index"] for row in history(quiet)] == list(range(30))


def test_wrong_settings_end_the_process_with_status_2(settings: MakeSettings) -> None:
    with process(settings(device="cuda:9")) as trainer:
        assert trainer.wait(30) == 2


def test_what_is_served_never_goes_back_after_a_crash(
    settings: MakeSettings,
) -> None:
    quiet = settings(checkpoint_interval_s=3600)
    stream = sub_tasks(0, batches=12)
    with training(quiet):
        send(quiet, *stream[:4])
        wait_for_backlog(quiet)
    with process(quiet) as trainer:
        send(quiet, *stream[4:])
        wait_for_backlog(quiet)
        trainer.kill()
    before = len(notices(quiet))
    with training(quiet):
        wait_until(lambda: (status(quiet) or {}).get("entries_applied") == 12)
    later = notices(quiet)[before:]
    assert later
    assert min(int(fields[b"entries_applied"]) for _, fields in later) == 12


def notices(settings: Settings) -> list[Any]:
    with connect(settings.redis_address() or "") as client:
        found: list[Any] = client.xrange(Keys(settings.model).published)
        return found
