"""Tests for core.model.readout: forwards to classes, backwards to a control signal."""

import math

import pytest
import torch
from torch import Tensor

from core.density.mixture import responsibilities
from core.model.readout import LinearReadout, PosteriorReadout, margin_temperature

K, C = 100, 10
OWNER = torch.arange(K) % C
"""The class of each component in the simulated classifier: ten components per class."""

UNIFORM = torch.full((K,), 1 / K).log()


def trained(start: float, steps: int = 300) -> LinearReadout:
    """A classifier trained by gradient descent on one-hot responsibilities.

    Arguments:
        start: Standard deviation of the weights at the start.
    """
    generator = torch.Generator().manual_seed(0)
    weight = start * torch.randn(K, C, generator=generator)
    bias = torch.zeros(C)
    wanted = torch.nn.functional.one_hot(OWNER, C).float()
    for _ in range(steps):
        error = torch.softmax(weight + bias, -1) - wanted
        weight = weight - 0.1 * error
        bias = bias - 0.1 * error.mean(0)
    return LinearReadout(weight, bias, top=K)


def weight_on_the_right_class(signal: Tensor) -> Tensor:
    """Share of the control signal on components of the wanted class, with shape (C,)."""
    right = torch.arange(C)[:, None] == OWNER
    return (signal * right).sum(-1)


def test_bayes_rule_weighs_the_classes_of_components_by_their_responsibility() -> None:
    classes = torch.tensor([[1.0, 0.0], [0.25, 0.75]])
    joint = torch.tensor([[0.2, 0.8], [0.6, 0.4]]).log()
    probabilities = PosteriorReadout(classes, 1.0).class_probabilities(joint)
    torch.testing.assert_close(probabilities, torch.tensor([[0.4, 0.6], [0.7, 0.3]]))


def test_a_temperature_evens_the_vote_out() -> None:
    readout = [PosteriorReadout(torch.eye(2), t) for t in (1.0, 10.0)]
    joint = torch.tensor([[0.0, -10.0]])
    plain, tempered = (r.class_probabilities(joint)[0, 1].item() for r in readout)
    assert plain == pytest.approx(4.5e-5, rel=0.01)
    assert tempered == pytest.approx(0.2689, rel=0.01)


def test_components_that_no_label_fell_on_stand_for_a_class_only_where_no_others_do() -> None:
    classes = torch.tensor([[0.9, 0.1, 0.0], [1 / 3, 1 / 3, 1 / 3], [0.0, 1.0, 0.0]])
    weights = torch.tensor([0.01, 0.98, 0.01])
    signal = PosteriorReadout(classes, 1.0).control_signal(weights.log())
    assert signal[0].tolist() == pytest.approx([1, 0, 0])
    assert signal[1].tolist() == pytest.approx([0.1 / 1.1, 0, 1 / 1.1])
    assert signal[2].tolist() == pytest.approx([0, 1, 0])


def test_the_exact_control_signal_is_the_posterior_of_components_given_the_class() -> None:
    classes = torch.tensor([[1.0, 0.0], [0.75, 0.25], [0.0, 1.0]])
    weights = torch.tensor([0.1, 0.4, 0.5])
    signal = PosteriorReadout(classes, 1.0).control_signal(weights.log())
    torch.testing.assert_close(signal, torch.tensor([[0.25, 0.75, 0.0], [0.0, 1 / 6, 5 / 6]]))


def test_the_linear_layer_is_a_softmax_on_responsibilities() -> None:
    generator = torch.Generator().manual_seed(1)
    joint, weight = torch.randn(5, 4, generator=generator), torch.randn(4, 3, generator=generator)
    bias = torch.tensor([0.1, 0.2, -0.3])
    layer = torch.nn.Linear(4, 3)
    with torch.no_grad():
        layer.weight.copy_(weight.T)
        layer.bias.copy_(bias)
        expected = layer(responsibilities(joint)).softmax(-1)
    torch.testing.assert_close(LinearReadout(weight, bias, 2).class_probabilities(joint), expected)


def test_inversion_finds_the_components_of_the_class_when_weights_started_at_zero() -> None:
    share = weight_on_the_right_class(trained(start=0.0).control_signal(UNIFORM))
    assert float(share.min()) > 0.95


def test_the_shift_that_the_paper_sets_to_zero_is_not_innocent() -> None:
    # Cross-entropy never changes the sum of a row, so what a random start put there stays,
    # and an uncentred target (log 0.95 and nine times log 0.0056) multiplies it.
    readout = trained(start=K**-0.5)
    target = torch.full((C, C), 0.05 / 9).fill_diagonal_(0.95).log()
    signal = (target - readout.bias) @ readout.weight.T
    signal = signal - signal.amin(-1, keepdim=True)
    uncentred = weight_on_the_right_class(signal / signal.sum(-1, keepdim=True))
    centred = weight_on_the_right_class(readout.control_signal(UNIFORM))
    assert float(uncentred.mean()) < 0.55 < 0.75 < float(centred.mean())


