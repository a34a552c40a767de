"""Tests for core.memory.retention: what the model still holds, asked of its own samples."""

from __future__ import annotations

import dataclasses
import functools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.batch import UNLABELLED, Batch
from core.config import EngineConfig
from core.density.diagonal.density import DiagonalDensity
from core.density.mixture import Mixture
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.memory import retention as module
from core.memory.retention import Marks, RetentionSet, RetentionSets, SubTaskRetention, summary
from core.model.model import Model
from core.model.readout import PosteriorReadout
from core.outliers.calibration import Calibration
from core.standardiser import Standardiser
from tests.core.states import assert_identical, lived, play, tensors_of
from tests.core.streams import N_FEATURES, batches


def two_classes(mean: float = 5.0, *, swapped: bool = False, d: int = 2) -> Model:
    """Components at -mean and +mean, of class 0 and 1, or the other way round."""
    means = torch.tensor([[-1.0], [1.0]]) * torch.full((d,), mean)
    mixture = Mixture(torch.full((2,), 0.5).log(), means, torch.ones(2, d))
    classes = torch.eye(2).flip(0) if swapped else torch.eye(2)
    return Model(DiagonalDensity(mixture, torch.ones(2, d)), PosteriorReadout(classes, 1.0))


def as_it_is(d: int = 2) -> Standardiser:
    """Leaves data alone."""
    return Standardiser.of(torch.tensor([[0.0], [1.0]]).expand(2, d).contiguous(), images=True)


def scaled(d: int = 2) -> Standardiser:
    """Data of a scale of their own, around 1,000."""
    generator = torch.Generator().manual_seed(0)
    return Standardiser.of(1000 + 40 * torch.randn(200, d, generator=generator))


def crossed(
    past: RetentionSets,
    model: Model,
    standardiser: Standardiser,
    counts: tuple[int, ...],
    sub_task: int = 0,
    seed: int = 0,
) -> RetentionSets:
    """After a sub-task of a hundred samples."""
    return past.crossed(
        model,
        standardiser,
        sub_task=sub_task,
        class_counts=counts,
        samples_seen=past.samples_seen + 100,
        version=sub_task + 1,
        seed=seed,
    )


# One set ----------------------------------------------------------------------------------


@pytest.mark.parametrize("standardiser", [as_it_is(), scaled()], ids=["as it is", "scaled"])
def test_the_same_model_says_the_same_as_then(standardiser: Standardiser) -> None:
    model = two_classes(1.0)
    past = crossed(RetentionSets(), model, standardiser, (50, 50))
    (row,) = past.report(model, standardiser, ("a", "b"), 7)
    assert row.sub_task == 0
    assert row.samples == module.MOST_PER_SUB_TASK
    assert row.model_version == 7
    assert [(one.label, one.samples) for one in row.classes] == [("a", 128), ("b", 128)]
    # The classes overlap: not even then was every sample named right.
    assert 0.8 < row.accuracy_then == row.accuracy_now < 0.99
    assert row.probability_then == row.probability_now
    assert row.log_likelihood_then == row.log_likelihood_now
    for one in row.classes:
        assert one.accuracy_then == one.accuracy_now
        assert one.probability_then == one.probability_now
        assert one.log_likelihood_then == one.log_likelihood_now


def test_what_is_said_is_what_the_model_would_answer() -> None:
    model, standardiser = two_classes(1.0), scaled()
    past = crossed(RetentionSets(), model, standardiser, (50, 50))
    (one,) = past.sets
    later = two_classes(0.5)
    (row,) = past.report(later, standardiser, (0, 1), 7)
    joint, log_likelihood = later.density.score(standardiser.apply(one.features))
    right = later.readout.class_probabilities(joint).argmax(-1) == one.codes
    assert row.accuracy_now == pytest.approx(float(right.double().mean()))
    expected = float(log_likelihood.double().mean()) - standardiser.log_volume
    assert row.log_likelihood_now == pytest.approx(expected, rel=1e-5)
    per_class = [float(right[one.codes == code].double().mean()) for code in (0, 1)]
    assert [known.accuracy_now for known in row.classes] == pytest.approx(per_class)
    sure = later.readout.class_probabilities(joint)[torch.arange(len(right)), one.codes]
    assert row.probability_now == pytest.approx(float(sure.double().mean()))
    assert row.probability_now < row.probability_then


