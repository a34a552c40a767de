"""Tests for gmr.outlier_detector: what scikit-learn asks of such a detector, and what ours adds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from gmr import GMROutlierDetector, InvalidSettings


@parametrize_with_checks([GMROutlierDetector()])  # type: ignore[untyped-decorator]
@pytest.mark.filterwarnings("default")
def test_it_is_an_outlier_detector_to_scikit_learn(
    estimator: GMROutlierDetector, check: Callable[[GMROutlierDetector], None]
) -> None:
    """All of its checks, none left out."""
    check(estimator)


def inliers(n: int, seed: int) -> NDArray[Any]:
    """Samples (n, 4) of two clusters, whose features differ a thousand times in scale."""
    random = np.random.default_rng(seed)
    centres = np.array([[0, 0, 5, 5], [8, 8, 0, 0]])[random.integers(2, size=n)]
    return (centres + random.normal(size=(n, 4))) * [1, 1000, 0.001, 1]


def outliers(n: int, seed: int) -> NDArray[Any]:
    random = np.random.default_rng(seed)
    return random.uniform(-10, 20, size=(n, 4)) * [1, 1000, 0.001, 1]


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.2])
def test_of_new_inliers_as_many_are_outliers_as_was_asked_for(rate: float) -> None:
    model = GMROutlierDetector(false_positive_rate=rate).fit(inliers(4000, 0))
    assert model.calibrated_
    new = inliers(4000, 1)
    # Four deviations of a share of 4,000, and of one of the thousand behind the calibration.
    spread = 4 * np.sqrt(rate / 4000 + rate / 1000)
    assert abs((model.predict(new) == -1).mean() - rate) < spread
    p_values = model.p_values(new)
    assert p_values is not None
    assert ((p_values > rate) == (model.predict(new) == 1)).all()


def test_a_rate_below_every_p_value_finds_what_is_far() -> None:
    model = GMROutlierDetector(false_positive_rate=1e-4).fit(inliers(1000, 0))
    assert np.isfinite(model.offset_)
    assert model.predict(outliers(1, 0) * 1e6).tolist() == [-1]
    assert (model.predict(inliers(2000, 1)) == -1).mean() < 0.002


def test_outliers_are_told_from_inliers_also_where_they_were_learned() -> None:
    x = np.concatenate([inliers(1900, 0), outliers(100, 0)])
    strange = np.arange(len(x)) >= 1900
    model = GMROutlierDetector()
    # One in twenty is strange, which is what inliers may be: the rate leaves room for no more.
    assert ((model.fit_predict(x) == -1)[strange]).mean() > 0.75
    assert roc_auc_score(strange, -model.score_samples(x)) > 0.97


def test_of_few_samples_it_says_that_it_is_not_calibrated_and_answers_all_the_same() -> None:
    model = GMROutlierDetector().fit(inliers(200, 0))
    assert not model.calibrated_
    assert model.p_values(inliers(3, 1)) is None
    assert (model.predict(inliers(1000, 1)) == -1).mean() < 0.2
    assert (model.predict(outliers(100, 1)) == -1).mean() > 0.9
    assert np.isfinite(model.score_samples(1e6 * outliers(3, 1))).all()


def table(kind: str, n: int, seed: int, d: int = 5) -> NDArray[Any]:
    """Samples (n, d) of one cluster."""
    random = np.random.default_rng(seed)
    if kind == "skewed":
        return np.exp(random.normal(size=(n, d)))
    drawn = random.normal(size=(n, d)) if kind == "normal" else random.standard_t(3, size=(n, d))
    return drawn @ np.random.default_rng(0).normal(size=(d, d))


@pytest.mark.parametrize("preset", ["flat", "mfa"])
@pytest.mark.parametrize("kind", ["normal", "heavy", "skewed"])
def test_of_few_samples_the_rate_is_kept_on_average(kind: str, preset: str) -> None:
    rates = []
    for seed in range(8):
        model = GMROutlierDetector(preset=preset).fit(table(kind, 160, seed))
        assert not model.calibrated_
        rates.append((model.predict(table(kind, 1000, 100 + seed)) == -1).mean())
    # The mean errs by 0.006: eight tables of 160 samples, each of which shifts its rate by 0.017.
    assert 0.025 < np.mean(rates) < 0.08


@pytest.mark.parametrize("preset", ["flat", "mfa"])
def test_of_few_samples_of_many_features_it_is_kept_as_well(preset: str) -> None:
    """Components fit such samples so well that new ones look strange beside them."""
    rates = []
    for seed in range(6):
        model = GMROutlierDetector(preset=preset).fit(table("normal", 100, seed, d=10))
        rates.append((model.predict(table("normal", 1000, 100 + seed, d=10)) == -1).mean())
    assert 0.025 < np.mean(rates) < 0.08


def test_of_fewer_samples_than_the_rate_counts_in_what_is_far_off_is_an_outlier() -> None:
    model = GMROutlierDetector(false_positive_rate=0.001).fit(inliers(60, 0))
    assert (model.predict(inliers(1000, 1)) == -1).mean() < 0.03
    assert (model.predict(100 + 10 * outliers(100, 1)) == -1).mean() > 0.9
    assert np.isfinite(GMROutlierDetector().fit(inliers(2, 0)).offset_)
    assert np.isfinite(GMROutlierDetector().partial_fit(inliers(1, 0)).offset_)


def test_samples_are_held_until_p_values_are_calibrated_and_no_longer() -> None:
    model, x = GMROutlierDetector(), inliers(1500, 0)
    thresholds = [model.partial_fit(part).offset_ for part in np.array_split(x[:300], 60)]
    assert len(set(thresholds)) < 45  # not found anew for each
    assert model._early is not None
    kept = copy.deepcopy(model)
    assert kept.offset_ == thresholds[-1]
    assert kept.partial_fit(x[:50]).offset_ != thresholds[-1]
    for part in np.array_split(x[300:], 12):
        model.partial_fit(part)
    assert model.calibrated_
    assert model._early is None


def test_a_stream_is_taken_as_it_comes_and_what_it_left_behind_stays_known() -> None:
    model, first = GMROutlierDetector(), inliers(3000, 0)
    second = inliers(3000, 1) + np.array([40, 40_000, 0.04, 40])
    for part in np.array_split(first, 30):
        model.partial_fit(part)
    assert (model.predict(second) == -1).mean() > 0.99
    for part in np.array_split(second, 30):
        model.partial_fit(part)
    (boundary,) = model.boundaries_
    assert abs(boundary - 3000) <= 100
    assert (model.predict(second) == -1).mean() < 0.1
    assert (model.predict(first) == -1).mean() < 0.1


def test_the_same_seed_learns_the_same_and_a_copy_goes_on() -> None:
    x = inliers(900, 0)
    model = GMROutlierDetector(random_state=3).fit(x)
    scores = model.score_samples(x).tobytes()
    assert clone(model).fit(x).score_samples(x).tobytes() == scores
    kept = copy.deepcopy(model)
    assert kept.score_samples(x).tobytes() == scores
    assert kept.offset_ == model.offset_
    model.partial_fit(x)
    assert kept.partial_fit(x).score_samples(x).tobytes() == model.score_samples(x).tobytes()


def test_before_anything_is_learned_it_says_so() -> None:
    model = GMROutlierDetector()
    assert not hasattr(model, "offset_")
    with pytest.raises(NotFittedError):
        model.predict(inliers(3, 0))


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"preset": "best"},
        {"false_positive_rate": 1.5},
        {"false_positive_rate": "0.05"},
        {"false_positive_rate": None},
        {"device": "gpu"},
    ],
)
def test_an_argument_that_cannot_be_used_is_refused_when_it_is_needed(
    wrong: dict[str, Any],
) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(wrong))):
        GMROutlierDetector(**wrong).fit(inliers(30, 0))
