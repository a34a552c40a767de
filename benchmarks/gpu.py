"""What is a GPU worth, and does a stream give the same model there each time?

The engine alone, on the card that torch sees first and on one thread of the same machine. A step
is timed from a batch on the CPU to the new state, all that the card was asked for included. Kernels
and waits of a step are counted by torch's profiler. A stream of five sub-tasks is learned twice on
the card, and once on the CPU: the first two have to end in the same bytes, and all of them have to
find the same boundaries. What was aimed at stands beside what was measured.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from benchmarks._arithmetic import as_in_the_trainer
from benchmarks._images import Images, images
from clients.commands.bench import Measurement, Say, Table
from clients.http.errors import InputError
from core.config import EngineConfig
from core.density.factor_mixture import FactorMixture, log_joint, whitened_form
from core.engine.checkpoint import dump
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.events import BoundaryDetected
from core.snapshot import Snapshot

CPU = torch.device("cpu")
PRESETS = ("mfa", "flat")
BATCHES = (100, 1000)
REQUESTS = (1, 100, 1000)
PAIRS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
"""Classes of the five sub-tasks."""

RATES = {("mfa", 100): 80_000, ("mfa", 1000): 400_000}
ANSWERS_MS = {1: 0.15, 1000: 0.6}
KERNELS, WAITS, PEAK = 15, 1, 0.6
"""Aims: samples a second that are learned; milliseconds of an answer to so many samples; kernels
and waits of a step; share of the card's own product that scoring comes to."""


class Steps(NamedTuple):
    """What steps took."""

    median_ms: float
    mean_ms: float
    rate: float  # samples a second
    kernels: float  # of a step
    waits: float  # of a step
    busy: float  # share of the time in which the card computed, 0 to 1