def test_a_class_that_is_mistaken_for_another_now_is_forgotten() -> None:
    past = crossed(RetentionSets(), two_classes(), as_it_is(), (50, 50))
    (row,) = past.report(two_classes(swapped=True), as_it_is(), (0, 1), 7)
    assert (row.accuracy_then, row.accuracy_now) == (1, 0)
    assert row.probability_then == pytest.approx(1, abs=1e-6)
    assert row.probability_now == pytest.approx(0, abs=1e-6)
    assert row.log_likelihood_now == row.log_likelihood_then
    assert [(one.accuracy_then, one.accuracy_now) for one in row.classes] == [(1, 0)] * 2


def with_another(share: float) -> Model:
    """The two classes, and a component far from both that has a share of the mixture."""
    old = two_classes()
    means = torch.cat([old.density.feature_law[0], torch.full((1, 2), 60.0)])
    weights = torch.tensor([(1 - share) / 2, (1 - share) / 2, share]).log()
    mixture = Mixture(weights, means, torch.ones(3, 2))
    classes = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    return Model(DiagonalDensity(mixture, torch.ones(3, 2)), PosteriorReadout(classes, 1.0))


@pytest.mark.parametrize("counts", [(50, 50), (0, 0)], ids=["labelled", "unlabelled"])
def test_where_components_stand_the_change_is_that_of_data(counts: tuple[int, int]) -> None:
    old, new = two_classes(), with_another(0.8)
    past = crossed(RetentionSets(), old, as_it_is(), counts)
    (row,) = past.report(new, as_it_is(), (0, 1), 7)
    assert row.log_likelihood_now is not None
    data = 5 * torch.tensor([[-1.0], [1.0]]).repeat(200, 2)
    data += torch.randn(400, 2, generator=torch.Generator().manual_seed(5))
    truth = float((new.log_likelihood(data) - old.log_likelihood(data)).mean())
    told = row.log_likelihood_now - row.log_likelihood_then
    assert told == pytest.approx(truth, abs=1e-3) == pytest.approx(math.log(0.2), abs=1e-3)
    assert summary([row])["log_likelihood_change_mean"] == told


def test_where_components_are_others_now_the_change_is_not_known() -> None:
    """Those that drew samples too alike fit these better than any that fit the data."""
    past = crossed(RetentionSets(), two_classes(), as_it_is(), (50, 50))
    (row,) = past.report(two_classes(9.0), as_it_is(), (0, 1), 7)
    assert row.accuracy_now == 1
    assert row.log_likelihood_now is None
    assert [one.log_likelihood_now for one in row.classes] == [None, None]
    assert "log_likelihood_change_mean" not in summary([row])


def test_a_class_whose_components_stand_is_told_beside_one_whose_do_not() -> None:
    past = crossed(RetentionSets(), two_classes(), as_it_is(), (50, 50))
    old = two_classes().density.feature_law[0].clone()
    old[1] += 4
    mixture = Mixture(torch.full((2,), 0.5).log(), old, torch.ones(2, 2))
    later = dataclasses.replace(two_classes(), density=DiagonalDensity(mixture, torch.ones(2, 2)))
    (row,) = past.report(later, as_it_is(), (0, 1), 7)
    zero, one = row.classes
    assert zero.log_likelihood_now == pytest.approx(zero.log_likelihood_then, abs=1e-3)
    assert one.log_likelihood_now is row.log_likelihood_now is None


@given(st.lists(st.booleans(), min_size=1, max_size=5))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_a_mean_change_is_told_where_that_of_all_is_known(known: list[bool]) -> None:
    rows = [
        SubTaskRetention(place, 9, (), None, None, None, None, -2.0, -3.0 if there else None, 7)
        for place, there in enumerate(known)
    ]
    assert ("log_likelihood_change_mean" in summary(rows)) is all(known)


def test_a_set_of_an_earlier_release_tells_no_change() -> None:
    past = crossed(RetentionSets(), two_classes(), as_it_is(), (50, 50))
    old = dataclasses.replace(past.sets[0], nearest=torch.zeros(0))
    (row,) = RetentionSets((old,)).report(two_classes(), as_it_is(), (0, 1), 7)
    assert row.log_likelihood_now is None
    assert row.accuracy_now == 1


def test_only_the_classes_that_the_sub_task_showed_are_asked_about() -> None:
    past = crossed(RetentionSets(), two_classes(), as_it_is(), (50, 0))
    past = crossed(past, two_classes(), as_it_is(), (50, 70), sub_task=1)
    shown = [
        [one.label for one in row.classes]
        for row in past.report(two_classes(), as_it_is(), ("a", "b"), 7)
    ]
    assert shown == [["a"], ["b"]]


