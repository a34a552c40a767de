"""Tests for the core.engine.trial module: checkpoints forged with a right checksum."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

import pytest
import torch

from core.batch import Batch
from core.config import EngineConfig
from core.engine.checkpoint import FORMAT, dump, load
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.engine.trial import check_values, try_out
from core.errors import InvalidCheckpoint
from core.tensors import pack, unpack

D = 4


def batches(n: int, seed: int = 0) -> list[Batch]:
    generator = torch.Generator().manual_seed(seed)
    return [
        Batch.of(torch.rand(20, D, generator=generator) + 3 * (i // 8 % 2), [i // 8 % 2] * 20)
        for i in range(n)
    ]


def engine_of(preset: str) -> Engine:
    return Engine(EngineConfig(preset=preset, n_components=9, warm_up=100, experts=preset == "mfa"))


@functools.cache
def taught(preset: str, n: int = 12) -> tuple[Engine, bytes]:
    engine = engine_of(preset)
    state = engine.start()
    for batch in batches(n):
        state, _ = engine.step(state, batch)
    return engine, dump(state, engine.config, {})


def taken(engine: Engine, data: bytes) -> EngineState:
    """As a trainer takes an upload over."""
    state, _, _ = load(data)
    check_values(state)
    restored, _ = engine.restore(engine.start(), state, "checkpoint")
    try_out(engine, restored)
    return restored


def edited(data: bytes, place: str, value: object) -> bytes:
    """With another value in the JSON of the state, and a checksum that is right."""
    tensors, text = unpack(FORMAT, data)
    tree = json.loads(text["state"])
    part, _, name = place.rpartition(".")
    here = tree
    for step in part.split("."):
        here = here[step]
    assert name in here
    here[name] = value
    return pack(FORMAT, tensors, {**text, "state": json.dumps(tree)})


@pytest.mark.parametrize("preset", ["mfa", "flat", "paper"])
@pytest.mark.parametrize("n", [0, 1, 12])
def test_what_an_engine_wrote_is_taken_back(preset: str, n: int) -> None:
    engine, data = taught(preset, n)
    restored = taken(engine, data)
    assert restored.model.samples_seen == 20 * restored.model.batches_seen


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("model.last_version", 2**64 - 1),
        ("model.version", 2**63),
        ("model.version", -1),
        ("model.samples_seen", -5),
        ("model.classes", [0, 0]),
        ("model.class_counts", [1]),
        ("stream.batches", 2**63),
        ("sub_task.log_likelihood.mean", float("nan")),
    ],
)
def test_counters_that_cannot_be_are_refused(place: str, value: object) -> None:
    engine, data = taught("mfa")
    with pytest.raises(InvalidCheckpoint, match="sense"):
        taken(engine, edited(data, place, value))


@pytest.mark.parametrize(
    ("field", "value"),
    [("codes", 9), ("codes", -1), ("masses", 0), ("newest", 10**6), ("newest", -1)],
)
def test_clusters_that_loops_could_not_go_through_are_refused(field: str, value: int) -> None:
    engine, data = taught("mfa")
    tensors, text = unpack(FORMAT, data)
    tree = json.loads(text["state"])
    fields = ("places", "codes", "masses", "newest")
    name = tree["model"]["panel"]["neighbours"]["clusters"][fields.index(field)]
    tensors[name][3] = value
    with pytest.raises(InvalidCheckpoint, match="clusters name what there is not"):
        taken(engine, pack(FORMAT, tensors, text))


@pytest.mark.parametrize("size", [-1, 10**6])
def test_as_many_clusters_as_there_are_not_are_refused(size: int) -> None:
    engine, data = taught("mfa")
    with pytest.raises(InvalidCheckpoint, match="micro-clusters are used"):
        taken(engine, edited(data, "model.panel.neighbours.size", size))


@pytest.mark.parametrize(
    ("field", "value", "match"),
    [
        ("taken_for", torch.tensor([9, 9]), "new names name what there is not"),
        ("taken_for", torch.tensor([-2, 0]), "new names name what there is not"),
        ("share", torch.zeros(1, dtype=torch.float64), "new names have a wrong shape"),
        ("came", torch.zeros(2, 2, dtype=torch.float64), "new names have a wrong shape"),
        ("heard", torch.zeros(1, dtype=torch.float64), "how classes were called have a wrong"),
        ("own", torch.zeros(2, 2, dtype=torch.float64), "how classes were called have a wrong"),
    ],
)
def test_new_names_that_loops_could_not_count_are_refused(
    field: str, value: torch.Tensor, match: str
) -> None:
    engine, data = taught("mfa")
    tensors, text = unpack(FORMAT, data)
    name = json.loads(text["state"])["model"]["panel"]["new_names"][field]
    assert len(tensors[name]) == 2
    tensors[name] = value
    with pytest.raises(InvalidCheckpoint, match=match):
        taken(engine, pack(FORMAT, tensors, text))


@pytest.mark.parametrize(
    ("field", "shape"),
    [("squares", (3, 2, 1, 1)), ("squares", (3, 1, 1, 1)), ("sums", (3, 2, 1)), ("mass", (1, 2))],
)
def test_sums_that_loops_could_not_add_to_are_refused(field: str, shape: tuple[int, ...]) -> None:
    engine, data = taught("mfa")
    tensors, text = unpack(FORMAT, data)
    name = json.loads(text["state"])["model"]["panel"]["gaussians"][field]
    assert tensors[name].shape != shape
    tensors[name] = torch.ones(shape, dtype=torch.float64)
    with pytest.raises(InvalidCheckpoint, match="sums of its Gaussians have a wrong shape"):
        taken(engine, pack(FORMAT, tensors, text))


def altered(data: bytes, generator: random.Random) -> bytes:
    """One tensor or one leaf of the JSON is another, and the checksum is right."""
    tensors, text = unpack(FORMAT, data)
    tree = json.loads(text["state"])
    if generator.random() < 0.6:
        name = generator.choice(sorted(name for name, one in tensors.items() if one.numel()))
        tensors[name] = _tensor(tensors[name], generator)
    else:
        leaves = [(here, key) for here, key in _leaves(tree) if not _is_tensor(here[key], tensors)]
        here, key = generator.choice(leaves)
        here[key] = generator.choice(
            [-5, 0, 2**63, 2**64 - 1, -(2**63), 1e308, float("nan"), "x", None, [], {}, True]
        )
    return pack(FORMAT, tensors, {**text, "state": json.dumps(tree)})


def _tensor(tensor: torch.Tensor, generator: random.Random) -> torch.Tensor:
    match generator.randrange(6):
        case 0 if tensor.is_floating_point():
            return torch.full_like(tensor, float("nan"))
        case 1 if tensor.is_floating_point():
            return torch.full_like(tensor, float("inf"))
        case 2:
            return tensor[..., : tensor.shape[-1] // 2].clone() if tensor.dim() else tensor
        case 3:
            return tensor[: len(tensor) // 2].clone() if tensor.dim() else tensor
        case 4:
            return tensor.reshape(-1)
    return -tensor if tensor.is_floating_point() else torch.zeros_like(tensor)


def _leaves(tree: Any) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in pairs:
        if isinstance(value, dict | list) and value:
            found += _leaves(value)
        else:
            found.append((tree, key))
    return found


def _is_tensor(value: object, tensors: dict[str, torch.Tensor]) -> bool:
    return isinstance(value, str) and value in tensors


@pytest.mark.parametrize("preset", ["mfa", "flat"])
def test_what_is_taken_over_can_be_gone_on_from(preset: str) -> None:
    engine, data = taught(preset)
    generator, refused, taken_over = random.Random(7), 0, 0
    for trial in range(24):
        forged = altered(data, generator)
        try:
            state = taken(engine, forged)
        except Exception:  # of which a trainer makes an InvalidCheckpoint
            refused += 1
            continue
        taken_over += 1
        for batch in batches(10, seed=trial):
            state, _ = engine.step(state, batch)
        state, _ = engine.declare_boundary(state)
        x = batches(1, seed=99)[0].features
        assert engine.snapshot(state).outliers(x).log_likelihoods.isfinite().all()
        assert engine.snapshot(state).classify(x).probabilities.isfinite().all()
    assert refused > 5
    assert taken_over > 5
