"""The accuracy that an engine expects of samples whose labels it never sees."""

from __future__ import annotations

from collections.abc import Iterator
from operator import eq

import pytest
import torch

from core.batch import Batch
from core.config import EngineConfig
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.modes import Mode
from core.engine.state import EngineState
from core.events import BatchScored, ClassProposed, LabelsMatched
from tests.core.states import lived_through

D = 3


def clouds(codes: torch.Tensor, seed: int, apart: float = 2.0) -> torch.Tensor:
    """Samples of classes on a line, that overlap."""
    noise = torch.randn(len(codes), D, generator=torch.Generator().manual_seed(seed))
    return noise + apart * codes[:, None] / D**0.5


def codes_of(seed: int, n: int = 100) -> torch.Tensor:
    return torch.randint(2, (n,), generator=torch.Generator().manual_seed(1000 + seed))


def engine() -> Engine:
    return Engine(EngineConfig(preset="flat", n_components=20, warm_up=400, detector="none"))


def learned(engine: Engine, batches: int) -> EngineState:
    return lived_through(engine, labelled, batches)[0]


def labelled(n: int) -> Iterator[Batch]:
    for seed in range(n):
        codes = codes_of(seed)
        yield Batch.of(clouds(codes, seed), codes.tolist())


def expected(events: list) -> BatchScored:
    [told] = [event for event in events if isinstance(event, BatchScored)]
    return told


def test_hidden_labels_agree_with_what_is_expected_without_them() -> None:
    one = engine()
    state = learned(one, 12)
    hits = []
    for seed in range(50, 70):
        codes = codes_of(seed)
        x = clouds(codes, seed)
        asked = one.judge.judge(state, Batch.of(x, codes.tolist()))
        assert asked.accuracy is not None
        hits.append(asked.accuracy)
        state, events = one.step(state, Batch(x))
    told = expected(events)
    accuracy = sum(hits) / len(hits)
    assert told.estimated_accuracy == pytest.approx(accuracy, abs=0.04)
    assert told.estimated_accuracy_low is not None
    assert told.estimated_accuracy_high is not None
    assert told.estimated_accuracy_low < accuracy < told.estimated_accuracy_high
    assert told.prequential_accuracy is None


def test_nothing_is_expected_where_no_label_ever_came() -> None:
    one = engine()
    state = one.start()
    for seed in range(4):
        state, events = one.step(state, Batch(clouds(codes_of(seed), seed)))
    assert expected(events).estimated_accuracy is None
    assert expected(events).estimated_unseen is None


def test_a_class_that_no_label_has_named_is_not_expected_to_be_named_rightly() -> None:
    one = Engine(EngineConfig(preset="flat", n_components=20, warm_up=400))
    state = learned(one, 12)
    far = torch.full((100,), 30)
    for seed in range(12):
        state, events = one.step(state, Batch(clouds(far, 300 + seed)))
    told = expected(events)
    assert told.estimated_unseen is not None
    assert told.estimated_unseen > 0.5
    assert told.estimated_accuracy is not None
    assert told.estimated_accuracy < 0.5


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_classes_that_move_together_without_labels_are_not_taken_for_new_ones(preset: str) -> None:
    """They may have kept their meaning, as here, or not: the interval holds both."""
    rng = torch.Generator().manual_seed(1)
    centres = 2 * torch.randn(6, 16, generator=rng)
    one = Engine(EngineConfig(preset=preset, n_components=20, seed=0, experts=preset == "mfa"))
    state = one.start()
    for index in range(30):
        codes = torch.randint(6, (100,), generator=rng)
        x = centres[codes] + torch.randn(100, 16, generator=rng) + (0.5 if index >= 12 else 0.0)
        snapshot = one.snapshot(state) if index else None
        state, events = one.step(state, Batch.of(x, codes.tolist()) if index < 12 else Batch(x))
        told = expected(events)
    assert snapshot is not None
    answers = [snapshot.answers[code] for code in snapshot.classify(x).codes.tolist()]
    accuracy = sum(map(eq, answers, codes.tolist())) / 100
    assert accuracy > 0.95
    assert told.estimated_accuracy == pytest.approx(accuracy, abs=0.1)
    assert told.estimated_accuracy_low is not None
    assert told.estimated_accuracy_high is not None
    assert told.estimated_accuracy_low < 0.5
    assert told.estimated_accuracy_high >= accuracy