def test_without_labels_there_is_a_likelihood_and_no_accuracy() -> None:
    past = crossed(RetentionSets(), two_classes(), as_it_is(), (0, 0))
    (row,) = past.report(two_classes(9.0), as_it_is(), (0, 1), 7)
    assert row.classes == ()
    assert row.accuracy_then is row.accuracy_now is None
    assert row.probability_then is row.probability_now is None
    assert row.log_likelihood_then == pytest.approx(-3.5, abs=0.2)


def test_only_components_that_learned_the_sub_task_draw_its_samples() -> None:
    """Without labels nothing else tells it from those before."""
    for counts in ((0, 0), (50, 50)):
        past = RetentionSets().crossed(
            two_classes(),
            as_it_is(),
            sub_task=0,
            class_counts=counts,
            samples_seen=100,
            version=1,
            seed=0,
            latest=torch.tensor([False, True]),
        )
        (one,) = past.sets
        own = one.features if counts == (0, 0) else one.features[one.codes == 1]
        assert bool((own > 0).all())
    # A class without components of its own is drawn from those that it shares.
    assert int((one.codes == 0).sum()) == 128
    assert bool((one.features[one.codes == 0] < 0).all())


def test_a_class_of_which_the_sub_task_holds_nothing_is_left_to_the_one_that_does() -> None:
    """Two of a hundred samples were of another class: they fell on this one's component."""
    model = two_classes()
    leaked = torch.tensor([[1.0, 0.0], [0.02, 0.98]])
    model = Model(model.density, PosteriorReadout(leaked, 1.0))

    def classes(latest: torch.Tensor | None, model: Model) -> list[int]:
        past = RetentionSets().crossed(
            model,
            as_it_is(),
            sub_task=0,
            class_counts=(2, 98),
            samples_seen=100,
            version=1,
            seed=0,
            latest=latest,
        )
        (one,) = past.sets
        (row,) = past.report(model, as_it_is(), (0, 1), 1)
        assert len(row.classes) == len(one.class_counts)
        assert all(known.accuracy_then > 0.9 for known in row.classes if known.label == 1)
        return [int(known.label) for known in row.classes]

    second = torch.tensor([False, True])
    assert classes(second, model) == [1]
    assert classes(None, model) == [0, 1]
    # Where no component is of it, it is not held elsewhere either.
    rare = torch.tensor([[0.1, 0.9], [0.02, 0.98]])
    assert classes(second, Model(model.density, PosteriorReadout(rare, 1.0))) == [0, 1]


@pytest.mark.parametrize("off", [2, 98])
def test_samples_that_come_before_their_boundary_do_not_spoil_what_is_held(off: int) -> None:
    random = torch.Generator().manual_seed(0)
    centres = 3 * torch.randn(4, 12, generator=random)
    codes = torch.cat(
        [
            first + torch.randint(2, (n,), generator=random)
            for first, n in ((0, 2500 + off), (2, 2500), (0, 1500))
        ]
    )
    x = centres[codes] + torch.randn(len(codes), 12, generator=random)
    engine = Engine(EngineConfig(experts=off == 2))
    state = engine.start()
    for rows in torch.arange(len(x)).split(100):
        labels = [
            int(code) if int(row) % 3 else None for row, code in zip(rows, codes[rows], strict=True)
        ]
        state, _ = engine.step(state, Batch.of(x[rows], labels))
    held = engine.held(state)
    assert [row.sub_task for row in held] == [0, 1]
    for row in held:
        assert row.accuracy_then is not None
        assert row.accuracy_then > 0.9
        assert all(one.accuracy_then > 0.8 for one in row.classes)


def test_a_sub_task_of_which_nothing_was_learned_leaves_nothing() -> None:
    one = crossed(RetentionSets(), two_classes(), as_it_is(), (50, 50))
    same = one.crossed(
        two_classes(),
        as_it_is(),
        sub_task=1,
        class_counts=(50, 50),
        samples_seen=100,
        version=9,
        seed=0,
    )
    assert [kept.sub_task for kept in same.sets] == [0]
    none = RetentionSets().crossed(
        None, as_it_is(), sub_task=0, class_counts=(), samples_seen=9, version=0, seed=0
    )
    assert none.sets == ()
    assert none.report(two_classes(), as_it_is(), (), 7) == ()


