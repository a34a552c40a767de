"""What do rows of garbage among those of ordinary tables cost?

Tables at random, some of whose rows are replaced: by *garbage*, normal in every feature and a
hundred to ten thousand deviations wide, or by *codes*, -999 in every feature. They keep the label
of the row in whose place they come, as a broken sensor's would. Everybody names a batch, then
learns it, strays and all; what counts is how many of the other rows are named rightly. Beside the
engine as it is served stands the mixture alone, without experts, by which densities, p-values and
samples are made.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._arithmetic import as_in_the_trainer
from benchmarks.classification import registry
from benchmarks.classification.cell import made
from benchmarks.classification.rivers import MODELS
from benchmarks.classification.stream import LabelledStream
from benchmarks.classification.units import AS_IS
from clients.commands.bench import Measurement, Say, Table

STREAMS = (
    "segments-random",
    "ad-pendigits",
    "ad-satellite",
    "digits-random",
    "phishing-random",
    "sea-file",
)
SAMPLES = 5000
BATCH = 100
SHARES = (0.0, 0.003, 0.01, 0.03, 0.1)
KINDS = ("garbage", "codes")
CODE = -999.0
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "mfa": ("mfa", {}),
    "flat": ("flat", {}),
    "mfa, mixture": ("mfa", {"experts": False}),
    "flat, mixture": ("flat", {"experts": False}),
    **{name: (name, {}) for name in ("knn-scaled", "sam-knn-scaled", "arf", "naive-bayes")},
}
"""Name in the table -> opponent and its settings."""

Features = NDArray[Any]


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Quick: one stream of 1,000 samples, two shares, the engine alone."""
    streams, samples = (STREAMS[-1:], 1000) if quick else (STREAMS, SAMPLES)
    shares, seed = (SHARES[::3] if quick else SHARES), 0
    systems = [name for name, (opponent, _) in SYSTEMS.items() if _at_hand(opponent, quick)]
    tables, values = [], []
    for kind in KINDS:
        rows = []
        for name in systems:
            found = []
            for share in shares:
                scores = [
                    _accuracy(name, made(stream, AS_IS, samples, seed), kind, share, seed)
                    for stream in streams
                ]
                found.append(float(np.mean(scores)))
                values.append(
                    {"kind": kind, "system": name, "share": share, "accuracy": found[-1]}
                    | dict(zip(streams, scores, strict=True))
                )
            rows.append((name, *(f"{100 * one:.1f}" for one in found)))
            say(f"{kind}  {'  '.join(rows[-1])}")
        columns = ("system", *(f"{100 * share:g} %" for share in shares))
        title = f"Accuracy on the rows that are no strays, %, by the share of strays: {kind}"
        tables.append(Table(title, columns, tuple(rows)))
    return Measurement(tuple(tables), {"results": values})


def _at_hand(opponent: str, quick: bool) -> bool:
    """Whether somebody can take part; when quick, only the engine does."""
    if registry.is_ours(opponent):
        return True
    return not quick and (opponent not in MODELS or registry.has_river())


def _accuracy(system: str, stream: LabelledStream, kind: str, share: float, seed: int) -> float:
    """Share of the rows that are no strays that are named rightly, before they are learned."""
    name, settings = SYSTEMS[system]
    opponent = registry.make(name, stream, seed, settings)
    x, astray = with_strays(stream.x, kind, share, seed)
    hits = np.zeros(len(x), np.bool_)
    for begin in range(0, len(x), BATCH):
        rows = slice(begin, begin + BATCH)
        hits[rows] = opponent.predict(x[rows]) == stream.y[rows]
        opponent.learn(x[rows], stream.y[rows])
    return float(hits[~astray].mean())


def with_strays(
    x: Features, kind: str, share: float, seed: int
) -> tuple[Features, NDArray[np.bool_]]:
    """Samples (N, D) with strays among them, and which ones these are, with shape (N,).

    Arguments:
        kind: One of `KINDS`.
        share: Of the rows, 0 to 1.
    """
    rng = np.random.default_rng([seed, 2])
    astray = rng.random(len(x)) < share
    n, d = int(astray.sum()), x.shape[1]
    found = x.astype(np.float32, copy=True)
    if kind == "codes":
        found[astray] = CODE
    else:
        times = 10 ** rng.uniform(2, 4, size=(n, 1))
        found[astray] = x.mean(0) + times * x.std(0) * rng.normal(size=(n, d))
    return found, astray