class Lived(NamedTuple):
    """A stream of sub-tasks, learned."""

    digest: str  # of the checkpoint at the end
    boundaries: tuple[int, ...]  # batches
    accuracy: float  # percent


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Quick: digits that ship with scikit-learn, which keep no card busy."""
    if not torch.cuda.is_available():
        raise InputError(
            "This benchmark measures a GPU, and torch sees none. Run it where `nvidia-smi` lists "
            "one, with a build of torch for CUDA."
        )
    card = torch.device("cuda")
    name, n = ("digits", 1000) if quick else ("mnist", 20_000)
    learned, asked = images(name, n)
    values: dict[str, Any] = {"card": torch.cuda.get_device_name(), "torch": torch.__version__}
    tables = [_card(card, values)]
    rows, answers = [], []
    for preset in PRESETS:
        for size in BATCHES:
            say(f"{preset}, batches of {size}")
            there, model = steps(preset, card, learned, size)
            here, other = steps(preset, CPU, learned, size)
            values[f"learning_{preset}_{size}"] = there._asdict()
            values[f"learning_{preset}_{size}_cpu"] = here._asdict()
            rows.append(_learning_row(preset, size, there, here))
        for n_asked in REQUESTS:
            x = asked.x[:n_asked]
            times = [_median_ms(_asking(one, x), 5 if quick else 30) for one in (model, other)]
            values[f"answer_{preset}_{n_asked}"] = times
            answers.append(_answer_row(preset, n_asked, *times))
    tables.append(Table("Learning", _LEARNING, tuple(rows)))
    tables.append(Table("Answers, classes and p-values", _ANSWERS, tuple(answers)))
    say("products")
    tables.append(_scoring(card, values, 64 if quick else 784))
    tables.append(_lives(card, learned, asked, values, say))
    return Measurement(tuple(tables), values)


# Learning and answering -------------------------------------------------------------------


def steps(preset: str, device: torch.device, learned: Images, size: int) -> tuple[Steps, Snapshot]:
    """Learn; the second half is timed, and then a few batches more are counted.

    Returns:
        What a step takes, and the model at the end.
    """
    engine = Engine(EngineConfig(preset=preset), device)
    state, taken = engine.start(), []
    half = len(learned.x) // 2
    for begin in range(0, len(learned.x), size):
        (batch,) = learned.batches(begin, min(begin + size, len(learned.x)), size)
        begun = time.perf_counter()
        state, _ = engine.step(state, batch)
        _wait(device)
        if begin >= half:
            taken.append(time.perf_counter() - begun)
    timed = len(learned.x) - half
    kernels, waits, busy = 0.0, 0.0, 0.0
    if device.type == "cuda":
        kernels, waits, computed = _counted(engine, state, learned, size)
        busy = computed / statistics.mean(taken)
    return Steps(
        1e3 * statistics.median(taken),
        1e3 * statistics.mean(taken),
        timed / sum(taken),
        kernels,
        waits,
        busy,
    ), engine.snapshot(state)


def _counted(
    engine: Engine, state: EngineState, learned: Images, size: int
) -> tuple[float, float, float]:
    """Kernels and waits of a step, and seconds for which the card computed."""
    batches = learned.batches(0, min(len(learned.x), 10 * size), size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the profiler: that it keeps one cycle
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
            for batch in batches:
                state, _ = engine.step(state, batch)
            _wait(engine.device)
    events = found.key_averages()
    done = [one for one in events if one.device_type.name == "CUDA"]
    copies = ("Memcpy", "Memset")
    kernels = sum(one.count for one in done if not one.key.startswith(copies))
    waits = sum(one.count for one in events if one.key == "cudaStreamSynchronize")
    computed = sum(one.self_device_time_total for one in done) / 1e6
    return kernels / len(batches), waits / len(batches), computed / len(batches)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _asking(model: Snapshot, x: Tensor) -> Callable[[], object]:
    def ask() -> object:
        return model.classify(x, p_values=True).codes.cpu()

    return ask


def _median_ms(called: Callable[[], object], times: int) -> float:
    called()  # what is computed once
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        called()
        taken.append(1e3 * (time.perf_counter() - begun))
    return statistics.median(taken)


_LEARNING = (
    "preset, batch",
    "ms a step, median",
    "mean",
    "samples/s",
    "aim",
    "CPU, samples/s",
    "times",
    "kernels",
    "waits",
    "card busy, %",
)


def _learning_row(preset: str, size: int, there: Steps, here: Steps) -> tuple[str, ...]:
    aim = RATES.get((preset, size))
    return (
        f"{preset}, {size:,}",
        f"{there.median_ms:.1f}",
        f"{there.mean_ms:.1f}",
        f"{there.rate:,.0f}",
        "" if aim is None else f"{aim:,}",
        f"{here.rate:,.0f}",
        f"{there.rate / here.rate:.1f}",
        f"{there.kernels:,.0f} (aim {KERNELS})",
        f"{there.waits:,.0f} (aim {WAITS})",
        f"{100 * there.busy:.0f}",
    )


_ANSWERS = ("preset, samples", "ms", "aim", "CPU, ms", "times")


def _answer_row(preset: str, n: int, there: float, here: float) -> tuple[str, ...]:
    aim = ANSWERS_MS.get(n) if preset == "mfa" else None
    return (
        f"{preset}, {n:,}",
        f"{there:.2f}",
        "" if aim is None else f"{aim}",
        f"{here:.2f}",
        f"{here / there:.1f}",
    )


# The card ---------------------------------------------------------------------------------


def _card(card: torch.device, values: dict[str, Any]) -> Table:
    """What it does by itself."""
    a = torch.rand(8192, 8192, device=card)
    values["product_tflops"] = 2 * 8192**3 / _seconds(lambda: a @ a) / 1e12
    values["copy_gb_s"] = 2 * a.nbytes / _seconds(a.clone) / 1e9
    one = torch.ones(1, device=card)
    values["launch_us"] = 1e6 * _seconds(lambda: [one.add_(1) for _ in range(1000)]) / 1000
    values["wait_us"] = 1e6 * _seconds(lambda: [one.item() for _ in range(1000)]) / 1000
    row = (
        values["card"],
        values["torch"],
        f"{values['product_tflops']:.0f}",
        f"{values['copy_gb_s']:,.0f}",
        f"{values['launch_us']:.1f}",
        f"{values['wait_us']:.1f}",
    )
    columns = ("card", "torch", "product, TFLOP/s", "copy, GB/s", "an operation, us", "a wait, us")
    return Table("The card, in single precision", columns, (row,))


def _seconds(called: Callable[[], object], times: int = 10) -> float:
    """Of one call, the median; what it asks of the card is waited for."""
    called()
    torch.cuda.synchronize()
    taken = []
    for _ in range(times):
        begun = time.perf_counter()
        called()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken)


def _scoring(card: torch.device, values: dict[str, Any], d: int) -> Table:
    """Scoring by 400 factor analysers, against a product of large matrices."""
    k, n_factors = 400, 20
    generator = torch.Generator().manual_seed(0)
    mixture = FactorMixture(
        torch.full((k,), 1 / k).log().to(card),
        torch.rand(k, d, generator=generator).to(card),
        (0.1 * torch.randn(k, d, n_factors, generator=generator)).to(card),
        torch.full((k, d), 0.05).to(card),
    )
    form, rows = whitened_form(mixture), []
    for n in (100, 1000, 4096):
        x = torch.rand(n, d, generator=generator).to(card)
        seconds = _seconds(lambda x=x: log_joint(form, x))  # type: ignore[misc]
        tflops = 2 * n * d * k * (n_factors + 2) / seconds / 1e12
        share = tflops / values["product_tflops"]
        values[f"scoring_{n}"] = {"ms": 1e3 * seconds, "tflops": tflops, "share": share}
        aim = f" (aim {PEAK:.0%})" if n == 4096 else ""
        rows.append((f"{n:,}", f"{1e3 * seconds:.3f}", f"{tflops:.1f}", f"{share:.0%}{aim}"))
    columns = ("samples", "ms", "TFLOP/s", "of a product")
    return Table(f"Scoring by {k} components, {d} features", columns, tuple(rows))


# The same stream --------------------------------------------------------------------------


def _lives(
    card: torch.device, learned: Images, asked: Images, values: dict[str, Any], say: Say
) -> Table:
    rows = []
    for preset in (*PRESETS, "paper", "dcgmm"):
        say(f"{preset}, five sub-tasks, three times")
        first, again, here = (live(preset, one, learned, asked) for one in (card, card, CPU))
        values[f"life_{preset}"] = [one._asdict() for one in (first, again, here)]
        rows.append(
            (
                preset,
                "yes" if first.digest == again.digest else "NO",
                "yes" if first.boundaries == here.boundaries else "NO",
                f"{len(first.boundaries)} of {len(PAIRS) - 1}",
                f"{first.accuracy:.2f}",
                f"{here.accuracy:.2f}",
            )
        )
    columns = (
        "preset",
        "twice the same bytes",
        "boundaries as on the CPU",
        "found",
        "accuracy, %",
        "CPU, %",
    )
    return Table("Five sub-tasks, boundaries to be found", columns, tuple(rows))


def live(preset: str, device: torch.device, learned: Images, asked: Images) -> Lived:
    """Learn pairs of classes, one after the other, in batches of 100."""
    engine = Engine(EngineConfig(preset=preset), device)
    state, boundaries = engine.start(), []
    for pair in PAIRS:
        own = learned.of(pair)
        for batch in own.batches(0, len(own.x), 100):
            state, events = engine.step(state, batch)
            found = [one for one in events if isinstance(one, BoundaryDetected)]
            boundaries += [one.batch_index for one in found]
    digest = sha256(dump(state, engine.config, {})).hexdigest()
    return Lived(digest, tuple(boundaries), accuracy(engine.snapshot(state), asked))


def accuracy(model: Snapshot, asked: Images) -> float:
    """Share of images that are named rightly, in percent."""
    parts = [model.classify(part).codes.cpu() for part in torch.split(asked.x, 1000)]
    named = np.array(model.classes)[torch.cat(parts).numpy()]
    return 100 * float((named == asked.y.numpy()).mean())
