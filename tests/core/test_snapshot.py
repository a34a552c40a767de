"""Tests for the core.snapshot module: the model that answers requests."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

from core.batch import Batch, Label
from core.config import EngineConfig
from core.density.diagonal.density import DiagonalDensity
from core.density.factors.density import FactorDensity
from core.density.factors.outline import directions_of
from core.density.mixture import Mixture
from core.engine.engine import Engine
from core.errors import (
    InvalidCheckpoint,
    InvalidLabels,
    InvalidRequest,
    ModelNotReady,
    NonFiniteFeature,
    ShapeMismatch,
    UnknownClass,
)
from core.model.model import Model
from core.model.readout import LinearReadout, PosteriorReadout
from core.model.sampling import draw, noise_of_a_class
from core.outliers.scales import of_inliers
from core.snapshot import FORMAT, LEAST_CONFIDENCE, ModelInfo, Snapshot
from core.standardiser import Standardiser
from core.tensors import pack, unpack
from tests.core.states import lived, play
from tests.core.streams import N_FEATURES, batches, blob, centre


@functools.cache
def trained(
    labels: tuple[int, ...], labelled: bool = True, scale: float = 1.0, **chosen: object
) -> Snapshot:
    """What is served after 2,000 samples of these classes."""
    engine = Engine(EngineConfig(n_components=12, **chosen))  # type: ignore[arg-type]
    stream = [
        dataclasses.replace(batch, features=batch.features * scale)
        for batch in batches(labels, 20, labelled=labelled)
    ]
    state, _ = play(engine, engine.start(), list(stream))
    return engine.snapshot(state)


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return trained((0, 1, 2))


@pytest.fixture(scope="module")
def standardised() -> Snapshot:
    snapshot = trained((0, 1, 2), scale=40.0)
    assert not snapshot.standardiser.identity
    return snapshot


@pytest.fixture(scope="module")
def unlabelled() -> Snapshot:
    return trained((0, 1), labelled=False)


@pytest.fixture(scope="module")
def wide() -> Snapshot:
    """Scored in two stages, as wide mixtures of many components are."""
    made = trained((0, 1, 2), scale=40.0)
    density = made.model.density
    assert isinstance(density, FactorDensity)
    density = dataclasses.replace(density, directions=directions_of(density.mixture.means))
    return dataclasses.replace(made, model=dataclasses.replace(made.model, density=density))


def by_hand(
    readout: PosteriorReadout | LinearReadout, classes: tuple[Label, ...], mean: float = 1.0
) -> Snapshot:
    """Two components at -mean and +mean on one axis."""
    mixture = Mixture(
        torch.tensor([0.5, 0.5]).log(), torch.tensor([[-mean], [mean]]), torch.ones(2, 1)
    )
    info = ModelInfo(
        model_version=7,
        preset="flat",
        device="cpu",
        components=2,
        budget=2,
        features=1,
        classes=classes,
        class_counts=tuple(1 for _ in classes),
        samples_seen=10,
        batches_seen=1,
        sub_task=0,
        parameters=6,
        bytes=24,
        detector="none",
        window=0,
        set_aside=0,
        outlier_c=2.0,
        log_likelihood_mean=-2.0,
        log_likelihood_deviation=0.5,
    )
    zeros = torch.zeros(1, dtype=torch.float64)
    identity = Standardiser(True, 0, 0, zeros, zeros, torch.zeros(1), torch.ones(1))
    return Snapshot(info, Model(DiagonalDensity(mixture, torch.ones(2, 1)), readout), identity)


# Classification ---------------------------------------------------------------------------


def test_samples_are_named_with_probabilities_likelihoods_and_inliers(snapshot: Snapshot) -> None:
    x = torch.cat([blob(label, 100, seed=50) for label in (2, 0, 1)])
    answer = snapshot.classify(x)
    named = [snapshot.classes[code] for code in answer.codes.tolist()]
    truth = [2] * 100 + [0] * 100 + [1] * 100
    assert sum(a == b for a, b in zip(named, truth, strict=True)) > 295
    assert answer.codes.dtype == torch.int64
    assert answer.probabilities.shape == (300, 3)
    torch.testing.assert_close(answer.probabilities.sum(1), torch.ones(300))
    assert torch.equal(answer.probabilities.argmax(1), answer.codes)
    assert float(answer.inliers.double().mean()) > 0.9
    assert torch.equal(answer.inliers, snapshot.outliers(x).inliers)


def test_no_probability_is_told_above_one(snapshot: Snapshot) -> None:
    # All components are of one class and share each sample: rounded shares add up to more.
    shares = torch.zeros(snapshot.model.density.n_components, 3)
    shares[:, 0] = 1
    readout = PosteriorReadout(shares, 300.0)
    model = replace(snapshot.model, readout=readout)
    x = torch.cat([blob(label, 700, seed=50) for label in (0, 1, 2)])
    joint = model.density.score(snapshot.standardiser.apply(x)).joint
    assert float(readout.class_probabilities(joint).max()) > 1
    told = replace(snapshot, model=model, experts=None)
    answer = told.classify(x).probabilities
    assert float(answer.max()) == 1
    torch.testing.assert_close(answer.sum(1), torch.ones(len(x)))
    assert float(told.sample(2000, seed=1).probabilities.max()) == 1


def test_one_sample_is_answered_like_many(snapshot: Snapshot) -> None:
    x = blob(1, 5, seed=3)
    one, many = snapshot.classify(x[:1]), snapshot.classify(x)
    assert one.codes[0] == many.codes[0]
    torch.testing.assert_close(one.probabilities[0], many.probabilities[0])
    torch.testing.assert_close(one.log_likelihoods[0], many.log_likelihoods[0])


def test_without_a_class_there_is_nothing_to_name_but_a_density(unlabelled: Snapshot) -> None:
    assert unlabelled.classes == ()
    with pytest.raises(ModelNotReady, match="no label"):
        unlabelled.classify(blob(0, 2, 1))
    assert unlabelled.outliers(blob(0, 100, 1)).inliers.double().mean() > 0.9
    drawn = unlabelled.sample(20)
    assert drawn.codes.tolist() == [-1] * 20
    with pytest.raises(UnknownClass, match="Known classes: none yet"):
        unlabelled.sample(5, [0])


@pytest.mark.parametrize("name", ["standardised", "unlabelled", "wide"])
def test_what_is_made_ready_works_nothing_out_when_it_is_asked(
    name: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Snapshot = request.getfixturevalue(name)
    data = asked.to_bytes({})
    expected, _ = Snapshot.from_bytes(data)
    ready, _ = Snapshot.from_bytes(data)
    x = torch.rand(20, asked.info.features, generator=torch.Generator().manual_seed(1))
    wanted = expected.outliers(x)
    ready.make_ready()

    def forgotten(*_: object) -> None:
        raise AssertionError("a request works out what lasts for all of them")

    for where in ("part.whitened_form", "part.factor_log_peaks", "part.exact"):
        monkeypatch.setattr(f"core.density.factors.{where}", forgotten)
    found = ready.outliers(x)
    assert torch.equal(found.log_likelihoods, wanted.log_likelihoods)
    if asked.answers:
        ready.classify(x, p_values=True)


def test_samples_that_cannot_be_used_are_refused(snapshot: Snapshot) -> None:
    for ask in (snapshot.classify, snapshot.outliers):
        with pytest.raises(ShapeMismatch, match="3 features, but this model was built for 16"):
            ask(torch.zeros(2, 3))
        with pytest.raises(ShapeMismatch):
            ask(torch.zeros(N_FEATURES))
        with pytest.raises(ShapeMismatch):
            ask(torch.zeros(0, N_FEATURES))
        x = torch.zeros(4, N_FEATURES)
        x[3, 2] = torch.nan
        with pytest.raises(NonFiniteFeature, match="row 3, column 2"):
            ask(x)
        too_large = torch.full((1, N_FEATURES), 1e300, dtype=torch.float64)
        with pytest.raises(NonFiniteFeature):
            ask(too_large)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_samples_of_other_types_are_read_as_float32(snapshot: Snapshot, dtype: torch.dtype) -> None:
    x = (torch.rand(5, N_FEATURES) > 0.5).to(dtype)
    plain = x.float()
    torch.testing.assert_close(
        snapshot.outliers(x).log_likelihoods, snapshot.outliers(plain).log_likelihoods
    )


@pytest.mark.parametrize("value", [1e6, -1e30, 3e38])
def test_an_absurd_sample_gets_a_number_and_is_an_outlier(
    snapshot: Snapshot, standardised: Snapshot, value: float
) -> None:
    for served in (snapshot, standardised):
        x = blob(0, 1, seed=1)
        x[0, 3] = value
        answer = served.classify(x)
        assert answer.log_likelihoods.isfinite().all()
        assert answer.probabilities.isfinite().all()
        assert not answer.inliers[0]


def test_a_snapshot_does_not_change_what_it_is_asked(standardised: Snapshot) -> None:
    x = blob(0, 10, seed=1) * 40
    copy = x.clone()
    standardised.classify(x)
    standardised.outliers(x)
    assert torch.equal(x, copy)


# Outliers ---------------------------------------------------------------------------------


def test_the_threshold_is_so_many_deviations_below_the_mean() -> None:
    served = by_hand(PosteriorReadout(torch.eye(2), 1.0), ("a", "b"))
    assert served.threshold() == -2 - 2 * 0.5
    assert served.threshold(0.0) == -2
    assert served.threshold(4) == -4
    log_likelihood = math.log(0.5 * math.exp(-0.5 * 0) + 0.5 * math.exp(-0.5 * 4)) - 0.5 * math.log(
        2 * math.pi
    )
    scores = served.outliers(torch.tensor([[1.0], [3.0], [9.0]]))
    assert scores.log_likelihoods[0].item() == pytest.approx(log_likelihood, abs=1e-5)
    assert scores.inliers.tolist() == [True, False, False]
    assert served.outliers(torch.tensor([[3.0]]), c=4).inliers.tolist() == [True]
    assert scores.threshold == -3


def test_what_was_never_seen_is_an_outlier_and_what_was_is_not(snapshot: Snapshot) -> None:
    usual = torch.cat([blob(label, 300, 77) for label in (0, 1, 2)])
    assert float(snapshot.outliers(usual).inliers.double().mean()) > 0.9
    assert float(snapshot.outliers(blob(9, 300, 77)).inliers.double().mean()) < 0.05


def test_likelihoods_are_in_the_senders_units(standardised: Snapshot) -> None:
    """The density of 10 x at 10 x is that of x at x, over 10 to the number of features."""
    wider = trained((0, 1, 2), scale=400.0)
    x = 40 * blob(0, 200, seed=5)
    narrow, wide = standardised.outliers(x, c=2.0), wider.outliers(10 * x, c=2.0)
    difference = (narrow.log_likelihoods - wide.log_likelihoods).mean()
    assert float(difference) == pytest.approx(N_FEATURES * math.log(10), abs=1e-2)
    assert narrow.threshold - wide.threshold == pytest.approx(N_FEATURES * math.log(10), abs=1e-2)


# Samples ----------------------------------------------------------------------------------


def test_samples_of_a_class_are_read_as_that_class(
    snapshot: Snapshot, standardised: Snapshot
) -> None:
    for served in (snapshot, standardised):
        for label in (0, 1, 2):
            drawn = served.sample(200, [label], seed=4)
            assert drawn.features.shape == (200, N_FEATURES)
            wanted = served.classes.index(label)
            assert drawn.codes.tolist() == [wanted] * 200
            answer = served.classify(drawn.features)
            assert torch.equal(answer.codes, drawn.codes)
            assert float(answer.probabilities[:, wanted].min()) >= LEAST_CONFIDENCE
            torch.testing.assert_close(
                answer.log_likelihoods, drawn.log_likelihoods, rtol=1e-4, atol=1e-2
            )


def test_samples_look_like_the_data(standardised: Snapshot) -> None:
    drawn = standardised.sample(3000, [1], seed=1).features / 40
    torch.testing.assert_close(drawn.mean(0), centre(1), atol=0.02, rtol=0)
    # With the raw variance, not the floor of 0.05, whose root is 0.22 in standardised units.
    torch.testing.assert_close(drawn.std(0), torch.full((N_FEATURES,), 0.08), atol=0.02, rtol=0)


@given(
    n=st.integers(1, 40),
    classes=st.lists(st.sampled_from((0, 1, 2)), min_size=1, max_size=5),
    seed=st.integers(0, 2**63 - 1),
)
@hypothesis_settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_wanted_class_is_drawn_as_often_as_any_other_or_once_more(
    snapshot: Snapshot, n: int, classes: list[int], seed: int
) -> None:
    drawn = snapshot.sample(n, classes, seed)
    counts = dict.fromkeys(classes, 0)
    for code in drawn.codes.tolist():
        counts[snapshot.classes[code]] += 1
    assert sum(counts.values()) == n
    assert max(counts.values()) - min(counts.values()) <= 1
    assert torch.equal(snapshot.sample(n, classes, seed).codes, drawn.codes)


def test_wanted_classes_come_in_no_order_and_chance_gives_the_odd_ones(snapshot: Snapshot) -> None:
    one_each = [snapshot.sample(1, [2, 0], seed).codes.item() for seed in range(20)]
    assert len(set(one_each)) == 2
    codes = snapshot.sample(40, [2, 0], seed=1).codes
    assert len(codes.unique_consecutive()) > 10


def test_without_a_wanted_class_any_is_drawn_and_named(snapshot: Snapshot) -> None:
    drawn = snapshot.sample(300, seed=2)
    assert set(drawn.codes.tolist()) == {0, 1, 2}
    assert torch.equal(snapshot.classify(drawn.features).codes, drawn.codes)


def test_the_same_seed_gives_the_same_samples_and_another_seed_others(snapshot: Snapshot) -> None:
    for classes in (None, [1, 2]):
        one, again = (snapshot.sample(20, classes, seed=5) for _ in range(2))
        assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
        assert not torch.equal(one.features, snapshot.sample(20, classes, seed=6).features)


def test_numbers_of_numpy_are_counts_and_classes(snapshot: Snapshot) -> None:
    label = next(one for one in snapshot.classes if type(one) is int)
    drawn = snapshot.sample(np.int64(2), [np.int64(label)], seed=1)
    assert torch.equal(drawn.features, snapshot.sample(2, [label], seed=1).features)


def test_what_is_no_count_or_class_is_refused(snapshot: Snapshot) -> None:
    with pytest.raises(InvalidRequest, match="of type float; ask for an integer"):
        snapshot.sample(2.0)  # type: ignore[arg-type]
    with pytest.raises(InvalidLabels, match="type bool"):
        snapshot.sample(2, [True])


def test_a_single_sample_can_be_drawn(snapshot: Snapshot) -> None:
    for classes in (None, [0]):
        assert snapshot.sample(1, classes).features.shape == (1, N_FEATURES)


@pytest.mark.parametrize("n", [0, -3])
def test_less_than_one_sample_is_refused(snapshot: Snapshot, n: int) -> None:
    with pytest.raises(InvalidRequest, match=f"n is {n}") as caught:
        snapshot.sample(n)
    assert caught.value.context == {"n": n}


@pytest.mark.parametrize("classes", ["Lob", 3, np.int64(3), torch.tensor(3)])
def test_one_class_alone_is_no_list_of_classes(snapshot: Snapshot, classes: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"must be a list of labels.*Ask for classes=\["):
        snapshot.sample(2, classes)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64"])
def test_arrays_and_lists_are_answered_like_tensors(snapshot: Snapshot, dtype: str) -> None:
    x = snapshot.sample(8, seed=3).features.cpu().numpy().astype(dtype)
    wanted = snapshot.classify(torch.from_numpy(x)), snapshot.outliers(torch.from_numpy(x))
    for samples in (x, x[:, ::-1][:, ::-1], x.tolist(), pd.DataFrame(x)):
        named, judged = snapshot.classify(samples), snapshot.outliers(samples)
        assert isinstance(named.codes, torch.Tensor)
        assert torch.equal(named.codes, wanted[0].codes)
        assert torch.allclose(judged.log_likelihoods, wanted[1].log_likelihoods)
    for ask in (snapshot.classify, snapshot.outliers):
        with pytest.raises(ShapeMismatch, match="no matrix of numbers"):
            ask([["a"]])


def test_unknown_classes_are_refused_with_the_known_ones(snapshot: Snapshot) -> None:
    with pytest.raises(UnknownClass, match="never seen the class 9") as caught:
        snapshot.sample(3, [0, 9, "0"])
    assert caught.value.context["unknown"] == [9, "0"]
    assert sorted(caught.value.context["known"]) == [0, 1, 2]  # type: ignore[call-overload]
    with pytest.raises(InvalidRequest, match="empty"):
        snapshot.sample(3, [])


def test_a_label_is_known_by_its_type_too(snapshot: Snapshot) -> None:
    assert snapshot.knows(1)
    assert not snapshot.knows("1")
    assert not snapshot.knows(True)


def test_a_class_that_no_component_stands_for_can_still_be_asked_for() -> None:
    readout = PosteriorReadout(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), 1.0)
    drawn = by_hand(readout, ("a", "nowhere")).sample(50, ["nowhere"], seed=1)
    assert drawn.features.isfinite().all()
    assert drawn.codes.tolist() == [1] * 50


def test_of_weak_draws_the_surest_is_kept() -> None:
    """Two components close together: what is drawn for one is pushed to its side."""
    served = by_hand(PosteriorReadout(torch.eye(2), 1.0), ("left", "right"), mean=0.3)
    drawn = served.sample(2000, ["right"], seed=1)
    sure = served.classify(drawn.features).probabilities[:, 1]
    once = served.model.sample(
        torch.ones(2000, dtype=torch.int64), torch.Generator().manual_seed(1)
    )
    sure_once = served.classify(once).probabilities[:, 1]
    assert float(sure.mean()) > float(sure_once.mean()) + 0.1
    torch.testing.assert_close(
        served.outliers(drawn.features).log_likelihoods, drawn.log_likelihoods
    )


def test_draws_that_stay_less_sure_than_was_asked_for_are_marked() -> None:
    served = by_hand(PosteriorReadout(torch.eye(2), 1.0), ("left", "right"), mean=0.6)
    usual = served.sample(500, ["right"], seed=1)
    assert torch.equal(usual.short, usual.probabilities < LEAST_CONFIDENCE)
    assert 0 < int(usual.short.sum()) < 500
    # Named by the caller, the same probability is tried for much longer.
    patient = served.sample(500, ["right"], seed=1, least_probability=LEAST_CONFIDENCE)
    assert int(patient.short.sum()) < int(usual.short.sum()) / 2
    assert not served.sample(500, seed=1).short.any()
    assert served.sample(20, ["right"], seed=1, least_probability=1.0).short.all()


class Sure:
    """Experts that have no doubts."""

    def advice(self, features: Tensor, mixture: Tensor, n_classes: int) -> Any:
        return SimpleNamespace(probabilities=torch.tensor([[0.01, 0.99]]).expand(len(features), 2))


def test_samples_of_which_experts_are_sure_do_not_fall_short() -> None:
    served = by_hand(PosteriorReadout(torch.eye(2), 1.0), ("left", "right"), mean=0.6)
    assert served.sample(100, ["right"], seed=1).short.any()
    advised = replace(served, experts=cast("Any", Sure()))
    drawn = advised.sample(100, ["right"], seed=1)
    assert not drawn.short.any()
    assert advised.sample(100, ["right"], seed=1, least_probability=0.999).short.all()


def test_what_falls_short_is_what_is_said_of_it_where_experts_are_heard() -> None:
    """A few labels, then many samples without."""
    engine = Engine(EngineConfig(n_components=20))
    state = engine.start()
    for batch in (*batches([0, 1], 3), *batches([0, 1], 12, seed=1, labelled=False)):
        state, _ = engine.step(state, batch)
    served = engine.snapshot(state)
    assert served.experts is not None
    for least in (0.5, 0.9, 0.999):
        drawn = served.sample(200, [0, 1], seed=1, least_probability=least)
        assert torch.equal(drawn.short, drawn.probabilities < least)
        assert torch.equal(
            served.classify(drawn.features).codes[~drawn.short], drawn.codes[~drawn.short]
        )
    assert int(served.sample(200, [0, 1], seed=2).short.sum()) < 20


def test_of_a_wanted_class_noise_is_damped_as_the_readout_is_tempered() -> None:
    for temperature in (1.0, 8.0):
        served = by_hand(PosteriorReadout(torch.eye(2), temperature), ("left", "right"), mean=90.0)
        deviation = float(served.model.sample(torch.ones(20_000).long(), torch.Generator()).std())
        share = noise_of_a_class(temperature)
        wanted = served.sample(20_000, ["right"], seed=1).features
        assert wanted.std().item() == pytest.approx(share * deviation, rel=0.03)
        assert float(served.sample(9, ["right"], noise=False).features.std()) == 0
        # Whatever the model knows is drawn from the density as it is.
        anything = served.sample(20_000, seed=1).features
        right = anything[anything.mean(-1) > 0]
        assert right.std().item() == pytest.approx(deviation, rel=0.03)


def test_where_the_readout_is_tempered_few_draws_are_made_for_a_class() -> None:
    short = {}
    for temperature in (1.0, 1.001):
        readout = PosteriorReadout(torch.eye(2), temperature)
        served = by_hand(readout, ("left", "right"), mean=0.6)
        short[temperature] = int(served.sample(1000, ["right"], seed=1).short.sum())
    once = draw(
        served.model, 1000, torch.Generator(), torch.ones(1000).long(),
        least_probability=LEAST_CONFIDENCE, max_draws=1,
    )  # fmt: skip
    share = int(once.short.sum()) / 1000
    assert short[1.0] / 1000 == pytest.approx(share**8, abs=0.05)
    assert short[1.001] / 1000 == pytest.approx(share**2, abs=0.05)


# Facts ------------------------------------------------------------------------------------


def test_what_is_said_about_a_model_is_ready_for_json(snapshot: Snapshot) -> None:
    facts = json.loads(json.dumps(snapshot.info.to_dict()))
    assert facts["model_version"] == snapshot.version == 20
    assert facts["samples_seen"] == 2000
    assert [entry["label"] for entry in facts["classes"]] == list(snapshot.classes)
    assert sum(entry["count"] for entry in facts["classes"]) == 2000
    assert facts["components"] == snapshot.model.n_components <= facts["budget"] == 12
    # Means and noise (12 x 16 each), eight factors, weights (12) and votes (12 x 3).
    components = facts["components"]
    assert facts["parameters"] == components * ((2 + 8) * N_FEATURES + 1 + 3)
    assert facts["bytes"] == 4 * facts["parameters"]


# Bytes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["snapshot", "standardised", "unlabelled"])
def test_written_and_read_again_it_gives_the_same_answers_bit_for_bit(
    name: str, request: pytest.FixtureRequest
) -> None:
    served: Snapshot = request.getfixturevalue(name)
    data = served.to_bytes({"entries_applied": "17"})
    again, metadata = Snapshot.from_bytes(data)
    assert metadata == {"entries_applied": "17"}
    assert again.info == served.info
    x = blob(0, 20, 3)
    assert torch.equal(again.outliers(x).log_likelihoods, served.outliers(x).log_likelihoods)
    for classes in (None, *([[0, 1]] if served.classes else [])):
        for a, b in zip(again.sample(9, classes, 3), served.sample(9, classes, 3), strict=True):
            assert torch.equal(a, b)
    if served.classes:
        read, written = again.classify(x, 0.1), served.classify(x, 0.1)
        assert all(torch.equal(a, b) for a, b in zip(read[:6], written[:6], strict=True))
        assert read[6:] == written[6:] == ("p_value", len(served.usual))
    assert again.to_bytes({"entries_applied": "17"}) == data


def test_a_linear_read_out_survives_writing_too() -> None:
    readout = LinearReadout(torch.tensor([[3.0, -3.0], [-3.0, 3.0]]), torch.tensor([0.1, -0.1]), 1)
    served = by_hand(readout, ("left", 2))
    again, _ = Snapshot.from_bytes(served.to_bytes({}))
    assert again.classes == ("left", 2)
    assert isinstance(again.model.readout, LinearReadout)
    assert again.model.readout.top == 1
    x: Tensor = torch.tensor([[0.3], [-2.0]])
    assert torch.equal(again.classify(x).probabilities, served.classify(x).probabilities)


def test_labels_of_any_script_and_size_survive_writing() -> None:
    labels: tuple[Label, ...] = ("七", "a b\n", "", 2**62, -1)
    served = by_hand(PosteriorReadout(torch.full((2, 5), 0.2), 1.0), labels)
    again, _ = Snapshot.from_bytes(served.to_bytes({"note": "é\u0000"}))
    assert again.classes == labels


def test_bytes_that_are_no_snapshot_are_refused(snapshot: Snapshot) -> None:
    data = snapshot.to_bytes({})
    for wrong in (b"", b"nonsense", data[:-1], data[: len(data) // 2]):
        with pytest.raises(InvalidCheckpoint):
            Snapshot.from_bytes(wrong)
    with pytest.raises(InvalidCheckpoint, match="lacks or garbles"):
        Snapshot.from_bytes(pack("gmr-snapshot-3", {"means": torch.zeros(2)}, {"snapshot": "{}"}))
    with pytest.raises(InvalidCheckpoint, match="lacks or garbles"):
        Snapshot.from_bytes(pack("gmr-snapshot-3", {"means": torch.zeros(2)}, {}))


def test_the_device_it_is_read_to_is_the_one_it_reports(
    snapshot: Snapshot, device: torch.device
) -> None:
    again, _ = Snapshot.from_bytes(snapshot.to_bytes({}), device)
    assert again.info.device == str(device)
    assert again.model.density.device.type == device.type
    drawn = again.sample(10, [0, 1], seed=1)
    torch.testing.assert_close(drawn.features.cpu(), snapshot.sample(10, [0, 1], seed=1).features)
    torch.testing.assert_close(
        again.classify(blob(0, 5, 1)).probabilities.cpu(),
        snapshot.classify(blob(0, 5, 1)).probabilities,
    )


def test_a_batch_can_be_scored_while_a_newer_model_is_learned() -> None:
    engine = Engine(EngineConfig(n_components=4))
    state = lived(engine, [0, 1], 5)
    served = engine.snapshot(state)
    x = blob(0, 10, 1)
    before = served.classify(x).probabilities
    play(engine, state, [Batch.of(blob(0, 300, 9), [1] * 300), "boundary", *batches([2], 5)])
    assert torch.equal(served.classify(x).probabilities, before)


# P-values ---------------------------------------------------------------------------------


def test_while_nothing_is_calibrated_there_are_no_p_values_and_the_answer_says_so() -> None:
    snapshot = by_hand(PosteriorReadout(torch.eye(2), 1.0), (0, 1))
    snapshot = replace(snapshot, false_positive_rate=0.05)
    x = torch.tensor([[0.0], [50.0]])
    for answer in (snapshot.outliers(x), snapshot.outliers(x, false_positive_rate=0.2)):
        assert (answer.calibration, answer.score) == (0, "log_likelihood")
        assert (answer.p_values, answer.typicality, answer.scales) == (None, None, None)
        assert torch.equal(answer.inliers, answer.log_likelihoods >= answer.threshold)
    named = snapshot.classify(x, unknown_rate=0.1)
    assert (named.calibration, named.score) == (0, "log_likelihood")
    assert (named.p_values, named.unknown) == (None, None)
    assert torch.equal(named.inliers, snapshot.outliers(x).inliers)


@hypothesis_settings(deadline=None, max_examples=30)
@given(
    rate=st.none() | st.floats(0.001, 0.999),
    configured=st.none() | st.floats(0.001, 0.999),
    p_values=st.booleans(),
)
def test_one_answer_holds_one_verdict(
    snapshot: Snapshot, rate: float | None, configured: float | None, p_values: bool
) -> None:
    served = replace(snapshot, false_positive_rate=configured)
    x = torch.cat([blob(label, 40, seed=21) for label in (0, 1, 6)])
    named = served.classify(x, rate, p_values=p_values)
    scored = served.outliers(x, false_positive_rate=rate)
    assert torch.equal(named.inliers, scored.inliers)
    assert named.score == scored.score
    assert (named.unknown is None) == (rate is None)
    if named.unknown is not None:
        assert torch.equal(named.unknown, ~named.inliers)
    decides = configured if rate is None else rate
    if decides is None:
        assert torch.equal(scored.inliers, scored.log_likelihoods >= scored.threshold)
    else:
        assert scored.p_values is not None
        least = snapshot.usual.least_p_value
        if decides >= least:
            assert torch.equal(scored.inliers, scored.p_values > decides)
        else:  # no p-value is so small: of those that have the least, the strangest are outliers
            assert bool((scored.p_values[~scored.inliers] == least).all())


def test_a_false_positive_rate_decides_by_p_values(snapshot: Snapshot) -> None:
    x = torch.cat([blob(0, 300, seed=60), torch.rand(50, N_FEATURES)])
    by_rate = snapshot.outliers(x, false_positive_rate=0.1)
    assert by_rate.p_values is not None
    assert (by_rate.score, by_rate.threshold) == ("p_value", 0.1)
    assert torch.equal(by_rate.inliers, by_rate.p_values > 0.1)
    by_c = snapshot.outliers(x, c=2.0)
    assert by_c.score == "log_likelihood"
    assert by_c.p_values is not None
    assert torch.equal(by_c.inliers, by_c.log_likelihoods >= by_c.threshold)
    assert torch.equal(by_c.p_values, by_rate.p_values)


@pytest.mark.parametrize("rate", [1e-3, 1e-5])
def test_a_rate_below_every_p_value_does_not_switch_outliers_off(
    snapshot: Snapshot, rate: float
) -> None:
    assert rate < snapshot.usual.least_p_value
    x = torch.cat([blob(0, 300, seed=60), torch.full((1, N_FEATURES), 1e6)])
    found, named = snapshot.outliers(x, false_positive_rate=rate), snapshot.classify(x, rate)
    assert (found.threshold, bool(found.inliers[-1])) == (rate, False)
    assert int((~found.inliers[:-1]).sum()) <= 3
    assert torch.equal(named.inliers, found.inliers)
    assert named.unknown is not None
    assert torch.equal(named.unknown, ~found.inliers)
    assert found.p_values is not None
    assert float(found.p_values[-1]) == pytest.approx(snapshot.usual.least_p_value)


def test_a_rate_and_a_c_at_once_are_refused(snapshot: Snapshot) -> None:
    with pytest.raises(InvalidRequest, match="Both c and false_positive_rate"):
        snapshot.outliers(blob(0, 1, seed=1), c=1.0, false_positive_rate=0.1)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1, math.nan])
def test_a_rate_that_is_no_share_is_refused(snapshot: Snapshot, rate: float) -> None:
    with pytest.raises(InvalidRequest, match="above 0 and below 1"):
        snapshot.outliers(blob(0, 1, seed=1), false_positive_rate=rate)
    with pytest.raises(InvalidRequest, match="above 0 and below 1"):
        snapshot.classify(blob(0, 1, seed=1), unknown_rate=rate)


def test_the_configured_rate_decides_where_nothing_is_asked() -> None:
    snapshot = trained((0, 1), outlier_false_positive_rate=0.2)
    x = blob(0, 200, seed=70)
    assert snapshot.outliers(x).threshold == 0.2
    assert snapshot.outliers(x, c=2.0).score == "log_likelihood"
    assert torch.equal(snapshot.classify(x).inliers, snapshot.outliers(x).inliers)


def test_unknown_samples_are_those_with_low_p_values(snapshot: Snapshot) -> None:
    x = torch.cat([blob(1, 200, seed=80), blob(7, 200, seed=80)])
    answer = snapshot.classify(x, unknown_rate=0.05)
    assert answer.unknown is not None
    assert answer.p_values is not None
    assert torch.equal(answer.unknown, answer.p_values <= 0.05)
    assert float(answer.unknown[:200].double().mean()) < 0.15
    assert bool(answer.unknown[200:].all())
    assert torch.equal(snapshot.classify(x).codes, answer.codes)


def test_samples_between_two_classes_are_stranger_where_classes_are_known() -> None:
    """A new class is often made of what the known ones have: its samples lie between them."""
    generator = torch.Generator().manual_seed(5)

    def strangest(served: Snapshot, x: Tensor) -> Tensor:
        """The lower of two shares among inliers: of likelihood, and of scores that go together."""
        prepared = served.standardiser.apply(x)
        scored = served.model.density.score(prepared)
        conformity = served.model.density.conformity(prepared, scored)
        weights, volume = served.model.density.log_weights, served.standardiser.log_volume
        log_likelihood = scored.log_likelihood - volume
        conformity, _ = of_inliers(
            torch.cat([conformity[:, :1], log_likelihood[:, None], conformity[:, 2:]], 1),
            served.model.readout,
            scored.joint,
            weights,
            volume,
            2,
            table=True,
        )
        return served.usual.fit.shares(conformity)[:, [0, -1]].amin(1)

    def around(x: float, n: int) -> Tensor:
        return torch.tensor([x, 0.0]) + 5 * torch.randn(n, 2, generator=generator)

    pairs = [torch.cat([around(-12, 50), around(12, 50)]) for _ in range(30)]
    asked, strange = torch.cat([around(-12, 99), around(12, 99)]), []
    between = around(0, 200)
    for labels in ([0] * 50 + [1] * 50, None):
        engine = Engine(EngineConfig(preset="flat", n_components=4))
        state, _ = play(engine, engine.start(), [Batch.of(x, labels) for x in pairs])
        served = engine.snapshot(state)
        low = float(strangest(served, asked).quantile(0.05))
        strange.append(float((strangest(served, between) <= low).double().mean()))
    named, unnamed = strange
    assert named > 1.5 * unnamed > 0, strange


@pytest.mark.parametrize("rate", [None, 0.2])
def test_p_values_are_answered_to_those_who_ask(rate: float | None) -> None:
    snapshot = trained((0, 1), outlier_false_positive_rate=rate)
    x = torch.cat([blob(0, 50, seed=81), blob(7, 50, seed=81)])
    plain, asked = snapshot.classify(x), snapshot.classify(x, p_values=True)
    assert (plain.p_values, plain.unknown, asked.unknown) == (None, None, None)
    assert asked.p_values is not None
    expected = snapshot.outliers(x).p_values
    assert expected is not None
    assert torch.equal(asked.p_values, expected)
    rated = snapshot.classify(x, 0.3)
    assert rated.p_values is not None
    assert torch.equal(rated.p_values, asked.p_values)
    for mine, other in zip(plain[:4], asked[:4], strict=True):
        assert torch.equal(mine, other), "what else is answered does not depend on it"


def test_what_no_rule_asks_for_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = trained((0, 1), outlier_false_positive_rate=None)

    def never(*_: object) -> None:
        raise AssertionError("p-values were computed")

    monkeypatch.setattr(Snapshot, "_strangeness", never)
    snapshot.classify(blob(0, 5, seed=82))
    with pytest.raises(AssertionError, match="were computed"):
        snapshot.classify(blob(0, 5, seed=82), p_values=True)


def test_p_values_survive_the_way_to_a_reader_and_old_snapshots_still_load() -> None:
    snapshot = trained((0, 1), outlier_false_positive_rate=0.2)
    x = torch.cat([blob(0, 50, seed=4), torch.rand(20, N_FEATURES)])
    data = snapshot.to_bytes({})
    again, _ = Snapshot.from_bytes(data)
    mine, other = again.outliers(x), snapshot.outliers(x)
    for name in ("p_values", "typicality", "scales"):
        assert torch.equal(getattr(mine, name), getattr(other, name))
    assert again.false_positive_rate == 0.2

    tensors, metadata = unpack(FORMAT, data)
    facts = json.loads(metadata["snapshot"])
    del facts["n_scales"]  # an earlier release had other conformity scores of tables
    other, _ = Snapshot.from_bytes(pack(FORMAT, tensors, {"snapshot": json.dumps(facts)}))
    assert other.outliers(x).calibration == 0

    del facts["false_positive_rate"], tensors["usual_rows"], tensors["usual_weights"]
    old, _ = Snapshot.from_bytes(pack(FORMAT, tensors, {"snapshot": json.dumps(facts)}))
    assert old.outliers(x).calibration == 0
    assert old.outliers(x).score == "log_likelihood"
