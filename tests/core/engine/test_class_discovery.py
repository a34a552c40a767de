"""Tests for core.memory.proposals and core.engine.class_discovery: classes that nobody has named
yet."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.engine.checkpoint import dump, load
from core.engine.class_discovery import ClassDiscovery
from core.engine.clusters import DEGREES, clusters
from core.engine.engine import Engine
from core.engine.proximity import Proximity
from core.engine.state import EngineState
from core.errors import InvalidLabels, InvalidRequest
from core.events import (
    BatchLearned,
    BoundaryDetected,
    ClassDiscovered,
    ClassProposed,
    Event,
    LabelsMatched,
    LabelsMissed,
    ProposalClosed,
    SetAsideReleased,
    UnknownsLearned,
)
from core.learners.per_class.mfa import MfaLearner
from core.memory.proposals import MOST_OPEN, MOST_RECENT, MOST_UNKNOWN, group_of
from core.memory.unknown_rates import UnknownRates
from core.outliers.unknown import is_unknown
from core.running import Running
from tests.core.states import assert_identical, lived, tensors_of
from tests.core.streams import N_FEATURES, batches, blob, centre

NEW = 16
"""A class far from 0 and 1."""


def of(kind: type[Event], events: list[Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def engine_of(**config: Any) -> Engine:
    """Names are the mixture's own, unless experts are asked for."""
    usual = {"n_components": 24, "detector": "none", "proposal_samples": 20, "experts": False}
    return Engine(EngineConfig(**{**usual, **config}))


def long(engine: Engine) -> EngineState:
    """After 8,000 samples with labels, of which none is proposed whatever the settings say."""
    return lived(Engine(replace(engine.config, proposal_samples=20)), [0, 1], 80)


def traffic(
    engine: Engine, state: EngineState, label: int | None, n: int = 20, share: int = 20
) -> tuple[EngineState, list[Event]]:
    """Unlabelled batches of 100, of which `share` are of a class that is new."""
    happened: list[Event] = []
    for index, batch in enumerate(batches([0, 1], n, seed=60, labelled=False)):
        x = batch.features
        if label is not None:
            x = torch.cat([x[share:], blob(label, share, 500 + index)])
        state, events = engine.step(state, Batch(x))
        happened += events
        if of(ClassProposed, events):
            break
    return state, happened


