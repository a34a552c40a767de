"""Tests for gmr.river: what River asks of its models, and what ours add."""

from __future__ import annotations

import copy
import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import anomaly, checks, datasets, drift, evaluate, metrics, naive_bayes, stream
from sklearn.metrics import roc_auc_score

from gmr import InvalidLabels, InvalidSettings, NonFiniteFeature
from gmr.river import GMRAnomalyDetector, GMRClassifier, GMRDetector

ROOT = Path(__file__).parents[2]

Model = GMRClassifier | GMRAnomalyDetector


class Cards:
    """In the place of River's own set, which it would download: a few cards are misused."""

    def take(self, n: int) -> Iterator[tuple[dict[str, float], int]]:
        rng = random.Random(0)
        for index in range(min(n, 600)):
            odd = index % 50 == 49
            yield {f"V{i}": rng.gauss(5 * odd, 1) for i in range(8)}, int(odd)


def river_checks() -> Iterator[Any]:
    for model in (GMRClassifier(), GMRAnomalyDetector()):
        # The data of some are drawn here, and would be downloaded: only their names are wanted.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(datasets, "CreditCard", Cards)
            for number, check in enumerate(checks.yield_checks(model)):
                name = f"{type(model).__name__}-{check.__name__}-{number}"
                yield pytest.param(model, check, id=name)


@pytest.mark.parametrize(("model", "check"), list(river_checks()))
def test_it_is_what_river_asks_for(model: Model, check: Callable[[Model], None]) -> None:
    """All of River's checks, none left out."""
    assert model._unit_test_skips() == set()
    random.seed(0)  # River's checks shuffle by it
    check(model.clone())


def blobs(
    n: int, centres: dict[Any, tuple[float, float]], seed: int
) -> Iterator[tuple[dict[str, float], Any]]:
    """Samples of round classes far from each other."""
    rng = random.Random(seed)
    for _ in range(n):
        label = rng.choice(list(centres))
        x, y = centres[label]
        yield {"x": rng.gauss(x, 0.5), "y": rng.gauss(y, 0.5)}, label


CENTRES = {"left": (-3.0, 0.0), "right": (3.0, 0.0), "top": (0.0, 4.0)}


def taught(model: GMRClassifier, samples: Iterator[tuple[dict[str, float], Any]]) -> GMRClassifier:
    for x, y in samples:
        model.learn_one(x, y)
    return model


def answers(model: GMRClassifier) -> list[dict[Any, float]]:
    return [model.predict_proba_one(x) for x, _ in blobs(50, CENTRES, 99)]


# The classifier ---------------------------------------------------------------------------


def test_labels_of_any_kind_come_back_as_they_were_sent() -> None:
    for kind in (int, str, bool):
        centres = {kind(0): CENTRES["left"], kind(1): CENTRES["right"]}
        model = taught(GMRClassifier(), blobs(200, centres, 0))
        for x, y in blobs(20, centres, 1):
            assert model.predict_one(x) == y
            assert type(model.predict_one(x)) is kind


def test_before_the_first_batch_answers_are_the_shares_of_labels() -> None:
    model = GMRClassifier(batch_size=10)
    assert model.predict_one({"x": 0.0}) is None
    assert model.predict_proba_one({"x": 0.0}) == {}
    for label in ("a", "b", "a", "a"):
        model.learn_one({"x": 1.0}, label)
    assert model.predict_proba_one({"x": 0.0}) == {"a": 0.75, "b": 0.25}


def test_samples_without_labels_are_learned_and_named_later() -> None:
    model = GMRClassifier(batch_size=5)
    for x, _ in blobs(50, CENTRES, 0):
        model.learn_one(x, None)
    assert model.predict_one({"x": 0.0, "y": 4.0}) is None
    taught(model, blobs(100, CENTRES, 1))
    assert model.predict_one({"x": 0.0, "y": 4.0}) == "top"


@pytest.mark.parametrize("gap", [math.nan, np.float32("nan"), pd.NA, pd.NaT])
def test_a_label_that_is_nan_or_na_is_none(gap: object) -> None:
    samples = [(x, y if i % 3 else None) for i, (x, y) in enumerate(blobs(200, CENTRES, 0))]
    none = taught(GMRClassifier(), iter(samples))
    other = taught(GMRClassifier(), ((x, gap if y is None else y) for x, y in samples))
    assert answers(none) == answers(other)
    assert set(answers(other)[0]) == set(CENTRES)
    frame = pd.DataFrame([x for x, _ in samples])
    labels = [gap if y is None else y for _, y in samples]
    many = GMRClassifier()
    many.learn_many(frame, pd.Series(labels, dtype=object))
    assert set(answers(many)[0]) == set(CENTRES)


