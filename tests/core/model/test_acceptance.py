"""Tests for core.model.acceptance: a component does not judge its own draws."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.model.acceptance import LEAST_SHARE, acceptance
from core.model.readout import LinearReadout, PosteriorReadout

LEAST = 0.9

OF_FOUR = torch.eye(2)[torch.tensor([0, 0, 1, 1])]
"""p(c | k) of four components, two of each class."""


def sure(
    joint: list[float],
    *,
    component: int = 0,
    wanted: int = 0,
    classes: torch.Tensor = OF_FOUR,
    temperature: float = 10.0,
) -> float:
    """How sure it is of one draw with these log-joint values."""
    readout = PosteriorReadout(classes, 2.0)
    rows = torch.tensor([joint])
    drawn_by, codes = torch.tensor([component]), torch.tensor([wanted])
    return acceptance(readout, rows, drawn_by, codes, LEAST, temperature).item()


def test_others_of_its_class_speak_for_a_draw_that_is_in_doubt() -> None:
    joint = [0.0, -10.0, -25.0, -25.0]
    heard = PosteriorReadout(OF_FOUR, 10.0).class_probabilities(torch.tensor([joint]))[0, 0]
    assert float(heard) < LEAST
    assert sure(joint) >= LEAST


def test_a_draw_that_only_its_own_component_finds_of_its_class_is_doubted() -> None:
    joint = [0.0, -60.0, -15.0, -15.0]
    # By Bayes' rule it is of its class beyond any doubt.
    assert PosteriorReadout(OF_FOUR, 1.0).class_probabilities(torch.tensor([joint]))[0, 0] > 0.999
    assert sure(joint) < LEAST
    # The same values, drawn by another: now the first has a say.
    assert sure(joint, component=1) >= LEAST


def test_a_cluster_far_from_all_others_needs_nobody_to_speak_for_it() -> None:
    assert sure([0.0, -900.0, -300.0, -300.0]) >= LEAST


def test_the_share_that_suffices_is_the_one_that_is_named() -> None:
    classes = torch.eye(2)[torch.tensor([0, 0, 1])]
    for share, suffices in ((LEAST_SHARE + 0.01, True), (LEAST_SHARE - 0.01, False)):
        joint = [0.0, -5 + 10 * math.log(share), -5 + 10 * math.log(1 - share)]
        assert (sure(joint, classes=classes) >= LEAST) == suffices


def test_plain_bayes_has_to_be_sure_as_well() -> None:
    # Alike for the component that drew and a rival: others of its class do not outweigh that.
    assert sure([0.0, -0.1, 0.5, -90.0]) == pytest.approx(1.905 / (1.905 + 1.649), abs=1e-3)


@pytest.mark.parametrize("classes", [1, 2])
def test_a_lone_component_has_no_others_to_ask(classes: int) -> None:
    alone = acceptance(
        PosteriorReadout(torch.eye(classes)[:1], 2.0),
        torch.zeros(3, 1),
        torch.zeros(3, dtype=torch.int64),
        torch.zeros(3, dtype=torch.int64),
        LEAST,
        5.0,
    )
    assert alone.tolist() == [1.0] * 3


def test_a_linear_readout_is_taken_at_its_word() -> None:
    readout = LinearReadout(torch.tensor([[3.0, -3.0], [-3.0, 3.0], [0.0, 0.0]]), torch.zeros(2), 2)
    joint = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    wanted = torch.arange(50) % 2
    served = readout.class_probabilities(joint).gather(1, wanted[:, None])[:, 0]
    torch.testing.assert_close(acceptance(readout, joint, wanted, wanted, LEAST, 9.0), served)


@given(
    joint=st.lists(st.floats(-1e4, 1e3, width=32), min_size=4, max_size=4),
    component=st.integers(0, 3),
    wanted=st.integers(0, 1),
    temperature=st.floats(1, 100),
)
def test_it_is_a_number_and_never_surer_than_plain_bayes(
    joint: list[float], component: int, wanted: int, temperature: float
) -> None:
    found = sure(joint, component=component, wanted=wanted, temperature=temperature)
    plain = PosteriorReadout(OF_FOUR, 1.0).class_probabilities(torch.tensor([joint]))[0, wanted]
    assert 0 <= found <= float(plain) + 1e-6
