"""Checks that every detector, density and learner must pass, yours included."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from core.batch import Batch
from core.class_merge import ClassMerge
from core.config import EngineConfig
from core.density.density import Density
from core.drift.detector import Detector, Level, Observation, Verdict
from core.engine.checkpoint import copied
from core.engine.engine import Engine
from core.learners.learner import Learner

WARM_UP = 300
"""Samples, of the settings by which a detector is made here."""

BUDGET = 9
FEATURES = 16
"""Components and features, of the settings by which a learner is made here: a square of each."""


def check_detector(make: Callable[[EngineConfig], Detector[Any]]) -> None:
    """Try a detector on a stream whose classes change places, and then lie elsewhere.

    Whether it finds that is its own affair; that it keeps to the protocol is checked: values that
    are numbers, no boundary before it is armed, the same verdict on the same state, states that
    stay as they are, batches of one sample and of many, with labels and without.

    Arguments:
        make: Makes it from the settings of an engine.

    Raises:
        AssertionError: It does not keep to the protocol; the message says how.
    """
    detector = make(EngineConfig(warm_up=WARM_UP))
    assert detector.name, "a detector has a name"
    state = detector.start()
    assert isinstance(state, detector.state_type), "start() makes a state of state_type"
    assert is_dataclass(state), "a state is a dataclass, so that a checkpoint can hold it"
    armed = False
    for seen in _observations():
        wait, reason = detector.arming(state, seen.since_boundary, True)
        assert wait is None or wait >= 0, f"arming() tells {wait}; expected None, or 0 and more"
        assert (wait == 0) == (reason is None), "arming() has a reason unless it tells 0 samples"
        before = repr(state)
        after, verdict = detector.observe(state, seen, True)
        again, same = detector.observe(state, seen, True)
        assert repr(state) == before, "observe() has changed the state that was given in"
        assert repr((again, same)) == repr((after, verdict)), "the same state, another verdict"
        assert isinstance(after, detector.state_type), "observe() gives a state of state_type"
        _check_verdict(verdict, len(seen.log_likelihoods))
        typical = detector.typical(after, seen.features)
        assert typical.shape == (len(seen.features),), "typical() says one thing of each sample"
        assert typical.dtype == torch.bool, "typical() answers bool"
        for name in ("accept", "dismiss"):
            changed = getattr(detector, name)(after)
            assert isinstance(changed, detector.state_type), f"{name}() gives a state of state_type"
        armed |= verdict.armed
        state = detector.start() if verdict.level is Level.ALARM else after
    _, quiet = detector.observe(detector.start(), next(_observations()), False)
    assert quiet.level is not Level.ALARM, "a boundary at once, before anything is known"


def check_density(density: Density) -> None:
    """Try a density: whether it scores, draws, explains and comes back from a file as it should.

    Arguments:
        density: Of any number of components and features, on the CPU.

    Raises:
        AssertionError: It does not keep to the protocol; the message says how.
    """
    k, d = density.n_components, density.n_features
    assert density.kind, "a family has a name: kind"
    assert density.log_weights.shape == (k,), "log_weights has one number for each component"
    _near(density.log_weights.logsumexp(0), torch.tensor(0.0), "weights that add up to one")
    before = [tensor.clone() for tensor in density.tensors().values()]
    generator = torch.Generator().manual_seed(0)
    components = torch.arange(k).repeat_interleave(1 + 60 // k)
    n = len(components)
    x = density.sample(components, generator)
    assert x.shape == (n, d), f"{n} samples of {d} features have shape {tuple(x.shape)}"
    again = density.sample(components, torch.Generator().manual_seed(0))
    assert torch.equal(x, again), "the same generator, other samples"
    assert density.sample(components, generator, 0.0).shape == (n, d), "samples without noise"
    scored = density.score(x)
    assert scored.joint.shape == (n, k), f"the joint has shape {tuple(scored.joint.shape)}"
    assert bool(scored.joint.isfinite().all()), "samples of its own have no finite score"
    law = density.feature_law
    if law is not None:  # else components are not of features
        _near(scored.joint.logsumexp(-1), scored.log_likelihood, "a joint of the likelihood")
    _near(density.score(x[:1]).joint, scored.joint[:1], "a sample alone scores as among others")
    _near(density.score(x, {}).joint, scored.joint, "parts change no score")
    _near(density.gathered().score(x).joint, scored.joint, "gathered() changes no score")
    conformity = density.conformity(x, scored)
    assert conformity.shape[0] == n, "conformity() says the same of every sample"
    if law is not None:
        _near(conformity[:, 1], scored.log_likelihood, "the likelihood as second conformity score")
    told = density.feature_terms(x)
    assert torch.equal(told.components, scored.joint.argmax(-1)), "terms of the likeliest component"
    _near(told.terms.sum(-1) + told.rest, scored.log_likelihood, "terms add up to the likelihood")
    for part in (told.terms, told.expected, told.centres):
        assert part.shape == (n, d), "one term, one expectation and one centre for each feature"
    if law is not None:
        means, deviations = law
        assert means.shape == deviations.shape == (k, d), "a law for each feature and component"
        many = density.sample(torch.zeros(400, dtype=torch.int64), generator)
        away = (many.mean(0) - means[0]).abs()
        assert bool((away <= 6 * deviations[0] / 20 + 1e-4).all()), "samples are not of their law"
    facts = json.loads(json.dumps(density.facts()))
    same = type(density).of(dict(density.tensors()), facts).score(x)
    assert torch.equal(same.joint, scored.joint), "of(tensors, facts) scores otherwise"
    after = density.tensors().values()
    assert all(map(torch.equal, before, after)), "it has changed while it was asked"


def check_learner(make: Callable[[EngineConfig], Learner[Any]]) -> None:
    """Try a learner on two sub-tasks, with labels and without, in small batches and large.

    How well it learns is its own affair; that it keeps to the protocol is checked: values that are
    numbers, the same result from the same state, states that stay as they are and survive a
    checkpoint, the budget, no raw sample beyond its sub-task, a density that keeps to its protocol.

    Arguments:
        make: Makes it from the settings of an engine.

    Raises:
        AssertionError: It does not keep to the protocol; the message says how.
    """
    config = EngineConfig(n_components=BUDGET, n_factors=2, window=150)
    learner, generator = make(config), torch.Generator().manual_seed(0)
    state = learner.start(FEATURES, torch.device("cpu"))
    assert isinstance(state, learner.state_type), "start() makes a state of state_type"
    assert is_dataclass(state), "a state is a dataclass, so that a checkpoint can hold it"
    n_classes = 0
    for x, codes in _batches():
        if not len(x):
            kept = learner.absorbed(state, generator)
            assert learner.raw_samples(kept) == 0, "absorbed() holds on to raw samples"
            assert learner.model(kept) is not None, "absorbed() loses what was learned"
            state, _ = learner.begin_sub_task(state, generator)
            assert learner.raw_samples(state) == 0, "raw samples outlive their sub-task"
            continue
        if int(codes.max()) >= n_classes:
            n_classes = int(codes.max()) + 1
            state = learner.grow(state, n_classes)
        scores = learner.score(state, x)
        kept, random = [part.clone() for part in _tensors(state)], generator.get_state()
        after, _ = learner.learn(state, x, codes, scores, generator)
        generator.set_state(random)
        same, _ = learner.learn(state, x, codes, scores, generator)
        assert _equal(after, same), "the same state and generator, another result"
        assert all(map(torch.equal, kept, _tensors(state))), "learn() has changed its state"
        state = copied(after, learner.state_type)
        assert _equal(state, after), "a checkpoint gives back another state"
        if learner.waiting(state):
            waiting = learner.waiting(state)
            state = learner.settle(state, generator)
            assert learner.waiting(state) < waiting, "settle() leaves as many samples waiting"
        _check_answers(learner, state, x, n_classes)
    merged = learner.with_merged_classes(state, ClassMerge(gone=0, into=1), generator)
    _check_answers(learner, merged, x, n_classes - 1)
    model = learner.model(state)
    assert model is not None, "nothing is served after all that was learned"
    check_density(model.density)


def _check_answers(learner: Learner[Any], state: Any, x: Tensor, n_classes: int) -> None:
    """Whether what a learner says of a state fits together."""
    k = learner.n_components(state)
    assert 1 <= k <= BUDGET, f"{k} components, of {BUDGET} at most"
    scores = learner.score(state, x)
    assert scores is not None, "no scores after something was learned"
    assert scores.joint.shape == (len(x), k), "a score of each sample for each component"
    assert bool(scores.log_likelihood.isfinite().all()), "a likelihood that is no number"
    assert learner.conformity(state, scores).shape[0] == len(x), "conformity scores of each sample"
    weights = learner.log_weights(state)
    assert weights is None or weights.shape == (k,), "a weight of each component, or none"
    assert learner.latest(state).shape == (k,), "latest() says one thing of each component"
    bare = learner.without_raw(state)
    assert learner.raw_samples(bare) == 0 <= learner.raw_samples(state), "raw samples stay"
    model = learner.model(state)
    assert model is not None, "no model after something was learned"
    _near(model.log_likelihood(x), scores.log_likelihood, "what is served is what was learned")
    probabilities = learner.readout(state).class_probabilities(scores.joint)
    assert probabilities.shape == (len(x), n_classes), "a probability for each class"
    if n_classes:
        _near(probabilities.sum(-1), torch.ones(len(x)), "probabilities that add up to one")
    units = torch.full((FEATURES,), 2.0)
    moved = learner.score(learner.rescale(state, units, units), x * 2 + 2)
    assert moved is not None, "a change of units loses what was learned"
    assert bool(moved.log_likelihood.isfinite().all()), "a change of units leaves no number"


def _batches() -> Iterator[tuple[Tensor, Tensor]]:
    """Samples (N, D), their classes (N,) or -1, and an empty batch where a sub-task ends."""
    random = torch.Generator().manual_seed(0)
    centres = torch.rand(4, FEATURES, generator=random) * 4
    for sub_task, labelled in ((0, True), (1, False), (0, True)):
        for index, size in enumerate([1, 3, 40, 120, 60]):
            codes = 2 * sub_task + torch.randint(2, (size,), generator=random)
            x = centres[codes] + 0.3 * torch.randn(size, FEATURES, generator=random)
            yield x, codes if labelled or index > 3 else torch.full_like(codes, -1)
        yield centres[:0], torch.zeros(0, dtype=torch.int64)


def _near(one: Tensor, other: Tensor, what: str) -> None:
    right = torch.allclose(one, other.to(one), rtol=1e-4, atol=1e-3)
    assert right, f"expected {what}; off by {float((one - other).abs().max()):.3g}"


def _equal(one: Any, other: Any) -> bool:
    return all(map(torch.equal, _tensors(one), _tensors(other)))


def _tensors(value: Any) -> Iterator[Tensor]:
    """Every tensor in a state."""
    if isinstance(value, Tensor):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)


def _check_verdict(verdict: Verdict, n: int) -> None:
    assert isinstance(verdict.level, Level), f"the level is {verdict.level!r}"
    assert len(verdict.names) == len(verdict.values) >= 1, "a value for each name, and one at least"
    for name, value in zip(verdict.names, verdict.values, strict=True):
        assert not math.isnan(value), f"the statistic {name} is no number"
    assert verdict.change_samples >= 1, "a change has begun a sample ago at least"
    assert verdict.armed or verdict.level is not Level.ALARM, "a boundary, and it is not armed"
    for rate in (verdict.inlier_rate, verdict.inlier_rate_mean):
        assert rate is None or 0 <= rate <= 1, f"an inlier rate of {rate}"


def _observations() -> Iterator[Observation]:
    """Observations of a stream, as an engine makes them."""
    engine = Engine(EngineConfig(preset="flat", n_components=8, detector="none", experts=False))
    random = torch.Generator().manual_seed(0)
    state = engine.start()
    sizes = [50] * 12 + [1, 1, 3, 400, 50] + [50] * 12
    for index, size in enumerate(sizes):
        codes = torch.randint(2, (size,), generator=random)
        x = torch.randn(size, 3, generator=random) + 4.0 * codes[:, None]
        labels: list[int | str | None] | None = codes.tolist() if index % 4 else None
        if index >= 20 and labels is not None:
            labels = (1 - codes).tolist()
        if index >= 25:
            x = x + 20
        batch = Batch.of(x, labels)
        if state.model.standardiser is not None:
            scores = engine.learner.score(state.model.learner, state.standardiser.apply(x))
            if scores is not None:
                yield engine.judge.observation(state, batch, scores)
        state, _ = engine.step(state, batch)
