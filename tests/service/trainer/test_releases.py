"""Tests for the service.trainer.releases module: one damaged file loses nothing."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from service.broker.connection import connect
from service.broker.entries import Entry, Position
from service.broker.feed import Feed
from service.broker.keys import Keys
from service.settings import Settings
from service.trainer.releases import Releases
from service.trainer.saver import Saved
from service.wire import Control
from tests.service.conftest import MakeSettings
from tests.service.running import (
    ask,
    learned_directly,
    send,
    snapshot_bytes,
    sub_tasks,
    training,
    wait_for_backlog,
    wait_until,
)
from tests.service.trainer.test_writer import history, published

PATIENT = {"checkpoint_interval_s": 3600}
STREAM = sub_tasks(0, 1, batches=10)


def left(settings: Settings) -> int:
    """Entries in the stream."""
    with connect(settings.redis_address() or "") as client:
        return int(client.xlen(Keys(settings.model).input))


def copied(made: Settings, to: Settings) -> Settings:
    """What a service has left, once more under another name."""
    shutil.copytree(made.data_dir, to.data_dir)
    with connect(made.redis_address() or "") as client:
        for key in client.keys(f"{{gmr:{made.model}}}:*"):
            if key.endswith((b":lease", b":fence", b":published", b":status")):
                continue
            name = Keys(to.model)._key(key.decode().partition("}:")[2])
            client.restore(name, 0, client.dump(key))
    return to


def damage(path: Path, place: float, how: str) -> None:
    data = bytearray(path.read_bytes())
    at = min(int(place * len(data)), len(data) - 1)
    if how == "cut":
        del data[at:]
    elif how == "zeros":
        data[at : at + 512] = bytes(len(data[at : at + 512]))
    else:
        data[at] ^= 1 << (at % 8)
    path.write_bytes(data)


@pytest.mark.parametrize("twin", [True, False], ids=["stopped", "died-before-the-twin"])
def test_one_damaged_file_loses_nothing_wherever_it_is(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, twin: bool
) -> None:
    made = settings(**PATIENT)
    with monkeypatch.context() as patched:
        if not twin:
            patched.setattr(Releases, "twin_missing", False)
        for part in (STREAM[:8], STREAM[8:14], STREAM[14:]):
            with training(made):
                send(made, *part)
                wait_for_backlog(made)
    assert left(made) == (0 if twin else 6)

    expected = snapshot_bytes(made, learned_directly(made, STREAM))
    files = sorted((made.data_dir / "checkpoints").glob("*[0-9n].*"))
    assert len([path for path in files if path.suffix == ".safetensors"]) >= 3
    generator = random.Random(0)
    for trial, path in enumerate(files):
        model = f"{made.model}-{trial}"
        other = settings(**PATIENT, model=model, data_dir=tmp_path / str(trial))
        copied(made, other)
        how = generator.choice(["bit", "bit", "cut", "zeros"])
        damage(other.data_dir / "checkpoints" / path.name, generator.random(), how)
        with training(other):
            pass  # an orderly end learns what is in the stream, and publishes
        assert published(other).to_bytes({}) == expected, (path.name, how)
        assert [row["batch_index"] for row in history(other)] == list(range(20))


def test_where_nothing_comes_the_stream_is_emptied_all_the_same(settings: MakeSettings) -> None:
    eager = settings(checkpoint_interval_s=0.05)
    with training(eager):
        send(eager, *STREAM)
        wait_until(lambda: left(eager) == 0)
        assert ask(eager, lambda stream: stream.accepted()) == 20
        wait_for_backlog(eager)  # what is published may come later
        newest = sorted((eager.data_dir / "checkpoints").glob("*-20*.safetensors"))
        assert [path.name.partition("-")[2] for path in newest] == [
            "20-twin.safetensors",
            "20.safetensors",
        ]
        assert newest[0].read_bytes() == newest[1].read_bytes()


def test_a_rollback_that_is_read_again_finds_its_version_again(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings(**PATIENT)
    monkeypatch.setattr(Releases, "twin_missing", False)
    for part in (STREAM[:3], STREAM[3:6], STREAM[6:9]):
        with training(made):
            send(made, *part)
            wait_for_backlog(made)
    with training(made):
        send(made, Control("rollback", version=3))
        wait_for_backlog(made)
    expected = published(made).to_bytes({})
    folder = made.data_dir / "checkpoints"
    damage(folder / "3-10.safetensors", 0.5, "bit")
    with training(made):
        pass
    assert published(made).to_bytes({}) == expected
    assert published(made).info.model_version == 3


def entry(feed: Feed) -> Entry:
    id = feed.client.xadd(feed.keys.input, {"x": b"x"}).decode()
    return Entry(id, {b"x": b"x"})


def saved(file: str, entry: Entry, n: int) -> Saved:
    return Saved(file, Position(entry.id, n), 0.0, 0.0, 1)


def test_entries_go_behind_the_older_of_two_files(feed: Feed) -> None:
    releases = Releases(feed)
    feed.open(Position())
    releases.open(Position())
    entries = [entry(feed) for _ in range(4)]
    for one in entries:
        releases.read(one)
    stream = feed.keys.input
    releases.saved(saved("2", entries[1], 2))
    assert feed.client.xlen(stream) == 4
    assert releases.twin_missing
    releases.saved(saved("2", entries[1], 2))  # the same file again
    assert feed.client.xlen(stream) == 4
    releases.saved(saved("4", entries[3], 4))
    assert feed.client.xlen(stream) == 2
    assert releases.twin_missing
    releases.saved(saved("4-twin", entries[3], 4))
    assert feed.client.xlen(stream) == 0
    assert not releases.twin_missing
    assert releases.nbytes == 0
    assert feed.client.get(feed.keys.applied) == b"4"