def test_what_comes_in_frames_is_what_comes_one_by_one() -> None:
    samples = list(blobs(200, CENTRES, 0))
    one, many = GMRClassifier(batch_size=40), GMRClassifier()
    taught(one, iter(samples))
    for start in range(0, 200, 40):
        part = samples[start : start + 40]
        frame = pd.DataFrame([x for x, _ in part], index=range(start, start + 40))
        many.learn_many(frame, pd.Series([y for _, y in part], index=frame.index))
    assert answers(one) == answers(many)
    told = many.predict_proba_many(frame)
    assert told.index.equals(frame.index)
    one_by_one = pd.DataFrame([many.predict_proba_one(x) for x, _ in part])
    assert told.columns.tolist() == one_by_one.columns.tolist()
    assert told.to_numpy() == pytest.approx(one_by_one.to_numpy(), abs=1e-5)
    assert many.predict_many(frame).tolist() == [y for _, y in part]


def test_samples_that_wait_are_learned_before_a_frame() -> None:
    samples = list(blobs(30, CENTRES, 0))
    model = taught(GMRClassifier(batch_size=100), iter(samples[:10]))
    frame = pd.DataFrame([x for x, _ in samples[10:]])
    model.learn_many(frame, pd.Series([y for _, y in samples[10:]]))
    twice = taught(GMRClassifier(batch_size=10), iter(samples[:10]))
    twice.learn_many(frame, pd.Series([y for _, y in samples[10:]]))
    assert answers(model) == answers(twice)


def test_a_copy_goes_on_as_if_nothing_had_happened() -> None:
    """In the middle of a batch, too: 205 samples are 20 batches, and five that wait."""
    model = taught(GMRClassifier(), blobs(205, CENTRES, 0))
    other = copy.deepcopy(model)
    for one in (model, other):
        taught(one, blobs(205, CENTRES, 1))
    assert answers(model) == answers(other)
    kept = model._model.__getstate__()
    assert {type(value) for value in kept.values()} == {str, bool, bytes}, "no tensor is kept"


def test_a_sample_that_cannot_be_used_is_refused_at_once_and_changes_nothing() -> None:
    model, other = (taught(GMRClassifier(), blobs(25, CENTRES, 0)) for _ in range(2))
    for value in (math.inf, 1e39):
        with pytest.raises(NonFiniteFeature, match="'x'"):
            model.learn_one({"x": value, "y": 0.0}, "unheard of")
    with pytest.raises(ValueError, match="could not convert"):
        model.learn_one({"x": "far", "y": 0.0}, "unheard of")
    for one in (model, other):
        taught(one, blobs(25, CENTRES, 1))
    assert answers(model) == answers(other)


def test_a_frame_that_cannot_be_used_is_refused_and_changes_nothing() -> None:
    model, other = (taught(GMRClassifier(), blobs(25, CENTRES, 0)) for _ in range(2))
    frame = pd.DataFrame({"x": [0.0, 1.0], "y": [4.0, 4.0]})
    with pytest.raises(InvalidLabels, match="2 samples came with 1 label"):
        model.learn_many(frame, pd.Series(["unheard of"]))
    with pytest.raises(NonFiniteFeature, match="'y'"):
        model.learn_many(frame.replace(4.0, math.inf), pd.Series(["top", "unheard of"]))
    for one in (model, other):
        taught(one, blobs(25, CENTRES, 1))
    assert answers(model) == answers(other)


def test_more_classes_than_may_be_are_refused_and_change_nothing() -> None:
    model, other = (taught(GMRClassifier(max_classes=3), blobs(25, CENTRES, 0)) for _ in range(2))
    with pytest.raises(InvalidLabels, match=r"classes to 4; at most 3 .* raise max_classes"):
        model.learn_one({"x": 0.0, "y": 4.0}, "a fourth")
    frame = pd.DataFrame({"x": [0.0, 1.0], "y": [4.0, 4.0]})
    with pytest.raises(InvalidLabels, match="raise max_classes"):
        model.learn_many(frame, pd.Series(["top", "a fourth"]))
    for one in (model, other):
        taught(one, blobs(25, CENTRES, 1))
    assert answers(model) == answers(other)


def test_samples_without_features_do_no_harm() -> None:
    model = GMRClassifier(batch_size=2)
    for _ in range(4):
        model.learn_one({}, "a")
    assert model.predict_one({}) == "a"
    taught(model, blobs(100, CENTRES, 0))
    assert model.predict_one({"x": 0.0, "y": 4.0}) == "top"


