"""Tests for the core.drift.sequential.frozen_model module: what a model at rest says of samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.compiled.loops import Array
from core.density import blocks
from core.density.density import Parts, Scored
from core.drift.sequential.frozen_model import ForwardPass, FrozenModel
from core.drift.sequential.label_errors import UNTOLD
from core.drift.sequential.scores import (
    BLOCK,
    LIKELIHOOD_IN_CLASS,
    LIKELIHOOD_MARGIN,
    LIKELIHOOD_MARGIN_IN_CLASS,
    MARGIN_IN_CLASS,
    OVERALL,
    FrozenScores,
    find_largest,
    within,
)
from core.model.model import Model
from core.model.readout import LinearReadout, PosteriorReadout, margin_temperature
from tests.core.scripted_density import N_FEATURES, ScriptedDensity, frozen_model, identity
from tests.core.signals import Stretch, features


def test_it_gives_back_what_was_scripted_however_many_samples_there_are() -> None:
    x = features([Stretch(2 * blocks.ROWS + 7)])
    seen = frozen_model(4).score(x)
    assert len(seen) == 2 * blocks.ROWS + 7
    assert seen.log_likelihoods.tolist() == x[:, 0].tolist()
    assert seen.components.tolist() == x[:, 1].tolist()


def test_a_density_may_answer_in_double_precision() -> None:
    class Precise(ScriptedDensity):
        def score(self, x: Tensor, parts: Parts | None = None) -> Scored:
            joint, log_likelihoods = super().score(x)
            return Scored(joint.double(), log_likelihoods.double())

    plain, x = frozen_model(4), features([Stretch(50)])
    frozen = replace(plain, model=replace(plain.model, density=Precise(4)))
    assert np.array_equal(frozen.score(x).scores, plain.score(x).scores)


@pytest.mark.parametrize(("shift", "shared"), [(0.0, True), (0.5, False)])
def test_what_other_versions_said_counts_where_samples_were_on_the_same_scale(
    shift: float, shared: bool
) -> None:
    given = list[Parts | None]()

    class Listening(ScriptedDensity):
        def score(self, x: Tensor, parts: Parts | None = None) -> Scored:
            given.append(parts)
            return super().score(x)

    own = replace(identity(), identity=False)
    frozen = replace(frozen_model(4), model=replace(frozen_model(4).model, density=Listening(4)))
    frozen, x = replace(frozen, standardiser=own), features([Stretch(5)])
    said: Parts = {"part": torch.zeros(5, 2)}
    frozen.score(x, forward_pass=ForwardPass(replace(own, shift=own.shift + shift), said))
    frozen.score(x)
    assert given == [said if shared else None, None]


def test_what_was_said_of_some_of_the_samples_is_cut_out() -> None:
    said = torch.arange(12.0).reshape(6, 2)
    some = ForwardPass(identity(), {"part": said}).of(slice(2, 5))
    assert torch.equal(some.parts["part"], said[2:5])


def test_sightings_are_joined_in_order() -> None:
    x = features([Stretch(30)])
    joined = FrozenScores.joined(
        FrozenScores.nothing(), *(frozen_model(4).score(rows) for rows in x.split(7))
    )
    assert joined.log_likelihoods.tolist() == x[:, 0].tolist()
    assert joined.components.tolist() == x[:, 1].tolist()


NEAR = 1 / 16
"""Of T, how near margins are: their exponentials run straight between powers of two."""


def margins(joint: Tensor, classes: Array, temperature: float) -> list[float]:
    """By their definition, of the class of the largest number."""
    own = torch.from_numpy(classes == classes[joint.argmax(1).numpy()][:, None])
    powers = joint.double() / temperature
    inside = powers.masked_fill(~own, -math.inf).logsumexp(1)
    outside = powers.masked_fill(own, -math.inf).logsumexp(1)
    found: list[float] = (temperature * (inside - outside)).tolist()
    return found


def told(joint: Tensor, classes: Sequence[int], n_features: int = N_FEATURES) -> FrozenModel:
    """A frozen model that says the same of whatever samples it sees."""

    class Told(ScriptedDensity):
        @property
        def n_features(self) -> int:
            return n_features

        def score(self, x: Tensor, parts: Parts | None = None) -> Scored:
            return Scored(joint.clone(), joint.logsumexp(-1))

    k = joint.shape[1]
    model = Model(Told(k), frozen_model(k, classes=classes).model.readout)
    return FrozenModel(model, identity(), 0)


def test_a_margin_is_by_how_much_a_class_stands_above_all_others() -> None:
    joint = torch.tensor([[5.0, 2.0, 2.0], [-2.5, -2.5, -2.0]])
    frozen = told(joint, [0, 0, 1])
    scores = frozen.score(torch.zeros(2, 2)).scores
    assert frozen.temperature == 1
    # Bayes' rule. The second sample is of the other class, whose numbers come after the first's.
    expected = [
        math.log((math.exp(5) + math.exp(2)) / math.exp(2)),
        BLOCK + math.log(math.exp(-2) / (2 * math.exp(-2.5))),
    ]
    log_likelihoods = joint.logsumexp(-1).tolist()
    places = [0, BLOCK]
    assert scores[MARGIN_IN_CLASS].tolist() == pytest.approx(expected, rel=0, abs=NEAR)
    sure = [a + b for a, b in zip(scores[MARGIN_IN_CLASS].tolist(), log_likelihoods, strict=True)]
    assert scores[LIKELIHOOD_MARGIN_IN_CLASS].tolist() == pytest.approx(sure, rel=0, abs=1e-5)
    # The same of all classes together.
    assert scores[LIKELIHOOD_MARGIN].tolist() == pytest.approx([sure[0], sure[1] - BLOCK], abs=1e-5)
    own = [a + b for a, b in zip(places, log_likelihoods, strict=True)]
    assert scores[LIKELIHOOD_IN_CLASS].tolist() == pytest.approx(own, rel=0, abs=1e-6)


@pytest.mark.parametrize("classes", [None, [1, 1, 1]])
def test_where_there_is_one_class_components_are_told_apart(classes: list[int] | None) -> None:
    """Or where components stand for one of several, the others being known by name only."""
    frozen = frozen_model(3, classes=classes, n_features=3)
    x = torch.cat([features([Stretch(5)]), torch.rand(5, 1) * 9], 1)
    scores = frozen.score(x).scores
    joint = frozen.model.density.score(x).joint
    expected = margins(joint, np.arange(3), frozen.temperature)
    sure = [a + b for a, b in zip(x[:, 0].tolist(), expected, strict=True)]
    near = NEAR * frozen.temperature
    assert scores[LIKELIHOOD_MARGIN].tolist() == pytest.approx(sure, rel=0, abs=near)
    assert scores[OVERALL:].tolist() == [[0.0] * 5] * 3


def test_components_are_compared_at_a_higher_temperature_than_classes() -> None:
    joint = torch.zeros(1, 2)
    temperatures = [told(joint, classes, 784).temperature for classes in ([0, 1], [0, 0])]
    assert temperatures == [784 / 12, 784 / 4]


def test_a_single_component_has_nothing_to_stand_above() -> None:
    scores = frozen_model(1).score(torch.tensor([[3.0, 0.0]])).scores
    assert scores[LIKELIHOOD_MARGIN:].tolist() == [[0.0]] * 4


@settings(deadline=None)
@given(
    classes=st.lists(st.integers(0, 1000), min_size=2, max_size=2),
    scores=st.lists(st.floats(allow_nan=False), min_size=2, max_size=2),
)
def test_numbers_within_classes_sort_by_class_and_then_by_score(
    classes: list[int], scores: list[float]
) -> None:
    one, other = map(within, classes, scores)
    if classes[0] != classes[1]:
        assert (one < other) == (classes[0] < classes[1])
        assert abs(one - other) > BLOCK / 4
    elif scores[0] <= scores[1]:
        assert one <= other


def test_what_is_no_number_is_the_lowest_of_its_class() -> None:
    assert BLOCK / 2 < within(1, math.nan) == within(1, -math.inf) < within(1, -1e6) < BLOCK


@settings(deadline=None)
@example(rows=[[0.0, 0.0, -6.0, 81.5, 0.0, 1.0, -6.0]], classes=[0, 0, 1, 0, 0], n_features=2)
@given(
    rows=st.lists(st.lists(st.floats(-900, 300), min_size=7, max_size=7), min_size=1, max_size=5),
    classes=st.lists(st.integers(0, 2), min_size=5, max_size=5),
    n_features=st.sampled_from([2, 100, 784]),
)
def test_margins_are_what_they_are_by_definition(
    rows: list[list[float]], classes: list[int], n_features: int
) -> None:
    """But for exponentials that are straight lines between powers of two."""
    # Of two zeros the positive one is the larger here, and the first of the two elsewhere.
    joint, of = torch.tensor(rows) + 0.0, [0, *classes, 2]
    frozen = told(joint, of, n_features)
    seen = frozen.score(torch.zeros(len(rows), 2)).scores[MARGIN_IN_CLASS]
    t = frozen.temperature
    assert t == margin_temperature(n_features)
    exact = margins(joint, np.array(of), t)
    for found, margin, winner in zip(seen, exact, joint.argmax(1).tolist(), strict=True):
        within_class = found - BLOCK * of[winner]
        if margin < 70 * t:
            assert within_class == pytest.approx(margin, rel=0, abs=NEAR * t)
        else:  # what is fainter counts as so faint
            assert 69 * t < within_class < min(90 * t, margin + t)


@settings(deadline=None)
@given(
    halvings=st.lists(st.integers(0, 60), min_size=5, max_size=5),
    n_features=st.sampled_from([2, 100, 784]),
)
def test_margins_are_exact_between_powers_of_two(halvings: list[int], n_features: int) -> None:
    t, classes = margin_temperature(n_features), [0, 1, 1, 0, 1]
    joint = torch.tensor([halvings]) * -t * math.log(2)
    winner = classes[int(joint.argmax())]
    found = told(joint, classes, n_features).score(torch.zeros(1, 2)).scores[MARGIN_IN_CLASS, 0]
    exact = margins(joint, np.array(classes), t)[0]
    assert found - BLOCK * winner == pytest.approx(exact, rel=0, abs=1e-4 * t)


@settings(deadline=None)
@given(
    rows=st.integers(1, 70).flatmap(
        lambda n: st.lists(
            st.lists(
                st.one_of(st.integers(-3, 3).map(float), st.floats(width=32, allow_nan=False)),
                min_size=n,
                max_size=n,
            ),
            min_size=1,
            max_size=4,
        )
    )
)
def test_the_first_of_the_largest_is_found(rows: list[list[float]]) -> None:
    table = np.array(rows, np.float32) + np.float32(0)
    places = np.empty(len(rows), np.int64)
    find_largest(places, table)
    assert places.tolist() == table.argmax(1).tolist()


def test_no_number_is_larger_than_any() -> None:
    table = np.array([[1, math.nan, math.inf], [1, 2, math.nan], [math.nan] * 3], np.float32)
    places = np.empty(3, np.int64)
    find_largest(places, table)
    assert places.tolist() == [1, 2, 0]
    find_largest(places, np.copysign(table, np.float32(-1)))
    assert all(0 <= place < 3 for place in places)


@pytest.mark.parametrize("n_classified", [2, 4])
def test_a_read_out_of_other_components_is_refused(n_classified: int) -> None:
    """A damaged state may hold one, and the loop that compares classes reads what it is told to."""
    frozen = frozen_model(3)
    other = PosteriorReadout(torch.eye(n_classified), 1.0)
    damaged = replace(frozen, model=Model(frozen.model.density, other))
    with pytest.raises(ValueError, match=f"{n_classified} components have classes, of 3"):
        damaged.score(features([Stretch(5)]))


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_are_no_trouble(strange: float) -> None:
    joint = torch.tensor([[strange, 1.0, 2.0], [strange] * 3, [0.0, 1.0, 2.0]])
    scores = told(joint, [0, 0, 1]).score(torch.zeros(3, 2)).scores
    assert not np.isnan(scores[OVERALL:]).any()
    expected = BLOCK + margins(joint[2:], np.array([0, 0, 1]), 1.0)[0]
    assert scores[MARGIN_IN_CLASS, 2] == pytest.approx(expected, rel=0, abs=NEAR)


def test_scores_are_in_the_senders_units() -> None:
    """A density of standardised samples is divided by the volume that one unit stands for."""
    plain = frozen_model(2)
    scale = torch.tensor([2.0, 8.0])
    moved = FrozenModel(
        plain.model,
        type(plain.standardiser)(False, 9, 9, scale, scale, torch.zeros(2), scale),
        0,
    )
    x = torch.tensor([[6.0, 8.0], [-4.0, 0.0]])
    seen = moved.score(x)
    volume = math.log(16)
    assert seen.log_likelihoods.tolist() == pytest.approx([3 - volume, -2 - volume])
    assert seen.components.tolist() == [1, 0]


def test_components_stand_for_classes_where_there_are_labels() -> None:
    assert frozen_model(3, classes=[1, 0, 1]).classes.tolist() == [1, 0, 1]
    assert frozen_model(3, classes=[1, 0, 1]).n_classes == 2
    assert frozen_model(3).classes.tolist() == [0, 0, 0]
    assert frozen_model(3).n_classes == 1
    linear = Model(ScriptedDensity(3), LinearReadout(torch.zeros(3, 2), torch.zeros(2), 1))
    assert FrozenModel(linear, identity(), 0).classes.tolist() == [0, 0, 0]


# Labels -----------------------------------------------------------------------------------


def test_labels_are_told_where_the_frozen_model_knows_them_and_components_have_a_class() -> None:
    frozen = frozen_model(4, classes=[0, 1, 1, 2])
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 3.0], [0.0, 3.0]])
    seen = frozen.score(x, torch.tensor([0, 2, 3, -1]))
    assert seen.labels.tolist() == [0, 2, UNTOLD, UNTOLD]
    assert frozen.score(x).labels.tolist() == [UNTOLD] * 4
    # Without labels at the time when it was taken it knows none.
    assert frozen_model(4).score(x, torch.tensor([0, 0, 0, 0])).labels.tolist() == [UNTOLD] * 4


def test_a_component_without_a_class_contradicts_no_label() -> None:
    frozen = frozen_model(3, classes=[0, 1, 1])
    readout = frozen.model.readout
    assert isinstance(readout, PosteriorReadout)
    shares = readout.component_classes.clone()
    shares[2] = 0.5
    frozen = replace(
        frozen, model=replace(frozen.model, readout=replace(readout, component_classes=shares))
    )
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
    assert frozen.score(x, torch.tensor([1, 1, 1])).labels.tolist() == [1, 1, UNTOLD]


def test_labels_stay_with_their_samples_in_a_large_batch() -> None:
    frozen = frozen_model(4, classes=[0, 1, 2, 3])
    x = features([Stretch(3000)])
    codes = torch.arange(3000) % 4
    assert frozen.score(x, codes).labels.tolist() == codes.tolist()
