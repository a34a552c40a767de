"""Outliers in tables as they come: heavy tails, codes, constants, features of any scale."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.snapshot import Snapshot

N = 6000


def rows(kind: str, n: int, seed: int, *, strange: bool) -> Tensor:
    """Six related features, with shape (n, 6); strange ones break the relation."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(2, 6, generator=torch.Generator().manual_seed(5))
    latent = torch.randn(n, 2, generator=generator)
    x = latent @ mixing + 0.2 * torch.randn(n, 6, generator=generator)
    if strange:
        x = 2.5 * torch.randn(n, 6, generator=generator)
    if kind == "heavy tail":
        x[:, 5] = torch.tan(torch.pi * (torch.rand(n, generator=generator) - 0.5))  # Cauchy
    elif kind == "codes":
        x[:, 4] = torch.randint(5, (n,), generator=generator).float()
        x[:, 5] = (latent[:, 0] > 0).float() * 3
    elif kind == "constant":
        x[:, 5] = 7.0
    elif kind == "scales":
        x = x * torch.tensor([1e-6, 1e-3, 1.0, 1e2, 1e4, 1e6]) + torch.tensor(
            [0.0, 5.0, -3.0, 1e3, 0.0, 1e6]
        )
    elif kind == "unit":
        x = (0.5 + x / 12).clamp(0, 1)
    elif kind == "missing":
        x[torch.rand(x.shape, generator=generator) < 0.002] = -999.0
    return x


def learned(kind: str) -> Snapshot:
    engine = Engine(EngineConfig(detector="none"))
    state = engine.start()
    for batch in rows(kind, N, 0, strange=False).split(100):
        state, _ = engine.step(state, Batch(batch))
    return engine.snapshot(state)


@pytest.mark.parametrize(
    "kind", ["plain", "heavy tail", "codes", "constant", "scales", "unit", "missing"]
)
def test_outliers_of_a_table_are_found_and_inliers_left_alone(kind: str) -> None:
    snapshot = learned(kind)
    usual = snapshot.outliers(rows(kind, 3000, 1, strange=False))
    strange = snapshot.outliers(rows(kind, 500, 2, strange=True))
    beaten = usual.typicality[:, None] > strange.typicality
    assert float(beaten.double().mean()) > 0.9
    for rate in (0.05, 0.2):
        found = float((usual.p_values <= rate).double().mean())
        assert 0.4 * rate < found < 1.6 * rate


@pytest.mark.parametrize("preset", ["mfa", "flat"])
@pytest.mark.parametrize("strays", ["missing values", "a first batch"])
def test_strays_do_not_blind_a_model(preset: str, strays: str) -> None:
    engine = Engine(EngineConfig(preset=preset, detector="none"))
    state = engine.start()
    batches = list(rows("plain", 3000, 0, strange=False).split(100))
    if strays == "missing values":
        for index, batch in enumerate(batches):
            batch[index % 100, index % 6] = -999.0
    else:
        batches.insert(0, torch.tensor([[3e38] * 6, [-3e38] * 6]))
    for batch in batches:
        state, _ = engine.step(state, Batch(batch))
    snapshot = engine.snapshot(state)
    usual = snapshot.outliers(rows("plain", 1000, 1, strange=False))
    strange = snapshot.outliers(rows("plain", 500, 2, strange=True))
    assert usual.typicality is not None
    assert strange.typicality is not None
    for inner, outer in (
        (usual.typicality, strange.typicality),
        (usual.log_likelihoods, strange.log_likelihoods),
    ):
        assert float((inner[:, None] > outer).double().mean()) > 0.9


@pytest.mark.parametrize("size", [20, 100])
@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_a_model_stays_what_it_is_though_one_sample_in_thirty_is_garbage(
    preset: str, size: int
) -> None:
    """Three classes of six clusters each, and rows from hundreds of deviations away."""
    generator = torch.Generator().manual_seed(0)
    n, d = 4000, 8
    centres = 2 * torch.randn(3, 6, d, generator=generator)
    codes = torch.randint(3, (n,), generator=generator)
    clusters = torch.randint(6, (n,), generator=generator)
    clean = centres[codes, clusters] + 0.3 * torch.randn(n, d, generator=generator)
    garbage = torch.rand(n, generator=generator) < 1 / 30
    far = 10 ** (2 + 2 * torch.rand(n, 1, generator=generator))
    wild = far * torch.randn(n, d, generator=generator)
    log_likelihood = {}
    test = ~garbage & (torch.arange(n) >= n - 1000)
    for name, x in (("clean", clean), ("mixed", torch.where(garbage[:, None], wild, clean))):
        engine = Engine(EngineConfig(preset=preset, experts=False, detector="none"))
        state = engine.start()
        for rows in torch.arange(n - 1000).split(size):
            state, _ = engine.step(state, Batch.of(x[rows], codes[rows]))
        snapshot = engine.snapshot(state)
        found = snapshot.classify(clean[test])
        names = torch.tensor(state.model.classes)[found.codes]
        assert float((names == codes[test]).double().mean()) > 0.98
        log_likelihood[name] = float(found.log_likelihoods.mean())
        strange = snapshot.outliers(wild[test]).p_values
        assert float((strange < 0.05).double().mean()) > 0.98
    assert log_likelihood["mixed"] > log_likelihood["clean"] - 3


