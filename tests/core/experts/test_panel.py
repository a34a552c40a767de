"""Tests for core.experts and core.engine.naming: what a sample is called where classes move."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from operator import eq

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.batch import UNLABELLED, Batch
from core.config import EngineConfig
from core.engine.checkpoint import FORMAT, dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.events import BatchLearned, BatchScored, Event
from core.experts import gaussians as module
from core.experts.fading import ageing, effective, known
from core.experts.features import joint
from core.experts.gaussians import HORIZONS, Gaussians
from core.experts.least_squares import LeastSquares
from core.experts.panel import (
    DEFERENCE,
    FEWEST_ROWS,
    MOST_FEATURES,
    MOST_PIECES,
    NEIGHBOURS,
    Advice,
    Panel,
    Rules,
)
from core.experts.share import SHARE, shared
from core.snapshot import Snapshot
from core.tensors import pack, unpack
from tests.core.states import assert_identical, play

sizes = st.integers(1, 6)


def samples(n: int, d: int, seed: int, classes: int = 3) -> tuple[Tensor, Tensor]:
    """Samples (n, d), float64, of Gaussians that lie apart, and their classes (n,)."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(classes, (n,), generator=generator)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    x[:, 0] += 4 * codes
    return x, codes


def cut(n: int, parts: Sequence[int]) -> list[slice]:
    """The first n samples, cut into pieces of these sizes over and over."""
    begin, pieces = 0, []
    while begin < n:
        size = parts[len(pieces) % len(parts)]
        pieces.append(slice(begin, min(n, begin + size)))
        begin += size
    return pieces


# Fading -----------------------------------------------------------------------------------


def test_after_a_horizon_a_third_is_left() -> None:
    kept, weights = ageing(torch.tensor([100.0, math.inf], dtype=torch.float64), 100)
    assert kept.tolist() == pytest.approx([math.exp(-1), 1.0])
    assert weights[:, -1].tolist() == [1, 1]
    assert weights[0, 0] == pytest.approx(math.exp(-0.99))
    assert (weights[1] == 1).all()