@pytest.mark.slow
def test_it_forgets_nothing_and_finds_the_boundary() -> None:
    """Each half of the classes comes for itself; the second lies beside the first."""
    first = {"a": (-3.0, 0.0), "b": (3.0, 0.0)}
    second = {"c": (-3.0, 6.0), "d": (3.0, 6.0)}
    model = taught(GMRClassifier(), blobs(1500, first, 0))
    taught(model, blobs(1500, second, 1))
    (boundary,) = model.boundaries
    assert abs(boundary - 1500) <= 50
    for centres in (first, second):
        right = [model.predict_one(x) == y for x, y in blobs(200, centres, 2)]
        assert np.mean(right) > 0.98


@pytest.mark.slow
def test_on_a_stream_of_rivers_it_does_better_than_naive_bayes() -> None:
    found = [
        evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy()).get()
        for model in (GMRClassifier(), naive_bayes.GaussianNB())
    ]
    assert found[0] > found[1]


# The detector -----------------------------------------------------------------------------


def drifts(detector: GMRDetector, values: Iterator[float]) -> list[int]:
    """Samples at which it speaks."""
    found = []
    for index, value in enumerate(values):
        detector.update(value)
        if detector.drift_detected:
            found.append(index)
    return found


@pytest.mark.parametrize(
    ("name", "draw"),
    [
        ("mean", lambda rng, late: rng.gauss(float(late), 1.0)),
        ("deviation", lambda rng, late: rng.gauss(0.0, 1.0 + late)),
        ("shape", lambda rng, late: rng.choice([-1.0, 1.0]) if late else rng.gauss(0.0, 1.0)),
        ("rate of errors", lambda rng, late: int(rng.random() < (0.3 if late else 0.1))),
    ],
)
def test_every_kind_of_change_is_found_once_and_dated(
    name: str, draw: Callable[[random.Random, bool], float]
) -> None:
    rng = random.Random(0)
    detector = GMRDetector()
    found = drifts(detector, (draw(rng, index >= 3000) for index in range(6000)))
    assert len(found) == 1, name
    assert 3000 <= found[0] < 3400
    assert abs(detector.boundaries[0] - 3000) < 200


def test_where_nothing_changes_nothing_is_found() -> None:
    rng = random.Random(1)
    detector = GMRDetector()
    assert drifts(detector, (rng.gauss(0, 1) for _ in range(10_000))) == []
    assert detector.boundaries == []


def test_a_warning_comes_before_the_drift() -> None:
    rng = random.Random(0)
    detector = GMRDetector(batch_size=8)
    warned = []
    for index in range(4000):
        detector.update(rng.gauss(0 if index < 3000 else 1, 1))
        if detector.warning_detected:
            warned.append(index)
        if detector.drift_detected:
            break
    assert warned
    assert 3000 <= warned[-1] < index


def test_a_copy_of_the_detector_speaks_where_the_original_does() -> None:
    rng = random.Random(0)
    detector = GMRDetector()
    drifts(detector, (rng.gauss(0, 1) for _ in range(2005)))
    rest = [rng.gauss(1, 1) for _ in range(500)]
    other = copy.deepcopy(detector)
    found = drifts(detector, iter(rest))
    assert found
    assert drifts(other, iter(rest)) == found
    assert other.boundaries == detector.boundaries
    assert detector.clone().boundaries == []


@pytest.mark.parametrize(
    "check",
    [
        checks.common.check_repr,
        checks.common.check_str,
        checks.common.check_clone_same_class,
        checks.common.check_clone_is_idempotent,
        checks.common.check_init_has_default_params_for_tests,
        checks.common.check_init_default_params_are_not_mutable,
        checks.common.check_doc,
        checks.common.check_clone_changes_memory_addresses,
        checks.common.check_mutate_can_be_idempotent,
    ],
)
def test_the_detector_passes_those_checks_of_rivers_that_are_for_all(
    check: Callable[[GMRDetector], None],
) -> None:
    check(GMRDetector())


def test_a_number_that_is_missing_is_passed_over_and_one_that_is_infinite_refused() -> None:
    detector, other = GMRDetector(batch_size=2), GMRDetector(batch_size=2)
    for value in (1.0, math.nan, 2.0, 3.0, 4.0):
        detector.update(value)
    with pytest.raises(NonFiniteFeature):
        detector.update(math.inf)
    for value in (1.0, 2.0, 3.0, 4.0):
        other.update(value)
    assert detector._model.__getstate__() == other._model.__getstate__()