def repeated(kind: str, n: int) -> Tensor:
    """Samples of few values, with shape (n, 3); a fifth of them, or fewer, are not zero."""
    generator = torch.Generator().manual_seed(3)
    x = torch.zeros(n, 3)
    if kind == "switch":
        x[:, 0] = (torch.rand(n, generator=generator) < 0.01).float()
    elif kind == "codes":
        x[:, 0] = (torch.rand(n, generator=generator) < 0.2) * torch.randint(
            1, 4, (n,), generator=generator
        )
    else:
        awake = (torch.rand(n, generator=generator) < 0.1)[:, None]
        x = awake * torch.randn(n, 3, generator=generator).abs()
    return x


@pytest.mark.parametrize("preset", ["mfa", "flat"])
@pytest.mark.parametrize("kind", ["switch", "codes", "sensors at rest"])
def test_what_most_samples_are_is_never_strange(kind: str, preset: str) -> None:
    engine = Engine(EngineConfig(preset=preset, detector="none"))
    state = engine.start()
    lowest = []
    for batch in repeated(kind, 5000).split(100):
        state, _ = engine.step(state, Batch(batch))
        if (found := engine.snapshot(state).outliers(torch.zeros(1, 3)).p_values) is not None:
            lowest.append(float(found))
    assert len(lowest) > 40
    assert min(lowest) > 0.05


def related(n: int, seed: int) -> tuple[Tensor, list[int]]:
    """Eight related clusters in a hundred features, and which one each sample is of."""
    law = torch.Generator().manual_seed(3)
    centres, mixing = 0.5 * torch.randn(8, 100, generator=law), torch.randn(100, 100, generator=law)
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(8, (n,), generator=generator)
    noise = torch.randn(n, 100, generator=generator) @ mixing / 10
    return centres[labels] + noise, labels.tolist()


@pytest.mark.parametrize("labelled", [True, False])
def test_samples_that_were_learned_are_not_strange(labelled: bool) -> None:
    """Few samples teach many features to fit them better than any others: by tens of nats."""
    x, labels = related(2500, 0)
    engine = Engine(EngineConfig(experts=False))
    state = engine.start()
    for i in range(0, len(x), 100):
        batch = Batch.of(x[i : i + 100], labels[i : i + 100] if labelled else None)
        state, _ = engine.step(state, batch)
    snapshot = engine.snapshot(engine.settle(state)[0])
    again, _ = Snapshot.from_bytes(snapshot.to_bytes({}))
    assert strange(again, x) == strange(snapshot, x)
    fresh, _ = related(1500, 1)
    for asked in (x, fresh):
        assert strange(snapshot, asked) < 0.1
    mean = x.mean(0)
    for odd in (mean.expand(50, -1), mean + (fresh - mean) / 2, 2 * fresh):
        assert strange(snapshot, odd) > 0.9


def strange(snapshot: Snapshot, x: Tensor) -> float:
    """Share of samples that one inlier in twenty is as strange as."""
    p_values = snapshot.outliers(x).p_values
    assert p_values is not None
    return float((p_values <= 0.05).double().mean())


@pytest.mark.parametrize("seed", [1, 5])
def test_when_samples_are_fitted_anew_inliers_stay_inliers(seed: int) -> None:
    """A window that is full, or a pause, brings other components: the same samples look otherwise.

    At once, that is, before later batches say how.
    """
    centres = 4 * torch.randn(8, 32, generator=torch.Generator().manual_seed(seed))
    generator = torch.Generator().manual_seed(10 + seed)
    kinds = torch.randint(8, (4300,), generator=generator)
    x = centres[kinds] + torch.randn(4300, 32, generator=generator)
    engine = Engine(EngineConfig(detector="none"))
    state, settled, fitted = engine.start(), None, set()
    for batch in x[:2300].split(100):
        state, _ = engine.step(state, Batch(batch))
        if state.stream.samples == 2000:
            settled, _ = engine.settle(state)
        if state.stream.samples < 2000:
            continue
        for one in (state, settled):
            assert one is not None
            snapshot = engine.snapshot(one)
            fitted.add(snapshot.info.components)
            p_values = snapshot.outliers(x[2300:]).p_values
            assert p_values is not None
            for rate, most in ((0.05, 0.1), (0.01, 0.03)):
                assert float((p_values <= rate).double().mean()) < most
    assert len(fitted) == 3


