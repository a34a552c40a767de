"""Tests for service.trainer.run_time: an interval is as scipy's quantiles have it."""

from __future__ import annotations

import pytest
from scipy.special import gammaincinv

from service.trainer.run_time import gamma_quantile, interval


@pytest.mark.parametrize("alarms", [1, 2, 3, 7, 50, 199, 200, 201, 12_345, 10**6])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_both_ends_are_quantiles_of_the_gamma_distribution(alarms: int, confidence: float) -> None:
    tail = (1 - confidence) / 2
    low, high = interval(alarms, 10**7, confidence)
    assert low == pytest.approx(10**7 / gammaincinv(alarms + 1, 1 - tail), rel=1e-9)
    assert high == pytest.approx(10**7 / gammaincinv(alarms, tail), rel=1e-9)


def test_a_quantile_is_where_so_much_lies_below() -> None:
    # With shape 1 it is an exponential distribution.
    assert gamma_quantile(1, 0.5) == pytest.approx(0.6931471805599453, rel=1e-12)
