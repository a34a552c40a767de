"""Tests for gmr.estimator: what scikit-learn asks of a classifier, and what ours adds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from clients.data.datasets import load_dataset
from gmr import GMRClassifier, InvalidLabels, InvalidRequest, InvalidSettings, UnknownClass


@parametrize_with_checks([GMRClassifier()])  # type: ignore[untyped-decorator]
@pytest.mark.filterwarnings("default")
def test_it_is_a_classifier_to_scikit_learn(
    estimator: GMRClassifier, check: Callable[[GMRClassifier], None]
) -> None:
    """All of its checks, none left out."""
    check(estimator)


def blobs(n: int, centres: dict[Any, tuple[float, float]], seed: int) -> tuple[Any, Any]:
    """Samples (n, 2) of round classes far from each other, and their labels (n,)."""
    random = np.random.default_rng(seed)
    labels = np.array(list(centres))[random.integers(len(centres), size=n)]
    middles = np.array([centres[label.item()] for label in labels])
    return middles + 0.5 * random.normal(size=(n, 2)), labels


CENTRES = {"left": (-3.0, 0.0), "right": (3.0, 0.0), "top": (0.0, 4.0)}


def answers(model: GMRClassifier, x: NDArray[Any]) -> tuple[bytes, bytes]:
    return model.predict_proba(x).tobytes(), model.score_samples(x).tobytes()


@settings(max_examples=15, deadline=None)
@given(
    labels=st.lists(st.integers(-3, 3), min_size=20, max_size=60),
    size=st.integers(1, 20),
    seed=st.integers(0, 9),
)
def test_columns_follow_the_sorted_classes_whatever_order_labels_come_in(
    labels: list[int], size: int, seed: int
) -> None:
    """Classes are told apart by their first feature, which is their label."""
    y = np.array(labels)
    x = np.random.default_rng(seed).normal(scale=0.05, size=(len(y), 2))
    x[:, 0] += 10 * y
    model = GMRClassifier(preset="flat", batch_size=size)
    for rows in np.array_split(np.arange(len(y)), 3):
        model.partial_fit(x[rows], y[rows])
        known = y[: rows[-1] + 1]
        assert model.classes_.tolist() == sorted(set(known.tolist()))
        found = model.predict_proba(x[: rows[-1] + 1])
        assert found.shape == (len(known), len(model.classes_))
        assert found.sum(1) == pytest.approx(1, abs=1e-5)
        assert (found >= 0).all()


@pytest.mark.parametrize("dtype", [int, float, str, bool, object])
def test_labels_of_any_kind_come_back(dtype: type) -> None:
    x, y = blobs(300, {0: (-3.0, 0.0), 1: (3.0, 0.0)}, 0)
    names = y.astype(str).astype(object) if dtype is object else y.astype(dtype)
    model = GMRClassifier().fit(x, names)
    found = model.predict(x)
    assert found.dtype == model.classes_.dtype
    assert (found == names).mean() > 0.99
    _, drawn = model.sample(4, classes=[names[0]])
    assert drawn.tolist() == [names[0]] * 4


def test_fit_in_the_order_given_is_partial_fit_of_all_its_batches() -> None:
    x, y = blobs(700, CENTRES, 0)
    whole = GMRClassifier(shuffle=False, batch_size=70).fit(x, y)
    parts = GMRClassifier(batch_size=70)
    for rows in np.array_split(np.arange(700), 10):
        parts.partial_fit(x[rows], y[rows])
    assert answers(whole, x) == answers(parts, x)


def test_the_same_seed_learns_the_same_model_and_another_another() -> None:
    x, y = blobs(600, CENTRES, 0)
    model = GMRClassifier(random_state=3).fit(x, y)
    assert answers(model, x) == answers(clone(model).fit(x, y), x)
    assert answers(model, x) != answers(GMRClassifier(random_state=4).fit(x, y), x)


def test_asking_changes_nothing_of_what_is_learned_next() -> None:
    x, y = blobs(900, CENTRES, 0)
    asked, left_alone = GMRClassifier(), GMRClassifier()
    for rows in np.array_split(np.arange(900), 9):
        asked.partial_fit(x[rows], y[rows])
        asked.predict(x)
        left_alone.partial_fit(x[rows], y[rows])
    assert answers(asked, x) == answers(left_alone, x)


def test_a_copy_goes_on_as_if_nothing_had_happened() -> None:
    x, y = blobs(800, CENTRES, 0)
    model = GMRClassifier().partial_fit(x[:400], y[:400])
    kept = copy.deepcopy(model)
    assert answers(kept, x) == answers(model, x)
    for one in (kept, model):
        one.partial_fit(x[400:], y[400:])
    assert answers(kept, x) == answers(model, x)


@pytest.mark.slow
def test_digits_in_two_sub_tasks_are_not_forgotten_and_the_boundary_is_found() -> None:
    digits = load_dataset("digits")
    first = digits.train_y < 5
    model = GMRClassifier(batch_size=50)
    random = np.random.default_rng(0)
    for rows in (first, ~first):
        order = random.permutation(np.tile(np.flatnonzero(rows), 2))
        model.partial_fit(digits.train_x[order], digits.train_y[order])
    (boundary,) = model.boundaries_
    assert abs(boundary - 2 * first.sum()) <= 100
    assert model.score(digits.test_x, digits.test_y) > 0.93
    old = digits.test_y < 5
    assert model.score(digits.test_x[old], digits.test_y[old]) > 0.93


def test_what_is_like_nothing_learned_is_unlikely() -> None:
    x, y = blobs(800, CENTRES, 0)
    model = GMRClassifier().fit(x, y)
    assert model.score_samples(np.array([[40.0, -40.0]])) < model.score_samples(x).min()


def test_the_log_likelihood_is_in_the_units_of_the_samples() -> None:
    """p(a x) = p(x) / a: each of two features takes log a off."""
    x, y = blobs(800, CENTRES, 0)
    model, scaled = GMRClassifier().fit(x, y), GMRClassifier().fit(8 * x, y)
    change = model.score_samples(x) - scaled.score_samples(8 * x)
    assert change == pytest.approx(2 * np.log(8), abs=1e-3)


def test_samples_are_of_the_classes_asked_for_and_come_again() -> None:
    x, y = blobs(800, CENTRES, 0)
    model = GMRClassifier().fit(x, y)
    drawn, names = model.sample(200, classes=["top", "left"], random_state=5)
    assert names is not None
    assert sorted(set(names.tolist())) == ["left", "top"]
    for name in ("left", "top"):
        assert drawn[names == name].mean(0) == pytest.approx(CENTRES[name], abs=0.25)
    again, _ = model.sample(200, classes=["top", "left"], random_state=5)
    assert again.tobytes() == drawn.tobytes()
    with pytest.raises(UnknownClass, match="bottom"):
        model.sample(3, classes=["bottom"])


def test_what_is_drawn_is_asked_for_as_numpy_has_it_too() -> None:
    x, y = blobs(300, {0: (-3.0, 0.0), 1: (3.0, 0.0)}, 0)
    model = GMRClassifier(n_components=np.int64(20), batch_size=np.int32(50)).fit(x, y)
    _, names = model.sample(np.int64(2), classes=[np.int64(1)])
    assert names is not None
    assert names.tolist() == [1, 1]
    assert answers(copy.deepcopy(model), x) == answers(model, x)
    for n in (2.5, "2", 0):
        with pytest.raises(InvalidRequest):
            model.sample(n)  # type: ignore[arg-type]
    for classes in (1, np.int64(1), "1", []):
        with pytest.raises(InvalidRequest):
            model.sample(2, classes=classes)  # type: ignore[arg-type]


def test_samples_without_labels_teach_the_density_and_labels_may_come_later() -> None:
    x, y = blobs(800, CENTRES, 0)
    model = GMRClassifier().partial_fit(x[:400])
    assert np.isfinite(model.score_samples(x)).all()
    drawn, names = model.sample(5)
    assert drawn.shape == (5, 2)
    assert names is None
    with pytest.raises(NotFittedError, match="no label"):
        model.predict(x)
    model.partial_fit(x[400:], y[400:])
    assert model.score(x, y) > 0.99


@pytest.mark.parametrize("kind", [list, lambda y: np.array(y, dtype=object), pd.Series])
def test_samples_without_a_label_may_stand_among_others(kind: Callable[[list[Any]], Any]) -> None:
    x, y = blobs(800, CENTRES, 0)
    known = np.random.default_rng(0).random(800) < 0.1
    some = [name if one else None for name, one in zip(y.tolist(), known, strict=True)]
    model = GMRClassifier().fit(x, kind(some))
    assert model.classes_.tolist() == sorted(CENTRES)
    assert model.score(x, y) > 0.98
    parts = GMRClassifier(shuffle=False)
    for rows in np.array_split(np.arange(800), 8):
        parts.partial_fit(x[rows], [some[row] for row in rows])
    whole = GMRClassifier(shuffle=False).fit(x, some)
    assert answers(parts, x) == answers(whole, x)


@pytest.mark.parametrize(
    ("gap", "kind"),
    [
        (np.nan, list),
        (np.nan, pd.Series),
        (np.nan, lambda y: pd.Series(y).astype("category")),
        (pd.NA, list),
        (pd.NA, lambda y: pd.Series(y, dtype="string")),
    ],
)
def test_a_label_that_is_nan_or_na_is_none(gap: object, kind: Callable[[list[Any]], Any]) -> None:
    x, y = blobs(400, CENTRES, 0)
    some = [name if i % 3 else None for i, name in enumerate(y.tolist())]
    other = kind([gap if name is None else name for name in some])
    whole = GMRClassifier().fit(x, some)
    assert answers(GMRClassifier().fit(x, other), x) == answers(whole, x)
    parts = GMRClassifier().partial_fit(x, some)
    assert answers(GMRClassifier().partial_fit(x, other), x) == answers(parts, x)


@pytest.mark.parametrize(
    "kind", [np.array, pd.Series, lambda y: pd.Series(y).astype("Int64")], ids=["array", "s", "i"]
)
def test_integers_that_gaps_made_floats_are_labels(kind: Callable[[list[Any]], Any]) -> None:
    x, _ = blobs(400, CENTRES, 0)
    model = GMRClassifier().partial_fit(x, kind([i % 2 if i % 3 else np.nan for i in range(400)]))
    assert model.classes_.tolist() == [0, 1]
    assert model.partial_fit(x, [i % 2 for i in range(400)]).classes_.tolist() == [0, 1]


def test_of_targets_that_are_all_nan_only_a_stream_is_taken() -> None:
    x, _ = blobs(100, CENTRES, 0)
    nothing = np.full(100, np.nan)
    with pytest.raises(ValueError, match="contains NaN and nothing else"):
        GMRClassifier().fit(x, nothing)
    assert not len(GMRClassifier().partial_fit(x, nothing).classes_)


def test_columns_in_another_order_are_refused_as_scikit_learn_refuses_them() -> None:
    x, y = blobs(200, CENTRES, 0)
    frame = pd.DataFrame(x, columns=["a", "b"])
    model = GMRClassifier().fit(frame, y)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    asked = [model.predict, model.score_samples, model.partial_fit, lambda x: model.score(x, y)]
    for ask in asked:
        with pytest.raises(ValueError, match="must be in the same order"):
            ask(frame[["b", "a"]])


def test_where_no_sample_has_a_label_there_is_no_class() -> None:
    x, _ = blobs(300, CENTRES, 0)
    model = GMRClassifier().fit(x, [None] * 300)
    assert not len(model.classes_)
    with pytest.raises(NotFittedError, match="no label"):
        model.predict(x)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.partial_fit(x, [None] * 299)


def test_classes_given_at_first_have_their_columns_and_no_others_may_come() -> None:
    x, y = blobs(300, CENTRES, 0)
    model = GMRClassifier().partial_fit(x, y, classes=["top", "left", "right", "bottom"])
    assert model.classes_.tolist() == ["bottom", "left", "right", "top"]
    assert not model.predict_proba(x)[:, 0].any()
    before = answers(model, x)
    with pytest.raises(ValueError, match=r"'middle'.*not among the classes"):
        model.partial_fit(x[:1], ["middle"])
    assert answers(model, x) == before


def test_a_class_may_be_met_later_without_being_announced() -> None:
    x, y = blobs(600, CENTRES, 0)
    late = y == "left"
    model = GMRClassifier(detector="none").partial_fit(x[~late], y[~late])
    assert model.classes_.tolist() == ["right", "top"]
    model.partial_fit(x[late], y[late])
    assert model.classes_.tolist() == ["left", "right", "top"]
    assert model.score(x, y) > 0.98


def test_more_classes_than_may_be_are_refused_and_change_nothing() -> None:
    x, y = blobs(300, CENTRES, 0)
    with pytest.raises(InvalidLabels, match=r"classes to 3; at most 2 .* raise max_classes"):
        GMRClassifier(max_classes=2).fit(x, y)
    assert GMRClassifier(max_classes=3).fit(x, y).score(x, y) > 0.98
    first = y != "top"
    model = GMRClassifier(max_classes=2).partial_fit(x[first], y[first])
    before = answers(model, x)
    with pytest.raises(InvalidLabels, match="raise max_classes"):
        model.partial_fit(x, y)
    assert answers(model, x) == before
    assert model.classes_.tolist() == ["left", "right"]


@pytest.mark.parametrize("kind", [list, np.array, pd.Series])
@pytest.mark.parametrize("names", [(0, 1), ("0", "1")])
def test_texts_beside_other_labels_are_refused_and_change_nothing(
    kind: Callable[[list[Any]], Any], names: tuple[Any, Any]
) -> None:
    x, _ = blobs(100, CENTRES, 0)
    y = [names[i % 2] for i in range(100)]
    others: list[Any] = [int(one) if isinstance(one, str) else str(one) for one in y]
    model = GMRClassifier().partial_fit(x, kind(y))
    before = answers(model, x)
    for later in (others, [None, *others[1:]]):
        with pytest.raises(ValueError, match=r"labels of two kinds: .*\(str\).*or none\."):
            model.partial_fit(x, kind(later) if None not in later else later)
    with pytest.raises(ValueError, match="two kinds"):
        GMRClassifier().partial_fit(x, kind(y), classes=sorted(set(others)))
    assert answers(model, x) == before
    assert model.classes_.tolist() == list(names)
    assert model.partial_fit(x, kind(y)).classes_.tolist() == list(names)


def test_texts_beside_other_labels_are_refused_in_one_list() -> None:
    x, _ = blobs(100, CENTRES, 0)
    for fit in (GMRClassifier().fit, GMRClassifier().partial_fit):
        with pytest.raises(ValueError, match="two kinds"):
            fit(x, [i if i % 2 else "even" for i in range(100)])
        fit(x, [np.str_("odd") if i % 2 else "even" for i in range(100)])


def test_integers_that_floats_cannot_tell_apart_are_refused_beside_floats() -> None:
    x, _ = blobs(4, CENTRES, 0)
    large = np.array([2**53, 2**53 + 1] * 2)
    model = GMRClassifier().partial_fit(x, large)
    with pytest.raises(ValueError, match="beyond 2"):
        model.partial_fit(x, np.array([1.0, np.nan, 2.0, 1.0]))
    assert GMRClassifier().partial_fit(x, large % 7).partial_fit(x, large % 7 + 0.0)


def test_it_stands_in_pipelines_and_cross_validation() -> None:
    x, y = blobs(450, CENTRES, 0)
    scores = cross_val_score(make_pipeline(StandardScaler(), GMRClassifier()), x, y, cv=3)
    assert scores.min() > 0.98


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch_size": 0},
        {"batch_size": "5"},
        {"batch_size": 2.5},
        {"preset": "best"},
        {"detector": "nose"},
        {"n_components": 0},
        {"n_components": "5"},
        {"n_components": 2.5},
        {"n_components": True},
        {"ert": "1e6"},
        {"ert": None},
        {"max_classes": 2.5},
        {"device": "gpu"},
        {"device": "cuda:99"},
        {"device": None},
    ],
)
def test_an_argument_that_cannot_be_used_is_refused_when_it_is_needed(
    wrong: dict[str, Any],
) -> None:
    x, y = blobs(30, CENTRES, 0)
    with pytest.raises(InvalidSettings, match=next(iter(wrong))):
        GMRClassifier(**wrong).fit(x, y)