def test_the_centred_target_removes_what_row_sums_add() -> None:
    readout = trained(start=0.0)
    shifted = LinearReadout(
        readout.weight + torch.randn(K, 1, generator=torch.Generator().manual_seed(2)),
        readout.bias,
        K,
    )
    torch.testing.assert_close(
        shifted.control_signal(UNIFORM), readout.control_signal(UNIFORM), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("top", [1, 3, 10, 1000])
def test_only_the_strongest_components_get_weight(top: int) -> None:
    generator = torch.Generator().manual_seed(3)
    readout = LinearReadout(torch.randn(K, C, generator=generator), torch.zeros(C), top)
    signal = readout.control_signal(UNIFORM)
    torch.testing.assert_close(signal.sum(-1), torch.ones(C))
    assert ((signal > 0).sum(-1) == min(top, K)).all()


def test_a_classifier_that_knows_nothing_yet_prefers_no_component() -> None:
    signal = LinearReadout(torch.zeros(6, 3), torch.zeros(3), top=2).control_signal(UNIFORM)
    torch.testing.assert_close(signal, torch.full((3, 6), 1 / 6))


def test_a_single_class_can_be_asked_for() -> None:
    signal = LinearReadout(torch.zeros(6, 1), torch.zeros(1), top=2).control_signal(UNIFORM)
    assert signal.shape == (1, 6)
    assert signal.sum().item() == pytest.approx(1)


def test_at_another_temperature_more_components_are_heard() -> None:
    readout = PosteriorReadout(torch.eye(2), temperature=3.0)
    joint = torch.tensor([[0.0, -4.0]])
    assert readout.at(3.0).temperature == 3.0
    assert readout.at(3.0).component_classes is readout.component_classes
    for temperature in (1.0, 8.0):
        heard = readout.at(temperature).class_probabilities(joint)[0, 1].item()
        assert heard == pytest.approx(1 / (1 + math.exp(4 / temperature)))


def test_a_linear_readout_has_no_temperature() -> None:
    readout = LinearReadout(torch.eye(2), torch.zeros(2), top=1)
    assert readout.temperature == 1.0
    assert readout.at(8.0) is readout


# Margins -----------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 5.0])
def test_a_margin_is_the_log_odds_of_the_likeliest_class(temperature: float) -> None:
    readout = PosteriorReadout(torch.tensor([[1.0, 0, 0], [1.0, 0, 0], [0, 0.75, 0.25]]), 3.0)
    joint = torch.tensor([[0.0, -1.0, -4.0], [-9.0, -9.0, -2.0]])
    probabilities = readout.at(temperature).class_probabilities(joint)
    largest = probabilities.amax(1)
    expected = temperature * (largest / (1 - largest)).log()
    torch.testing.assert_close(readout.margins(joint, temperature), expected)


def test_where_no_label_fell_is_a_kind_of_its_own() -> None:
    """A sample that is surely of what has no name is not one between two classes."""
    readout = PosteriorReadout(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]]), 1.0)
    sure, torn = readout.margins(torch.tensor([[-50.0, -50.0, 0.0], [0.0, 0.0, -50.0]]), 1.0)
    assert float(sure) > 40
    assert float(torn) == pytest.approx(0, abs=1e-5)


def test_where_no_class_is_known_every_component_is_of_the_kind_without_a_name() -> None:
    readout = PosteriorReadout(torch.zeros(3, 0), 1.0)
    assert torch.equal(readout.kinds, torch.ones(3, 1))
    assert readout.control_signal(torch.zeros(3)).shape == (0, 3)


def test_margins_are_finite_however_sure_a_class_is() -> None:
    joint = torch.tensor([[0.0, -1e6]])
    for margins in (
        PosteriorReadout(torch.eye(2), 1.0).margins(joint, 2.0),
        LinearReadout(torch.eye(2) * 1e4, torch.zeros(2), 1).margins(joint, 2.0),
    ):
        assert 80 < float(margins) < 200


@pytest.mark.parametrize("n_classes", [0, 1])
def test_one_class_stands_above_nothing(n_classes: int) -> None:
    joint = torch.zeros(3, 4)
    for readout in (
        PosteriorReadout(torch.ones(4, n_classes), 1.0),
        LinearReadout(torch.zeros(4, n_classes), torch.zeros(n_classes), 1),
    ):
        assert readout.margins(joint, 7.0).tolist() == [0, 0, 0]


def test_a_linear_readout_gives_its_own_log_odds() -> None:
    readout = LinearReadout(torch.eye(2) * 3, torch.tensor([0.5, 0.0]), top=1)
    joint = torch.tensor([[0.0, -50.0], [-50.0, 0.0]])
    assert readout.margins(joint, 9.0).tolist() == pytest.approx([3.5, 2.5], abs=1e-4)


def test_classes_are_compared_at_bayes_rule_where_features_are_few() -> None:
    assert [margin_temperature(d) for d in (1, 12, 120)] == [1.0, 1.0, 10.0]
