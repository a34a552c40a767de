"""How many samples a second does the service learn that programs send one by one?

Four connections send `POST /ingest` with one sample of 20 features each, from four clusters, as
fast as they are answered. Once each sample is a batch of its own, as by default; once those that
wait are joined (`GMR_JOIN_SAMPLES`). The clock runs from the first timed request until GET /model
says that everything is learned and served; before it, batches of a hundred have started the model.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.commands.bench import Measurement, Say, Table
from clients.evaluation.local import LocalService
from clients.http.client import GMRClient

D = 20
CONNECTIONS = 4
WARM_UP = 2000
JOINED = 100
SAMPLES = {1: 1200, JOINED: 12_000}
"""Timed samples by what is joined: about as long for both."""

QUICK = {1: 40, JOINED: 200}
PRESETS = ("mfa", "flat")


def measure(quick: bool, say: Say) -> Measurement:
    """A fresh service for each preset, with and without labels, alone and joined."""
    rows: list[tuple[str, ...]] = []
    values: dict[str, Any] = {}
    for preset in PRESETS[:1] if quick else PRESETS:
        for labelled in (True, False):
            name = "labelled" if labelled else "unlabelled"
            found = {}
            for joined, n in (QUICK if quick else SAMPLES).items():
                say(f"{preset}, {name}, up to {joined} learned as one: {n:,} samples")
                found[joined] = _one(preset, n, joined, labelled=labelled)
            alone, together = found[1], found[JOINED]
            values.setdefault(preset, {})[name] = {"alone": alone, "joined": together}
            rows.append(
                (
                    preset,
                    name,
                    f"{alone['learned_per_second']:,.0f}",
                    f"{together['learned_per_second']:,.0f}",
                    f"{together['accepted_per_second']:,.0f}",
                    f"{together['learned_per_second'] / alone['learned_per_second']:.1f}",
                    f"{together['samples_per_step']:.0f}",
                )
            )
    columns = (
        "preset",
        "samples",
        "alone, learned/s",
        "joined, learned/s",
        "joined, accepted/s",
        "times",
        "samples a step",
    )
    title = f"d = {D}, one sample a request, {CONNECTIONS} connections"
    return Measurement(tables=(Table(title, columns, tuple(rows)),), values=values)


def _one(preset: str, n: int, joined: int, *, labelled: bool) -> dict[str, float]:
    x, y = _clusters(n + WARM_UP)
    settings = {"preset": preset, "join_samples": joined}
    with LocalService(settings=settings) as service, GMRClient(service.url) as client:
        for start in range(0, WARM_UP, 100):
            some = slice(start, start + 100)
            client.ingest(x[some], y[some] if labelled else None)
        before = client.wait_until_learned()

        def send(first: int) -> None:
            with GMRClient(service.url) as own:
                for i in range(WARM_UP + first, WARM_UP + n, CONNECTIONS):
                    own.ingest(x[i : i + 1], y[i : i + 1] if labelled else None)

        begun = time.perf_counter()
        with ThreadPoolExecutor(CONNECTIONS) as pool:
            list(pool.map(send, range(CONNECTIONS)))
        accepted = time.perf_counter() - begun
        after = client.wait_until_learned()
        learned = time.perf_counter() - begun
    return {
        "learned_per_second": n / learned,
        "accepted_per_second": n / accepted,
        "samples_per_step": n / (after.batches_seen - before.batches_seen),
    }


def _clusters(n: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    generator = np.random.default_rng(0)
    centres = 3 * generator.normal(size=(4, D))
    y = generator.integers(0, len(centres), n)
    return (centres[y] + generator.normal(size=(n, D))).astype(np.float32), y