def test_the_seed_and_the_sub_task_decide_what_is_drawn() -> None:
    def features(**options: int) -> torch.Tensor:
        return (
            crossed(RetentionSets(), two_classes(), as_it_is(), (50, 50), **options)
            .sets[0]
            .features
        )

    assert torch.equal(features(), features())
    assert not torch.equal(features(), features(seed=1))
    assert not torch.equal(features(), features(sub_task=1))


def test_what_was_said_before_is_carried_on_and_new_sub_tasks_are_as_they_were() -> None:
    past = crossed(RetentionSets(), two_classes(1.0), as_it_is(), (50, 50))
    said = past.report(two_classes(0.5), as_it_is(), (0, 1), 7)
    past = crossed(past, two_classes(1.0), as_it_is(), (50, 90), sub_task=1)
    first, second = past.carried(said, (0, 1))
    assert (first,) == said
    assert second.model_version == past.sets[1].version == 2
    assert second == past.report(two_classes(1.0), as_it_is(), (0, 1), 2)[1]
    assert [row.sub_task for row in past.carried((), (0, 1))] == [0, 1]


# Many sets --------------------------------------------------------------------------------


@given(
    d=st.sampled_from([1, 2, 700, 3000, 300_000]),
    shown=st.lists(st.sampled_from([(1, 0), (0, 1), (1, 1), (0, 0)]), min_size=1, max_size=80),
    identity=st.booleans(),
)
@settings(max_examples=12, deadline=None, derandomize=True)
def test_what_is_kept_is_bounded_and_spread_evenly(
    d: int, shown: list[tuple[int, int]], identity: bool
) -> None:
    shown = shown[: 3 if d > 1000 else None]
    model = two_classes(0.01, d=d)
    standardiser = as_it_is(d) if identity else dataclasses.replace(as_it_is(d), identity=False)
    past, counts = RetentionSets(), (0, 0)
    for sub_task, more in enumerate(shown):
        counts = (counts[0] + more[0], counts[1] + more[1])
        past = crossed(past, model, standardiser, counts, sub_task)
    features = [one.features for one in past.sets]
    assert sum(one.numel() * one.element_size() for one in features) <= module.MOST_BYTES
    sizes = [len(one) for one in past.sets]
    assert sum(sizes) <= module.MOST_SAMPLES
    assert len(sizes) <= module.MOST_SUB_TASKS
    assert len(set(sizes)) == 1
    assert sizes[0] >= 1
    assert past.sets[-1].sub_task == len(shown) - 1
    # Nothing is left over that would hold on to what was thinned out.
    for one in past.sets:
        for tensor in (one.features, one.codes, *one.then):
            assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def test_of_samples_that_are_too_wide_none_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 2 * 16 - 1)
    past = crossed(RetentionSets(), two_classes(d=16), as_it_is(16), (50, 50))
    assert past.sets == ()
    assert past.report(two_classes(d=16), as_it_is(16), (0, 1), 7) == ()


