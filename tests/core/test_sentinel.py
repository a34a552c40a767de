"""Tests for the core.drift.sentinel module: what a model at rest says of samples."""

from __future__ import annotations

import torch
from torch import Tensor

from core.density.density import Scored
from core.drift.sentinel import CHUNK, UNRIVALLED, Sentinel, Sighting
from core.model import Model
from core.readout import LinearReadout
from tests.core.scripted_density import ScriptedDensity, identity, sentinel
from tests.core.signals import Stretch, features


def test_it_gives_back_what_was_scripted_however_many_samples_there_are() -> None:
    x = features([Stretch(2 * CHUNK + 7)])
    seen = sentinel(4).sees(x)
    assert len(seen) == 2 * CHUNK + 7
    assert torch.equal(seen.log_likelihoods, x[:, 0].double())
    assert torch.equal(seen.components, x[:, 1].long())


def test_sightings_are_joined_in_order() -> None:
    x = features([Stretch(30)])
    joined = Sighting.joined(Sighting.nothing(), *(sentinel(4).sees(rows) for rows in x.split(7)))
    assert torch.equal(joined.log_likelihoods, x[:, 0].double())
    assert torch.equal(joined.components, x[:, 1].long())


def test_a_margin_is_the_distance_to_the_best_component_of_another_class() -> None:
    x = torch.tensor([[5.0, 0.0, 3.0], [-2.0, 2.0, 0.5]])
    two = sentinel(3, classes=[0, 0, 1], n_features=3)
    assert two.sees(x).scores[1].tolist() == [3.0, 0.5]
    joint = torch.tensor([[9.0, 8.5, 4.0, 7.0]])

    class Told(ScriptedDensity):
        def score(self, x: Tensor) -> Scored:
            return Scored(joint.clone(), joint.logsumexp(-1))

    readout = sentinel(4, classes=[1, 1, 0, 2]).model.readout
    told = Sentinel(Model(Told(4), readout), identity(), 0)
    # The second component is of the same class as the first.
    assert told.sees(x[:1, :2]).scores[1].tolist() == [2.0]


def test_where_there_is_one_class_margins_say_nothing() -> None:
    assert sentinel(3).sees(features([Stretch(5)])).scores[1].tolist() == [UNRIVALLED] * 5


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
    expected = torch.tensor([3.0, -2.0]).double() - torch.tensor(16.0).double().log()
    torch.testing.assert_close(seen.log_likelihoods, expected)
    assert seen.components.tolist() == [1, 0]


def test_components_stand_for_classes_where_there_are_labels() -> None:
    assert sentinel(3, classes=[1, 0, 1]).classes.tolist() == [1, 0, 1]
    assert sentinel(3, classes=[1, 0, 1]).n_classes == 2
    assert sentinel(3).classes.tolist() == [0, 0, 0]
    assert sentinel(3).n_classes == 1
    linear = Model(ScriptedDensity(3), LinearReadout(torch.zeros(3, 2), torch.zeros(2), 1))
    assert Sentinel(linear, identity(), 0).classes.tolist() == [0, 0, 0]