def test_a_class_that_has_not_come_for_long_is_known_to_whom_nothing_fades() -> None:
    mass = torch.tensor([[10.0, 10.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])
    horizons = torch.tensor([100.0, 100.0])
    assert known(mass, horizons).tolist() == [[True, True, False, False], [False] * 4]
    assert known(mass, horizons * math.inf).tolist() == [[True, True, True, False], [False] * 4]


def test_experts_tell_a_rare_class_from_others_whatever_the_mixture_says() -> None:
    """One sample in fifty is of another class; the mixture takes every sample for it."""
    x, _ = samples(3000, 4, 0)
    codes = (torch.arange(3000) % 50 == 0).long()
    x = x + 4 * codes[:, None]
    panel = Panel.start(4)
    assert panel is not None
    panel = replace(panel, labels=("usual", "rare"))
    mixture = torch.tensor([[0.1, 0.9]], dtype=torch.float64)
    hits: list[Tensor] = []
    for rows in torch.arange(3000).split(100):
        advice = panel.rules.advice(x[rows], mixture.expand(100, 2))
        hits.append(advice.probabilities.argmax(-1) == codes[rows])
        panel = panel.taught(x[rows], codes[rows], advice)
    late, rare = torch.cat(hits)[1000:], codes[1000:] == 1
    assert float(late[~rare].double().mean()) > 0.95
    assert float(late[rare].double().mean()) > 0.8


@given(st.lists(st.floats(1e-3, 1), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_the_effective_number_lies_between_the_mass_and_the_number(weights: list[float]) -> None:
    said = torch.tensor(weights, dtype=torch.float64)
    found = float(effective(said.sum(), said.square().sum()))
    assert float(said.sum()) * (1 - 1e-9) <= found <= len(weights) * (1 + 1e-9)
    assert float(effective(torch.zeros(1), torch.zeros(1))) == 0


# Features ---------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 2, 7, 60])
def test_cosines_are_the_same_each_time_and_stay_bounded(d: int) -> None:
    afresh = joint.__wrapped__  # without the cache
    cosines = afresh(d)
    assert torch.equal(afresh(d).directions, cosines.directions)
    x = 1e3 * torch.randn(50, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    features = cosines.of(x)
    assert features.shape == (50, cosines.size)
    assert float(features.abs().max()) <= 6
    assert (features[:, -1] == 1).all()


# Gaussians --------------------------------------------------------------------------------


@given(st.lists(sizes, min_size=1, max_size=5), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_gaussians_do_not_depend_on_how_a_stream_is_cut(parts: list[int], seed: int) -> None:
    x, codes = samples(40, 3, seed)
    whole = Gaussians.start(3).grown(3).learned(x, codes)
    pieces = Gaussians.start(3).grown(3)
    for part in cut(40, parts):
        pieces = pieces.learned(x[part], codes[part])
    for one, other in zip(vars(whole).values(), vars(pieces).values(), strict=True):
        torch.testing.assert_close(one, other)


def test_a_boundary_leaves_what_the_quickest_knows_of_many_classes() -> None:
    x, codes = samples(200, 3, 0, classes=10)
    # Of the last class two samples came, at the end.
    rare = torch.cat([codes[codes != 9], torch.tensor([9, 9])])
    before = Gaussians.start(3).grown(10).learned(x[: len(rare)], rare)
    after = before.without_few()
    quickest = before.mass[0] / before.mass[0].sum()
    assert float(quickest[:9].max()) < 0.2
    assert float(after.mass[0, :9].sum()) > 0.95 * float(before.mass[0, :9].sum())
    for part in (after.mass, after.mass_squares, after.sums, after.squares):
        assert not bool(part[:, 9].any())


def test_a_class_that_there_is_no_room_for_is_an_error_and_no_sample_no_question() -> None:
    x, codes = samples(40, 3, 0)
    gaussians = Gaussians.start(3).grown(3).learned(x, codes)
    with pytest.raises(IndexError):
        gaussians.learned(x, codes + 1)
    assert gaussians.rules().probabilities(x[:0]).shape == (len(HORIZONS), 0, 3)
    panel = taught()
    assert panel.rules.advice(x.new_zeros(0, 4), even(0, 3)).probabilities.shape == (0, 3)


def test_gaussians_are_the_moments_of_each_class() -> None:
    x, codes = samples(5000, 3, 0)
    rules = Gaussians.start(3).grown(3).learned(x, codes).rules()
    forever = HORIZONS.index(math.inf)
    for code in range(3):
        mine = x[codes == code]
        torch.testing.assert_close(rules.means[forever, code], mine.mean(0))
        whitened = (mine - mine.mean(0)) @ rules.whiteners[forever, code].T
        torch.testing.assert_close(
            whitened.T.cov(), torch.eye(3, dtype=torch.float64), atol=0.05, rtol=0
        )


@given(
    st.lists(st.floats(0.01, 100), min_size=3, max_size=3),
    st.lists(st.floats(-50, 50), min_size=3, max_size=3),
    st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_gaussians_follow_another_scale_exactly(
    factors: list[float], offsets: list[float], many: bool
) -> None:
    factor, offset = (torch.tensor(part, dtype=torch.float64) for part in (factors, offsets))
    x, codes = samples(60, 3, 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_VALUES", 27 if many else 10**6)
        start = Gaussians.start(3).grown(4)
    assert start.shared is many
    moved = start.learned(x, codes).rescaled(factor, offset)
    afresh = start.learned(x * factor + offset, codes)
    for one, other in zip(vars(moved).values(), vars(afresh).values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-6)


def test_many_classes_share_a_covariance_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", 27)
    x, codes = samples(2000, 3, 0)
    few = Gaussians.start(3).grown(3).learned(x, codes)
    assert not few.shared
    many = few.grown(4)
    assert many.squares.shape[1] == 1
    assert many.learned(*samples(10, 3, 1)).squares.shape[1] == 1
    found = many.rules().probabilities(x)[:, :, :3].argmax(-1)
    assert float((found[-1] == codes).double().mean()) > 0.9


# Least squares ----------------------------------------------------------------------------


def test_least_squares_are_those_of_the_faded_sums() -> None:
    x, codes = samples(300, 2, 0)
    cosines, horizon = joint(2), 100.0
    found = LeastSquares.start(1, cosines.size).grown(3)
    for part in cut(300, [50]):
        found = found.learned(cosines, (horizon,), x[part], codes[part])
    features = cosines.of(x)
    weights = (-torch.arange(299, -1, -1) / horizon).exp().double()
    gram = features.T @ (features * weights[:, None])
    cross = features.T @ (torch.nn.functional.one_hot(codes, 3) * weights[:, None])
    expected = torch.linalg.solve(gram + torch.eye(cosines.size, dtype=torch.float64), cross)
    torch.testing.assert_close(found.solution[0], expected, rtol=1e-5, atol=1e-7)


def test_what_never_fades_is_solved_for_less_and_less_often() -> None:
    cosines, found, solved = joint(2), None, 0
    found = LeastSquares.start(1, cosines.size).grown(3)
    for index in range(40):
        found = found.learned(cosines, (math.inf,), *samples(50, 2, index))
        solved += int(found.unsolved[0] == 0)
        assert int(found.unsolved[0]) <= 0.1 * 50 * (index + 1)
    assert solved < 30


# Whom to believe --------------------------------------------------------------------------


@given(st.lists(sizes, min_size=1, max_size=5), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_weights_do_not_depend_on_how_a_stream_is_cut(parts: list[int], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    said = torch.rand(4, 30, generator=generator, dtype=torch.float64) + 0.01
    start = torch.full((4,), 0.25, dtype=torch.float64)
    pieces = start
    for part in cut(30, parts):
        pieces = shared(pieces, said[:, part])
    assert torch.equal(pieces, shared(start, said))
    assert float(pieces.sum()) == pytest.approx(1)
    assert float(pieces.min()) >= SHARE / 4


def test_whoever_becomes_the_best_is_believed_soon() -> None:
    right, wrong = torch.full((1000,), 0.99), torch.full((1000,), 0.01)
    weights = shared(torch.tensor([0.5, 0.5]).double(), torch.stack([right, wrong]).double())
    assert float(weights[0]) > 0.98
    weights = shared(weights, torch.stack([wrong, right])[:, :5].double())
    assert float(weights[1]) > 0.98


# The panel --------------------------------------------------------------------------------


def taught(d: int = 4, n: int = 400, seed: int = 0) -> Panel:
    panel = Panel.start(d)
    assert panel is not None
    x, codes = samples(n, d, seed)
    for part in cut(n, [50]):
        panel = panel.learned(x[part], codes[part], 3)
    return panel


def even(n: int, classes: int) -> Tensor:
    return torch.full((n, classes), 1 / classes)


def test_the_panel_says_more_than_a_mixture_that_says_nothing() -> None:
    x, codes = samples(500, 4, 7)
    advice = taught().rules.advice(x, even(500, 3))
    assert float((advice.probabilities.argmax(-1) == codes).double().mean()) > 0.9
    torch.testing.assert_close(advice.probabilities.sum(1), torch.ones(500).double())


def test_what_the_mixture_gives_to_classes_that_no_expert_knows_stays_theirs() -> None:
    x, _ = samples(100, 4, 7)
    mixture = torch.rand(100, 5, generator=torch.Generator().manual_seed(0)).softmax(1)
    advice = taught().rules.advice(x, mixture)
    torch.testing.assert_close(
        advice.probabilities[:, 3:], mixture[:, 3:].double(), rtol=1e-6, atol=1e-9
    )


def test_where_others_find_a_class_likeliest_that_no_expert_knows_none_outdoes_it() -> None:
    x, _ = samples(100, 4, 7)
    mixture = torch.tensor([0.2, 0.2, 0.2, 0.4]).expand(100, 4)
    advice = taught().rules.advice(x, mixture)
    assert (advice.probabilities.argmax(-1) == 3).all()
    # Experts are sure of one of the three others, and would give it all that these have together.
    sure = taught().rules.advice(x, torch.tensor([0.4, 0.3, 0.3, 0.0]).expand(100, 4))
    assert float((sure.probabilities.amax(-1) > 0.6).double().mean()) > 0.9


@given(st.lists(sizes, min_size=1, max_size=5))
@settings(max_examples=10, deadline=None)
def test_samples_wait_until_there_are_enough_and_no_longer(parts: list[int]) -> None:
    panel = Panel.start(2)
    assert panel is not None
    x, codes = samples(100, 2, 0)
    for part in cut(100, parts):
        panel = panel.learned(x[part], codes[part], 3)
        assert len(panel.rows) == len(panel.codes) < FEWEST_ROWS
    assert not len(panel.without_raw().rows)
    mass = panel.without_raw().joint.mass
    torch.testing.assert_close(mass[-1].sum(), torch.tensor(100.0).double())


def test_unlabelled_samples_teach_nothing() -> None:
    panel = taught()
    x, _ = samples(50, 4, 3)
    assert panel.learned(x, torch.full((50,), -1), 3) is panel
    said = panel.rules.advice(x, even(50, 3))
    assert panel.judged(said, torch.full((50,), -1)) is panel


def test_labels_that_some_expert_foresaw_raise_its_weight() -> None:
    panel = taught()
    n_experts = len(panel.weights)
    opinions = torch.full((n_experts, 20, 3), 0.1, dtype=torch.float64)
    opinions[4, :, 1] = 0.8
    after = panel.judged(Advice(opinions, panel.weights), torch.ones(20, dtype=torch.int64))
    assert int(after.weights.argmax()) == 4
    assert float(after.weights[4]) > 0.9


@pytest.mark.parametrize("n", [1, 20, 2 * FEWEST_ROWS - 1])
def test_few_labels_are_heard_at_once(n: int) -> None:
    panel = taught()
    x, codes = samples(n, 4, 5)
    advice = panel.rules.advice(x, even(n, 3))
    found = panel.taught(x, codes, advice)
    at_once = panel.judged(advice, codes).learned(x, codes, 3)
    assert torch.equal(found.weights, at_once.weights)
    assert_identical(found.joint, at_once.joint)


def test_who_learns_from_the_first_labels_of_a_batch_is_believed_by_the_last() -> None:
    """Two of three classes change places in the middle of a batch that no expert foresaw."""
    panel = replace(taught(), labels=("a", "b", "c"))
    x, codes = samples(300, 4, 6)
    changed = codes.clone()
    changed[40:] = torch.tensor([1, 0, 2])[codes[40:]]
    batch, then = slice(0, 100), slice(100, 300)
    advice = panel.rules.advice(x[batch], even(100, 3))
    panel = panel.taught(x[batch], changed[batch], advice)
    said = panel.rules.advice(x[then], even(200, 3)).probabilities.argmax(-1)
    assert float((said == changed[then]).double().mean()) > 0.9


@pytest.mark.parametrize(("turned", "least"), [(65, 0.85), (76, 0.5)])
def test_who_learns_from_the_last_labels_of_a_batch_is_believed_after_it(
    turned: int, least: float
) -> None:
    """A class comes for the first time at the end of a batch, and stays, as in a sorted table."""
    x, _ = samples(700, 4, 0)
    codes = (torch.arange(700) >= 400 + turned).long()
    panel = Panel.start(4)
    assert panel is not None
    panel = replace(panel.learned(x[:400], codes[:400], 2), labels=("a", "b"))
    batch, then = slice(400, 500), slice(500, 700)
    mixture = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    advice = panel.rules.advice(x[batch], mixture.expand(100, 2))
    panel = panel.taught(x[batch], codes[batch], advice)
    said = panel.rules.advice(x[then], mixture.expand(200, 2)).probabilities.argmax(-1)
    assert float((said == codes[then]).double().mean()) > least


@given(st.integers(1, 200), st.floats(0.4, 1.0), st.integers(0, 99))
@settings(max_examples=50, deadline=None)
def test_labels_surprise_who_was_sure_of_others(n: int, sure: float, seed: int) -> None:
    opinions = torch.full((2, n, 3), (1 - sure) / 2, dtype=torch.float64)
    opinions[:, :, 1] = sure
    advice = Advice(opinions, torch.full((2,), 0.5, dtype=torch.float64))
    assert not advice.surprised(torch.ones(n, dtype=torch.int64))
    # As often right as was expected, to the nearest sample.
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    assert not advice.surprised((order < round(sure * n)).long())
    # All wrong, also about a class that nobody was asked about: whether that is chance.
    chance = n * sure <= 3 * math.sqrt(n * sure * (1 - sure) + 1)
    for code in (2, 3):
        assert advice.surprised(torch.full((n,), code)) is not chance


@pytest.mark.parametrize("n", [30, 63, 200, 1000])
def test_surprising_labels_are_heard_in_parts_and_not_in_too_many(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    panel = replace(taught(), labels=("a", "b", "c"))
    x, codes = samples(n, 4, 6)
    heard: list[int] = []
    judged = Panel.judged

    def counting(panel: Panel, advice: Advice, codes: Tensor) -> Panel:
        heard.append(len(codes))
        return judged(panel, advice, codes)

    monkeypatch.setattr(Panel, "judged", counting)
    # Labels at random are a surprise until nobody is sure of any.
    noise = torch.randint(3, (n,), generator=torch.Generator().manual_seed(0))
    panel.taught(x, noise, panel.rules.advice(x, even(n, 3)))
    assert sum(heard) == n
    assert min(n // FEWEST_ROWS, MOST_PIECES) < len(heard) <= min(-(-n // 4), MOST_PIECES**2)
    heard.clear()
    panel.taught(x, codes, panel.rules.advice(x, even(n, 3)))
    assert len(heard) == min(max(n // FEWEST_ROWS, 1), MOST_PIECES)


@pytest.mark.parametrize("classes", [3, 4])
def test_a_panel_stays_as_it_is_while_another_grows_from_it(classes: int) -> None:
    """Also where a class is new, and where what waits is too little for trees."""
    for waiting in (0, 20):
        panel = replace(taught(n=400 + waiting), labels=tuple(range(classes)))
        assert len(panel.rows) == waiting
        kept = deepcopy(panel)
        x, codes = samples(200, 4, 9, classes)
        advice = panel.rules.advice(x, even(200, 3))
        grown = panel.taught(x, codes, advice)
        assert_identical(panel, kept)
        assert grown.forests.samples > panel.forests.samples
        assert_identical(kept.taught(x, codes, advice), grown)


def test_a_class_that_is_new_in_a_batch_judges_nobody_who_was_not_asked_about_it() -> None:
    panel = taught()
    x, codes = samples(200, 4, 7, classes=4)
    advice = panel.rules.advice(x, even(200, 3))
    panel = replace(panel, labels=(0, 1, 2, 3)).taught(x, codes, advice)
    assert float(panel.weights.sum()) == pytest.approx(1)
    assert panel.joint.mass.shape[1] == 4
    said = panel.rules.advice(x, even(200, 3), 4).probabilities.argmax(-1)
    assert float((said == codes)[codes == 3].double().mean()) > 0.8


def test_labels_among_many_unlabelled_samples_are_heard_as_if_they_came_alone() -> None:
    panel = replace(taught(), labels=("a", "b", "c"))
    x, codes = samples(400, 4, 8)
    sparse = torch.where(torch.arange(400) % 4 == 0, codes, UNLABELLED)
    advice = panel.rules.advice(x, even(400, 3))
    among = panel.taught(x, sparse, advice)
    alone = panel.taught(x[::4], codes[::4], advice.of(torch.arange(0, 400, 4)))
    assert torch.equal(among.weights, alone.weights)
    assert_identical(among.gaussians, alone.gaussians)


def test_a_mixture_that_was_told_at_once_is_asked_and_never_less_than_before() -> None:
    for before in (0.001, 0.1, 0.9):
        panel = taught()
        others = torch.linspace(1, 2, len(panel.weights) - 1, dtype=torch.float64)
        others *= (1 - before) / others.sum()
        weights = torch.cat([torch.tensor([before], dtype=torch.float64), others])
        after = replace(panel, weights=weights).deferring().weights
        assert float(after[0]) == pytest.approx(max(before, DEFERENCE))
        assert float(after.sum()) == pytest.approx(1)
        torch.testing.assert_close(after[1:] / after[1:].sum(), others / others.sum())


def test_so_many_features_have_no_experts() -> None:
    assert Panel.start(MOST_FEATURES) is not None
    assert Panel.start(MOST_FEATURES + 1) is None


@given(
    st.lists(st.sampled_from([-3.0, -1.0, 1e-6, 1.0, 250.0, 1e6]), min_size=4, max_size=4),
    st.lists(st.floats(-1e3, 1e3), min_size=4, max_size=4),
)
@settings(max_examples=15, deadline=None)
def test_units_and_signs_change_nothing(factors: list[float], offsets: list[float]) -> None:
    factor = torch.tensor(factors, dtype=torch.float64)
    offset = torch.tensor(offsets, dtype=torch.float64) * factor
    x, codes = samples(200, 4, 0)
    asked, _ = samples(50, 4, 1)
    plain, other = Panel.start(4), Panel.start(4)
    assert plain is not None
    assert other is not None
    for part in cut(200, [50]):
        plain = plain.learned(x[part], codes[part], 3)
        other = other.learned(x[part] * factor + offset, codes[part], 3)
    one = plain.rules.advice(asked, even(50, 3)).opinions
    two = other.rules.advice(asked * factor + offset, even(50, 3)).opinions
    torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("times", [1e-9, 1e9])
def test_units_that_change_in_the_middle_of_a_stream_are_followed(times: float) -> None:
    panel = taught(n=2000)
    x, codes = samples(2000, 4, 5)
    for part in cut(2000, [50]):
        panel = panel.learned(x[part] * times, codes[part], 3)
    advice = panel.rules.advice(x * times, even(2000, 3))
    opinions = advice.opinions[1 : 1 + len(HORIZONS)].argmax(-1)
    assert opinions.isfinite().all()
    assert float((opinions[0] == codes).double().mean()) > (0.9 if times > 1 else 0.3)


@given(st.permutations(range(4)), st.booleans())
@settings(max_examples=20, deadline=None)
def test_classes_in_another_order_are_the_same_classes(order: list[int], many: bool) -> None:
    x, codes = samples(200, 3, 0, classes=3)
    places = torch.tensor(order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST_VALUES", 27 if many else 10**6)
        panel = Panel.start(3)
        assert panel is not None
        one = panel.of_classes(("a", "b", "c", "d")).learned(x, codes, 4)
        labels = tuple("abcd"[at] for at in order)
        moved = one.of_classes(labels)
        other = panel.of_classes(labels).learned(x, places.argsort()[codes], 4)
    assert moved.labels == other.labels == labels
    assert torch.equal(moved.codes, other.codes)
    for name in ("gaussians", "joint"):
        for mine, theirs in zip(
            vars(getattr(moved, name)).values(), vars(getattr(other, name)).values(), strict=True
        ):
            torch.testing.assert_close(mine, theirs)


def test_of_a_class_that_is_left_out_nothing_is_kept() -> None:
    panel = Panel.start(3)
    assert panel is not None
    x, codes = samples(70, 3, 0)
    panel = panel.of_classes((1, 2, 3)).learned(x, codes, 3).of_classes((3, "1", 1))
    kept = codes != 1
    forever = HORIZONS.index(math.inf)
    assert panel.gaussians.mass[forever, 1] == 0
    assert float(panel.gaussians.mass[forever].sum()) <= int(kept.sum())
    assert not bool(panel.joint.cross[:, :, 1].any())
    assert len(panel.rows) == len(panel.codes)
    assert 1 not in panel.codes.tolist()
    assert panel.told <= len(panel.rows)


def test_the_mixture_leaves_room_for_classes_that_it_has_yet_to_learn() -> None:
    panel = taught()
    x, codes = samples(300, 4, 5)
    for part in cut(300, [50]):
        panel = panel.learned(x[part] + 40, codes[part] + 3, 6)
    mixture = even(300, 3)
    advice = panel.rules.advice(torch.cat([x, x + 40]), torch.cat([mixture, mixture]), 6)
    torch.testing.assert_close(advice.opinions.sum(2), torch.ones(len(panel.weights), 600).double())
    assert float((advice.opinions[0, 300:, 3:].sum(1) > 0.9).double().mean()) > 0.9
    assert float((advice.opinions[0, :300, :3].sum(1) > 0.9).double().mean()) > 0.9


# In the engine ----------------------------------------------------------------------------


def moving(batches: int, seed: int, size: int = 100, start: int = 0) -> list[Batch]:
    """Four classes on a circle, a turn in 40 batches of 100."""
    generator = torch.Generator().manual_seed(seed)
    stream = []
    for index in range(start, start + batches):
        codes = torch.randint(4, (size,), generator=generator)
        at = index * size + torch.arange(size)
        angle = 2 * math.pi * (codes / 4 + at / 4_000)
        centre = torch.stack([angle.cos(), angle.sin()], 1) * 3
        noise = torch.randn(size, 2, generator=generator) * 0.4
        stream.append(Batch.of(centre + noise, codes.tolist()))
    return stream


def accuracy(events: Sequence[Event]) -> float:
    scored = [
        event.prequential_accuracy
        for event in events
        if isinstance(event, BatchLearned) and event.prequential_accuracy is not None
    ]
    return sum(scored) / len(scored)


def engine(**settings: object) -> Engine:
    return Engine(EngineConfig(**{"n_components": 25, **settings}))  # type: ignore[arg-type]


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_change_in_the_middle_of_a_batch_is_followed_in_the_next(preset: str) -> None:
    own = engine(preset=preset)
    state, named = own.start(), list[float]()
    for index in range(12):
        x, codes = samples(100, 4, index)
        turned = 100 * index + torch.arange(100) >= 1030
        state, events = own.step(state, Batch.of(x.float(), torch.where(turned, 2 - codes, codes)))
        named += [
            event.prequential_accuracy
            for event in events
            if isinstance(event, BatchScored) and event.prequential_accuracy is not None
        ]
    before, during, after = named[-3:]
    assert before > 0.9
    assert during < 0.8
    assert after > 0.8


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_classes_that_keep_moving_are_followed(preset: str) -> None:
    alone = engine(preset=preset, experts=False)
    _, events = play(alone, alone.start(), moving(100, 0))
    without = accuracy(events[20:])
    advised = engine(preset=preset)
    _, events = play(advised, advised.start(), moving(100, 0))
    assert accuracy(events[20:]) > 0.95
    assert without < 0.8


def answers(one: Engine, state: EngineState, x: Tensor) -> list[object]:
    return [state.model.classes[code] for code in one.snapshot(state).classify(x).codes.tolist()]


def far(code: int, n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=generator) + 8 * torch.eye(6)[code % 6]


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_classes_that_do_not_come_any_more_are_not_forgotten(preset: str) -> None:
    one = engine(preset=preset, n_components=40)
    state = one.start()
    for code in range(6):
        stream = [Batch.of(far(code, 100, 10 * code + i), [code] * 100) for i in range(15)]
        state, _ = play(one, state, stream)
    for code in range(6):
        assert answers(one, state, far(code, 100, 999)).count(code) >= 95


def test_what_the_answer_is_counts_as_the_accuracy() -> None:
    one = engine()
    state, _ = play(one, one.start(), moving(10, 0))
    [batch] = moving(1, 5, start=10)
    codes = one.snapshot(state).classify(batch.features).codes
    _, events = one.step(state, batch)
    [scored] = [event for event in events if isinstance(event, BatchLearned)]
    named = torch.tensor([state.model.classes[code] for code in codes.tolist()])
    truth = torch.tensor([batch.vocabulary[code] for code in batch.codes.tolist()])  # type: ignore[union-attr]
    assert scored.prequential_accuracy == pytest.approx(float((named == truth).double().mean()))


def test_a_label_that_is_new_is_heard_once() -> None:
    one = engine()
    state = one.start()
    total = 0
    for index, n_classes in enumerate([1, 2, 3, 3]):
        x, codes = samples(64, 3, index, n_classes)
        state, _ = one.step(state, Batch.of(x.float(), codes.tolist()))
        total += 64
        panel = state.model.panel
        assert panel is not None
        torch.testing.assert_close(
            panel.gaussians.mass[HORIZONS.index(math.inf)].sum(),
            torch.tensor(float(total)).double(),
        )


def steady(batches: int, seed: int) -> Iterator[Batch]:
    for index in range(batches):
        x, codes = samples(100, 2, 100 * seed + index)
        yield Batch.of(x.float(), codes.tolist())


def test_labels_of_set_aside_samples_are_heard_once_and_at_once() -> None:
    one = engine()
    state, _ = play(one, one.start(), list(steady(30, 0)))
    held = 0
    for batch in steady(10, 1):
        before = state.model.panel
        state, _ = one.step(state, replace(batch, features=batch.features + 0.5))
        held += bool(state.pending.set_aside)
        assert before is not None
        assert state.model.panel is not None
        told = state.model.panel.gaussians.mass[-1].sum() - before.gaussians.mass[-1].sum()
        torch.testing.assert_close(told, torch.tensor(100.0).double())
    assert held


def new_class(batches: int, size: int = 20) -> Iterator[Batch]:
    for index in range(batches):
        generator = torch.Generator().manual_seed(1000 + index)
        yield Batch.of(torch.randn(size, 2, generator=generator) - 9, ["new"] * size)


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_class_is_answered_before_the_model_has_learned_it(preset: str) -> None:
    one = engine(preset=preset)
    state, _ = play(one, one.start(), list(steady(30, 0)))
    first, second, *_ = new_class(2)
    before = state.model.version
    state, _ = one.step(state, first)
    assert state.pending.set_aside
    assert "new" not in state.model.classes
    snapshot = one.snapshot(state)
    assert snapshot.version > before
    assert snapshot.answers == (*state.model.classes, "new")
    assert "new" not in snapshot.classes
    again, _ = Snapshot.from_bytes(snapshot.to_bytes({}))
    for version in (snapshot, again):
        said = version.classify(second.features)
        assert said.probabilities.shape == (20, 4)
        assert (said.codes == 3).sum() >= 18
        known, codes = samples(100, 2, 77)
        named = [version.answers[code] for code in version.classify(known.float()).codes.tolist()]
        assert sum(map(eq, named, codes.tolist())) >= 90
        drawn = version.sample(50, seed=0)
        assert int(drawn.codes.max()) < 3
    state, events = one.step(state, second)
    [scored] = [event for event in events if isinstance(event, BatchScored)]
    assert scored.prequential_accuracy is not None
    assert scored.prequential_accuracy >= 0.9


def test_of_outliers_that_were_named_no_class_is_left() -> None:
    one = engine()
    state, _ = play(one, one.start(), list(steady(30, 0)))
    far_away = Batch.of(torch.full((20, 2), 60.0) + torch.rand(20, 2), ["freak"] * 20)
    state, _ = one.step(state, far_away)
    assert state.pending.set_aside
    assert "freak" in one.snapshot(state).answers
    state, events = play(one, state, list(steady(3, 1)))
    assert [event.kind for event in events if event.kind == "outlier_burst"]
    assert one.snapshot(state).answers == state.model.classes
    assert state.model.panel is not None
    assert "freak" not in state.model.panel.labels


def test_a_class_keeps_its_column_whichever_is_learned_first() -> None:
    one = engine(detector="none")
    x, codes = samples(200, 3, 0)
    panel = Panel.start(3)
    assert panel is not None
    state, _ = one.step(one.start(), Batch.of(x.float(), codes.tolist()))
    assert state.model.panel is not None
    state = state.with_model(panel=state.model.panel.of_classes((2, 0, 1)))
    said = one.snapshot(state).classify(x.float())
    named = torch.tensor([state.model.classes[code] for code in said.codes.tolist()])
    assert float((named == codes).double().mean()) > 0.9


def test_labels_that_come_late_are_heard() -> None:
    one = engine(detector="none")
    x, codes = samples(64, 3, 0)
    state, _ = one.step(one.start(), Batch.of(x.float(), codes.tolist()))
    x, codes = samples(40, 3, 1)
    ids = [f"s{row}" for row in range(40)]
    state, _ = one.step(state, Batch.of(x.float(), [None] * 40, ids))
    before = state.model.panel
    state, _ = one.label(state, ids, codes.tolist())
    assert before is not None
    assert state.model.panel is not None
    assert float(state.model.panel.gaussians.mass[-1].sum()) == pytest.approx(104)
    assert not torch.equal(before.weights, state.model.panel.weights)


@pytest.mark.parametrize("image", [None, "2,3"])
def test_images_have_no_experts(image: str | None) -> None:
    x = torch.rand(50, 2, 3, generator=torch.Generator().manual_seed(0))
    batch = Batch.of(x if image is None else x.reshape(50, 6), [0, 1] * 25)
    one = engine(image=image)
    state, _ = one.step(one.start(), batch)
    assert state.model.panel is None
    assert one.snapshot(state).experts is None


@pytest.mark.parametrize("settings_", [{"experts": False}, {"preset": "paper"}])
def test_nor_has_who_wants_none(settings_: dict[str, object]) -> None:
    one = engine(**settings_)
    state, _ = play(one, one.start(), moving(2, 0))
    assert state.model.panel is None


def test_a_snapshot_with_experts_survives_its_bytes() -> None:
    one = engine()
    state, _ = play(one, one.start(), moving(12, 0))
    snapshot = one.snapshot(state)
    again, _ = Snapshot.from_bytes(snapshot.to_bytes({}))
    x = moving(1, 3)[0].features
    assert torch.equal(again.classify(x).probabilities, snapshot.classify(x).probabilities)
    without = replace(snapshot, experts=None).classify(x).probabilities
    assert not torch.equal(without, snapshot.classify(x).probabilities)


def test_who_joins_experts_of_an_earlier_release_begins_with_nothing_and_goes_on() -> None:
    one = engine()
    state, _ = play(one, one.start(), moving(12, 0))
    tensors, text = unpack(FORMAT, dump(state, one.config, {}))
    tree = json.loads(text["state"])
    panel = tree["model"]["panel"]
    del panel["neighbours"]
    weights = tensors[panel["weights"]]
    tensors[panel["weights"]] = weights[:9] / weights[:9].sum()
    earlier, _, _ = load(pack(FORMAT, tensors, {**text, "state": json.dumps(tree)}))
    assert earlier.model.panel is not None
    assert earlier.model.panel.neighbours.size == 0
    assert float(earlier.model.panel.weights.sum()) == pytest.approx(1)
    assert bool((earlier.model.panel.weights > 0).all())
    later, _ = play(one, earlier, moving(12, 1))
    assert later.model.panel is not None
    assert later.model.panel.neighbours.samples == 12 * 100
    again, _, _ = load(dump(later, one.config, {}))
    assert_identical(again, later)


def test_a_panel_of_an_earlier_release_is_read_and_sums_count_as_their_mass() -> None:
    one = engine()
    state, _ = play(one, one.start(), moving(12, 0))
    tensors, text = unpack(FORMAT, dump(state, one.config, {}))
    tree = json.loads(text["state"])
    del tree["model"]["panel"]["gaussians"]["mass_squares"]
    tree["model"]["panel"]["ahead"] = 1
    earlier, _, _ = load(pack(FORMAT, tensors, {**text, "state": json.dumps(tree)}))
    assert earlier.model.panel is not None
    sums = earlier.model.panel.gaussians
    assert torch.equal(sums.mass_squares, sums.mass)
    later, _ = play(one, earlier, moving(12, 1))
    again, _, _ = load(dump(later, one.config, {}))
    assert_identical(again, later)


def test_a_snapshot_of_an_earlier_release_answers_without_who_joined_since() -> None:
    one = engine()
    state, _ = play(one, one.start(), moving(12, 0))
    rules = one.snapshot(state).experts
    assert rules is not None
    tensors = rules.tensors()
    for name in NEIGHBOURS:
        del tensors[name]
    tensors["weights"] = tensors["weights"][:9] / tensors["weights"][:9].sum()
    earlier = Rules.read(tensors)
    x = moving(1, 3)[0].features.double()
    advice = earlier.advice(x, even(len(x), 3))
    assert advice.weights[9:].tolist() == [0, 0]
    expected = torch.einsum("e,enc->nc", advice.weights[:9], advice.opinions[:9])
    assert torch.equal(advice.probabilities, expected)


@pytest.mark.parametrize("at", [3, 11])
def test_a_life_saved_while_samples_wait_goes_on_bit_for_bit(at: int) -> None:
    one = engine()
    stream = moving(20, 0, size=7)
    half, _ = play(one, one.start(), stream[:at])
    assert half.model.panel is not None
    assert len(half.model.panel.rows)
    kept, _, _ = load(dump(half, one.config, {}))
    assert_identical(play(one, kept, stream[at:])[0], play(one, half, stream[at:])[0])


def test_at_a_boundary_no_sample_waits_on_and_no_sum_is_of_a_sample_or_two() -> None:
    one = engine(detector="none")
    state, _ = play(one, one.start(), moving(5, 0, size=40))
    rare = torch.tensor([[7.0, 7.0], [8.0, -8.0]])
    state, _ = one.step(state, Batch.of(rare, ["rare", "rare"]))
    assert one.snapshot(state).info.heard == 202  # micro-clusters of a sample each
    state, _ = one.declare_boundary(state)
    assert state.model.panel is not None
    assert one.snapshot(state).info.heard == 0
    assert state.model.panel.neighbours.size > 0
    code = state.model.classes.index("rare")
    panel = state.model.panel
    for part in (panel.gaussians, panel.joint, panel.forests, panel.neighbours):
        assert not bool(part.mass[:, code].any())
    for part in (state.model.panel.gaussians, state.model.panel.joint):
        assert float(part.mass[-1].sum()) == pytest.approx(200)
    assert not bool(state.model.panel.gaussians.sums[:, code].any())
    assert not bool(state.model.panel.joint.cross[..., code].any())
