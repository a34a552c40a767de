"""Whether a state from elsewhere makes sense: its values first, then a few steps on a copy.

A checksum says that bytes are as they were written, not that what was written can be lived with.
States are immutable, so trying one changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from core.batch import Batch, Label
from core.engine.engine import Engine
from core.engine.state import EngineState, Rest
from core.errors import InvalidCheckpoint, ModelNotReady
from core.experts.gaussians import HORIZONS, Gaussians
from core.experts.growing import Trees
from core.experts.neighbours import Neighbours
from core.experts.new_names import NO_OTHER, NewNames
from core.snapshot import Snapshot

MOST = 2**62
"""No number of a state is larger: counters must have room to grow within 63 bits."""

NAMES = frozenset({"classes", "vocabulary", "sample_ids", "ids", "label", "labels", "name"})
"""Fields that hold what senders call things, which may be any integer."""

TRIED = 64
"""Samples of each batch of the trial."""


def check_values(state: EngineState) -> None:
    """Return where every number of a state is one that it may be.

    What detectors remember is not looked at: an uploaded state begins with a new one.

    Raises:
        InvalidCheckpoint: A counter is negative or too large, or a number is none.
    """
    model, stream, sub_task = state.model, state.stream, state.sub_task
    counters = {
        "version": model.version,
        "last_version": model.last_version,
        "samples_seen": model.samples_seen,
        "batches_seen": model.batches_seen,
        "batches": stream.batches,
        "samples": stream.samples,
        "sub_task": sub_task.number,
        "first_batch": sub_task.first_batch,
        "first_sample": sub_task.first_sample,
        "boundaries": state.past.boundaries,
        **{f"class_counts[{code}]": count for code, count in enumerate(model.class_counts)},
    }
    for name, count in counters.items():
        if not 0 <= count <= MOST:
            raise _senseless(f"{name} is {str(count)[:40]}, expected 0 to {MOST}")
    if model.version > model.last_version:
        raise _senseless(f"version {model.version} is above the last, {model.last_version}")
    if len(model.class_counts) != len(model.classes):
        raise _senseless(f"{len(model.classes)} classes have {len(model.class_counts)} counts")
    if len(set(model.classes)) != len(model.classes):
        raise _senseless("a class is named twice")
    for part in ("model", "stream", "sub_task", "past", "pending"):
        for path, value in _values(getattr(state, part), part):
            if isinstance(value, int) and abs(value) > MOST:
                raise _senseless(f"{path} is {str(value)[:40]}, expected at most {MOST}")
            if not math.isfinite(value):
                raise _senseless(f"{path} is not a finite number")


def try_out(engine: Engine, state: EngineState) -> None:
    """Return where a state answers, learns, settles and crosses a boundary.

    Raises:
        InvalidCheckpoint: What it answers is no number.
        Exception: Whatever else stops it.
    """
    standardiser = state.model.standardiser
    if standardiser is None:
        return
    state = replace(state, rest=Rest())  # whatever mode it is taken over in
    generator = torch.Generator().manual_seed(0)
    shift, scale = standardiser.shift.cpu(), standardiser.scale.cpu()
    x = shift + scale * torch.rand(TRIED, len(shift), generator=generator) / 10
    if state.model.panel is not None:
        n_features = len(state.model.panel.orientation)
        check_sums(state.model.panel.gaussians, n_features)
        check_trees(state.model.panel.forests.trees, n_features)
        check_clusters(state.model.panel.neighbours, n_features)
        check_new_names(state.model.panel.new_names)
    _answers(engine, state, x)
    batches = [Batch.of(x)]
    if classes := state.model.classes:
        named: list[Label | None] = [classes[index % len(classes)] for index in range(TRIED)]
        batches += [Batch.of(x, named), Batch.of(x, named[::-1])]
    for batch in batches:
        state, _ = engine.step(state, batch)
    state, _ = engine.settle(state)
    state, _ = engine.declare_boundary(state)
    check_values(state)
    _answers(engine, state, x)


def _answers(engine: Engine, state: EngineState, x: Tensor) -> None:
    try:
        snapshot: Snapshot = engine.snapshot(state)
        answers = [snapshot.outliers(x).log_likelihoods, snapshot.sample(2).features]
        if state.model.classes:
            answers.append(snapshot.classify(x).probabilities)
    except ModelNotReady:
        return
    if not all(bool(answer.isfinite().all()) for answer in answers):
        raise _senseless("its model answers with numbers that are none")


def _values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every number of a part, with its place; of a tensor whether all are finite."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield path, 0.0 if bool(value.isfinite().all()) else float("nan")
    elif isinstance(value, bool) or value is None or isinstance(value, str):
        return
    elif isinstance(value, int | float):
        yield path, value
    elif is_dataclass(value):
        for field in fields(value):
            if field.name not in NAMES:
                yield from _values(getattr(value, field.name, None), f"{path}.{field.name}")
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _values(one, f"{path}.{key}")
    elif isinstance(value, tuple | list):
        for index, one in enumerate(value):
            yield from _values(one, f"{path}[{index}]")


def check_sums(gaussians: Gaussians, n_features: int) -> None:
    """Return where compiled loops, which check no bounds, may add to these sums.

    Raises:
        InvalidCheckpoint: They are not all of the same horizons, classes and features.
    """
    shape, d = tuple(gaussians.mass.shape), n_features
    if (
        len(shape) != 2
        or not 1 <= shape[0] <= len(HORIZONS)
        or gaussians.mass_squares.shape != shape
        or gaussians.sums.shape != (*shape, d)
        or gaussians.squares.shape not in ((*shape, d, d), (shape[0], 1, d, d))
    ):
        raise _senseless("the sums of its Gaussians have a wrong shape")


def check_trees(trees: Trees, n_features: int) -> None:
    """Return where compiled loops, which check no bounds, may walk through these trees.

    Raises:
        InvalidCheckpoint: A node names a feature, a child or a leaf that there is not.
    """
    t = SimpleNamespace(
        **{name: torch.from_numpy(array) for name, array in trees._asdict().items()}
    )
    n_trees, n_nodes = t.features.shape
    leaves, tests, n_classes = t.tests.shape[1], t.tests.shape[2], t.counts.shape[2]
    shapes = {
        "features": (n_trees, n_nodes),
        "thresholds": (n_trees, n_nodes),
        "children": (n_trees, n_nodes),
        "counts": (n_trees, n_nodes, n_classes),
        "totals": (n_trees, n_nodes),
        "sizes": (n_trees,),
        "tests": (n_trees, leaves, tests),
        "cuts": (n_trees, leaves, tests),
        "tallies": (n_trees, leaves, tests, 2, n_classes),
        "ready": (n_trees, leaves),
        "seen": (n_trees, leaves),
        "drawn": (n_trees,),
        "weights": (n_trees,),
        "since": (n_trees,),
    }
    for name, shape in shapes.items():
        if getattr(t, name).shape != shape:
            raise _senseless(f"{name} of its trees has a wrong shape")
    node = torch.arange(n_nodes)
    used = node < t.sizes[:, None]
    inner = used & (t.features >= 0)
    leaf = used & ~inner
    wrong = (
        (t.sizes < 1).any()
        | (t.sizes > n_nodes).any()
        | (t.features >= n_features).any()
        | (t.tests >= n_features).any()
        | (inner & ((t.children <= node) | (t.children + 1 >= t.sizes[:, None]))).any()
        | (leaf & ((t.children < 0) | (t.children >= leaves))).any()
        | ((t.ready < 0) | (t.ready > tests)).any()
        | any((values < 0).any() for values in (t.seen, t.drawn, t.counts, t.tallies, t.weights))
    )
    if bool(wrong):
        raise _senseless("its trees name what there is not")


def check_clusters(neighbours: Neighbours, n_features: int) -> None:
    """Return where compiled loops, which check no bounds, may ask these micro-clusters.

    Raises:
        InvalidCheckpoint: A micro-cluster has no place, is of no class, or stands for nothing.
    """
    places, codes, masses, newest = map(torch.from_numpy, neighbours.clusters)
    room, size = len(codes), neighbours.size
    if places.shape != (n_features, room) or {masses.shape, newest.shape} != {(room,)}:
        raise _senseless("its micro-clusters have a wrong shape")
    if not 0 <= size <= room <= neighbours.most:
        raise _senseless(f"{size} of {room} micro-clusters are used, of {neighbours.most} at most")
    own = slice(0, size)
    wrong = (
        ~places[:, own].isfinite().all()
        | (codes[own] < 0).any()
        | (codes[own] >= neighbours.classes).any()
        | ~(masses[own] > 0).all()
        | ~masses[own].isfinite().all()
        | (newest[own] < 0).any()
        | (newest[own] >= neighbours.samples).any()
    )
    if bool(wrong) or not 0 <= neighbours.samples <= MOST:
        raise _senseless("its micro-clusters name what there is not")


def check_new_names(names: NewNames) -> None:
    """Return where compiled loops, which check no bounds, may count in these places of classes.

    Raises:
        InvalidCheckpoint: The parts are not of the same classes, or a class is taken for none.
    """
    n_classes = len(names.came)
    if {part.shape for part in (names.came, names.taken_for, names.share, names.new)} != {
        (n_classes,)
    }:
        raise _senseless("its counts of new names have a wrong shape")
    if bool(((names.taken_for < NO_OTHER) | (names.taken_for >= n_classes)).any()):
        raise _senseless("its counts of new names name what there is not")
    if len(names.later) not in (0, n_classes) or names.later.ndim != 1:
        raise _senseless("its later names have a wrong shape")
    if bool(((names.later < NO_OTHER) | (names.later >= n_classes)).any()):
        raise _senseless("its later names are of what there is not")
    counts = (names.heard, names.tried, names.own)
    if {part.shape for part in counts} not in ({(0,)}, {(n_classes,)}):
        raise _senseless("its counts of how classes were called have a wrong shape")


def _senseless(what: str) -> InvalidCheckpoint:
    return InvalidCheckpoint(
        f"The checkpoint makes no sense: {what}. Expected one that GET /model/checkpoint gave; "
        f"nothing was changed. Take another copy."
    )
