"""The units of a table's features change neither classes nor p-values; images keep their scale."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.errors import ShapeMismatch
from core.events import BoundaryDetected
from core.snapshot import Snapshot
from tests.core.states import play
from tests.core.streams import batches, blob

D = 4
N = 1500
BATCH = 100


def table(seed: int = 0) -> tuple[Tensor, list[int]]:
    """Three classes of different spreads, with shape (N, D), and their labels."""
    generator = torch.Generator().manual_seed(seed)
    means = 3 * torch.randn(3, D, generator=generator)
    codes = torch.randint(3, (N,), generator=generator)
    spread = torch.tensor([0.3, 1.0, 0.6])[codes, None]
    return means[codes] + spread * torch.randn(N, D, generator=generator), codes.tolist()


def learned(x: Tensor, labels: list[int], preset: str = "flat") -> tuple[Snapshot, list[int]]:
    """What a stream leaves, and the samples at which boundaries were reported."""
    engine = Engine(EngineConfig(preset=preset, n_components=12, n_factors=2))
    state, boundaries = engine.start(), list[int]()
    for begin in range(0, len(x), BATCH):
        batch = Batch.of(x[begin : begin + BATCH], labels[begin : begin + BATCH])
        state, events = engine.step(state, batch)
        boundaries += [one.sample_index for one in events if isinstance(one, BoundaryDetected)]
    return engine.snapshot(state), boundaries


def in_unit_range(x: Tensor) -> Tensor:
    """Every feature squeezed into [0, 1]."""
    low, high = x.min(0).values, x.max(0).values
    return (x - low) / (high - low)


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_table_in_the_unit_range_is_no_image(preset: str) -> None:
    """A table that fills [0, 1] and the same one in other units are the same table."""
    x, labels = table()
    squeezed = in_unit_range(x)
    assert float(squeezed.var()) > 0.01
    plain, _ = learned(x, labels, preset)
    other, _ = learned(squeezed, labels, preset)

    asked, _ = table(seed=1)
    low, high = x.min(0).values, x.max(0).values
    moved = (asked - low) / (high - low)
    one, two = plain.outliers(asked), other.outliers(moved)
    assert float((one.p_values - two.p_values).abs().max()) < 0.02
    guesses = plain.classify(asked).codes, other.classify(moved).codes
    assert float((guesses[0] == guesses[1]).double().mean()) > 0.995


powers = st.lists(st.integers(-20, 20), min_size=D, max_size=D)
signs = st.lists(st.sampled_from([-1.0, 1.0]), min_size=D, max_size=D)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(powers, signs)
def test_scaling_features_by_powers_of_two_changes_no_bit_of_classes_and_boundaries(
    powers: list[int], signs: list[float]
) -> None:
    """Float arithmetic is exact under such scales, so that answers are equal, not only alike."""
    x, labels = table()
    factors = torch.tensor(signs) * 2.0 ** torch.tensor(powers, dtype=torch.float32)
    plain, boundaries = _plain()
    other, found = learned(x * factors, labels)

    asked, _ = table(seed=1)
    one, two = plain.outliers(asked), other.outliers(asked * factors)
    # Logs of units do not add up exactly: a rank may move by one.
    assert float((one.p_values - two.p_values).abs().max()) <= 2 / (one.calibration + 1)
    assert torch.equal(
        plain.classify(asked).probabilities, other.classify(asked * factors).probabilities
    )
    assert found == boundaries


offsets = st.lists(st.floats(-50, 50), min_size=D, max_size=D)
scales = st.lists(st.floats(-6, 6), min_size=D, max_size=D)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(scales, offsets)
def test_affine_maps_of_features_change_neither_p_values_nor_classes(
    scales: list[float], offsets: list[float]
) -> None:
    """Per feature x' = a x + b, with a from 1e-6 to 1e6 and b up to 50 a."""
    x, labels = table()
    a = 10.0 ** torch.tensor(scales)
    b = a * torch.tensor(offsets)
    plain, boundaries = _plain()
    other, found = learned(x * a + b, labels)

    asked, _ = table(seed=1)
    one, two = plain.outliers(asked), other.outliers(asked * a + b)
    assert float((one.p_values - two.p_values).abs().max()) < 0.02
    volume = float(a.double().log().sum())
    change = two.log_likelihoods.double() + volume - one.log_likelihoods.double()
    assert float(change.abs().median()) < 0.01
    guesses = plain.classify(asked).codes, other.classify(asked * a + b).codes
    assert float((guesses[0] == guesses[1]).double().mean()) > 0.995
    assert found == boundaries


_learned_once: list[tuple[Snapshot, list[int]]] = []


def _plain() -> tuple[Snapshot, list[int]]:
    if not _learned_once:
        _learned_once.append(learned(*table()))
    return _learned_once[0]


def images(n: int, d: int = 16) -> Tensor:
    """Pixels from 0 to 255, uint8, with shape (n, d)."""
    generator = torch.Generator().manual_seed(3)
    return torch.randint(256, (n, d), generator=generator).to(torch.uint8)


def is_image(batch: Batch, **config: object) -> bool:
    engine = Engine(EngineConfig(preset="flat", n_components=4, **config))  # type: ignore[arg-type]
    state, _ = engine.step(engine.start(), batch)
    assert state.standardiser is not None
    return state.standardiser.identity


