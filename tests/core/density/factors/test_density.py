"""Tests for core.density.factors.density: what is served, and what of it is kept in files."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor

from core.config import EngineConfig
from core.density import blocks
from core.density.conformity import Analyser
from core.density.density import Parts
from core.density.factor_mixture import FactorMixture, covariances, log_likelihood
from core.density.factors.density import FactorDensity
from core.density.factors.part import FactorPart
from core.engine.engine import Engine
from core.model.families import DENSITIES
from core.snapshot import Snapshot
from tests.core.states import assert_identical, play
from tests.core.streams import batches, blob

FLOOR = 0.05


def random_density(k: int = 3, d: int = 5, n_factors: int = 2, seed: int = 0) -> FactorDensity:
    generator = torch.Generator().manual_seed(seed)
    mixture = FactorMixture(
        torch.randn(k, generator=generator).log_softmax(0),
        torch.randn(k, d, generator=generator),
        torch.randn(k, d, n_factors, generator=generator),
        torch.rand(k, d, generator=generator) + 2 * FLOOR,
    )
    return FactorDensity.whole(mixture, FLOOR)


def test_it_scores_samples_and_says_what_it_is() -> None:
    density, x = random_density(), torch.randn(4, 5)
    assert (density.n_components, density.n_features) == (3, 5)
    assert density.device.type == "cpu"
    assert density.log_weights.exp().sum().item() == pytest.approx(1)
    joint, log_likelihoods = density.score(x)
    assert joint.shape == (4, 3)
    torch.testing.assert_close(log_likelihoods, joint.logsumexp(-1))
    torch.testing.assert_close(log_likelihoods, log_likelihood(density.mixture, x))


def test_noise_is_raised_to_the_floor_to_score_and_not_to_draw() -> None:
    density = random_density(k=1, n_factors=0)
    silent = FactorDensity.whole(density.mixture._replace(noise=torch.zeros(1, 5)), FLOOR)
    raised = density.mixture._replace(noise=torch.full((1, 5), FLOOR))
    x = density.mixture.means + 0.1
    torch.testing.assert_close(silent.score(x).log_likelihood, log_likelihood(raised, x))
    drawn = silent.sample(torch.tensor([0, 0]), torch.Generator())
    assert torch.equal(drawn, density.mixture.means.expand(2, 5))


def test_without_noise_samples_show_what_the_factors_say() -> None:
    density = random_density(k=1)
    components = torch.zeros(20_000, dtype=torch.int64)
    full, clean = (
        density.sample(components, torch.Generator().manual_seed(1), noise=noise)
        for noise in (True, False)
    )
    expected = covariances(density.mixture)[0]
    torch.testing.assert_close(full.T.cov(), expected, rtol=0.05, atol=0.15)
    low_rank = expected - density.mixture.noise[0].diag()
    torch.testing.assert_close(clean.T.cov(), low_rank, rtol=0.05, atol=0.15)
    assert int(torch.linalg.matrix_rank(clean - density.mixture.means, rtol=1e-4)) == 2


@pytest.mark.parametrize("share", [0.5, 0.9])
def test_a_share_of_the_noise_is_drawn_where_that_is_asked_for(share: float) -> None:
    density, components = random_density(), torch.arange(3).repeat(10)
    clean, full, some = (
        density.sample(components, torch.Generator().manual_seed(1), noise)
        for noise in (0.0, 1.0, share)
    )
    torch.testing.assert_close(some - clean, share * (full - clean), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n_factors", [0, 2])
def test_tensors_and_facts_make_the_same_density_again(n_factors: int) -> None:
    density, x = random_density(n_factors=n_factors), torch.randn(6, 5)
    density.score(x)  # what is computed once is not part of it
    facts = json.loads(json.dumps(density.facts()))
    again = DENSITIES[density.kind].of(density.tensors(), facts)
    assert isinstance(again, FactorDensity)
    assert_identical(again, density)
    assert torch.equal(again.score(x).joint, density.score(x).joint)


# Parts ------------------------------------------------------------------------------------


def random_parts(*sizes: int, d: int = 5, seed: int = 3) -> FactorDensity:
    """Weights of all parts together are not normalised."""
    whole = random_density(k=sum(sizes), d=d, seed=seed).mixture
    columns = [torch.split(column, sizes) for column in whole]
    parts = [FactorMixture(*part) for part in zip(*columns, strict=True)]
    raised = [part._replace(log_weights=part.log_weights + 4) for part in parts]
    return FactorDensity(tuple(FactorPart(part, FLOOR) for part in raised))


def test_a_density_of_parts_is_the_density_of_all_of_them() -> None:
    density, x = random_parts(2, 1, 3), torch.randn(40, 5)
    whole = density.gathered()
    assert len(whole.parts) == 1
    assert whole.gathered() is whole
    assert density.n_components == 6
    torch.testing.assert_close(density.log_weights, whole.log_weights)
    assert density.log_weights.exp().sum().item() == pytest.approx(1)
    scored = density.score(x)
    for ours, theirs in zip(scored, whole.score(x), strict=True):
        torch.testing.assert_close(ours, theirs)
    for ours, theirs in zip(density.feature_terms(x), whole.feature_terms(x), strict=True):
        torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(density.conformity(x, scored), whole.conformity(x, scored))
    for ours, theirs in zip(density.feature_law, whole.feature_law, strict=True):
        assert torch.equal(ours, theirs)
    components = torch.arange(6).repeat(3)
    drawn = [one.sample(components, torch.Generator().manual_seed(1)) for one in (density, whole)]
    assert torch.equal(*drawn)


def test_a_part_says_the_same_to_the_bit_after_it_was_saved() -> None:
    density, x = random_parts(2, 4), torch.randn(30, 5)
    again = FactorDensity.of(density.tensors(), json.loads(json.dumps(density.facts())))
    assert_identical(again, density)
    known: Parts = {}
    assert torch.equal(again.score(x, known).joint, density.score(x).joint)
    for part, mine in zip(again.parts, density.parts, strict=True):
        assert torch.equal(known[part], mine.log_joint(x, x.square()))


@pytest.mark.parametrize("sizes", [[2], [2, 3], [5, -1], [], [4, 1, -1]])
def test_parts_that_are_not_all_components_are_refused(sizes: list[int]) -> None:
    density = random_parts(2, 2)
    with pytest.raises(ValueError, match="parts of"):
        FactorDensity.of(density.tensors(), {**density.facts(), "sizes": sizes})


def test_components_that_are_not_whole_are_refused() -> None:
    density = random_parts(2, 2)
    tensors = {**density.tensors(), "noise": density.mixture.noise[:3]}
    with pytest.raises(ValueError, match="parts of"):
        FactorDensity.of(tensors, density.facts())


def test_what_a_part_has_said_of_samples_is_not_worked_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []
    scores = FactorPart.log_joint

    def counting(part: FactorPart, x: Tensor, x_squared: Tensor) -> Tensor:
        asked.append(part)
        return scores(part, x, x_squared)

    monkeypatch.setattr(FactorPart, "log_joint", counting)
    earlier, x = random_parts(2, 3), torch.randn(8, 5)
    later = FactorDensity((earlier.parts[0], *random_parts(1, 2, seed=4).parts))
    known: Parts = {}
    earlier.score(x, known)
    shared = later.score(x, known)
    assert asked == [*earlier.parts, *later.parts[1:]]
    assert set(known) == {*earlier.parts, *later.parts}
    assert torch.equal(shared.joint, later.score(x).joint)


def test_a_device_scores_parts_in_one_product_and_they_say_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier, x = random_parts(2, 1, 3), torch.randn(9, 5)
    later = FactorDensity((earlier.parts[0], *random_parts(1, 2, seed=4).parts))
    apart = [(one.score(x), one.conformity(x, one.score(x))) for one in (earlier, later)]
    monkeypatch.setattr(blocks, "ALL_AT_ONCE", True)
    joined = []
    join = Analyser.joined
    monkeypatch.setattr(Analyser, "joined", lambda parts: joined.append(len(parts)) or join(parts))
    for _ in range(3):
        known: Parts = {}
        for one, (scored, conformity) in zip((earlier, later), apart, strict=True):
            said = one.score(x, known)
            torch.testing.assert_close(said.joint, scored.joint)
            torch.testing.assert_close(one.conformity(x, said), conformity)
        for part, columns in known.items():
            torch.testing.assert_close(columns, part.log_joint(x, x.square()))
    # Each set of parts once: all of the earlier, what is new in the later, all of the later.
    assert [n for n in joined if n > 1] == [3, 2, 3]


@pytest.mark.parametrize("missing", ["log_weights", "means", "loadings", "noise", "floor", "sizes"])
def test_a_missing_part_is_noticed(missing: str) -> None:
    density = random_density()
    tensors, facts = density.tensors(), density.facts()
    (tensors if missing in tensors else facts).pop(missing)
    with pytest.raises(KeyError, match=missing):
        FactorDensity.of(tensors, facts)


@pytest.mark.parametrize("scale", [1.0, 40.0], ids=["left as it is", "standardised"])
def test_a_snapshot_goes_through_bytes_and_answers_the_same(scale: float) -> None:
    engine = Engine(EngineConfig(n_components=12, n_factors=3))
    stream = list(batches([0, 1, 2], 8))
    for batch in stream:
        batch.features.mul_(scale)
    state, _ = play(engine, engine.start(), list(stream))
    snapshot = engine.snapshot(state)
    assert isinstance(snapshot.model.density, FactorDensity)
    data = snapshot.to_bytes({"entry": "7-0"})
    again, text = Snapshot.from_bytes(data)
    assert text == {"entry": "7-0"}
    assert again.info == snapshot.info
    assert_identical(again.model, snapshot.model)
    assert again.to_bytes({"entry": "7-0"}) == data
    x = torch.cat([blob(label, 20, seed=5) for label in (0, 1, 2)]) * scale
    told, kept = again.classify(x, unknown_rate=0.1), snapshot.classify(x, unknown_rate=0.1)
    for ours, theirs in zip(told[:6], kept[:6], strict=True):
        assert isinstance(ours, torch.Tensor)
        assert isinstance(theirs, torch.Tensor)
        assert torch.equal(ours, theirs)
    assert told[6:] == kept[6:]
    for ours, theirs in zip(
        again.sample(9, [1], seed=3), snapshot.sample(9, [1], seed=3), strict=True
    ):
        assert torch.equal(ours, theirs)
