"""How often is the next label named on streams whose labels change their meaning?

The streams of tables in the data folder, in their own order, in batches of 100: each batch is
named by what was learned before it (*prequential* accuracy, Gama et al. 2013), then learned. Beside
the engine, alone and with default settings, stand River's Hoeffding tree, its adaptive one, naive
Bayes and the adaptive random forest, with its defaults too, and the last label as a guess for all
of the next batch. River needs `pip install -e '.[river]'`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.classification.course import course
from benchmarks.classification.registry import has_river, is_ours, make
from benchmarks.classification.stream import LabelledStream
from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import load_dataset
from clients.http.errors import InputError

BATCH = 100

STREAMS = {
    "SEA": "stream_sea",
    "interchanging RBF": "stream_interrbf",
    "Electricity": "stream_elec2",
}
"""Name -> data set."""


def systems(quick: bool) -> tuple[str, ...]:
    """Every system, as `benchmarks.classification.registry` calls it; River's where installed."""
    ours = ("mfa", "flat", "last-label")
    theirs = ("naive-bayes", "hoeffding", "hoeffding-adaptive", "arf")
    return ours + (theirs[: 2 if quick else None] if has_river() else ())


def measure(quick: bool, say: Say) -> Measurement:
    """Quick: 3,000 made-up samples of two classes that change places once."""
    rows, values = [], []
    for name, data in _streams(quick, say):
        for system in systems(quick):
            found = course(make(system, data, 0, {}), data, BATCH)
            boundaries = found.boundaries
            # The engine's step names every batch anyhow, to test itself.
            naming = 0.0 if is_ours(system) else found.predict_seconds
            seconds = naming + found.learn_seconds
            row = (
                name,
                system,
                f"{100 * found.accuracy:.1f}",
                f"{100 * found.worst_tenth:.1f}",
                "" if boundaries is None else f"{len(boundaries)}",
                f"{1e6 * seconds / len(data):,.0f}",
            )
            say("  ".join(row))
            rows.append(row)
            values.append(
                {
                    "stream": name,
                    "samples": len(data),
                    "changes": list(data.changes),
                    "system": system,
                    "accuracy": 100 * found.accuracy,
                    "tenths": [100 * tenth for tenth in found.tenths],
                    "boundaries": list(boundaries or ()),
                    "seconds": seconds,
                }
            )
    columns = ("stream", "system", "accuracy, %", "worst tenth", "boundaries", "us per sample")
    title = "Next labels named, each batch before it is learned"
    return Measurement((Table(title, columns, tuple(rows)),), {"results": values})


def _streams(quick: bool, say: Say) -> Iterator[tuple[str, LabelledStream]]:
    if quick:
        yield "made up", _made_up(3000)
        return
    for name, source in STREAMS.items():
        try:
            data = load_dataset(source)
        except InputError as error:
            say(f"{name} is left out: {error}")
            continue
        x, y = np.asarray(data.train_x, dtype=np.float32), data.train_y.astype(np.int64)
        yield name, LabelledStream(name, x, y, tuple(map(int, data.drift_points)))


def _made_up(n: int) -> LabelledStream:
    """Two Gaussian clouds that swap their labels at the middle."""
    rng = np.random.default_rng(0)
    cloud = rng.integers(0, 2, n)
    x = (rng.normal(size=(n, 4)) + 6 * cloud[:, None]).astype(np.float32)
    y = np.where(np.arange(n) < n // 2, cloud, 1 - cloud)
    return LabelledStream("made up", x, y, (n // 2,))
