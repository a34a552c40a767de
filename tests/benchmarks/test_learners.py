"""Incremental learners beside the engine: each gets the same images, and forgets as it must."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from benchmarks import learners
from benchmarks.classification.incremental import PartialFit, RefittedMixtures
from benchmarks.classification.measures import NOBODY
from benchmarks.classification.opponent import Majority, Opponent

RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, 200)
X = (RNG.normal(size=(200, 3)) + 8 * Y[:, None]).astype(np.float32)


@pytest.mark.parametrize(
    "learner", [PartialFit(GaussianNB(), (0, 1)), RefittedMixtures(0, n_components=2)]
)
def test_what_is_learned_is_named(learner: Opponent):
    assert learner.predict(X[:3]).tolist() == [NOBODY] * 3
    for first in range(0, 200, 50):
        learner.learn(X[first : first + 50], Y[first : first + 50])
    assert np.array_equal(learner.predict(X), Y)


def test_a_mixture_is_fitted_to_the_last_samples_of_its_class():
    learner = RefittedMixtures(0, n_components=1, window=50, every=50)
    ones = np.ones(50, dtype=np.int64)
    learner.learn(X[Y == 0][:50], 0 * ones)
    learner.learn(X[Y == 1][:50], ones)
    assert learner.predict(X[Y == 1][:5]).tolist() == [1] * 5
    # Class 1 moves to where class 0 is, and class 0 away from there.
    learner.learn(X[Y == 0][:50] - 20, 0 * ones)
    learner.learn(X[Y == 0][:50], ones)
    assert learner.predict(X[Y == 0][:5]).tolist() == [1] * 5
    assert learner.predict(X[Y == 0][:5] - 20).tolist() == [0] * 5


def test_a_course_teaches_every_sub_task_and_asks_about_each():
    y = np.repeat(np.arange(10), 30)
    x = RNG.normal(size=(300, 4)) + y[:, None]
    course = learners._course(Majority(), (x, y), (x, y), 20, 5, 0)
    assert course.samples == 200
    # Of classes equally frequent the first is named: half of the first sub-task, a tenth of all.
    assert (course.first, course.accuracy) == (0.5, pytest.approx(0.1))
