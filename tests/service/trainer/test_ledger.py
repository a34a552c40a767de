"""Tests for service.trainer.ledger: whatever a stream holds, its samples add up at every step."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from core.batch import Batch
from core.config import EngineConfig
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState, Mode
from core.errors import GMRError, ModelAtRest
from core.events import EntriesLost, Event
from service.broker.entries import Position
from service.trainer.ledger import Ledger, Share

D = 6
STEPS = 45
MOST = 1000
CONFIG = EngineConfig(
    n_components=4,
    warm_up=100,
    awaiting_limit=30,
    label_wait_samples=150,
    set_aside_limit=100,
    proposal_samples=12,
    experts=False,  # they have no say in what becomes of a sample
)
ENGINE = Engine(CONFIG)

ODDS = {
    "same": 32,
    "later": 14,
    "unlabelled": 8,
    "mixed": 8,
    "new": 5,
    "outliers": 6,
    "labels": 10,
    "boundary": 2,
    "settle": 2,
    "expire": 2,
    "reject": 3,
    "again": 2,
    "mode": 4,
    "keep": 3,
    "rollback": 2,
    "upload": 1,
}
"""What may come next in a stream, and how often."""


@dataclass
class Life:
    """A stream in the making: the engine, its ledger, and a plain list of what was sent."""

    rng: np.random.Generator
    state: EngineState = field(default_factory=ENGINE.start)
    ledger: Ledger = field(default_factory=Ledger)
    entries: int = 0
    sent: dict[str, int] = field(default_factory=dict)  # samples of each entry that brought some
    rejected: dict[str, int] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)
    waiting: list[str] = field(default_factory=list)  # sample ids without a label
    kept: list[tuple[EngineState, Ledger, int, set[str]]] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)  # of events that were met
    home: int = 0

    @property
    def entry(self) -> str:
        return f"{self.entries}-0"

    def features(self, home: int, n: int) -> torch.Tensor:
        centre = np.random.default_rng(home).random(D) * 3
        return torch.from_numpy((centre + self.rng.normal(size=(n, D)) * 0.02).astype("f4"))

    def apply(
        self,
        result: tuple[EngineState, list[Event]],
        again: str | None = None,
        parts: dict[str, int] | None = None,
    ) -> None:
        self.state, events = result
        self.kinds |= {event.kind for event in events}
        outliers, stream = self.state.pending.quarantined, self.state.stream
        self.ledger = self.ledger.applied(self.entry, again, events, outliers, stream, parts)

    def batch(self, x: torch.Tensor, how: str, again: str | None = None) -> None:
        n = len(x)
        labels: list[Any] = [self.home if self.rng.random() < 0.9 else None for _ in range(n)]
        ids: list[Any] = [None] * n
        if how != "labelled":
            labels = [None] * n
        if how == "later":
            ids = [f"{self.entries}/{row}" for row in range(n)]
            self.waiting += ids
        parts: dict[str, int] | None = None
        if again is None:
            parts = self.parts(n)
            self.sent |= parts
        else:
            self.sent[self.entry] = self.sent.pop(again)
            del self.rejected[again]
        self.apply(ENGINE.step(self.state, Batch.of(x, labels, ids)), again, parts)

    def parts(self, n: int) -> dict[str, int]:
        """Samples of each entry that they came with: of one, or of several learned as one."""
        found = {}
        while n > 0:
            here = n if self.rng.random() < 0.7 else int(self.rng.integers(1, n + 1))
            found[self.entry] = here
            n -= here
            self.entries += n > 0
        return found

    def step(self) -> None:
        self.entries += 1
        n = int(self.rng.integers(1, 25))
        what = self.rng.choice(list(ODDS), p=np.array(list(ODDS.values())) / sum(ODDS.values()))
        match what:
            case "same":
                self.batch(self.features(self.home, n), "labelled")
            case "later" | "unlabelled":
                self.batch(self.features(self.home, n), what)
            case "mixed":
                strange = self.features(50 + self.entries % 3, 3)
                self.batch(torch.cat([self.features(self.home, n), strange]), "unlabelled")
            case "new":
                self.home += 1
                self.batch(self.features(self.home, n), self.rng.choice(["labelled", "later"]))
            case "outliers":
                self.batch(self.features(90, 20), "unlabelled")
            case "labels":
                some = [id for id in self.waiting if self.rng.random() < 0.5]
                self.waiting = [id for id in self.waiting if id not in some]
                # Too many for a model at rest: a dead letter, which holds no sample.
                with suppress(ModelAtRest):
                    if some:
                        self.apply(ENGINE.label(self.state, some[::-1], [self.home] * len(some)))
            case "mode":
                # Mostly awake, so that the other kinds happen.
                asleep = self.state.learns and self.rng.random() < 0.5
                modes = (Mode.FROZEN, Mode.DETECT_ONLY) if asleep else (Mode.LEARN,)
                mode = modes[int(self.rng.integers(len(modes)))]
                self.apply(ENGINE.change_mode(self.state, mode))
            case "boundary" if self.state.learns:
                self.apply(ENGINE.declare_boundary(self.state))
            case "settle":
                self.apply(ENGINE.settle(self.state))
            case "expire":
                self.apply(ENGINE.expire(self.state, max(0, self.state.stream.samples - 30)))
            case "reject":
                with pytest.raises(GMRError):
                    ENGINE.step(self.state, Batch(torch.full((n, D), torch.nan)))
                self.sent[self.entry] = self.rejected[self.entry] = n
                self.ledger = self.ledger.refused(None, n)
            case "again" if self.rejected:
                first = next(iter(self.rejected))
                x = self.features(self.home, self.rejected[first])
                self.batch(x, "labelled", again=first)
            case "keep":
                ledger = self.ledger.pruned(self.state, MOST)
                ledger = Ledger.from_json(ledger.to_json())
                held = {*self.sent} - self.dropped - {*self.rejected}
                state, _, _ = load(dump(self.state, CONFIG, {}))
                self.kept.append((state, ledger, self.entries, held))
            case "rollback" if self.kept:
                state, ledger, _, held = self.kept[int(self.rng.integers(len(self.kept)))]
                self.ledger = self.ledger.rolled_back(ledger, state)
                self.apply(ENGINE.restore(self.state, state, "rollback"))
                self.dropped = {*self.sent} - held - {*self.rejected}
            case "upload" if self.state.n_features:
                self.apply(ENGINE.restore(self.state, self.state, "checkpoint"))
                self.ledger = self.ledger.uploaded(self.state)
                self.dropped = {*self.sent} - {*self.rejected}

    def check(self) -> None:
        self.ledger = self.ledger.pruned(self.state, MOST)
        counts: dict[str, int] = self.ledger.counts(self.state)  # type: ignore[assignment]
        assert counts["unaccounted"] == 0
        assert min(counts.values()) >= 0
        assert counts["accepted"] == sum(self.sent.values())
        assert counts["rejected"] == sum(self.rejected.values())
        # The batches one by one come to the same.
        fates = self.ledger.fates(self.state)
        total = dict.fromkeys(
            ("learned", "set_aside", "awaiting", "unknown", "quarantined", "passed"), 0
        )
        dropped = sum(self.sent[id] for id in self.dropped)
        for id, n in self.sent.items():
            if id in self.dropped or id in self.rejected:
                continue
            parts = fates.get(id, {"learned": n})
            assert sum(parts.values()) == n
            assert min(parts.values()) > 0
            dropped += parts.get("dropped", 0)
            for fate in total:
                total[fate] += parts.get(fate, 0)
        assert {**total, "dropped": dropped} == {name: counts[name] for name in (*total, "dropped")}


def live(seed: int, steps: int = STEPS) -> Life:
    life = Life(np.random.default_rng(seed))
    for _ in range(8):  # until the detector is armed
        life.entries += 1
        life.batch(life.features(0, 20), "labelled")
    for _ in range(steps):
        life.step()
        life.check()
    return life


@settings(max_examples=8, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.integers(0, 2**32))
def test_samples_add_up_at_every_step_of_any_stream(seed: int) -> None:
    live(seed)


def test_the_lives_above_meet_what_can_become_of_samples() -> None:
    met = set[str]()
    for seed in (4, 8):
        met |= live(seed).kinds
    assert met >= {
        "batch_passed",
        "batch_set_aside",
        "boundary",
        "labels_missed",
        "labels_matched",
        "model_restored",
        "outlier_burst",
        "set_aside_released",
    }


def test_samples_held_as_unknown_are_told_batch_by_batch_until_they_are_named() -> None:
    life = Life(np.random.default_rng(0))
    while life.state.pending.proposals.raw_samples < 8:
        assert life.entries < 100
        life.entries += 1
        life.batch(life.features(0, 30), "labelled")
        life.entries += 1
        strange = [life.features(80 + life.entries % 2, 1)] if life.entries > 30 else []
        life.batch(torch.cat([life.features(0, 30), *strange]), "unlabelled")
        life.check()
    counts = life.ledger.counts(life.state)
    assert counts["unknown"] == life.state.pending.proposals.raw_samples
    fates = life.ledger.fates(life.state)
    assert sum(parts.get("unknown", 0) for parts in fates.values()) == counts["unknown"]
    life.entries += 1
    life.apply(ENGINE.declare_boundary(life.state))
    life.check()
    assert life.ledger.counts(life.state)["unknown"] == 0
    assert not life.ledger.shares


def test_entries_that_no_checkpoint_held_are_lost_in_number_or_not_known() -> None:
    life = live(1, steps=2)
    gap = EntriesLost(3, "900-0", "902-0")
    lost = life.ledger.went_missing(gap, life.ledger.accepted + 60)
    counts = lost.counts(life.state)
    assert (counts["lost"], counts["unaccounted"]) == (60, 0)
    assert counts["accepted"] == life.ledger.accepted + 60
    assert lost.losses == (("900-0", "902-0"),)
    blank = life.ledger.went_missing(gap, None).counts(life.state)
    assert blank["accepted"] is blank["lost"] is blank["unaccounted"] is None
    assert blank["learned"] == counts["learned"]


def test_a_ledger_that_begins_late_counts_from_there_and_says_since_when() -> None:
    life = live(3, steps=30)
    late = Ledger.begun(life.state, Position(life.entry, life.entries))
    assert late.since == life.entry
    counts = late.counts(life.state)
    assert counts["learned"] == counts["unaccounted"] == 0
    waits: Sequence[Any] = [counts[name] for name in ("set_aside", "awaiting", "unknown")]
    assert counts["accepted"] == sum(waits)
    life.entries += 1
    state, events = ENGINE.step(life.state, Batch.of(life.features(life.home, 7), [life.home] * 7))
    after = late.applied(life.entry, None, events, (), state.stream).counts(state)
    assert after["accepted"] == sum(waits) + 7
    assert after["unaccounted"] == 0


def test_only_so_many_batches_are_told_apart_once_nothing_of_them_waits() -> None:
    shares = {f"{i}-0": Share(i * 10, 10, quarantined=1) for i in range(1, 6)}
    pruned = Ledger(shares=shares).pruned(ENGINE.start(), most=2)
    assert list(pruned.shares) == ["4-0", "5-0"]
    assert pruned.split_since == "3-0"
    nothing = Ledger(shares={"7-0": Share(0, 10)}).pruned(ENGINE.start(), most=2)
    assert (nothing.shares, nothing.split_since) == ({}, "0-0")
