"""Tests for the core.engine.recurrence module: whether what comes was there before."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from core.batch import UNLABELLED
from core.density.density import Parts, Scored
from core.engine.recurrence import recurring
from core.memory.marginals import Marginals
from core.memory.retention import Marks, RetentionSet
from core.model.model import Model
from core.running import Running
from tests.core.scripted_density import ScriptedDensity, frozen_model, identity
from tests.core.signals import Stretch, features

MODEL: Model = frozen_model(6).model
NEW = 7
"""A code that no class has yet."""


def held(sub_task: int, codes: list[int], components: list[int], mean: float = 0.0) -> RetentionSet:
    """A set of an earlier sub-task of these classes, on these components."""
    n = 60
    x = features([Stretch(n, mean=mean)], sub_task)
    x[:, 1] = torch.tensor(components)[torch.arange(n) % len(components)].float()
    marks = Marks(torch.ones(n).bool(), torch.ones(n), x[:, 0])
    taking_turns = torch.tensor(codes)[torch.arange(n) % len(codes)]
    return RetentionSet(sub_task, x, taking_turns, marks, 1, Running(1000, mean, 1.0))


def samples(components: list[int], mean: float = 0.0, n: int = 200) -> Tensor:
    x = features([Stretch(n, mean=mean)], 9)
    x[:, 1] = torch.tensor(components)[torch.arange(n) % len(components)].float()
    return x


def asked(
    sets: list[RetentionSet], x: Tensor, codes: Tensor | None = None, newest: int | None = None
) -> int | None:
    if codes is None:
        codes = torch.full((len(x),), UNLABELLED)
    return recurring(sets, MODEL, identity(), x, codes, len(x) if newest is None else newest)


# By labels --------------------------------------------------------------------------------


def labelled(codes: list[int], n: int = 200) -> Tensor:
    return torch.tensor(codes)[torch.arange(n) % len(codes)]


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([0, 1], 3), ([1], None), ([2, 3], 5), ([0, 2], None), ([NEW], None), ([0, 1, NEW], None)],
)
def test_the_classes_of_one_sub_task_are_that_sub_task_again_and_a_part_of_them_is_not(
    codes: list[int], expected: int | None
) -> None:
    sets = [held(3, [0, 1], [0]), held(5, [2, 3], [1])]
    assert asked(sets, samples([4]), labelled(codes)) == expected


def test_the_sub_task_that_fits_most_closely_is_named_and_of_these_the_latest() -> None:
    five, six = [0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]
    wide, close, later = held(1, six, [0]), held(2, five, [0]), held(4, five, [0])
    assert asked([wide, close], samples([0]), labelled(five)) == 2
    assert asked([wide, close, later], samples([0]), labelled(five)) == 4
    assert asked([wide, close], samples([0]), labelled(six)) == 1


def test_a_stray_label_does_not_make_a_sub_task_new() -> None:
    codes = labelled([0, 1])
    codes[5] = 3
    assert asked([held(3, [0, 1], [0])], samples([0]), codes) == 3
    codes[::10] = 3
    assert asked([held(3, [0, 1], [0])], samples([0]), codes) is None


def test_labels_decide_where_half_of_the_samples_have_one_and_likelihoods_where_fewer() -> None:
    codes = labelled([UNLABELLED, 0, UNLABELLED, 1])
    elsewhere = samples([5], mean=-50)
    sets = [held(3, [0, 1], [0])]
    assert asked(sets, elsewhere, codes) is None
    assert asked(sets, samples([5]), codes) == 3
    codes[1] = UNLABELLED
    assert asked(sets, samples([5]), codes) is None


def test_the_same_classes_under_new_conditions_are_something_new() -> None:
    """In a stream of two classes every change would be the return of the first sub-task."""
    sets, codes = [held(3, [0, 1], [0])], labelled([0, 1])
    x = samples([0])
    x[: len(x) * 2 // 5, 0] = -30
    assert asked(sets, x, codes) == 3
    x[: len(x) * 3 // 5, 0] = -30
    assert asked(sets, x, codes) is None
    x[: len(x) * 3 // 5, 0] = 30
    assert asked(sets, x, codes) is None


def test_an_earlier_sub_task_of_the_same_classes_and_conditions_is_found_behind_one_of_others() -> (
    None
):
    sets = [held(3, [0, 1], [0]), held(4, [0, 1], [0], mean=40.0)]
    assert asked(sets, samples([0]), labelled([0, 1])) == 3


def test_of_sub_tasks_of_other_classes_the_model_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be hundreds."""
    scored, score = [], ScriptedDensity.score

    def counting(density: ScriptedDensity, x: Tensor, parts: Parts | None = None) -> Scored:
        scored.append(len(x))
        return score(density, x, parts)

    monkeypatch.setattr(ScriptedDensity, "score", counting)
    sets = [held(place, [2 * place, 2 * place + 1], [0]) for place in range(50)]
    assert asked(sets, samples([0]), labelled([20, 21])) == 10
    assert len(scored) == 2
    assert asked(sets, samples([0]), labelled([20, 23])) is None
    assert len(scored) == 2