@pytest.mark.parametrize("gap", [None, math.nan, pd.NA])
def test_boundaries_are_places_of_updates_also_where_numbers_are_missing(gap: Any) -> None:
    rng = random.Random(0)
    whole, gappy = GMRDetector(), GMRDetector()
    places: list[int | None] = []
    for index in range(3500):
        value = rng.gauss(0 if index < 3000 else 1, 1)
        whole.update(value)
        for _ in range(rng.choice([0, 0, 1, 2])):
            gappy.update(gap)
            places.append(None)
        gappy.update(value)
        places.append(index)
    assert len(whole.boundaries) == 1
    assert gappy.boundaries == [places.index(place) for place in whole.boundaries]


def test_samples_without_features_count_for_boundaries() -> None:
    rng = random.Random(0)
    model, bare = (GMRAnomalyDetector() for _ in range(2))
    for _ in range(50):
        bare.learn_one({})
    for index in range(2500):
        sample = {"x": rng.gauss(0 if index < 2000 else 5, 1)}
        model.learn_one(sample)
        bare.learn_one(sample)
    assert model.boundaries
    assert bare.boundaries == [50 + place for place in model.boundaries]


def test_it_stands_in_rivers_own_models() -> None:
    """A classifier that begins anew where its errors drift: labels change their meaning."""
    centres = {0: CENTRES["left"], 1: CENTRES["right"]}
    swapped = {1: CENTRES["left"], 0: CENTRES["right"]}
    model = drift.DriftRetrainingClassifier(
        naive_bayes.GaussianNB(), drift_detector=GMRDetector(warm_up=500)
    )
    for samples in (blobs(2000, centres, 0), blobs(1000, swapped, 1)):
        for x, y in samples:
            model.learn_one(x, y)
    right = [model.predict_one(x) == y for x, y in blobs(200, swapped, 2)]
    assert np.mean(right) > 0.95


# The anomaly detector ---------------------------------------------------------------------


def test_outliers_score_higher_and_inliers_like_shares() -> None:
    model = GMRAnomalyDetector()
    assert model.score_one({"x": 0.0}) == 0.0
    for x, _ in blobs(2000, CENTRES, 0):
        model.learn_one(x)
    inliers = [model.score_one(x) for x, _ in blobs(400, CENTRES, 1)]
    outliers = [model.score_one(x) for x, _ in blobs(100, {"far": (0.0, -6.0)}, 2)]
    assert roc_auc_score([0] * 400 + [1] * 100, inliers + outliers) > 0.99
    assert np.mean(np.array(inliers) > 0.9) == pytest.approx(0.1, abs=0.06)


def test_it_stands_in_rivers_filters() -> None:
    model = anomaly.ThresholdFilter(GMRAnomalyDetector(), threshold=0.99)
    for x, _ in blobs(1000, CENTRES, 0):
        model.learn_one(x)
    assert model.classify(model.score_one({"x": 30.0, "y": 30.0}))
    assert not model.classify(model.score_one({"x": 3.0, "y": 0.0}))


# What may go wrong ------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [GMRClassifier, GMRAnomalyDetector, GMRDetector])
def test_a_batch_has_a_sample_at_least(kind: type) -> None:
    with pytest.raises(InvalidSettings, match="batch_size is 0"):
        kind(batch_size=0)


@pytest.mark.parametrize("kind", [GMRClassifier, GMRAnomalyDetector, GMRDetector])
@pytest.mark.parametrize(
    "wrong",
    [
        {"n_components": "5"},
        {"n_components": 2.5},
        {"batch_size": 2.5},
        {"ert": "1"},
        {"seed": 0.5},
    ],
)
def test_numbers_of_a_wrong_type_are_refused(kind: type, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings, match=next(iter(wrong))):
        kind(**wrong)


@pytest.mark.parametrize("library", ["river", "torch"])
def test_without_river_or_torch_it_is_said_what_to_install(library: str) -> None:
    script = (
        f"import sys; sys.modules[{library!r}] = None\n"
        "try:\n    import gmr.river\n"
        "except ImportError as error:\n    print(type(error).__name__, error)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == (
        f"MissingExtra gmr.river needs the extra 'river', of which {library} is not installed: "
        f"pip install 'gmr-stream[river]'"
    )


def test_it_reads_what_river_streams() -> None:
    x = np.random.default_rng(0).normal(size=(50, 2))
    model = GMRClassifier()
    for sample, label in stream.iter_array(x, (x[:, 0] > 0).tolist(), feature_names=["a", "b"]):
        model.learn_one(sample, label)
    assert model.predict_one({"a": 3.0, "b": 0.0}) is True
