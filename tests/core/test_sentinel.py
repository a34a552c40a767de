"""Tests for the core.drift.sentinel module: what a model at rest says of samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.density.density import Scored
from core.drift.sentinel import (
    BLOCK,
    CHUNK,
    MARGIN,
    OWN_LIKELIHOOD,
    SURENESS,
    Sentinel,
    Sighting,
    within,
)
from core.model import Model
from core.readout import LinearReadout
from tests.core.scripted_density import ScriptedDensity, identity, sentinel
from tests.core.signals import Stretch, features


def test_it_gives_back_what_was_scripted_however_many_samples_there_are() -> None:
    x = features([Stretch(2 * CHUNK + 7)])
    seen = sentinel(4).sees(x)
    assert len(seen) == 2 * CHUNK + 7
    assert seen.log_likelihoods.tolist() == x[:, 0].tolist()
    assert seen.components.tolist() == x[:, 1].tolist()


def test_sightings_are_joined_in_order() -> None:
    x = features([Stretch(30)])
    joined = Sighting.joined(Sighting.nothing(), *(sentinel(4).sees(rows) for rows in x.split(7)))
    assert joined.log_likelihoods.tolist() == x[:, 0].tolist()
    assert joined.components.tolist() == x[:, 1].tolist()


def test_a_margin_is_the_distance_to_the_best_component_of_another_class() -> None:
    x = torch.tensor([[5.0, 0.0, 3.0], [-2.0, 2.0, 0.5]])
    two = sentinel(3, classes=[0, 0, 1], n_features=3)
    scores = two.sees(x).scores
    # The second sample is of the other class, whose numbers come after those of the first.
    assert scores[MARGIN].tolist() == [3.0, BLOCK + 0.5]
    assert scores[SURENESS].tolist() == [5.0 + 3.0, BLOCK - 2.0 + 0.5]
    assert scores[OWN_LIKELIHOOD].tolist() == [5.0, BLOCK - 2.0]
    joint = torch.tensor([[9.0, 8.5, 4.0, 7.0]])

    class Told(ScriptedDensity):
        def score(self, x: Tensor) -> Scored:
            return Scored(joint.clone(), joint.logsumexp(-1))

    readout = sentinel(4, classes=[1, 1, 0, 2]).model.readout
    told = Sentinel(Model(Told(4), readout), identity(), 0)
    # The second component is of the same class as the first.
    assert told.sees(x[:1, :2]).scores[MARGIN].tolist() == [BLOCK + 2.0]


def test_where_there_is_one_class_nothing_can_be_told_within_classes() -> None:
    scores = sentinel(3).sees(features([Stretch(5)])).scores
    assert scores[SURENESS:].tolist() == [[0.0] * 5] * 3


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
@given(
    joint=st.lists(
        st.lists(st.floats(width=32, allow_nan=False), min_size=7, max_size=7),
        min_size=1,
        max_size=5,
    ),
    classes=st.lists(st.integers(0, 2), min_size=7, max_size=7),
)
def test_margins_are_those_of_the_largest_numbers(
    joint: list[list[float]], classes: list[int]
) -> None:
    """They are looked for among integers: for every sign and size the order must be the same."""
    values = torch.tensor(joint)

    class Told(ScriptedDensity):
        def score(self, x: Tensor) -> Scored:
            return Scored(values.clone(), torch.zeros(len(values)))

    model = Model(Told(7), sentinel(7, classes=[*classes[:-1], 2]).model.readout)
    seen = Sentinel(model, identity(), 0).sees(torch.zeros(len(joint), 2))
    of = np.array([*classes[:-1], 2])
    for i, row in enumerate(values.numpy()):
        winner = int(row.argmax())
        others = row[of != of[winner]]
        with np.errstate(invalid="ignore", over="ignore"):
            margin = row[winner] - others.max() if len(others) else math.inf
        assert seen.components[i] == winner
        assert seen.scores[MARGIN, i] == within(int(of[winner]), float(margin))


def test_scores_are_in_the_senders_units() -> None:
    """A density of standardised samples is divided by the volume that one unit stands for."""
    plain = sentinel(2)
    scale = torch.tensor([2.0, 8.0])
    moved = Sentinel(
        plain.model,
        type(plain.standardiser)(False, 9, 9, scale, scale, torch.zeros(2), scale),
        0,
    )
    x = torch.tensor([[6.0, 8.0], [-4.0, 0.0]])
    seen = moved.sees(x)
    volume = math.log(16)
    assert seen.log_likelihoods.tolist() == pytest.approx([3 - volume, -2 - volume])
    assert seen.components.tolist() == [1, 0]


def test_components_stand_for_classes_where_there_are_labels() -> None:
    assert sentinel(3, classes=[1, 0, 1]).classes.tolist() == [1, 0, 1]
    assert sentinel(3, classes=[1, 0, 1]).n_classes == 2
    assert sentinel(3).classes.tolist() == [0, 0, 0]
    assert sentinel(3).n_classes == 1
    linear = Model(ScriptedDensity(3), LinearReadout(torch.zeros(3, 2), torch.zeros(2), 1))
    assert Sentinel(linear, identity(), 0).classes.tolist() == [0, 0, 0]
