"""Trainers killed at the instants at which it would hurt: between one durable step and the next."""

from __future__ import annotations

import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings
from tests.service.conftest import MakeSettings
from tests.service.forked import forked
from tests.service.running import (
    learned_directly,
    send,
    snapshot_bytes,
    sub_tasks,
    training,
    wait_for_backlog,
)
from tests.service.trainer.test_writer import events, history, published

ROOT = Path(__file__).parents[3]

PATIENT = {"checkpoint_interval_s": 3600}
"""Then the only checkpoints are those at boundaries and at the end."""

INSTANTS = {
    "the checkpoint before a boundary is on disk": (
        "service.store.in_folder.FolderCheckpoints",
        "write",
        "after",
        1,
    ),
    "entries are to be released": ("service.broker.feed.Feed", "release", "before", 1),
    "between events and the checkpoint": ("service.trainer.saver.Saver", "save", "before", 1),
}

DIES = """
import importlib, os, signal, sys
from service.settings import Settings
from service.trainer import host, pace
module, _, name = sys.argv[1].rpartition(".")
owner = getattr(importlib.import_module(module), name)
method, when, left = sys.argv[2], sys.argv[3], [int(sys.argv[4])]
whole = getattr(owner, method)
def dying(*given, **named):
    left[0] -= 1
    if when == "before" and not left[0]: os.kill(os.getpid(), signal.SIGKILL)
    result = whole(*given, **named)
    if when == "after" and not left[0]: os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(owner, method, dying)
# Reports wait for as long as they may, and longer.
host.ALONE = pace.Pace(house_s=0.5, status_s=1.0)
sys.exit(host.main(Settings.load()))
"""


def dies(settings: Settings, owner: str, method: str, when: str, nth: int) -> None:
    """Run a trainer until it is killed where it is said."""
    with forked(DIES, owner, method, when, str(nth), variables=settings.environment()) as one:
        assert one.wait(60) == -signal.SIGKILL


def told(settings: Settings) -> list[dict[str, Any]]:
    """Every event but those that depend on the clock."""
    return [
        {
            name: value
            for name, value in event.items()
            if name != "time" and not name.endswith("entry_id")
        }
        for event in events(settings)
        if event["kind"] != "model_published"
    ]


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    """What a life without a death comes to; filled by the first test."""
    return {}


@pytest.mark.parametrize("instant", list(INSTANTS))
def test_a_death_at_any_instant_costs_neither_model_nor_events(
    settings: MakeSettings, instant: str, plain: dict[str, Any], tmp_path: Path
) -> None:
    stream = sub_tasks(0, 1, batches=15)
    if not plain:
        other = settings(**PATIENT, model=uuid.uuid4().hex, data_dir=tmp_path / "plain")
        send(other, *stream)
        with training(other):
            wait_for_backlog(other)
        plain.update(events=told(other), history=len(history(other)))
    one = settings(**PATIENT)
    send(one, *stream)
    owner, method, when, nth = INSTANTS[instant]
    dies(one, owner, method, when, nth)
    with training(one):
        wait_for_backlog(one)
    assert published(one).to_bytes({}) == snapshot_bytes(one, learned_directly(one, stream))
    assert told(one) == plain["events"]
    assert [row["batch_index"] for row in history(one)] == list(range(plain["history"]))
