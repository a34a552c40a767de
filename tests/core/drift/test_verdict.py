"""Tests for `core.drift.detector.Verdict`: what is said of a batch, by name."""

from __future__ import annotations

import math

import pytest

from core.drift.detector import Level, Verdict

PLAIN = Verdict(Level.NORMAL, ("a", "b", "all"), (1.0, 2.0, 3.0), 2.5, True, 0.5, None, 10)


def test_the_last_statistic_decides_and_all_are_told_by_name() -> None:
    assert PLAIN.statistic == 3
    assert PLAIN.statistics == {"a": 1, "b": 2, "all": 3}
    assert PLAIN.thresholds == {"a": 2.5, "b": 2.5, "all": 2.5}


def test_a_name_without_a_statistic_is_an_error() -> None:
    with pytest.raises(ValueError, match="zip"):
        _ = PLAIN._replace(values=(1.0, 3.0)).statistics


def test_only_numbers_that_there_are_are_evidence() -> None:
    assert PLAIN.evidence == {}
    told = PLAIN._replace(log_likelihood_before=0.0, log_likelihood_now=-3.0)
    assert told.evidence == {"log_likelihood_before": 0, "log_likelihood_now": -3}
    high = PLAIN._replace(statistic_highest=9.0, samples=50)
    assert high.evidence == {"statistic_highest": 9, "p_value": 50 * math.exp(-9)}


@pytest.mark.parametrize(
    ("highest", "samples", "expected"),
    [(None, 5, None), (0.0, 0, 1.0), (3.0, 1000, 1.0), (10.0, 0, math.exp(-10)), (1e4, 9, 0.0)],
)
def test_a_p_value_is_of_all_the_samples_at_which_it_might_have_been_as_high(
    highest: float | None, samples: int, expected: float | None
) -> None:
    assert PLAIN._replace(statistic_highest=highest, samples=samples).p_value == expected
