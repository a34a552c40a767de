"""Tests for the core.experts.sketch module, and for a panel of very many features."""

from __future__ import annotations

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
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.experts import panel as module
from core.experts.panel import FEWEST_ROWS, MOST_FEATURES, Panel, Rules, fewest_rows
from core.experts.sketch import QUIET, SIZE, Sketch, _drawn
from core.snapshot import Snapshot
from tests.core.experts.made import even
from tests.core.states import assert_identical

VERY_MANY = 2 * SIZE + 100
CLASSES = 3


def made(n: int, seed: int = 0, d: int = VERY_MANY) -> tuple[Tensor, Tensor]:
    """Samples of three classes, that differ in a hundred features by 0.7 deviations each."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(CLASSES, (n,), generator=generator)
    means = torch.zeros(CLASSES, d)
    for code in range(CLASSES):
        means[code, 100 * code : 100 * code + 100] = 0.7
    return means[codes] + torch.randn(n, d, generator=generator), codes


def taught(n: int = 800) -> Panel:
    x, codes = made(n)
    return replace(Panel.start(VERY_MANY), labels=("a", "b", "c")).taught(x, codes)


@given(st.integers(SIZE + 1, 8 * SIZE), st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_distances_stay_about_what_they_were(d: int, seed: int) -> None:
    x = torch.randn(40, d, generator=torch.Generator().manual_seed(seed)).double()
    sketch = Sketch.start(d).fitted(x)
    before, after = torch.pdist(x / sketch.scale), torch.pdist(sketch.of(x))
    # A sum of so many stands for all of them.
    ratio = after / before * (-(-d // SIZE)) ** 0.5
    assert 0.75 < float(ratio.min()) <= float(ratio.max()) < 1.3
    assert abs(float(ratio.mean()) - 1) < 0.03


def test_features_that_go_together_neither_add_up_nor_cancel() -> None:
    level = torch.linspace(-1, 1, 40).double()[:, None]
    waves = Sketch.start(8 * SIZE).fitted(level.expand(40, 8 * SIZE))
    same = waves.of(level.expand(40, 8 * SIZE))
    ratio = torch.pdist(same) / torch.pdist(level / waves.scale[0]) / SIZE**0.5
    assert 0.75 < float(ratio.min()) <= float(ratio.max()) < 1.3
    twins = torch.eye(SIZE).repeat(1, 2)
    seen = Sketch.start(2 * SIZE).fitted(twins).of(twins).any(1)
    assert float(seen.double().mean()) > 0.95


def test_the_same_sums_are_drawn_in_every_process() -> None:
    x = made(40)[0]
    sketch = Sketch.start(VERY_MANY).fitted(x)
    before = sketch.of(x)
    _drawn.cache_clear()
    torch.manual_seed(1)
    assert torch.equal(sketch.of(x), before)


def test_labels_are_heard_in_pieces_as_of_so_many_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = list[int]()
    real = Panel.learned

    def learned(panel: Panel, x: Tensor, *given: Any) -> Panel:
        heard.append(len(x))
        return real(panel, x, *given)

    monkeypatch.setattr(Panel, "learned", learned)
    taught(2 * fewest_rows(SIZE))
    assert heard == [fewest_rows(SIZE)] * 2


@given(
    st.lists(st.sampled_from([1e-6, 0.3, 1.0, 250.0, 1e6]), min_size=4, max_size=4),
    st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4),
)
@settings(max_examples=10, deadline=None)
def test_units_change_nothing(factors: list[float], offsets: list[float]) -> None:
    x = made(60)[0].double()
    factor = torch.tensor(factors * (VERY_MANY // 4), dtype=torch.float64)
    offset = torch.tensor(offsets * (VERY_MANY // 4), dtype=torch.float64) * factor
    plain, other = (Sketch.start(VERY_MANY).fitted(rows) for rows in (x, x * factor + offset))
    there, here = plain.of(x), other.of(x * factor + offset)
    torch.testing.assert_close(there - there[0], here - here[0], rtol=1e-5, atol=1e-5)


def test_what_has_not_varied_is_quiet_whatever_its_unit() -> None:
    x = made(50)[0]
    x[:, 0] = 7.0
    scale = Sketch.start(VERY_MANY).fitted(x).scale
    torch.testing.assert_close(scale[1:], x[:, 1:].double().std(0, correction=0))
    level = scale[1:].square().mean().sqrt()
    torch.testing.assert_close(scale[0], QUIET * level)


@pytest.mark.parametrize("rows", [torch.full((40, VERY_MANY), 3.0), torch.zeros(1, VERY_MANY)])
def test_samples_that_are_all_the_same_say_no_scale(rows: Tensor) -> None:
    sketch = Sketch.start(VERY_MANY).fitted(rows)
    assert sketch.is_known
    assert bool(sketch.of(rows).isfinite().all())


def test_before_the_scale_is_known_samples_wait_as_they_came() -> None:
    x, codes = made(FEWEST_ROWS)
    panel = Panel.start(VERY_MANY)
    for row in range(FEWEST_ROWS - 1):
        panel = panel.learned(x[row : row + 1], codes[row : row + 1], CLASSES)
    assert panel.sketch is not None
    assert (panel.sketch.is_known, panel.raw) == (False, FEWEST_ROWS - 1)
    assert torch.equal(panel.rows.float(), x[:-1])
    said = panel.rules.advice(x, even(FEWEST_ROWS, CLASSES)).probabilities
    torch.testing.assert_close(said, even(FEWEST_ROWS, CLASSES).double())
    dropped = panel.without_raw()
    assert dropped.raw == 0
    assert dropped.learned(x, codes, CLASSES).sketch.is_known  # type: ignore[union-attr]
    known = panel.learned(x[-1:], codes[-1:], CLASSES)
    assert known.sketch is not None
    assert known.sketch.is_known
    assert known.rows.shape == (0, SIZE)  # they are learned at once
    assert_identical(known, Panel.start(VERY_MANY).learned(x, codes, CLASSES))


def test_classes_are_told_by_what_hundreds_of_features_say_together() -> None:
    panel = taught()
    x, codes = made(300, 1)
    said = panel.rules.advice(x, even(300, CLASSES)).probabilities
    assert float((said.argmax(1) == codes).double().mean()) > 0.9
    assert panel.raw < fewest_rows(SIZE)


def test_rules_are_the_same_after_a_journey() -> None:
    rules = taught().rules
    again = Rules.read(rules.tensors())
    x, _ = made(20, 2)
    mixture = even(20, CLASSES)
    assert torch.equal(again.advice(x, mixture).opinions, rules.advice(x, mixture).opinions)


def learned(engine: Engine, state: EngineState, seeds: range) -> EngineState:
    for seed in seeds:
        x, codes = made(20, seed)
        state, _ = engine.step(state, Batch(x, codes, ("a", "b", "c")))
    return state


@pytest.mark.parametrize("at", [0, 1, 7])
def test_an_engine_goes_on_from_a_checkpoint_bit_for_bit(at: int) -> None:
    engine = Engine(EngineConfig(preset="flat", n_components=6))
    whole = learned(engine, engine.start(), range(20))
    state = learned(engine, engine.start(), range(at))
    again, _, _ = load(dump(state, engine.config, {}))
    again = learned(engine, again, range(at, 20))
    assert dump(again, engine.config, {}) == dump(whole, engine.config, {})
    snapshot = engine.snapshot(whole)
    x, codes = made(200, 99)
    read, _ = Snapshot.from_bytes(snapshot.to_bytes({}))
    named = read.classify(x).codes
    assert torch.equal(named, snapshot.classify(x).codes)
    assert float((named == codes).double().mean()) > 0.8


def test_a_panel_of_an_earlier_release_goes_on_without_a_sketch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    d = MOST_FEATURES + 50
    x, codes = made(300, d=d)
    with monkeypatch.context() as patched:
        patched.setattr(module, "MOST_FEATURES", 1024)
        old = replace(Panel.start(d), labels=("a", "b", "c")).taught(x, codes)
    assert old.sketch is None
    more = old.taught(x, codes, old.rules.advice(x, even(300, CLASSES)))
    assert more.sketch is None
    said = more.rules.advice(x, even(300, CLASSES)).probabilities
    assert float((said.argmax(1) == codes).double().mean()) > 0.9