def test_a_pause_leaves_p_values_of_images_as_they_are() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(8, 36, generator=generator)
    kinds = torch.randint(8, (1000,), generator=generator)
    grey = centres[kinds] + 0.08 * torch.randn(1000, 36, generator=generator)
    x = grey.clamp(0, 1).mul(255).to(torch.uint8).view(-1, 6, 6)
    engine = Engine(EngineConfig(detector="none"))
    state = engine.start()
    for batch in x.split(100):
        state, _ = engine.step(state, Batch(batch))
    settled, events = engine.settle(state)
    assert events
    assert len(state.model.calibration.current) == 1
    assert settled.model.calibration is state.model.calibration


@pytest.mark.parametrize("preset", ["flat", "mfa"])
def test_while_windows_are_fitted_the_rate_is_kept(preset: str) -> None:
    """Samples that a model draws fit that model too well: by those of one alone, few are strange.

    Each moment is one at which rows of before a fit have to do, as the model stands or paused.
    """
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(8, 32, generator=generator)
    spread = 0.3 * torch.randn(8, 3, 32, generator=generator)
    kinds = torch.randint(8, (5500,), generator=generator)
    latent = torch.randn(5500, 3, generator=generator)
    x = centres[kinds] + torch.einsum("nr,nrd->nd", latent, spread[kinds])
    x += torch.randn(x.shape, generator=generator)
    engine = Engine(EngineConfig(preset=preset, detector="none"))
    state, shares = engine.start(), []
    for batch in x[:4000].split(100):
        state, _ = engine.step(state, Batch(batch))
        if state.stream.samples >= 800 and not state.stream.samples % 400:
            for one in (state, engine.settle(state)[0]):
                p_values = engine.snapshot(one).outliers(x[4000:]).p_values
                assert p_values is not None
                shares.append(float((p_values <= 0.05).double().mean()))
    assert 0.02 < min(shares) < max(shares) < 0.1, shares


def test_rows_of_a_labelled_table_follow_a_pause_and_no_fit_of_a_single_class() -> None:
    """Each class has a window of its own: to follow every one of them adds up."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(4, 32, generator=generator)
    kinds = torch.randint(4, (2300,), generator=generator)
    x = centres[kinds] + torch.randn(2300, 32, generator=generator)
    engine = Engine(EngineConfig(detector="none"))
    state, fitted = engine.start(), 0
    for begin in range(0, 2300, 100):
        some = slice(begin, begin + 100)
        before = state
        state, _ = engine.step(state, Batch.of(x[some], kinds[some].tolist()))
        if before.model.calibration.current:
            rows = before.model.calibration.current[0].rows
            kept = len(state.model.calibration.current[0].rows) - 50
            assert torch.equal(state.model.calibration.current[0].rows[:kept], rows[-kept:])
            learner, was = state.model.learner, before.model.learner
            fitted += engine.learner.waiting(learner) < engine.learner.waiting(was) + 100
    assert fitted > 1
    settled, _ = engine.settle(state)
    old, new = (one.model.calibration.current[0].rows for one in (state, settled))
    assert len(old) == len(new)
    assert not torch.equal(old, new)


@pytest.mark.parametrize("spread", [1.0, 20.0, 1e6])
def test_a_feature_that_never_varied_is_watched_whatever_units_the_others_have(
    spread: float,
) -> None:
    generator = torch.Generator().manual_seed(3)

    def rows(n: int, count: float, flag: float) -> Tensor:
        others = spread * (5 + torch.randn(n, 6, generator=generator))
        return torch.cat([others, torch.tensor([count, flag]).expand(n, 2)], 1)

    engine = Engine(EngineConfig())
    state = engine.start()
    for _ in range(30):
        state, _ = engine.step(state, Batch(rows(100, 0, 1)))
    snapshot = engine.snapshot(state)
    for count, flag in ((50, 1), (0, 0)):
        p_values = snapshot.outliers(rows(200, count, flag)).p_values
        assert p_values is not None
        assert float((p_values < 0.02).double().mean()) > 0.9
    usual = snapshot.outliers(rows(500, 0, 1)).p_values
    assert usual is not None
    assert float((usual < 0.05).double().mean()) < 0.1
    happened = []
    for _ in range(10):
        state, events = engine.step(state, Batch(rows(100, 0, 0)))
        happened += [event.kind for event in events]
    assert "boundary" in happened