def test_images_are_declared_by_uint8_by_their_shape_or_by_the_settings() -> None:
    x = images(100)
    grey = x / 255
    assert is_image(Batch.of(x))
    assert is_image(Batch.of(grey.reshape(100, 4, 4)))
    assert is_image(Batch.of(grey.reshape(100, 2, 2, 4)))
    assert is_image(Batch.of(grey), image="4,4")
    assert is_image(Batch.of(grey), shift=1)
    assert is_image(Batch.of(grey, images=True))
    assert not is_image(Batch.of(grey))


def test_images_give_the_same_model_whichever_way_they_are_declared() -> None:
    x = images(300)
    labels = [0, 1] * 150
    engine = Engine(EngineConfig(preset="flat", n_components=4))

    def answers(features: Tensor) -> Tensor:
        state, _ = engine.step(engine.start(), Batch.of(features, labels))
        return engine.snapshot(state).outliers(x).log_likelihoods

    grey = x / 255
    assert torch.equal(answers(x), answers(grey.reshape(300, 4, 4)))
    assert torch.equal(answers(x.reshape(300, 4, 4)), answers(x))


def test_a_snapshot_reads_bytes_as_the_stream_does() -> None:
    x = images(200)
    engine = Engine(EngineConfig(preset="flat", n_components=4))
    state, _ = engine.step(engine.start(), Batch.of(x, [0, 1] * 100))
    snapshot = engine.snapshot(state)
    assert torch.equal(
        snapshot.outliers(x).log_likelihoods, snapshot.outliers(x / 255).log_likelihoods
    )


def test_samples_keep_their_declaration_when_labels_were_sent_ahead() -> None:
    """Labels that wait for their samples join them without making a table of images."""
    engine = Engine(EngineConfig(preset="flat", n_components=4))
    ids = [f"s{index}" for index in range(100)]
    state, _ = engine.label(engine.start(), ids, [0, 1] * 50)
    state, _ = engine.step(state, Batch.of(images(100), sample_ids=ids))
    assert state.standardiser is not None
    assert state.standardiser.identity


@pytest.mark.parametrize("experts", [True, False])
@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_bytes_are_refused_by_a_table_that_learns_and_that_is_asked(
    experts: bool, scale: float
) -> None:
    x = images(300)
    engine = Engine(EngineConfig(n_components=4, experts=experts))
    state, _ = engine.step(engine.start(), Batch.of(scale * x / 255, [0, 1] * 150))
    assert state.model.is_table == (experts or scale > 1)
    if not state.model.is_table:  # floats in [0, 1], which may be images as well
        engine.step(state, Batch.of(x))
        return
    for sent in (x, x.reshape(300, 4, 4)):
        with pytest.raises(ShapeMismatch, match=r"is a table.* as float32") as caught:
            engine.step(state, Batch.of(sent))
        assert caught.value.context == {"dtype": "uint8"}
        for ask in (engine.snapshot(state).outliers, engine.snapshot(state).classify):
            with pytest.raises(ShapeMismatch, match="is a table"):
                ask(sent)


@pytest.mark.parametrize("least", [0, 100])
@pytest.mark.parametrize("most", [101, 256])
def test_who_sent_bytes_may_go_on_so_or_with_floats_however_dull_they_are(
    least: int, most: int
) -> None:
    x = (least + images(2000, 4).float() / 256 * (most - least)).to(torch.uint8)
    x[:, 0] = 255
    engine = Engine(EngineConfig(preset="mfa", n_components=4))
    state = engine.start()
    for rows in x.split(200):
        state, _ = engine.step(state, Batch.of(rows, [0, 1] * 100))
        state, _ = engine.step(state, Batch.of(rows / 255, [0, 1] * 100))
    assert not state.model.is_table
    engine.snapshot(state).classify(x)


def test_bytes_that_do_not_vary_at_all_may_go_on() -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=4))
    state, _ = engine.step(engine.start(), Batch.of(torch.full((50, 4), 7, dtype=torch.uint8)))
    engine.step(state, Batch.of(images(50, 4)))


@pytest.mark.parametrize("preset", ["mfa", "flat"])
@pytest.mark.parametrize("ended", [False, True], ids=["at once", "in a later sub-task"])
def test_images_that_turn_out_to_be_none_are_scored_as_a_table_from_then_on(
    preset: str, ended: bool
) -> None:
    """What was usual of images says nothing of the rows of a table."""
    engine = Engine(EngineConfig(preset=preset, n_components=12, detector="none"))
    images = [replace(batch, images=True) for batch in batches([0, 1], 14)]
    state, _ = play(engine, engine.start(), [*images[:6], *(["boundary"] if ended else [])])
    state, _ = play(engine, state, images[6:8])
    assert len(engine.snapshot(state).usual)
    over = images[8].features.clone()
    over[0, 0] = 1.001
    state, _ = play(engine, state, [replace(images[8], features=over), *images[9:]])
    assert not state.standardiser.identity
    scored = engine.snapshot(state).outliers(torch.cat([blob(0, 100, 99), blob(1, 100, 99)]))
    assert scored.score == "p_value"
    assert float(scored.inliers.double().mean()) > 0.7
