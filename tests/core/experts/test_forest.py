"""Tests for core.experts.forest and core.experts.growing: decision trees that grow by samples."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.experts.fading import FEWEST
from core.experts.features import joint
from core.experts.forest import HORIZONS, LIVES, MOST_LEAVES, TREES, Forests
from core.experts.growing import Trees, uniform
from core.experts.least_squares import LeastSquares
from tests.core.states import assert_identical

N_FORESTS = len(HORIZONS)
FOREVER = LIVES.index(math.inf)


def board(n: int, d: int, seed: int, fields: int = 2) -> tuple[Tensor, Tensor]:
    """Samples (n, d), even in [-1.5, 1.5], and the colours (n,) of the fields they lie in.

    The board has two features, and is `fields` wide; the others say nothing.
    """
    generator = torch.Generator().manual_seed(seed)
    x = 3 * torch.rand(n, d, generator=generator, dtype=torch.float64) - 1.5
    field = ((x[:, :2] + 1.5) / 3 * fields).floor().long()
    return x, field.sum(1) % 2


def noise(n: int, d: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Samples (n, d) and classes (n,) of which the first feature tells something."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(classes, (n,), generator=generator)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    x[:, 0] += 3.0 * codes / classes
    return x, codes


def grown(x: Tensor, codes: Tensor, classes: int, parts: Sequence[int] = (100,)) -> Forests:
    forests = Forests.start().grown(classes)
    begin, index = 0, 0
    while begin < len(x):
        end = begin + parts[index % len(parts)]
        forests = forests.learned(x[begin:end], codes[begin:end])
        begin, index = end, index + 1
    return forests


def right(forests: Forests, x: Tensor, codes: Tensor) -> list[float]:
    """Accuracy of each forest."""
    said = forests.rules().probabilities(x).argmax(-1)
    hits: list[float] = (said == codes).double().mean(1).tolist()
    return hits


def n_bytes(trees: Trees) -> int:
    return sum(int(part.nbytes) for part in trees)


def assert_trees(trees: Trees) -> None:
    """Every node has one parent, before it; every leaf a row of its own; sums are sums."""
    for tree, size in enumerate(trees.sizes.tolist()):
        features, children = trees.features[tree, :size], trees.children[tree, :size]
        inner = features >= 0
        below = np.sort(np.concatenate([children[inner], children[inner] + 1]))
        assert below.tolist() == list(range(1, size))
        assert (children[inner] > np.flatnonzero(inner)).all()
        rows = np.sort(children[~inner])
        assert rows.tolist() == list(range((size + 1) // 2))
        assert len(rows) <= trees.seen.shape[1]
    np.testing.assert_allclose(trees.totals, trees.counts.sum(-1), rtol=1e-9, atol=1e-9)


# Growing ----------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 90), min_size=1, max_size=5), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_trees_do_not_depend_on_how_a_stream_is_cut(parts: list[int], seed: int) -> None:
    x, codes = noise(400, 3, 3, seed)
    assert_identical(grown(x, codes, 3, parts), grown(x, codes, 3, [400]))


def test_what_is_learned_leaves_the_value_before_as_it_was() -> None:
    x, codes = noise(300, 3, 3, 0)
    before, same = grown(x[:200], codes[:200], 3), grown(x[:200], codes[:200], 3)
    before.learned(x[200:], codes[200:])
    before.rescaled(-torch.ones(3).double(), torch.ones(3).double())
    before.without_few()
    before.of_classes(torch.tensor([2, 0]))
    assert_identical(before, same)


def test_random_numbers_are_even_and_of_each_tree_its_own() -> None:
    numbers = np.array([[uniform(tree, number) for number in range(2000)] for tree in range(8)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    assert np.abs(numbers.mean(1) - 0.5).max() < 0.03
    assert np.abs(np.corrcoef(numbers) - np.eye(8)).max() < 0.1
    assert uniform(3, 10**12) == uniform(3, 10**12)


def test_two_features_that_tell_classes_only_together_are_found() -> None:
    x, codes = board(4000, 4, 0)
    asked, truth = board(1000, 4, 1)
    assert right(grown(x, codes, 2), asked, truth)[FOREVER] > 0.9


def test_a_fine_board_is_learned_where_least_squares_do_not() -> None:
    x, codes = board(12_000, 2, 0, fields=8)
    asked, truth = board(1000, 2, 1, fields=8)
    forest = right(grown(x, codes, 2), asked, truth)[FOREVER]
    lines = LeastSquares.start(1, joint(2).size).grown(2).learned(joint(2), [math.inf], x, codes)
    said = lines.rules([math.inf]).probabilities(joint(2).of(asked))[0].argmax(-1)
    assert forest > 0.75
    assert float((said == truth).double().mean()) < 0.65


def test_labels_that_turn_are_followed_but_by_trees_that_stay() -> None:
    x, codes = noise(9000, 2, 2, 0)
    codes = (x[:, 0] > 0).long()
    codes[4000:] = 1 - codes[4000:]
    found = right(grown(x, codes, 2), x[-1000:], codes[-1000:])
    assert found[HORIZONS.index(100.0)] > 0.95
    assert found[LIVES.index(4000.0)] > 0.95
    early = right(grown(x[:6000], codes[:6000], 2), x[5000:6000], codes[5000:6000])
    assert early[FOREVER] < 0.1
    assert early[HORIZONS.index(100.0)] > 0.95


def test_trees_begin_anew_one_after_the_other() -> None:
    x, codes = noise(2000, 2, 2, 0)
    forests = grown(x, codes, 2)
    counted = forests.trees.counts[:, 0].sum(-1).reshape(N_FORESTS, TREES)
    assert (counted[FOREVER] == 2000).all()
    # A quarter of a life of 4,000 has gone by for the second of eight trees, and so on.
    assert counted[LIVES.index(4000.0)].tolist() == [1500, 1000, 500, 2000, 2000, 2000, 2000, 2000]


def test_counts_fade_to_a_third_after_a_horizon() -> None:
    x, codes = noise(150, 2, 1, 0)
    forests = grown(x, codes, 1)
    # As they count when the next sample comes.
    expected = np.exp(-np.arange(1, 151) / 100).sum() * TREES
    assert float(forests.mass[HORIZONS.index(100.0), 0]) == pytest.approx(expected)
    assert float(forests.mass[FOREVER, 0]) == 150 * TREES


def test_weights_of_samples_do_not_grow_for_ever() -> None:
    x, codes = noise(12_000, 1, 2, 0)
    trees = grown(x, codes, 2, [4000]).trees
    assert float(trees.totals.max()) < 1e16
    assert_trees(trees)


# Answers ----------------------------------------------------------------------------------


@given(st.integers(1, 6), st.integers(1, 200), st.integers(0, 99))
@settings(max_examples=25, deadline=None)
def test_opinions_sum_to_one_over_classes_that_are_known(d: int, n: int, seed: int) -> None:
    x, codes = noise(n, d, 2, seed)
    rules = grown(x, codes, 4).rules()
    said = rules.probabilities(torch.randn(7, d, dtype=torch.float64))
    torch.testing.assert_close(said.sum(-1), torch.ones(N_FORESTS, 7).double())
    assert float(said.min()) >= 0
    assert not bool(rules.known[:, 2:].any())
    assert not bool(said[:, :, 2:].any())


def test_who_has_heard_nothing_finds_all_classes_alike() -> None:
    said = Forests.start().grown(4).rules().probabilities(torch.zeros(3, 2, dtype=torch.float64))
    torch.testing.assert_close(said, torch.full((N_FORESTS, 3, 4), 0.25).double())


def test_before_any_class_there_is_nothing_to_say() -> None:
    rules = Forests.start().rules()
    assert rules.known.shape == (N_FORESTS, 0)
    assert rules.probabilities(torch.zeros(3, 2, dtype=torch.float64)).shape == (N_FORESTS, 3, 0)


# Bounds -----------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 14, 100, 1800])
@pytest.mark.parametrize("d", [1, 256])
def test_memory_is_bounded_whatever_features_and_classes_there_are(classes: int, d: int) -> None:
    # Colours of a fine board take as many nodes as there are.
    x, codes = noise(6000, d, classes, 0)
    codes[::2] = board(6000, max(2, d), 0, fields=40)[1][::2]
    forests = grown(x, codes, classes, [1000])
    assert n_bytes(forests.trees) <= 6e6
    assert int(forests.trees.sizes.max()) <= 2 * MOST_LEAVES - 1
    assert_trees(forests.trees)


def test_with_very_many_classes_a_tree_is_a_leaf() -> None:
    x, codes = noise(500, 2, 4000, 0)
    forests = grown(x, codes, 4000)
    assert (forests.trees.sizes == 1).all()
    assert n_bytes(forests.trees) <= 3e3 * 4000


def test_classes_that_come_later_prune_trees_and_they_grow_on() -> None:
    x, codes = board(3000, 2, 0)
    forests = grown(x, codes, 2)
    before = forests.trees.sizes.max()
    pruned = forests.grown(200)
    assert pruned.trees.sizes.max() < before
    assert_trees(pruned.trees)
    assert_trees(pruned.learned(x, codes).trees)
    assert right(pruned.learned(x, codes), x, codes)[FOREVER] > 0.6


@given(
    st.lists(st.sampled_from(["learn", "classes", "scale", "few", "more"]), min_size=1, max_size=8),
    st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_whatever_happens_trees_stay_trees(steps: list[str], seed: int) -> None:
    generator = np.random.default_rng(seed)
    forests = grown(*noise(200, 3, 3, seed), 3)
    for index, step in enumerate(steps):
        classes = forests.trees.counts.shape[2]
        if step == "learn":
            forests = forests.learned(*noise(120, 3, classes, index))
        elif step == "classes":
            forests = forests.of_classes(torch.from_numpy(generator.permutation(classes + 1)[1:]))
        elif step == "more":
            forests = forests.grown(4 * classes)
        elif step == "scale":
            factor = torch.from_numpy(generator.choice([-2.0, 0.5, 1.0], 3))
            forests = forests.rescaled(factor, torch.ones(3).double())
        else:
            forests = forests.without_few()
        assert_trees(forests.trees)
        said = forests.rules().probabilities(torch.zeros(1, 3, dtype=torch.float64))
        torch.testing.assert_close(said.sum(-1), torch.ones(N_FORESTS, 1).double())


# What experts share -----------------------------------------------------------------------


@given(st.lists(st.sampled_from([-4.0, -1.0, 0.25, 1.0, 1024.0]), min_size=3, max_size=3))
@settings(max_examples=15, deadline=None)
def test_trees_follow_another_scale_exactly(factors: list[float]) -> None:
    factor = torch.tensor(factors, dtype=torch.float64)
    offset = torch.tensor([0.5, -3.0, 7.0], dtype=torch.float64)
    x, codes = noise(600, 3, 3, 1)
    forests = grown(x, codes, 3)
    moved = forests.rescaled(factor, offset)
    assert_trees(moved.trees)
    asked, later = noise(200, 3, 3, 2)
    one, two = (
        forests.rules().probabilities(asked),
        moved.rules().probabilities(asked * factor + offset),
    )
    assert torch.equal(one, two)
    # And grow on as they would have.
    on = forests.learned(asked, later).rules().probabilities(x)
    there = moved.learned(asked * factor + offset, later).rules().probabilities(x * factor + offset)
    torch.testing.assert_close(on, there)


def test_classes_in_another_order_are_named_alike() -> None:
    x, codes = noise(600, 3, 3, 0)
    forests = grown(x, codes, 3)
    order = torch.tensor([2, 0, 1])
    moved = forests.of_classes(order)
    torch.testing.assert_close(
        moved.rules().probabilities(x), forests.rules().probabilities(x)[:, :, order]
    )
    assert torch.equal(moved.mass, forests.mass[:, order])


def test_of_a_class_that_is_left_out_no_count_is_kept() -> None:
    x, codes = noise(600, 3, 3, 0)
    forests = grown(x, codes, 3).of_classes(torch.tensor([0, -1, 2]))
    assert not forests.trees.counts[:, :, 1].any()
    assert not forests.trees.tallies[..., 1].any()
    assert float(forests.mass[FOREVER].sum()) == TREES * int((codes != 1).sum())
    assert_trees(forests.trees)


def test_at_a_boundary_no_value_of_a_sample_stays_and_no_class_of_a_sample_or_two() -> None:
    x, codes = noise(500, 3, 3, 0)
    codes[-2:] = 3
    forests = grown(x, codes, 4)
    assert bool((forests.trees.counts[:, 0, 3] > 0).any())
    kept = forests.without_few().trees
    waits = np.arange(kept.tests.shape[2]) >= kept.ready[..., None]
    assert (forests.trees.tests[waits] >= 0).any()
    assert (kept.tests[waits] == -1).all()
    assert not kept.cuts[waits].any()
    assert not kept.counts[..., 3].any()
    assert not kept.tallies[..., 3].any()
    for tree, horizon in enumerate(np.repeat(HORIZONS, TREES)):
        weight = math.exp((500 - kept.since[tree]) / horizon)
        some = kept.totals[tree][kept.totals[tree] > 0]
        assert some.min() >= FEWEST * weight * (1 - 1e-9)
    assert kept.seen[kept.seen > 0].min() >= FEWEST
    assert min(right(forests.without_few(), x[:-2], codes[:-2])) > 0.5


@pytest.mark.parametrize("seed", range(3))
def test_trees_that_stay_remember_a_class_that_stays_away_while_others_split_leaves(
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    away, common = 0, 1

    def made(code: int, n: int) -> Tensor:
        x = torch.randn(n, 6, generator=generator, dtype=torch.float64)
        x[:, code] += (0.0, 1.5, 5.0)[code]
        return x

    parts = [made(away, 2000), *(made(code, n) for _ in range(6) for code, n in ((1, 97), (2, 3)))]
    codes = [torch.full((len(part),), 0) for part in parts[:1]]
    codes += [torch.full((len(part),), 2 if len(part) == 3 else 1) for part in parts[1:]]
    forests = grown(torch.cat(parts), torch.cat(codes), 3)
    named = forests.rules().probabilities(made(away, 500))[FOREVER].argmax(1)
    assert float((named == away).double().mean()) > 0.7
    named = forests.rules().probabilities(made(common, 500))[FOREVER].argmax(1)
    assert float((named == common).double().mean()) > 0.2
