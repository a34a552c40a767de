"""Tests for core.density.diagonal.annealing: the neighbourhood, and the controller by exact
index."""

import pytest
import torch

from core.density.diagonal.annealing import (
    HARD_RADIUS,
    Annealing,
    Schedule,
    grid_side,
    neighbourhood,
)
from core.errors import InvalidSettings

BRISK = Schedule(radius=2.0, radius_floor=0.5, rate=0.1, rate_floor=0.05, factor=0.5, window=1)


def radii(objectives: list[float], schedule: Schedule = BRISK) -> list[float]:
    """Feed one objective per step; return the radius after each."""
    annealing, seen = schedule.start(9), []
    for objective in objectives:
        annealing = schedule.update(annealing, objective)
        seen.append(annealing.radius)
    return seen


def test_a_number_of_components_that_is_no_square_is_refused_with_the_nearest_squares() -> None:
    with pytest.raises(InvalidSettings, match=r"n_components is 90.*81 or 100"):
        grid_side(90)
    with pytest.raises(InvalidSettings, match="1 or 4"):
        grid_side(3)


def test_the_grid_wraps_around() -> None:
    weights = neighbourhood(16, 1.0).reshape(4, 4, 4, 4)
    corner = weights[0, 0]
    # Every side of the corner cell is as near as the opposite one.
    assert corner[0, 1] == corner[0, 3] == corner[1, 0] == corner[3, 0]
    assert corner[1, 1] == corner[3, 3] == corner[1, 3]
    assert corner[2, 2] == corner.min()


def test_weights_follow_the_gaussian_of_the_distance() -> None:
    weights = neighbourhood(100, 1.5)
    expected = torch.exp(torch.tensor(-(9 + 1) / (2 * 1.5**2))).double()
    # Cell (0, 0) and cell (3, 9): 3 steps down, 1 step left over the edge.
    torch.testing.assert_close(weights[0, 39] / weights[0, 0], expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("radius", [0.01, 0.3, 1.0, 3.54])
def test_rows_sum_to_one_and_the_matrix_is_symmetric(radius: float) -> None:
    weights = neighbourhood(25, radius)
    torch.testing.assert_close(weights.sum(-1), torch.ones(25).double())
    torch.testing.assert_close(weights, weights.T)


def test_at_the_hard_radius_the_neighbourhood_is_the_identity_for_all_that_matters() -> None:
    assert (neighbourhood(100, HARD_RADIUS) - torch.eye(100)).abs().max() < 2e-5


def test_the_radius_starts_where_the_published_code_starts_it() -> None:
    assert Schedule().start(100).radius == pytest.approx(3.5355, abs=1e-4)
    assert not Schedule().start(100).hard


def test_nothing_is_cut_while_the_objective_rises() -> None:
    assert radii([0, 10, 20, 30, 40]) == [2.0] * 5


def test_the_radius_is_cut_in_the_first_window_whose_gain_is_small() -> None:
    # Gains relative to what was gained up to then: 1, 0.05 (not below delta), 0.0495.
    assert radii([0, 10, 20, 21, 22.0395]) == [2.0, 2.0, 2.0, 2.0, 1.0]


def test_a_fall_counts_as_no_gain_only_while_it_is_small() -> None:
    assert radii([0, 10, 9.5]) == [2.0, 2.0, 1.0]
    assert radii([0, 10, 8.9]) == [2.0, 2.0, 2.0]  # below -2 delta


def test_the_first_window_stays_the_reference_for_ever() -> None:
    # The same gain of 1 per window is large at first and small in the end.
    steps = [float(step) for step in range(40)]
    found = radii(steps)
    assert found.index(1.0) == 22  # (A_i - last) / (last - A_0) = 1 / 21 < 0.05
    assert found[-1] == 0.5


def test_the_floor_holds_for_radius_and_rate() -> None:
    annealing = BRISK.start(9)
    for objective in [0.0, 10.0, *[10.0] * 10]:
        annealing = BRISK.update(annealing, objective)
    assert (annealing.radius, annealing.rate) == (0.5, 0.05)


def test_windows_average_their_steps() -> None:
    schedule = Schedule(radius=2.0, factor=0.5, window=2)
    # Means 1, 11, 11: a cut at the last step of the third window and at no other.
    assert radii([0, 2, 10, 12, 0, 22], schedule) == [2.0] * 5 + [1.0]


def test_two_windows_alike_do_not_divide_by_zero() -> None:
    assert radii([5, 5, 5, 5]) == [2.0] * 4


def test_a_falling_start_mirrors_a_rising_one() -> None:
    assert radii([10, 0, -0.4]) == [2.0, 2.0, 1.0]


def test_the_shortest_full_annealing_takes_as_many_cuts_as_the_published_numbers_say() -> None:
    schedule = Schedule(window=1)
    annealing, steps = schedule.start(100), 0
    while annealing.radius > schedule.radius_floor:
        annealing = schedule.update(annealing, [0.0, 1.0][min(steps, 1)])
        steps += 1
    assert steps == 2 + 56


def test_a_restart_widens_but_never_narrows_and_measures_afresh() -> None:
    late = Annealing(radius=0.01, rate=0.01, total=3.0, steps=2, first=1.0, last=2.0, windows=9)
    assert BRISK.restart(late, 1.0) == Annealing(radius=1.0, rate=0.1)
    early = Annealing(radius=3.0, rate=0.02, windows=1)
    assert BRISK.restart(early, 1.0) == Annealing(radius=3.0, rate=0.1)
