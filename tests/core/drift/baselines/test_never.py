"""Tests for core.drift.baselines.never: it watches, reports inliers, and never speaks."""

from __future__ import annotations

import pytest
import torch

from core.drift.baselines.never import NeverDetector
from core.drift.detector import Level, UnarmedReason
from tests.core.signals import Stretch, observations, verdicts

DETECTOR = NeverDetector()


def test_it_never_speaks() -> None:
    stream = [Stretch(3000), Stretch(3000, mean=-50, shares=(1.0, 0, 0, 0))]
    said = verdicts(DETECTOR, observations(stream, 100))
    assert {verdict.level for verdict in said} == {Level.NORMAL}
    assert not any(verdict.armed for verdict in said)


def test_the_inlier_rate_is_reported_all_the_same() -> None:
    said = verdicts(DETECTOR, observations([Stretch(3000), Stretch(100, mean=-5)], 100))
    usual = [verdict.inlier_rate for verdict in said[5:30]]
    assert sum(usual) / len(usual) == pytest.approx(0.84, abs=0.02)
    assert said[30].inlier_rate < 0.05
    assert said[0].inlier_rate is None  # there was nothing to tell it by


def test_it_is_never_armed() -> None:
    for converged in (True, False):
        arming = DETECTOR.arming(DETECTOR.start(), 0, converged)
        assert arming == (None, UnarmedReason.NO_DETECTOR)


def test_what_it_says_is_complete_enough_to_be_reported() -> None:
    verdict = verdicts(DETECTOR, observations([Stretch(10)], 10))[0]
    assert verdict.statistic == verdict.threshold == 0
    assert verdict.change_samples == 10
    assert DETECTOR.name == "none"
    assert DETECTOR.dismiss(DETECTOR.start()) == DETECTOR.start()
    assert DETECTOR.typical(DETECTOR.start(), torch.zeros(3, 2)).tolist() == [True] * 3
