"""Tests for the core.outliers.p_values module: conformity scores in, p-values out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from core.outliers.p_values import FEWEST_ROWS, Typicality


def rows_of(n: int, seed: int, s: int = 3) -> Tensor:
    """Conformity scores that go together: every one is the first plus something of its own."""
    generator = torch.Generator().manual_seed(seed)
    own = torch.randn(n, s, generator=generator)
    own[:, 1:] = own[:, :1] + 0.3 * own[:, 1:]
    return own * torch.tensor([5.0, 100.0, 0.1])[:s] + torch.tensor([-20.0, 300.0, 4.0])[:s]


def usual(n: int = 2000, seed: int = 0) -> Typicality:
    return Typicality(rows_of(n, seed), torch.ones(n))


def p_values(typicality: Typicality, conformity: Tensor) -> Tensor:
    return typicality.p_values(typicality.typicality(conformity))


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2, 0.5])
def test_a_share_of_inliers_as_asked_has_p_values_that_low(rate: float) -> None:
    found = p_values(usual(4000), rows_of(20_000, seed=1))
    assert float((found <= rate).double().mean()) == pytest.approx(rate, rel=0.25)


@pytest.mark.parametrize(
    ("conformity", "strange"),
    [
        ([-20.0, 300.0, 4.0], False),  # the middle of everything
        ([-60.0, -500.0, 3.2], True),  # far away: all conformity scores low together
        ([-20.0, 300.0, 5.0], True),  # too large for its closeness
        ([-12.0, -100.0, 4.0], True),  # unusually close, but unlikely
    ],
)
def test_what_is_far_or_does_not_go_together_is_strange(
    conformity: list[float], strange: bool
) -> None:
    found = float(p_values(usual(), torch.tensor([conformity])))
    assert (found < 0.01) == strange


def test_what_fits_better_than_usual_is_not_strange_unless_it_is_odd_besides() -> None:
    """Scores of images: closeness, likelihood, size, stretch and rest, each by itself here."""
    generator = torch.Generator().manual_seed(0)
    typicality = Typicality(torch.randn(3000, 5, generator=generator), torch.ones(3000))
    better = torch.tensor([[0, 0, 0, 0, -8.0], [0, 9.0, 0, 0, 0], [6.0, 30.0, 0.3, 0.2, -7.0]])
    assert p_values(typicality, better).gt(0.3).all()
    odd = torch.tensor([[0, 0, 0, 0, 8.0], [0, -9.0, 0, 0, 0], [6, 30, 6, 0, -7], [0, 0, 0, -6, 0]])
    assert p_values(typicality, odd.float()).lt(0.01).all()


@pytest.mark.parametrize(("n_features", "usual"), [(16, False), (200, True)])
def test_in_a_table_no_sample_fits_better_than_learning_can_make_it(
    n_features: int, usual: bool
) -> None:
    """Likelihood and one scale, size and rest, of which 3 nats less are left unexplained."""
    rows = 0.3 * torch.randn(3000, 4, generator=torch.Generator().manual_seed(0))
    typicality = Typicality(rows, torch.ones(3000), 1, n_features)
    asked = torch.tensor([[0.0, 0.0, 0.0, -3.0]])
    assert (float(p_values(typicality, asked)) > 0.3) == usual


@pytest.mark.parametrize("rate", [1 / 501, 0.01, 0.05, 0.5, 0.999])
def test_the_least_typicality_for_a_rate_is_where_p_values_get_above_it(rate: float) -> None:
    typicality = usual(500)
    least = typicality.least_typicality(rate)
    seen = typicality.typicality(rows_of(5000, seed=1))
    assert ((typicality.p_values(seen) > rate) == (seen >= least)).all()


def test_no_p_value_is_below_what_so_many_rows_can_tell() -> None:
    hopeless = torch.tensor([[-1e30, -1e30, 1e30]])
    assert float(p_values(usual(500), hopeless)) == pytest.approx(1 / 501)


def heavy(n: int, seed: int) -> Tensor:
    """The same, each sample farther from the middle by a factor of Student's t, 3 degrees."""
    generator = torch.Generator().manual_seed(seed + 10_000)
    factor = torch.randn(n, 3, generator=generator).square().mean(1).rsqrt()
    middle = torch.tensor([-20.0, 300.0, 4.0])
    return (rows_of(n, seed) - middle) * factor[:, None] + middle


@pytest.mark.parametrize("of", [rows_of, heavy])
@pytest.mark.parametrize("n", [200, 500, 900])
def test_a_rate_below_every_p_value_is_kept_by_extrapolation(
    of: Callable[[int, int], Tensor], n: int
) -> None:
    new, rates = of(50_000, 77), []
    for seed in range(8):
        typicality = Typicality(of(n, seed), torch.ones(n))
        seen = typicality.typicality(new)
        inliers = typicality.inliers(seen, typicality.p_values(seen), 0.001)
        rates.append(float((~inliers).double().mean()))
    assert 0.0001 < sum(rates) / len(rates) < 0.003


def test_at_lower_rates_fewer_are_outliers_no_row_ever_is_and_the_farthest_always() -> None:
    typicality = usual(500)
    rates = [1 / 501, 0.0019, 0.001, 1e-4, 1e-6, 1e-9]
    least = [typicality.least_typicality(rate) for rate in rates]
    assert least == sorted(least, reverse=True)
    own = typicality.typicality(typicality.rows)
    hopeless = typicality.typicality(torch.tensor([[-1e30, -1e30, 1e30]]))
    for rate in rates[1:]:
        assert typicality.inliers(own, typicality.p_values(own), rate).all()
        assert not typicality.inliers(hopeless, typicality.p_values(hopeless), rate).any()


