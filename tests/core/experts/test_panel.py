"""Tests for the core.experts.panel module."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.batch import UNLABELLED
from core.experts import gaussians as module
from core.experts.gaussians import HORIZONS
from core.experts.panel import (
    DEFERENCE,
    FEWEST_ROWS,
    FIRST_ROWS,
    MOST_FOR_ALL,
    MOST_PIECES,
    Advice,
    Panel,
    Rules,
    fewest_rows,
)
from tests.core.experts.made import cut, even, samples, sizes, taught
from tests.core.states import assert_identical


def _advice(opinions: Tensor, weights: Tensor) -> Advice:
    """Where no class goes by another name."""
    return Advice(opinions, weights, opinions[0], opinions[0].argmax(1))


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
    after = panel.judged(_advice(opinions, panel.weights), torch.ones(20, dtype=torch.int64))
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
    advice = _advice(opinions, torch.full((2,), 0.5, dtype=torch.float64))
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
    assert torch.equal(among.mix, alone.mix)
    assert_identical(among.gaussians, alone.gaussians)


def test_a_mixture_that_was_told_at_once_is_asked_and_never_less_than_before() -> None:
    for before in (0.001, 0.1, 0.9):
        panel = taught()
        others = torch.linspace(1, 2, len(panel.weights) - 1, dtype=torch.float64)
        others *= (1 - before) / others.sum()
        weights = torch.cat([torch.tensor([before], dtype=torch.float64), others])
        deferring = replace(panel, weights=weights, mix=weights.clone()).deferring()
        for after in (deferring.weights, deferring.mix):
            assert float(after[0]) == pytest.approx(max(before, DEFERENCE))
            assert float(after.sum()) == pytest.approx(1)
            torch.testing.assert_close(after[1:] / after[1:].sum(), others / others.sum())


def test_answers_take_the_mean_of_both_kinds_of_weights() -> None:
    panel = taught()
    x, codes = samples(100, 4, 7)
    heard = replace(panel, labels=("a", "b", "c")).taught(
        x, codes, panel.rules.advice(x, even(100, 3))
    )
    assert not torch.equal(heard.weights, heard.mix)
    torch.testing.assert_close(heard.rules.weights, (heard.weights + heard.mix) / 2)


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


def test_all_classes_may_be_left_out() -> None:
    panel = Panel.start(3)
    assert panel is not None
    x, codes = samples(70, 3, 0)
    panel = panel.of_classes((1, 2, 3)).learned(x, codes, 3).of_classes(())
    assert panel.labels == ()
    assert panel.told == len(panel.rows) == len(panel.codes) == 0


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


MANY = MOST_FOR_ALL + 4


def test_of_many_features_gaussians_alone_learn_and_the_rest_repeat_what_others_say() -> None:
    panel = taught(MANY, 600)
    assert len(panel.rows) < fewest_rows(MANY)
    assert panel.neighbours.raw == 0
    assert panel.gaussians.squares.shape[:2] == (2, 3)
    x, codes = samples(300, MANY, 1)
    mixture = torch.tensor([0.5, 0.3, 0.2]).expand(300, 3)
    advice = panel.rules.advice(x, mixture)
    right = (advice.opinions.argmax(2) == codes).double().mean(1)
    assert (right[2:4] > 0.65).all()  # of 260 features one tells classes apart
    both = panel.weights[0] * mixture + panel.weights[3] * advice.opinions[3]
    both = both / (panel.weights[0] + panel.weights[3])
    for one in advice.opinions[[1, *range(4, len(advice.opinions))]]:
        torch.testing.assert_close(one, both)
    again = Rules.read(panel.rules.tensors()).advice(x, mixture)
    torch.testing.assert_close(again.opinions, advice.opinions, rtol=0, atol=0)


def test_of_many_features_a_class_that_the_mixture_has_yet_to_learn_is_named() -> None:
    panel = taught(MANY, 600)
    x, codes = samples(300, MANY, 1)
    named = panel.rules.advice(x, even(300, 2), 3).probabilities
    torch.testing.assert_close(named.sum(1), torch.ones(300, dtype=torch.float64))
    new = codes == 2
    assert float((named.argmax(1) == codes)[new].double().mean()) > 0.6


def test_of_many_features_nothing_raw_stays_behind_a_boundary() -> None:
    panel = taught(MANY, 680)
    assert panel.raw > 0
    after = panel.without_raw()
    assert after.raw == 0
    x, codes = samples(300, MANY, 1)
    named = after.rules.advice(x, even(300, 3)).probabilities
    assert float((named.argmax(1) == codes).double().mean()) > 0.65


def test_of_many_features_few_labels_are_learned_at_once_and_later_ones_together() -> None:
    panel, fewest = Panel.start(MANY), fewest_rows(MANY)
    x, codes = samples(6 * fewest, MANY, 0)
    learned_at = [0]
    for row in range(len(x)):
        panel = panel.learned(x[row : row + 1], codes[row : row + 1], 3)
        if not len(panel.rows):
            learned_at.append(row + 1)
    waits = [now - before for before, now in pairwise(learned_at)]
    assert waits[0] == FIRST_ROWS
    assert waits == sorted(waits)
    assert waits[-1] == fewest


def test_of_many_features_classes_are_told_by_two_dozen_labels() -> None:
    panel = Panel.start(MANY)
    generator = torch.Generator().manual_seed(0)
    codes = torch.arange(224) % 3
    x = torch.randn(224, MANY, generator=generator, dtype=torch.float64)
    x[:, :60] += 2.0 * (codes[:, None] == torch.arange(60) // 20)
    panel = panel.learned(x[:24], codes[:24], 3)
    named = panel.rules.advice(x[24:], even(200, 3)).probabilities.argmax(1)
    assert float((named == codes[24:]).double().mean()) > 0.9


def test_labels_are_a_surprise_to_whoever_is_best_just_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    panel = replace(taught(), labels=("a", "b", "c"))
    lone = torch.zeros_like(panel.weights)
    lone[1] = 1
    panel, heard = replace(panel, weights=lone), list[Tensor]()

    def surprised(advice: Advice, codes: Tensor) -> bool:
        heard.append(advice.weights)
        return False

    monkeypatch.setattr(Advice, "surprised", surprised)
    x, codes = samples(100, 4, 7)
    panel.taught(x, codes, panel.rules.advice(x, even(100, 3)))

    assert torch.equal(heard[0], lone)


def renaming(seed: int) -> tuple[Panel, Tensor, Tensor]:
    """A panel of three classes of which the first goes by a fourth name, and more of the same."""
    mixture = torch.eye(4, dtype=torch.float64)  # it knows the old name only
    panel = replace(Panel.start(4), labels=("old", "b", "c", "new"))
    for index in range(24):
        x, codes = samples(50, 4, seed + index)
        advice = panel.rules.advice(x, mixture[codes], 4)
        panel = panel.taught(x, torch.where((codes == 0) & (index >= 12), 3, codes), advice)
    x, codes = samples(200, 4, seed + 99)
    return panel, x, codes


@pytest.mark.parametrize("seed", range(2))
def test_a_class_goes_by_its_new_name_whatever_the_mixture_says(seed: int) -> None:
    panel, x, codes = renaming(seed)
    mixture = torch.eye(4, dtype=torch.float64)[codes]
    rules = panel.rules
    assert rules.replaces.tolist() == [-1, -1, -1, 0]
    advice = rules.advice(x, mixture, 4)
    assert not advice.opinions[..., 0].any()
    torch.testing.assert_close(advice.opinions.sum(-1), torch.ones(11, 200).double())
    new = torch.where(codes == 0, 3, codes)
    assert torch.equal(advice.opinions[0], torch.eye(4, dtype=torch.float64)[new])
    assert float((advice.probabilities.argmax(1) == new).double().mean()) > 0.95
    # Asked again in the middle of a batch, it begins with what the mixture itself says.
    assert torch.equal(advice.mixture, mixture)
    assert float((advice.called == codes).double().mean()) > 0.95
    again = Rules.read(rules.tensors()).advice(x, mixture, 4)
    assert torch.equal(again.probabilities, advice.probabilities)


def test_rules_of_an_earlier_release_know_of_no_new_names() -> None:
    panel, x, codes = renaming(0)
    tensors = panel.rules.tensors()
    del tensors["new_names"]
    mixture = torch.eye(4, dtype=torch.float64)[codes]
    read = Rules.read(tensors)
    assert torch.equal(read.advice(x, mixture, 4).opinions[0], mixture)


@pytest.mark.parametrize(
    ("old", "said", "expected"),
    [
        ([-1, 0, -1, -1], [0.5, 0.1, 0.4, 0.0], [0, 0.6, 0.4, 0]),
        # Two new names: each gets as large a part as it has beside; as much where neither has.
        ([-1, 0, 0, -1], [0.4, 0.1, 0.3, 0.2], [0, 0.2, 0.6, 0.2]),
        ([-1, 0, 0, -1], [0.8, 0.0, 0.0, 0.2], [0, 0.4, 0.4, 0.2]),
        # A new name that has got another one since.
        ([-1, 2, 0, -1], [0.4, 0.1, 0.3, 0.2], [0, 0.8, 0, 0.2]),
        ([-1, 0, 1, -1], [0.4, 0.1, 0.3, 0.2], [0, 0, 0.8, 0.2]),
        ([-1, -1, -1, -1], [0.4, 0.1, 0.3, 0.2], [0.4, 0.1, 0.3, 0.2]),
    ],
)
def test_what_is_said_of_a_class_is_said_of_its_new_names(
    old: list[int], said: list[float], expected: list[float]
) -> None:
    panel = replace(Panel.start(4), labels=("a", "b", "c", "d"))
    rules = replace(panel.rules, replaces=torch.tensor(old))
    mixture = torch.tensor([said], dtype=torch.float64)
    advice = rules.advice(torch.zeros(1, 4), mixture, 4)
    for opinion in advice.opinions:
        # Nobody knows a class: all repeat what the mixture says.
        assert opinion[0].tolist() == pytest.approx(expected)


def test_new_names_stay_at_a_boundary_and_end_where_labels_mean_something_else() -> None:
    panel, _, _ = renaming(0)
    assert panel.in_new_sub_task().rules.replaces.tolist() == [-1, -1, -1, 0]
    changed = panel.deferring()
    assert changed.rules.replaces.tolist() == [-1] * 4
    assert len(changed.new_names.came) == 4


def test_what_is_counted_in_the_middle_of_a_batch_is_what_the_mixture_itself_says() -> None:
    panel, _, _ = renaming(0)
    believed = torch.full_like(panel.weights, 1e-6)
    believed[0] = 1 - believed[1:].sum()
    panel = replace(panel, weights=believed, mix=believed)
    x, codes = samples(600, 4, 5)
    mixture = torch.eye(4, dtype=torch.float64)[codes]
    after = panel.taught(x, torch.where(codes == 0, 3, codes), panel.rules.advice(x, mixture, 4))
    assert float(after.new_names.share[3]) > 0.9
