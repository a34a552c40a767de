"""Tests for the core.outliers.margin module: closeness where there are classes."""

from __future__ import annotations

import pytest
import torch

from core.density.conformity import SOFTNESS
from core.model.readout import LinearReadout, PosteriorReadout, margin_temperature
from core.outliers.margin import SURE, with_class_margins

TRAITS = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


@pytest.mark.parametrize("n_features", [2, 120])
def test_closeness_counts_margins_in_nats_of_the_likelihood(n_features: int) -> None:
    readout, t = PosteriorReadout(torch.eye(2), 3.0), margin_temperature(n_features)
    joint = torch.tensor([[0.0, -0.5 * t], [-1.2 * t, 0.0]])
    counted = with_class_margins(TRAITS, readout, joint, n_features)
    expected = [1 + 0.5 * t / SOFTNESS, 4 + 1.2 * t / SOFTNESS]
    assert counted[:, 0].tolist() == pytest.approx(expected, rel=1e-5)
    assert torch.equal(counted[:, 1:], TRAITS[:, 1:])
    assert TRAITS[0, 0] == 1


def test_who_is_sure_is_no_closer_for_being_surer() -> None:
    readout = PosteriorReadout(torch.eye(2), 1.0)
    joint = torch.tensor([[0.0, -3.0], [0.0, -3000.0]])
    gained = with_class_margins(TRAITS, readout, joint, 12)[:, 0] - TRAITS[:, 0]
    assert gained.tolist() == pytest.approx([SURE / SOFTNESS] * 2, rel=1e-5)


@pytest.mark.parametrize("n_classes", [0, 1])
def test_without_classes_traits_are_those_of_the_density(n_classes: int) -> None:
    for readout in (
        PosteriorReadout(torch.ones(4, n_classes), 1.0),
        LinearReadout(torch.zeros(4, n_classes), torch.zeros(n_classes), 1),
    ):
        assert torch.equal(with_class_margins(TRAITS, readout, torch.zeros(2, 4), 3), TRAITS)