def test_samples_of_an_open_proposal_are_not_expected_to_be_named_rightly() -> None:
    """They are held back, and lie on no component."""
    one, rng = engine(), torch.Generator().manual_seed(3)
    state, made, estimates = learned(one, 12), 0, list[float]()
    for index in range(20):
        codes = torch.randint(2, (100,), generator=rng)
        x = clouds(codes, 700 + index)
        x[:15, 1] += 9.0
        state, events = one.step(state, Batch(x))
        made += sum(isinstance(event, ClassProposed) for event in events)
        told = expected(events)
        assert told.estimated_accuracy is not None
        estimates.append(told.estimated_accuracy)
    assert made == 1
    assert state.pending.proposals.raw_samples > 100
    assert told.estimated_unseen is not None
    assert told.estimated_unseen > 0.07
    assert estimates[-1] < estimates[0] - 0.05
    assert told.estimated_accuracy_low is not None
    assert told.estimated_accuracy_high is not None
    # Unknown samples that have not joined it yet are in the interval.
    assert told.estimated_accuracy_low < 0.85 * estimates[0] < told.estimated_accuracy_high
    # Once it is named, they are learned.
    [proposal] = state.pending.proposals.open
    state, _ = one.name(state, proposal.number, 2)
    reliability = state.stream.reliability
    after = reliability.estimate(state.model.class_counts, state.pending.proposals.proposed)
    assert after is not None
    assert after.accuracy > estimates[-1]


def beside_labels(preset: str, share: float, seed: int) -> tuple[int, float, float | None]:
    """Four classes of which most samples have labels; others are of a fifth that never has one.

    Arguments:
        share: Of the fifth among samples without a label.

    Returns:
        Proposals made; accuracy of the last ten batches; what was expected after the last one.
    """
    rng = torch.Generator().manual_seed(seed)
    centres = torch.randn(5, 16, generator=rng)
    experts = (
        preset == "mfa" and seed == 0
    )  # what the mixture names without them must be known as well
    one = Engine(EngineConfig(preset=preset, seed=seed, detector="none", experts=experts))
    state, made, right, told = one.start(), 0, list[float](), None
    for index in range(46):
        codes = torch.randint(4, (100,), generator=rng)
        unlabelled = torch.arange(100) < (30 if index >= 15 else 0)
        new = unlabelled & (torch.rand(100, generator=rng) < share)
        codes[new] = 4
        x = centres[codes] + torch.randn(100, 16, generator=rng)
        if index >= 36:
            snapshot = one.snapshot(state)
            answers = [snapshot.answers[code] for code in snapshot.classify(x).codes.tolist()]
            right.append(sum(map(eq, answers, codes.tolist())) / 100)
        labels = [None if unlabelled[i] else code for i, code in enumerate(codes.tolist())]
        state, events = one.step(state, Batch.of(x, labels))
        made += sum(isinstance(event, ClassProposed) for event in events)
        told = expected(events).estimated_accuracy
    return made, sum(right) / len(right), told


@pytest.mark.parametrize("preset", ["mfa", "flat"])
@pytest.mark.parametrize("seed", [0, 1])
def test_a_class_without_labels_beside_classes_with_is_proposed_and_not_expected_to_be_right(
    preset: str, seed: int
) -> None:
    """A few labels of others fall on its components, and name none of them."""
    made, accuracy, told = beside_labels(preset, 1.0, seed)
    assert made > 0
    assert accuracy < 0.72
    assert told == pytest.approx(accuracy, abs=0.06)


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_samples_without_labels_of_classes_whose_labels_come_are_neither(preset: str) -> None:
    made, accuracy, told = beside_labels(preset, 0.0, 0)
    assert made == 0
    assert accuracy > 0.9
    assert told == pytest.approx(accuracy, abs=0.04)


def test_labels_that_come_late_by_id_tell_how_reliable_answers_are() -> None:
    one = engine()
    state = learned(one, 1)
    before = state.stream.reliability.labelled
    codes = codes_of(7)
    ids = list(range(100))
    state, _ = one.step(state, Batch(clouds(codes, 7), sample_ids=tuple(ids)))
    assert state.stream.reliability.labelled == before
    state, events = one.label(state, ids, codes.tolist())
    assert any(isinstance(event, LabelsMatched) and event.matched == 100 for event in events)
    assert state.stream.reliability.labelled == pytest.approx(before + 100, rel=0.05)


def test_what_is_expected_goes_on_bit_for_bit_from_a_checkpoint() -> None:
    one = engine()
    state = learned(one, 4)
    loaded, _, _ = load(dump(state, one.config, {}))
    batch = Batch(clouds(codes_of(9), 9))
    told, again = (expected(one.step(begun, batch)[1]) for begun in (state, loaded))
    assert told.estimated_accuracy is not None
    assert told == again


def test_a_model_at_rest_is_estimated_as_well() -> None:
    one = engine()
    state, _ = one.change_mode(learned(one, 6), Mode.FROZEN)
    codes = codes_of(8)
    n = state.stream.reliability.labelled
    state, events = one.step(state, Batch.of(clouds(codes, 8), codes.tolist()))
    assert expected(events).estimated_accuracy is not None
    assert state.stream.reliability.labelled > n