# By likelihood ----------------------------------------------------------------------------


def test_samples_as_likely_and_on_the_same_components_are_that_sub_task_again() -> None:
    sets = [held(0, [UNLABELLED], [0, 1]), held(1, [UNLABELLED], [2, 3])]
    assert asked(sets, samples([0, 1])) == 0
    assert asked(sets, samples([2])) == 1


@pytest.mark.parametrize(
    ("components", "mean"),
    [([4, 5], 0.0), ([0, 4], 0.0), ([0, 1], -5.0), ([0, 1], 5.0)],
    ids=["other components", "half on others", "less likely", "more likely"],
)
def test_anything_else_is_new(components: list[int], mean: float) -> None:
    assert asked([held(0, [UNLABELLED], [0, 1])], samples(components, mean)) is None


def test_a_few_outliers_do_not_make_it_new() -> None:
    x = samples([0, 1])
    x[::20, 0] = -30
    assert asked([held(0, [UNLABELLED], [0, 1])], x) == 0
    x[::5, 0] = -30
    assert asked([held(0, [UNLABELLED], [0, 1])], x) is None


def test_the_sub_task_that_shares_more_components_is_named() -> None:
    sets = [held(0, [UNLABELLED], [0, 1, 2, 3]), held(1, [UNLABELLED], [0, 1, 2, 3, 4])]
    assert asked(sets, samples([0, 1, 2, 3, 4])) == 1
    assert asked(sets[::-1], samples([0, 1, 2, 3, 4])) == 1


def test_where_nothing_is_held_everything_is_new() -> None:
    assert asked([], samples([0])) is None
    assert asked([], samples([0]), labelled([0])) is None


# Samples of before the change, and few drawn ones ---------------------------------------------


def test_features_are_compared_from_the_estimated_start_on() -> None:
    """What still came of the sub-task before must not make its successor look new."""
    one = held(0, [UNLABELLED], [0])
    past = Marginals()
    for seed in range(20):
        x = samples([0])
        x[:, 0] = features([Stretch(200)], seed)[:, 0]
        past = past.observed(x)
    one = dataclasses.replace(one, marginals=past)
    x = samples([0])
    assert asked([one], x) == 0
    x[:20, 1] = 4
    assert asked([one], x) is None
    assert asked([one], x, newest=180) == 0


def test_drawn_samples_that_are_too_few_for_all_components_show_those_that_they_can() -> None:
    """Of 64 sub-tasks sixteen samples each are kept."""
    some = torch.tensor([0, 1, 1, 2, 2, 3, 4])
    one = held(0, [UNLABELLED], some.tolist())
    one = one.first(len(some))
    x = samples([0, 1, 2, 3, 5, 5, 1, 2])
    assert asked([one], x) == 0
    assert asked([held(0, [UNLABELLED], [0, 1, 2, 3, 4])], x) is None


def test_of_a_sub_task_of_more_classes_than_samples_are_kept_those_that_stay_are_asked() -> None:
    """What is known of shares of classes is of more classes than there are samples."""
    one = held(0, [*range(20)], [0])
    past = Marginals()
    for seed in range(20):
        x = samples([0])
        x[:, 0] = features([Stretch(200)], seed)[:, 0]
        past = past.observed(x)
    one = dataclasses.replace(one, marginals=past, class_counts=(200,) * 16 + (1,) * 4)
    assert asked([one.first(16)], samples([0]), labelled([*range(16)])) == 0


def test_without_moments_of_the_data_likelihoods_and_components_decide() -> None:
    """As of a checkpoint of an earlier release, and of samples too wide."""
    assert asked([held(0, [UNLABELLED], [0, 1])], samples([0, 1])) == 0
