"""Tests for the core.experts.fading module."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.experts.fading import ageing, effective, known
from core.experts.panel import (
    Panel,
)
from tests.core.experts.made import samples


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
