"""Tests for the core.engine.warm_up module: afterwards nothing is left to compile."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import torch

import core
from core.batch import Batch
from core.config import EngineConfig
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.engine.warm_up import warm_up
from core.events import BoundaryDetected, PriorShift
from core.snapshot import Snapshot
from tests.core.states import play
from tests.core.streams import batches, blob

ROOT = Path(__file__).parents[3]


def loops() -> dict[str, Any]:
    """Every compiled loop."""
    found = {}
    for info in pkgutil.walk_packages(core.__path__, "core."):
        for name, value in vars(importlib.import_module(info.name)).items():
            if isinstance(value, numba.core.dispatcher.Dispatcher):
                found[f"{value.__module__}.{name}"] = value
    return found


def signatures() -> dict[str, list[object]]:
    """Of every compiled loop, for which types of arguments it has been."""
    return {name: list(loop.signatures) for name, loop in loops().items()}


def compiled_anew(loop: Any) -> int:
    """How often a loop was not found among those that are kept."""
    return sum(loop.stats.cache_misses.values())


def warm_up_and_live() -> None:
    """In a process where nothing has been compiled or loaded before."""
    assert not any(signatures().values())
    warm_up()
    before = signatures()
    assert len(before) >= 15
    for preset in ("mfa", "flat"):
        engine = Engine(EngineConfig(preset=preset, n_components=12, n_factors=3))
        usual = list(batches([0, 1], 25, seed=1))
        outliers = [Batch(blob(7, 5, seed=4)) for _ in range(3)]
        shift, new = batches([0], 8, seed=2), batches([2], 8, seed=3)
        unlabelled = batches([0, 2], 4, seed=5, labelled=False)
        huge = batches([0, 2], 1, size=1500, seed=6)
        state, _ = play(engine, engine.start(), usual)
        # What comes from a checkpoint is of the same types.
        state, *_ = load(dump(state, engine.config, {}))
        _, events = play(engine, state, [*outliers, *shift, *new, *unlabelled, *huge])
        kinds = {type(event) for event in events}
        assert {PriorShift, BoundaryDetected} <= kinds
        # Nor does naming by what was published, of which other processes are told.
        snapshot, _ = Snapshot.from_bytes(engine.snapshot(state).to_bytes({}))
        snapshot.classify(blob(0, 3, seed=7))
    wide = Engine(EngineConfig(n_components=4, n_factors=3))
    generator = torch.Generator().manual_seed(0)
    play(wide, wide.start(), [Batch(torch.rand(100, 200, generator=generator)) for _ in range(14)])
    after, misses = signatures(), sum(map(compiled_anew, loops().values()))
    print("anew" if misses else "kept")
    assert [name for name in after if after[name] != before[name]] == []


def test_after_a_warm_up_a_life_compiles_nothing_more() -> None:
    """Not in this process, where other tests have had the loops compiled already.

    Once more where loops were compiled: what is compiled anew brings the loops that it calls, what
    was kept does not.
    """
    script = f"from {__name__} import warm_up_and_live; warm_up_and_live()"
    said = []
    while said[-1:] != ["kept"]:
        run = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr
        said.append(run.stdout.strip())
        assert len(said) <= 2, "nothing that was compiled is kept"
