"""A short storm, and proof that its oracle would have noticed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from core.engine.checkpoint import dump, load
from tests.chaos.attacked import attacked
from tests.chaos.oracle import Outcome, Plain, faults, faults_of_archive
from tests.chaos.preloaded import COMPILER
from tests.chaos.storm import DAMAGED, KILLED, TORN, Storm

PLAN = [
    ("service.supervisor", TORN if COMPILER else KILLED),
    ("service.trainer", "a checkpoint has its name"),
    ("redis-server", "entries are to be released"),
    ("service.api", "an entry is appended and not answered"),
    ("service.trainer", DAMAGED),
]


@pytest.mark.slow
def test_a_storm_loses_nothing_learns_nothing_twice_and_its_oracle_sees_what_would(
    tmp_path: Path,
) -> None:
    with attacked(tmp_path / "data", events_length=1_000_000, archive_mib=64) as running:
        storm = Storm(running, seed=1, pause_s=0.15, rest_s=(0.1, 0.3), batches_of_a_class=12)
        storm.run(PLAN, producers=1)
        # However slow the machine is, the second class comes, and with it a boundary.
        storm.produce(lambda: len(storm.sent) >= 18)
        outcome = storm.outcome()
        settings = running.settings
        assert running.stop() == 0
    plain = Plain.of(settings, storm.sent, storm.acknowledged)
    assert sum(storm.hits.values()) == len(PLAN)
    assert faults(plain, storm.sent, outcome) == []
    assert faults_of_archive(settings, outcome) == []
    assert len(outcome.boundaries) >= 1

    # Each of these is one broken promise, and must be noticed.
    lost = dict(list(storm.acknowledged.items())[:-1])
    assert "never acknowledged" in _only(
        faults(plain, storm.sent, replace(outcome, acknowledged=lost))
    )
    broken = {
        "the state is not that of a plain run": replace(outcome, checkpoint=_learned_less(outcome)),
        "1 missing": replace(outcome, events=[*outcome.events[:5], *outcome.events[6:]]),
        "1 rows of the history instead": replace(outcome, history=outcome.history[:1]),
        "has counted samples_learned": replace(outcome, checkpoint=_counted_less(outcome)),
        "of kind boundary instead of": replace(outcome, boundaries=outcome.boundaries[1:]),
        "of kind message to the webhook": replace(outcome, delivered=outcome.delivered[1:]),
        "others in order": replace(outcome, events=[*outcome.events, outcome.events[0]]),
        "event 3 says": replace(outcome, contents=_told_otherwise(outcome.contents)),
        "row of the history 3 says": replace(outcome, rows=_told_otherwise(outcome.rows)),
        "does not add up": replace(outcome, ledger={**outcome.ledger, "unaccounted": 1}),
        "fate is wrong": replace(outcome, fates={**outcome.fates, "batch-1": ("lost", 1)}),
        "several entries": replace(
            outcome,
            acknowledged={**storm.acknowledged, "batch-1": [*storm.acknowledged["batch-1"], "9-9"]},
        ),
    }
    for told, one in broken.items():
        assert any(told in fault for fault in faults(plain, storm.sent, one)), told


def _only(found: list[str]) -> str:
    [one] = found
    return one


def _told_otherwise(told: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The same, but that the fourth speaks of another version."""
    return [*told[:3], {**told[3], "model_version": -1}, *told[4:]]


def _counted_less(outcome: Outcome) -> bytes:
    state, config, text = load(outcome.checkpoint)
    totals = orjson.loads(text["totals"])
    totals["samples_learned"] -= 20
    return dump(state, config, {**text, "totals": orjson.dumps(totals).decode()})


def _learned_less(outcome: Outcome) -> bytes:
    state, config, text = load(outcome.checkpoint)
    return dump(state.with_model(samples_seen=state.model.samples_seen - 20), config, text)