def test_thinned_sets_keep_what_was_noted_of_the_samples_that_stay() -> None:
    model = two_classes(0.3)
    past = RetentionSets()
    for sub_task in range(7):
        past = crossed(past, model, as_it_is(), (100 * (sub_task + 1),) * 2, sub_task)
    rows = past.report(model, as_it_is(), (0, 1), 7)
    assert [row.samples for row in rows] == [1024 // 7] * 7
    for row in rows:
        assert row.accuracy_then == row.accuracy_now
        assert row.log_likelihood_then == row.log_likelihood_now
        assert {one.samples for one in row.classes} == {73}


def sets_of(*shown: set[int]) -> tuple[RetentionSet, ...]:
    """A set of one sample per code, for each of these."""
    made = []
    for sub_task, codes in enumerate(shown):
        n = len(codes)
        then = Marks(torch.ones(n, dtype=torch.bool), torch.ones(n), torch.zeros(n))
        made.append(RetentionSet(sub_task, torch.zeros(n, 2), torch.tensor(sorted(codes)), then, 1))
    return tuple(made)


@pytest.mark.parametrize(
    ("shown", "coming", "stay"),
    [
        ([{0}, {1}, {2}], {3}, [1, 2]),  # none is doubled: the oldest goes
        ([{0}, {1}, {2}], {1}, [0, 2]),
        ([{0, 1}, {2}, {0}], {1}, [1, 2]),  # between them, newer ones show all of it
        ([{0, 1}, {2}, {2, 3}], {0}, [0, 2]),
        ([{0}, {UNLABELLED}, {1}], {UNLABELLED}, [0, 2]),
    ],
)
def test_a_set_goes_whose_classes_came_again(
    monkeypatch: pytest.MonkeyPatch, shown: list[set[int]], coming: set[int], stay: list[int]
) -> None:
    monkeypatch.setattr(module, "MOST_SUB_TASKS", 3)
    past = RetentionSets(sets_of(*shown), (100,) * 4, 300)
    counts = tuple(100 + (code in coming) for code in range(4))
    model = dataclasses.replace(two_classes(), readout=PosteriorReadout(torch.rand(2, 4), 1.0))
    after = crossed(past, model, as_it_is(), counts, sub_task=9)
    assert [one.sub_task for one in after.sets] == [*stay, 9]
    assert set(after.sets[-1].codes.tolist()) == coming


# In a life --------------------------------------------------------------------------------

CONFIGS = {
    "flat": EngineConfig(preset="flat", n_components=12, experts=False),
    "paper": EngineConfig(preset="paper", n_components=9, detector="none"),
}


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> EngineConfig:
    return CONFIGS[request.param]


@functools.cache
def life(config: EngineConfig, scale: float = 1.0) -> tuple[Engine, EngineState]:
    """Two sub-tasks of two classes each, the second one still going on."""
    engine = Engine(config)
    script: list[Batch | str] = []
    for labels in ([0, 1], [2, 3]):
        made = batches(labels, 15, seed=labels[0])
        script += [dataclasses.replace(one, features=one.features * scale) for one in made]
        script.append("boundary")
    state, _ = play(engine, engine.start(), script[:-1])
    return engine, state


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_a_model_says_how_well_it_holds_the_past(config: EngineConfig, scale: float) -> None:
    engine, state = life(config, scale)
    (row,) = engine.held(state)
    assert row.sub_task == 0
    assert {one.label for one in row.classes} == {0, 1}
    assert row.accuracy_then is not None
    assert row.accuracy_then > 0.9
    (kept,) = state.past.retention.sets
    # In the sender's units: the data lie in [0, scale], with some noise around.
    assert 0.2 * scale < float(kept.features.float().mean()) < 0.8 * scale
    state, _ = engine.declare_boundary(state)
    assert [row.sub_task for row in engine.held(state)] == [0, 1]


def test_before_the_first_boundary_there_is_no_past() -> None:
    engine = Engine(CONFIGS["flat"])
    state = lived(engine, [0, 1], 3)
    assert engine.held(state) == ()


def test_forgetting_is_seen_where_it_happens() -> None:
    """The same samples come again under another name: the first name is forgotten."""
    engine = Engine(EngineConfig(n_components=12, detector="none", experts=False))
    first = list(batches([0], 10))
    state, _ = play(engine, engine.start(), [*first, *batches([1], 10), "boundary"])
    renamed = [Batch.of(batch.features, ["nought"] * len(batch)) for batch in batches([0], 60)]
    state, _ = play(engine, state, list(renamed))
    (row,) = engine.held(state)
    zero, one = row.classes
    assert (zero.label, one.label) == (0, 1)
    assert zero.accuracy_then > 0.95
    assert zero.accuracy_now < 0.5
    assert one.accuracy_now > 0.95


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_class_that_is_answered_by_its_new_name_is_held(rounds: int) -> None:
    """Experts find out that it has one, or another one since, and it stays when all learn it."""
    engine = Engine(EngineConfig(n_components=12, detector="none"))
    state, _ = play(engine, engine.start(), [*batches([0, 1], 10), "boundary"])
    for name in ["nought", "nil"][:rounds]:
        renamed = [Batch.of(one.features, [name] * len(one)) for one in batches([0], 15, seed=5)]
        state, _ = play(engine, state, list(renamed))
    snapshot = engine.snapshot(state)
    answers = snapshot.classify(next(iter(batches([0], 1, seed=9))).features).codes
    assert (answers == snapshot.answers.index(name)).double().mean() > 0.95
    (row,) = engine.held(state)
    for one in row.classes:
        assert min(one.accuracy_then, one.accuracy_now) > 0.95
        assert one.probability_now > 0.9


@pytest.mark.parametrize("experts", [True, False])
@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_what_is_held_is_named_as_requests_are_answered(preset: str, experts: bool) -> None:
    config = EngineConfig(preset=preset, n_components=12, experts=experts, detector="none")
    engine = Engine(config)
    parts = [[0, 1], [2, 3], [0, 1, 2, 3]]
    script: list[Batch | str] = []
    for labels in parts:
        script += list(batches(labels, 8, seed=len(script)))
        script.append("boundary")
    state, _ = play(engine, engine.start(), script[:-1])
    snapshot = engine.snapshot(state)
    for row, kept in zip(engine.held(state), state.past.retention.sets, strict=True):
        answered = snapshot.classify(kept.features.float())
        right = answered.codes == kept.codes
        sure = answered.probabilities.gather(1, kept.codes[:, None])
        assert row.accuracy_now == pytest.approx(float(right.double().mean()))
        assert row.probability_now == pytest.approx(float(sure.double().mean()), abs=1e-5)


def test_a_model_learns_the_same_whether_or_not_anybody_looks(
    config: EngineConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, looked_at = life(config)
    assert looked_at.past.retention.sets
    monkeypatch.setattr(RetentionSets, "crossed", lambda self, *_, **__: self)
    _, left_alone = life.__wrapped__(config)
    assert not left_alone.past.retention.sets
    # P-values look at what was drawn, and nothing that is learned looks at them.
    looked_at, left_alone = (
        state.with_past(retention=RetentionSets()).with_model(calibration=Calibration())
        for state in (looked_at, left_alone)
    )
    assert_identical(looked_at, left_alone)


def test_no_sample_of_the_stream_is_kept(config: EngineConfig) -> None:
    _, state = life(config)
    stream = torch.cat([batch.features for batch in batches([0, 1], 15, seed=0)])
    (kept,) = state.past.retention.sets
    assert kept.features.shape == (module.MOST_PER_SUB_TASK, N_FEATURES)
    nearest = torch.cdist(kept.features.float(), stream).amin(1)
    assert float(nearest.min()) > 0.01


def test_it_is_part_of_a_checkpoint(config: EngineConfig) -> None:
    engine, state = life(config)
    loaded, _, _ = load(dump(state, config, {}))
    assert_identical(loaded.past.retention, state.past.retention)
    assert engine.held(loaded) == engine.held(state)


def test_a_rollback_takes_it_back_too() -> None:
    config = dataclasses.replace(CONFIGS["flat"], experts=True)
    engine, state = life(config)
    kept, _, _ = load(dump(state, config, {}))
    later, _ = play(engine, state, ["boundary", *batches([4], 5)])
    assert len(later.past.retention.sets) == 2
    restored, _ = engine.restore(later, kept, "rollback")
    assert_identical(restored.past.retention, state.past.retention)
    # Experts let go of single samples on the way back, and are a little less sure than before.
    again, _ = engine.restore(state, kept, "rollback")
    assert engine.held(restored) == engine.held(again)
    for now, before in zip(engine.held(restored), engine.held(state), strict=True):
        assert now.accuracy_now == before.accuracy_now
        assert now.probability_now == pytest.approx(before.probability_now, abs=0.01)


def test_it_lives_where_the_model_lives(device: torch.device) -> None:
    engine = Engine(CONFIGS["flat"], device)
    state, _ = play(engine, engine.start(), [*batches([0, 1], 5), "boundary"])
    assert all(tensor.device.type == device.type for tensor in tensors_of(state.past.retention))
    assert engine.held(state)[0].accuracy_now is not None


# In a few numbers -------------------------------------------------------------------------


def rows(*certain: tuple[float, float, float] | None) -> list[SubTaskRetention]:
    """Of accuracy now, probability then and probability now; None without labels."""
    made = []
    for sub_task, numbers in enumerate(certain):
        right, then, now = numbers or (None, None, None)
        log_likelihoods = (-1.0, -1.0 - sub_task)
        made.append(
            SubTaskRetention(sub_task, 10, (), right, right, then, now, *log_likelihoods, 7)
        )
    return made


def test_the_worst_held_sub_task_shows_in_the_summary() -> None:
    assert summary(rows((1.0, 1.0, 1.0), (0.5, 0.75, 0.5), (0.75, 0.5, 0.75))) == {
        "sub_tasks": 3,
        "accuracy_mean": 0.75,
        "accuracy_min": 0.5,
        "probability_mean": 0.75,
        "probability_loss_max": 0.25,
        "log_likelihood_change_mean": -1.0,
    }


def test_a_summary_leaves_out_what_is_not_known() -> None:
    assert summary(rows(None, None)) == {"sub_tasks": 2, "log_likelihood_change_mean": -0.5}
    mixed = summary(rows(None, (0.5, 0.75, 0.25)))
    assert (mixed["accuracy_mean"], mixed["probability_loss_max"]) == (0.5, 0.5)