# What is a group --------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(30, 60), st.integers(0, 80), st.sampled_from([16, 64]))
def test_a_group_is_found_among_strangers_and_only_where_there_is_one(
    seed: int, n: int, n_strangers: int, d: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    strangers = 30 * torch.randn(n_strangers, d, generator=generator)
    centre = 10 * torch.randn(d, generator=generator)
    group = centre + torch.randn(n, d, generator=generator)
    x = torch.cat([strangers, group])[torch.randperm(n + n_strangers, generator=generator)]
    found = group_of(x, 20, spread=1.3 * d)
    near = set((x - centre).square().sum(1).lt(5 * d).nonzero()[:, 0].tolist())
    assert found is not None
    assert len(near & set(found.tolist())) >= 0.8 * n
    assert len(set(found.tolist()) - near) <= 0.1 * n
    assert group_of(strangers, 20, spread=1.3 * d) is None


def test_unknown_is_what_lies_far_below_the_mean() -> None:
    known = Running(1000.0, mean=10.0, variance=4.0)
    assert is_unknown(torch.tensor([10.0, 5.5, 5.2, 99.0]), known).tolist() == [0, 0, 1, 0]


# A class that comes without labels --------------------------------------------------------


def test_unknown_samples_that_keep_coming_together_are_proposed_and_named() -> None:
    engine = engine_of(experts=True)
    state, events = traffic(engine, lived(engine, [0, 1], 15), NEW)
    (proposed,) = of(ClassProposed, events)
    assert (proposed.proposal, proposed.origin) == (1, "unknown")
    assert proposed.samples >= 20
    assert proposed.first_sample >= 1500
    assert proposed.last_sample < state.stream.samples
    assert (torch.tensor(proposed.prototype) - blob(NEW, 500, 3).mean(0)).abs().max() < 0.06
    assert set(proposed.nearest_classes) == {0, 1}
    assert sum(proposed.nearest_probabilities) == pytest.approx(1, abs=1e-4)
    before = engine.snapshot(state)
    assert before.info.unknown == state.pending.proposals.raw_samples >= proposed.samples

    for wrong in (1.0, True, (1, 2)):
        with pytest.raises(InvalidLabels, match="expected an integer or a string"):
            engine.name(state, 1, wrong)  # type: ignore[arg-type]  # what is tested
    state, events = engine.name(state, 1, "new")
    assert [event.label for event in of(ClassDiscovered, events)] == ["new"]
    (closed,) = of(ProposalClosed, events)
    assert (closed.reason, closed.label) == ("named", "new")
    assert closed.samples_learned == closed.samples == proposed.samples
    assert state.model.class_counts[2] == proposed.samples
    snapshot = engine.snapshot(state)
    named = [snapshot.classes[code] for code in snapshot.classify(blob(NEW, 100, 990)).codes]
    assert named.count("new") > 95
    assert not state.pending.proposals.open


@pytest.mark.parametrize("named", [0, None])
def test_samples_that_labels_name_as_often_are_of_a_known_class_and_no_proposal(
    named: int | None,
) -> None:
    """A known class comes at a new place too, where a fifth of all samples has a label."""
    engine = engine_of()
    state, estimates = lived(engine, [0, 1], 15), list[float | None]()
    made = list[Any]()
    for index, batch in enumerate(batches([0, 1], 6, seed=60)):
        x = torch.cat([batch.features[20:], blob(NEW, 20, 500 + index)])
        assert batch.codes is not None
        labels: list[int | None] = [batch.vocabulary[code] for code in batch.codes[20:].tolist()]
        labels = [label if row % 5 == 0 else None for row, label in enumerate(labels)]
        labels += [named if row % 5 == 0 else None for row in range(20)]
        state, events = engine.step(state, Batch.of(x, labels))
        made += of(ClassProposed, events)
        estimates += [one.estimated_unseen for one in of(BatchLearned, events)]
    assert len(made) == (named is None)
    # Of the newest some hundred samples a fifth would be wrong for certain.
    assert (estimates[-1] is not None and estimates[-1] > 0.05) == (named is None)
    # A proposal that is open counts no more once labels explain as many unknown samples.
    explained = replace(state.pending.proposals, rates=UnknownRates(numerator=1.0, denominator=1.0))
    _, events = engine.step(state.with_pending(proposals=explained), Batch(blob(0, 100, 900)))
    [last] = of(BatchLearned, events)
    assert last.estimated_unseen == pytest.approx(0, abs=1e-6)


def test_what_comes_later_joins_an_open_proposal_instead_of_making_another() -> None:
    engine = engine_of()
    state, events = traffic(engine, lived(engine, [0, 1], 15), NEW)
    (proposed,) = of(ClassProposed, events)
    for index in range(40):
        x = torch.cat([blob(0, 50, 900 + index), blob(1, 30, index), blob(NEW, 20, 900 + index)])
        state, events = engine.step(state, Batch(x))
        assert not of(ClassProposed, events)
    (proposal,) = state.pending.proposals.open
    # A full one takes no more: they are learned like any other.
    assert proposal.samples == len(proposal.unknowns) == MOST_UNKNOWN
    assert state.model.samples_seen + state.pending.proposals.raw_samples == state.stream.samples
    state, _ = engine.name(state, 1, "new")
    assert state.model.class_counts[2] == MOST_UNKNOWN > proposed.samples


@pytest.mark.parametrize("reason", ["samples", "time", "limit"])
def test_samples_whose_label_never_comes_are_proposed_like_those_without_an_id(reason: str) -> None:
    waits = {"samples": {"label_wait_samples": 200}, "limit": {"awaiting_limit": 200}, "time": {}}
    engine = engine_of(**waits[reason])
    state = lived(engine, [0, 1], 15)
    happened: list[Event] = []
    for index, batch in enumerate(batches([0, 1], 12, seed=60, labelled=False)):
        x = torch.cat([batch.features[20:], blob(NEW, 20, 500 + index)])
        ids = [100 * index + row for row in range(100)]
        state, events = engine.step(state, Batch(x, sample_ids=ids))
        happened += events
        if reason == "time":
            state, events = engine.expire(state, state.stream.samples - 200)
            happened += events
        held = state.pending.awaiting.raw_samples + state.pending.proposals.raw_samples
        assert state.model.samples_seen + held == state.stream.samples
    proposed = of(ClassProposed, happened)[0]
    assert proposed.samples >= 20
    assert 1500 <= proposed.first_sample < proposed.last_sample < state.stream.samples
    assert (torch.tensor(proposed.prototype) - blob(NEW, 500, 3).mean(0)).abs().max() < 0.1
    assert state.pending.proposals.recent.seen >= 600
    # Those that were held back as unknown are not learned yet.
    missed = of(LabelsMissed, happened)
    assert {one.reason for one in missed} == {reason}
    assert sum(one.samples for one in missed) == 1000
    learned = sum(one.samples_learned for one in missed)
    assert 600 <= learned == 1000 - state.pending.proposals.raw_samples <= 1000 - 20
    state, _ = engine.name(state, 1, "new")
    assert answers(engine, state, NEW, "new") > 95


@pytest.mark.parametrize("preset", ["mfa", "flat"])
@pytest.mark.parametrize("shares", [(50, 30, 20), (60, 35, 5)])
def test_a_name_is_not_given_to_known_classes_that_came_without_labels(
    preset: str, shares: tuple[int, int, int]
) -> None:
    engine = engine_of(preset=preset)
    state, _ = traffic(engine, lived(engine, [0, 1], 15), NEW, share=shares[2])
    for index in range(40):
        parts = [blob(label, n, 900 + index) for label, n in zip((0, 1, NEW), shares, strict=True)]
        state, _ = engine.step(state, Batch(torch.cat(parts)))
    state, _ = engine.name(state, 1, "new")
    assert answers(engine, state, 0, 0) > 95
    assert answers(engine, state, 1, 1) > 95
    assert answers(engine, state, NEW, "new") >= 90


@pytest.mark.parametrize("preset", ["mfa", "flat"])
@pytest.mark.parametrize("before", [True, False])
def test_a_name_that_is_put_off_by_a_suspicion_is_not_given_to_known_classes(
    preset: str, before: bool
) -> None:
    engine = engine_of(preset=preset)
    state, _ = traffic(engine, lived(engine, [0, 1], 15), NEW, share=5)
    for index in range(40):
        parts = [blob(0, 60, 900 + index), blob(1, 35, 900 + index), blob(NEW, 5, 900 + index)]
        state, _ = engine.step(state, Batch(torch.cat(parts)))
    # They came before the suspected change, or are part of it.
    since = state.stream.samples if before else 0
    state = state.with_pending(awaiting=replace(state.pending.awaiting, suspect_since=since))
    nameless = engine.learner.unnamed(state.model.learner)
    assert nameless is not None
    # So that nothing but the flag, and not their likelihood, says that they are unknown.
    unlikely = Running(1000.0, mean=-1e6, variance=1.0)
    state = state.with_sub_task(log_likelihood=unlikely).with_past(log_likelihood=unlikely)
    state, _ = engine.name(state, 1, "new")
    held = (*state.pending.awaiting.due, *state.pending.set_aside)
    assert [batch.novel for batch in held] == [True]
    state, _, _ = load(dump(state, engine.config, {}))
    state, events = engine.settle(state)
    assert of(SetAsideReleased, events)
    after = engine.learner.unnamed(state.model.learner)
    assert after is not None
    assert float(after.mass.sum()) > 0.95 * float(nameless.mass.sum())
    assert answers(engine, state, 0, 0) > 95
    assert answers(engine, state, 1, 1) > 95


def test_what_is_usual_in_its_sub_task_is_not_unknown() -> None:
    engine = engine_of()
    state, _ = engine.declare_boundary(long(engine))
    for index in range(15):
        x = blob(NEW, 100, 900 + index, spread=0.25)
        state, _ = engine.step(state, Batch.of(x, ["new"] * 100))
    assert state.standardiser is not None
    usual = state.standardiser.apply(blob(NEW, 200, 77, spread=0.25))
    scores = engine.learner.score(state.model.learner, usual)
    pooled = state.log_likelihood
    log_volume = state.standardiser.log_volume
    assert scores is not None
    below = is_unknown(scores.log_likelihood - log_volume, pooled).double().mean()
    assert below > 0.1, "of all that was learned it is the unlikelier part"
    unknown = engine.discovery.unknown(state, scores)
    assert unknown is not None
    assert unknown.double().mean() < 0.1


@pytest.mark.parametrize("preset", ["mfa", "flat"])
@pytest.mark.parametrize("each", [5, 100])
def test_labels_of_a_class_like_nothing_known_name_nothing_that_is_known(
    preset: str, each: int
) -> None:
    engine = engine_of(preset=preset, proposal_samples=0, experts=each == 5)
    state = lived(engine, [0, 1], 15)
    for batch in batches([0, 1], 20, seed=60, labelled=False):
        state, _ = engine.step(state, batch)
    for index in range(5):
        batch = Batch.of(blob(NEW, each, 900 + index), ["new"] * each)
        state, _ = engine.step(state, batch)
    assert answers(engine, state, 0, 0) > 95
    assert answers(engine, state, 1, 1) > 95
    assert answers(engine, state, NEW, "new") >= 90


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_late_labels_name_a_sub_task_that_is_less_likely_than_those_before(preset: str) -> None:
    engine = engine_of(preset=preset, proposal_samples=0)
    state, _ = engine.declare_boundary(long(engine))
    for index in range(6):
        state, _ = engine.step(state, Batch(blob(NEW, 100, 900 + index, spread=0.25)))
    usual = state.sub_task.log_likelihood.mean
    assert usual < state.log_likelihood.mean - 10
    before = engine.learner.unnamed(state.model.learner)
    assert before is not None
    assert float(before.mass.sum()) >= 256
    state, _ = engine.step(state, Batch.of(blob(NEW, 5, 950, spread=0.25), ["new"] * 5))
    after = engine.learner.unnamed(state.model.learner)
    assert after is None or float(after.mass.sum()) < 0.5 * float(before.mass.sum())
    assert answers(engine, state, NEW, "new") >= 90
    assert answers(engine, state, 0, 0) > 95
    assert answers(engine, state, 1, 1) > 95


def test_a_dismissed_proposal_is_learned_without_a_label() -> None:
    engine = engine_of()
    state, _ = traffic(engine, lived(engine, [0, 1], 15), NEW)
    held = len(state.pending.proposals.open[0].unknowns)
    seen, counts = state.model.samples_seen, state.model.class_counts
    state, events = engine.name(state, 1, None)
    (closed,) = of(ProposalClosed, events)
    assert (closed.reason, closed.label, closed.samples_learned) == ("dismissed", None, held)
    assert state.model.samples_seen == seen + held
    assert state.model.class_counts == counts
    with pytest.raises(InvalidRequest, match=r"Proposal 1 is not open\. Open are none"):
        engine.name(state, 1, "again")


@pytest.mark.parametrize("seed", range(3))
def test_neither_known_classes_nor_outliers_of_many_kinds_are_proposed(seed: int) -> None:
    engine = engine_of()
    state = lived(engine, [0, 1], 15)
    happened: list[Event] = []
    generator = torch.Generator().manual_seed(seed)
    for batch in batches([0, 1], 30, seed=70 + seed, labelled=False):
        x = batch.features.clone()
        x[:10] = torch.rand(10, N_FEATURES, generator=generator)
        state, events = engine.step(state, Batch(x))
        happened += events
    assert not of(ClassProposed, happened)
    assert len(state.pending.proposals.unknown) > 200, "they were unknown"
    assert sum(event.unknown for event in of(BatchLearned, happened)) >= 250


@pytest.mark.parametrize(("preset", "seed"), [("mfa", 1), ("flat", 0), ("flat", 1)])
def test_outer_samples_of_known_categories_are_proposed_never(preset: str, seed: int) -> None:
    """They lie closer to those of their category than to any others."""
    generator = torch.Generator().manual_seed(seed)
    category = torch.randint(4, (12_000,), generator=generator)
    numbers = category[:, None] + torch.randn(len(category), 2, generator=generator)
    x = torch.cat([torch.eye(4)[category], numbers], 1)
    heard = torch.rand(len(x), generator=generator) < 0.1
    heard[:2000] = True
    engine = Engine(EngineConfig(preset=preset, experts=False))
    state, proposed = engine.start(), []
    for start in range(0, len(x), 100):
        rows = range(start, start + 100)
        labels = [int(category[row]) // 2 if heard[row] else None for row in rows]
        state, events = engine.step(state, Batch.of(x[start : start + 100], labels))
        proposed += of(ClassProposed, events)
    assert state.pending.proposals.unknown.arrived
    assert proposed == []


def test_labelled_samples_and_a_stream_without_classes_are_held_back_never() -> None:
    engine = engine_of()
    state, events = engine.step(lived(engine, [0, 1], 15), Batch.of(blob(NEW, 60, 3), ["new"] * 60))
    assert of(BatchLearned, events)[0].unknown == 0
    state = engine.start()
    for batch in [*batches([0, 1], 15, labelled=False), Batch(blob(NEW, 60, 3))]:
        state, _ = engine.step(state, batch)
    assert state.model.samples_seen == state.stream.samples
    engine = engine_of(proposal_samples=0)
    state, _ = engine.step(lived(engine, [0, 1], 15), Batch(blob(NEW, 60, 3)))
    assert state.model.samples_seen == state.stream.samples


def test_only_so_many_are_open_and_only_so_many_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("core.engine.class_discovery.MOST_UNKNOWN", 60)
    engine = engine_of(proposal_samples=10)
    state, happened = lived(engine, [0, 1], 15), list[Event]()
    for label in range(7, 17):
        state, events = engine.step(state, Batch(blob(label, 12, label)))
        happened += events
    proposed, closed = of(ClassProposed, happened), of(ProposalClosed, happened)
    assert len(proposed) > MOST_OPEN
    assert len(state.pending.proposals.open) == MOST_OPEN
    assert [event.reason for event in closed] == ["limit"] * (len(proposed) - MOST_OPEN)
    assert [event.proposal for event in closed] == list(range(1, len(closed) + 1))
    generator = torch.Generator().manual_seed(0)
    for index in range(12):
        strange = torch.rand(12, N_FEATURES, generator=generator).round()
        state, events = engine.step(state, Batch(torch.cat([blob(0, 60, 400 + index), strange])))
        happened += events
        assert len(state.pending.proposals.unknown) <= 60
    assert {event.reason for event in of(UnknownsLearned, happened)} == {"limit"}
    assert state.model.samples_seen + state.pending.proposals.raw_samples == state.stream.samples
    assert engine.snapshot(state).info.unknown == state.pending.proposals.raw_samples


def test_a_stream_that_is_new_as_a_whole_is_learned() -> None:
    engine = engine_of()
    state, events = engine.step(lived(engine, [0, 1], 15), Batch(blob(NEW, 600, 3)))
    assert of(BatchLearned, events)[0].unknown == 0
    assert state.model.samples_seen == state.stream.samples


def test_too_many_classes_by_name_are_refused() -> None:
    engine = engine_of(max_classes=2)
    state, _ = traffic(engine, lived(engine, [0, 1], 15), NEW)
    with pytest.raises(InvalidLabels, match="to 3; at most 2"):
        engine.name(state, 1, "third")


# Boundaries -------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_after_a_boundary_a_name_falls_on_what_the_samples_were_learned_by(preset: str) -> None:
    engine = engine_of(preset=preset)
    state, _ = traffic(engine, lived(engine, [0, 1], 15), NEW)
    raw = {tuple(row) for row in state.pending.proposals.open[0].unknowns.features.tolist()}
    known = state.pending.proposals.open[0].samples
    state, events = engine.declare_boundary(state)
    # Others of the class, learned before it was proposed, may be found by what stands for them.
    n = state.pending.proposals.open[0].samples
    assert known <= n <= 20 * state.stream.batches
    assert of(UnknownsLearned, events)[0].reason == "boundary"
    assert state.pending.proposals.raw_samples == 0
    assert state.model.samples_seen == state.stream.samples
    kept = {
        tuple(row)
        for tensor in tensors_of(state)
        if tensor.ndim == 2 and tensor.shape[1] == N_FEATURES
        for row in tensor.tolist()
    }
    assert not raw & kept, "no raw sample outlives its sub-task"
    state, events = engine.name(state, 1, "new")
    assert of(ProposalClosed, events)[0].samples_learned == 0
    assert state.model.class_counts[state.model.classes.index("new")] == n
    snapshot = engine.snapshot(state)
    named = [snapshot.classes[code] for code in snapshot.classify(blob(NEW, 100, 990)).codes]
    assert named.count("new") > 90


def test_a_new_sub_task_without_labels_is_proposed_and_its_name_covers_what_it_learns() -> None:
    engine = engine_of(detector="sequential")
    state = lived(engine, [0, 1], 20)
    happened: list[Event] = []
    for index in range(12):
        state, events = engine.step(state, Batch(blob(4, 100, 700 + index)))
        happened += events
    assert of(BoundaryDetected, happened)
    (proposed,) = of(ClassProposed, happened)
    assert proposed.origin == "boundary"
    assert proposed.samples >= 90
    assert len(state.pending.proposals.open[0].surrogates)
    state, _ = engine.name(state, 1, "four")
    snapshot = engine.snapshot(state)
    named = [snapshot.classes[code] for code in snapshot.classify(blob(4, 100, 990)).codes]
    assert named.count("four") > 95
    for old in (0, 1):
        codes = snapshot.classify(blob(old, 100, 990)).codes
        assert [snapshot.classes[code] for code in codes].count(old) > 95


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_two_classes_without_labels_are_two_proposals_that_cover_them(preset: str) -> None:
    engine = engine_of(preset=preset, n_components=60, proposal_samples=50)
    state, _ = engine.declare_boundary(lived(engine, [0, 1], 15))
    # The next look is due before these end.
    state, proposed = unlabelled(engine, state, [4, 5], 14)
    first, second = proposed
    assert {first.origin, second.origin} == {"boundary"}
    assert sum(one.samples for one in state.pending.proposals.open) > first.samples + second.samples
    # What comes later is of them, too, and so is what comes after the next boundary.
    state, more = unlabelled(engine, state, [4, 5], 6, seed=9)
    assert not more
    state, _ = engine.declare_boundary(state)
    assert sum(one.samples for one in state.pending.proposals.open) == pytest.approx(2000, rel=0.1)
    state = named_by_prototype(engine, state, [0, 1, 4, 5])
    assert answers(engine, state, 4, "new-4") > 95
    assert answers(engine, state, 5, "new-5") > 95
    for known in (0, 1):
        assert answers(engine, state, known, known) > 95


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_known_classes_that_come_back_without_labels_are_no_proposal(preset: str) -> None:
    engine = engine_of(preset=preset, n_components=60, proposal_samples=50)
    state, _ = engine.declare_boundary(lived(engine, [0, 1], 15))
    state, proposed = unlabelled(engine, state, [4], 6)
    assert len(proposed) == 1
    state, _ = engine.declare_boundary(state)
    state, again = unlabelled(engine, state, [0, 1], 12, seed=5)
    assert not again
    if preset == "flat":
        return
    # Nor is what is proposed already: it is the same proposal.
    state, _ = engine.declare_boundary(state)
    before = state.pending.proposals.open[0].samples
    state, again = unlabelled(engine, state, [4], 8, seed=6)
    assert not again
    state, _ = engine.name(state, proposed[0].proposal, "new-4")
    assert answers(engine, state, 4, "new-4") > 95
    assert state.model.class_counts[state.model.classes.index("new-4")] >= before


def test_the_place_of_a_proposal_has_room_for_its_samples() -> None:
    """Of a cluster the last samples alone are kept, and its components have learned more."""
    engine = engine_of(n_components=60, proposal_samples=450)
    state, _ = engine.declare_boundary(lived(engine, [0, 1], 15))
    start = state.stream.samples
    state, (proposed,) = unlabelled(engine, state, [4], 12)
    assert proposed.samples <= proposed.last_sample - proposed.first_sample + 1
    state, _ = engine.declare_boundary(state)
    (one,) = state.pending.proposals.open
    assert start <= one.first < one.last < state.stream.samples
    assert max(proposed.samples, MOST_RECENT) < one.samples <= one.last - one.first + 1


def test_what_was_dismissed_is_not_proposed_again_in_its_sub_task() -> None:
    engine = engine_of(n_components=60, proposal_samples=50)
    state, _ = engine.declare_boundary(lived(engine, [0, 1], 15))
    state, (proposed,) = unlabelled(engine, state, [4], 6)
    state, _ = engine.name(state, proposed.proposal, None)
    assert len(state.pending.proposals.dismissed) == 1
    state, more = unlabelled(engine, state, [4], 12, seed=6)
    assert not more
    state, _ = engine.declare_boundary(state)
    assert not state.pending.proposals.dismissed
    assert not len(state.pending.proposals.recent), "no raw sample outlives its sub-task"


def test_recent_samples_are_bounded_and_no_part_of_a_kept_version() -> None:
    engine = engine_of(proposal_samples=50)
    state, _ = engine.declare_boundary(lived(engine, [0, 1], 15))
    state, _ = unlabelled(engine, state, [4], 9)
    assert (
        len(state.pending.proposals.recent)
        == len(state.pending.proposals.recent.gains)
        == MOST_RECENT
    )
    assert engine.snapshot(state).info.recent == MOST_RECENT
    assert not len(engine.without_raw(state).pending.proposals.recent)


@pytest.mark.parametrize("m", [3, 40])
def test_components_that_share_samples_are_one_cluster_however_many_they_are(m: int) -> None:
    joint = torch.randn(400, m, generator=torch.Generator().manual_seed(m)) / 2
    assert set(clusters(joint, 16, least=10).tolist()) == {0}


@pytest.mark.parametrize("m", [1, 10, 30])
def test_a_group_takes_in_no_more_of_others_by_being_large(m: int) -> None:
    # Pair by pair too little overlap, whatever the sizes of the two groups.
    far = 3.2 * DEGREES * math.sqrt(16)
    joint = torch.full((10 * (m + 2), m + 2), -far)
    joint[: 10 * m, :m] = joint[10 * m :, m:] = 0.0
    joint += torch.randn(joint.shape, generator=torch.Generator().manual_seed(m)) / 10
    found = clusters(joint, 16, least=5)
    assert len(set(found[:m].tolist())) == len(set(found[m:].tolist())) == 1
    assert found[0] != found[m]


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_what_had_no_room_is_proposed_once_another_is_named(
    preset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("core.engine.class_discovery.MOST_OPEN", 1)
    engine = engine_of(preset=preset, n_components=60, proposal_samples=50)
    state, _ = engine.declare_boundary(lived(engine, [0, 1], 15))
    state, (first,) = unlabelled(engine, state, [4, 5], 14)
    state, events = engine.name(state, first.proposal, "first")
    (second,) = of(ClassProposed, events)
    assert [one.number for one in state.pending.proposals.open] == [second.proposal]
    state, events = engine.name(state, second.proposal, "second")
    assert not of(ClassProposed, events)
    named = [
        answers(engine, state, label, name) for label in (4, 5) for name in ("first", "second")
    ]
    assert sorted(named)[2:] >= [90, 90]
    assert answers(engine, state, 0, 0) > 95
    assert answers(engine, state, 1, 1) > 95


def table(labels: list[int], n: int, d: int, seed: int) -> torch.Tensor:
    """Round blobs of d features, one per label, mixed."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.stack([centre(label, d) for label in labels])
    picks = torch.randint(len(labels), (n,), generator=generator)
    return centres[picks] + 0.08 * torch.randn(n, d, generator=generator)


@pytest.mark.parametrize("preset", ["mfa", "flat"])
@pytest.mark.parametrize("d", [8, 40, 150])
def test_a_round_blob_of_a_table_is_one_proposal_and_two_are_two(preset: str, d: int) -> None:
    engine = engine_of(preset=preset, n_components=60, proposal_samples=50)
    taught_state = engine.start()
    for index in range(15):
        x = torch.cat([table([label], 50, d, 10 * index + label) for label in (0, 1)])
        taught_state, _ = engine.step(taught_state, Batch.of(x, [0] * 50 + [1] * 50))
    for new in ([4], [4, 5]):
        state, _ = engine.declare_boundary(taught_state)
        for index in range(14):
            state, _ = engine.step(state, Batch(table(new, 100, d, 1000 + index)))
        assert len(state.pending.proposals.open) == len(new)
        for label in new:
            away = [
                float((o.prototype - centre(label, d)).norm()) for o in state.pending.proposals.open
            ]
            assert min(away) < 0.01 * d**0.5


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.sampled_from([8, 200]))
def test_components_that_share_samples_are_one_cluster_and_others_are_not(
    seed: int, n: int, d: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    # Of each cluster three components, which are torn over its samples; of others far.
    joint = torch.full((n * 60, n * 3), -30.0 * max(1, d // 25))
    for one in range(n):
        rows, columns = slice(one * 60, one * 60 + 60), slice(one * 3, one * 3 + 3)
        joint[rows, columns] = torch.randn(60, 3, generator=generator) / 2
    found = clusters(joint, d, least=10)
    assert len(set(found.tolist())) == n
    assert all(len(set(part.tolist())) == 1 for part in found.reshape(n, 3))
    # Whatever stands for a component changes nothing about which are together.
    order = torch.randperm(n * 3, generator=generator)
    again = clusters(joint[:, order], d, least=10)
    assert torch.equal(again[:, None] == again, found[order][:, None] == found[order])


def unlabelled(
    engine: Engine, state: EngineState, labels: list[int], n: int, seed: int = 3
) -> tuple[EngineState, list[ClassProposed]]:
    """Batches of 100 of these classes without a label, and what was proposed of them in the end."""
    proposed: dict[int, ClassProposed] = {}
    for batch in batches(labels, n, seed=seed, labelled=False):
        state, events = engine.step(state, batch)
        proposed |= {event.proposal: event for event in of(ClassProposed, events)}
        for event in of(ProposalClosed, events):
            proposed.pop(event.proposal, None)
    return state, list(proposed.values())


def named_by_prototype(engine: Engine, state: EngineState, known: list[int]) -> EngineState:
    """As a person would: every proposal is called what its prototype looks like."""
    for one in state.pending.proposals.open:
        away = [float((one.prototype - centre(label)).square().sum()) for label in known]
        state, _ = engine.name(state, one.number, f"new-{known[away.index(min(away))]}")
    return state


def answers(engine: Engine, state: EngineState, label: int, name: int | str) -> int:
    """Of a hundred new samples of a class, how many are given this name."""
    snapshot = engine.snapshot(state)
    codes = snapshot.classify(blob(label, 100, 990)).codes
    return [snapshot.classes[code] for code in codes].count(name)


def test_a_model_on_which_no_name_can_fall_closes_proposals_at_a_boundary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = engine_of()
    state, _ = traffic(engine, lived(engine, [0, 1], 15), NEW)
    monkeypatch.setattr(MfaLearner, "unnamed", lambda *_: None)
    state, events = engine.declare_boundary(state)
    assert [event.reason for event in of(ProposalClosed, events)] == ["boundary"]
    assert not state.pending.proposals.open
    assert state.model.samples_seen == state.stream.samples


# Exactly once -----------------------------------------------------------------------------


@settings(max_examples=6, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=3, max_size=14), st.sampled_from(["mfa", "flat"]))
def test_every_sample_is_learned_once_and_a_restart_changes_no_bit(
    choices: list[int], preset: str
) -> None:
    engine = engine_of(
        preset=preset, proposal_samples=10, detector="sequential", n_components=9, experts=True
    )
    state = lived(engine, [0, 1], 8)
    happened: list[Event] = []
    for turn, choice in enumerate(choices):
        again, _, _ = load(dump(state, engine.config, {}))
        results = [act(engine, one, choice, turn) for one in (state, again)]
        (state, events), (again, others) = results
        assert events == others
        assert_identical(state, again)
        happened += events
        held = (
            state.pending.set_aside_samples
            + state.pending.awaiting.raw_samples
            + state.pending.proposals.raw_samples
        )
        assert state.model.samples_seen + held == state.stream.samples
    counted = 800 + sum(e.samples - e.awaiting - e.unknown for e in of(BatchLearned, happened))
    for kind in (ProposalClosed, UnknownsLearned, LabelsMatched, LabelsMissed):
        counted += sum(event.samples_learned for event in of(kind, happened))
    counted += sum(event.samples for event in of(SetAsideReleased, happened))
    counted += sum(event.set_aside_samples for event in of(BoundaryDetected, happened))
    assert counted == state.model.samples_seen


def act(
    engine: Engine, state: EngineState, choice: int, turn: int
) -> tuple[EngineState, list[Event]]:
    if choice == 0:
        return engine.declare_boundary(state)
    if choice == 1:
        return engine.settle(state)
    if choice in (2, 3):
        if not state.pending.proposals.open:
            return state, []
        number = state.pending.proposals.open[-1].number
        return engine.name(state, number, f"new-{turn}" if choice == 2 else None)
    if choice == 4:
        ids = tuple(f"{turn}-{row}" for row in range(15))
        return engine.step(state, Batch(blob(3, 15, turn), sample_ids=ids))
    x = torch.cat([blob(0, 40, turn), blob(choice, 14, turn)])
    return engine.step(state, Batch(x))


def test_around_what_is_known_is_what_has_its_mean_in_the_middle() -> None:
    """A new class may lie nearer to that than samples do, where features are many."""
    generator = torch.Generator().manual_seed(0)
    known = torch.randn(4000, 64, generator=generator)
    engine = Engine(EngineConfig(preset="flat", n_components=4, detector="none", experts=False))
    state = engine.start()
    for batch in known.split(100):
        state, _ = engine.step(state, Batch.of(batch, ["known"] * 100))
    away = torch.zeros(64)
    away[0] = math.sqrt(44)

    around = engine.discovery._around_known

    assert around(state, known[:60])
    assert not around(state, known[:60] + away)
    images = replace(state.standardiser, identity=True)
    assert not around(state.with_model(standardiser=images), known[:60])


def test_beside_a_group_around_what_is_known_another_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = engine_of()
    state, asked = lived(engine, [0, 1], 15), list[list[float]]()

    def group(_: Proximity, __: EngineState, features: Tensor, least: int) -> list[int] | None:
        asked.append(features[:, 0].tolist())
        return [0, 2] if len(features) >= least else None

    first_is_known = iter([True, False])
    monkeypatch.setattr(Proximity, "group", group)
    monkeypatch.setattr(ClassDiscovery, "_around_known", lambda *_: next(first_is_known))

    found = engine.discovery._group(state, torch.arange(6.0)[:, None], 2)

    assert asked == [[0, 1, 2, 3, 4, 5], [1, 3, 4, 5]]
    assert found == [1, 4]