def test_rows_that_are_all_alike_are_no_outliers_at_the_lowest_rates() -> None:
    typicality = Typicality(torch.ones(200, 3), torch.ones(200))
    own = typicality.typicality(typicality.rows)
    assert typicality.inliers(own, typicality.p_values(own), 1e-4).all()


def test_typicality_goes_on_falling_where_p_values_cannot() -> None:
    away = torch.tensor([[-60.0, -500.0, 3.2], [-100.0, -1300.0, 2.4], [-180.0, -2900.0, 0.8]])
    typicality = usual().typicality(away)
    assert typicality.diff().lt(0).all()
    assert len(set(usual().p_values(typicality).tolist())) == 1


def test_rows_count_by_their_weights() -> None:
    """Three quarters of all inliers are like the second half of the rows."""
    n = 3000
    both = torch.cat([rows_of(n, 0), rows_of(n, 1) + torch.tensor([40.0, 0.0, 0.0])])
    weighted = Typicality(both, torch.cat([torch.full((n,), 1.0), torch.full((n,), 3.0)]))
    low, high = rows_of(4000, 2), rows_of(4000, 3) + torch.tensor([40.0, 0.0, 0.0])
    found = [(p_values(weighted, x) <= 0.1).double().mean() for x in (low, high)]
    assert float(0.25 * found[0] + 0.75 * found[1]) == pytest.approx(0.1, abs=0.02)
    assert weighted.n_effective == pytest.approx(0.8 * 2 * n)


def test_a_freak_among_the_rows_changes_little() -> None:
    rows = rows_of(2000, 0)
    rows[7] = torch.tensor([-1e6, -1e9, 1e4])
    x = torch.tensor([[-20.0, 300.0, 5.0], [-60.0, -500.0, 3.2]])
    assert float(p_values(Typicality(rows, torch.ones(2000)), x).max()) < 0.01


def test_traits_that_never_vary_or_are_each_other_do_no_harm() -> None:
    rows = rows_of(1000, 0)[:, [0, 0, 1]]
    rows[:, 1] = 7.0
    rows = torch.cat([rows, rows[:, :1]], 1)
    found = p_values(Typicality(rows, torch.ones(1000)), rows)
    assert bool(found.isfinite().all())
    assert float((found <= 0.1).double().mean()) == pytest.approx(0.1, abs=0.01)


def test_too_few_rows_calibrate_nothing() -> None:
    few = FEWEST_ROWS - 1
    assert len(Typicality(rows_of(few, 0), torch.ones(few))) == 0
    assert len(Typicality(rows_of(few + 1, 0), torch.ones(few + 1))) == FEWEST_ROWS
    assert len(Typicality.none()) == 0


@settings(deadline=None, max_examples=40)
@given(
    st.integers(FEWEST_ROWS, 300),
    st.integers(0, 100),
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=3, max_size=3),
    st.sampled_from([0.0, 1.0, 1e-6, 1e6]),
)
def test_p_values_are_shares_whatever_is_asked(
    n: int, seed: int, asked: list[float], scale: float
) -> None:
    typicality = Typicality(rows_of(n, seed) * scale, torch.rand(n) + 0.01)
    scores = typicality.typicality(torch.tensor([asked]))
    assert bool(scores.isfinite().all())
    found = float(typicality.p_values(scores))
    assert 0 < found <= 1


def test_a_sample_like_all_rows_is_usual_though_models_differ_by_a_little() -> None:
    generator = torch.Generator().manual_seed(0)
    same = torch.tensor([7.0, 6.4, 6.4, 0.7, 0.0])
    rows = same + 1e-5 * torch.randn(400, 5, generator=generator)
    typicality = Typicality(rows, torch.ones(400), n_scales=2)

    for by in (0.0, -1e-4, -0.05, 0.05):
        assert float(p_values(typicality, (same + by)[None])) > 0.3
    far = torch.stack(
        [same - torch.tensor([3.0, 3.0, 3.0, 0, 0]), same + torch.tensor([0, 0, 0, 9, 9.0])]
    )
    assert p_values(typicality, far).le(0.01).all()


def test_of_two_values_the_rare_one_is_as_strange_as_it_is_rare() -> None:
    often, rarely = torch.tensor([3.0, 3.0, 0.5]), torch.tensor([0.0, -1.0, 2.5])
    rows = torch.where(torch.arange(400)[:, None] % 20 == 0, rarely, often)
    typicality = Typicality(rows, torch.ones(400))

    found = p_values(typicality, torch.stack([often, rarely]))

    assert found.tolist() == pytest.approx([1.0, 21 / 401])


def test_the_rare_one_of_two_values_is_as_strange_though_its_last_digit_differs() -> None:
    rows = torch.cat([torch.zeros(100, 1), torch.ones(300, 1)])

    found = p_values(Typicality(rows, torch.ones(400)), torch.tensor([[-1e-6], [0.0], [1.0]]))

    assert found.tolist() == pytest.approx([101 / 401, 101 / 401, 1.0])


def test_where_samples_do_not_repeat_each_other_every_difference_counts() -> None:
    fit = usual().fit

    assert (fit.alike, fit.tails.grain) == (0, 0)
    half = torch.cat([rows_of(900, 0), rows_of(100, 1)[:1].expand(800, -1)])
    assert Typicality(half, torch.ones(len(half))).fit.alike == 0
    assert Typicality(half[200:], torch.ones(len(half) - 200)).fit.alike > 0
