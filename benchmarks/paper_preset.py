"""How accurate is the preset `paper` on the paper's own tasks, at the paper's pace and in one pass?

Drives the learner in `core` directly, with known boundaries and no service, for as many
epochs as asked: what is measured is the method, not the product round it. Accuracy is
that of the model after the last step of the last sub-task, on the joint test set of all
classes; the paper reports the maximum over the run.

Besides `gmr bench paper_preset` it is a script with options:

    python -m benchmarks.paper_preset --slt D10 D5-5a --seeds 0 1
    python -m benchmarks.paper_preset --slt D2-2-2-2-2a --one-pass --data fashion_mnist
    python -m benchmarks.paper_preset --quick

With `--validate`, a sixth of the training data takes the place of the test set: settings
are chosen so, never on the test set.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clients.commands.bench import Floor, Measurement, Say, Table
from clients.data.datasets import Dataset, load_dataset
from clients.data.tasks import PAPER_SLTS, SLT
from core.config import EngineConfig
from core.learners.sgd.paper import ONE_PASS, PUBLISHED, PaperLearner, PaperSettings, PaperState

PUBLISHED_ACCURACY = {
    "mnist": {
        "D10": 87.4, "D9-1a": 86.1, "D9-1b": 83.9, "D5-5a": 86.8, "D5-5b": 86.1,
        "D2-2-2-2-2a": 77.9, "D2-2-2-2-2b": 77.0,
    },
    "fashion_mnist": {
        "D10": 73.9, "D9-1a": 71.2, "D9-1b": 72.4, "D5-5a": 72.7, "D5-5b": 72.0,
        "D2-2-2-2-2a": 65.4, "D2-2-2-2-2b": 68.2,
    },
}  # fmt: skip
"""Baseline plus difference from the paper's table of results, in percent."""

HELD_OUT = 6
"""With `--validate`, every sixth training sample is held out."""


EPOCHS = [50, 100]
"""Of the first sub-task, and of every later one."""

WITHIN = 1.0
"""Points by which the preset may fall short of the paper."""


@dataclass(frozen=True)
class Split:
    """Samples and labels to learn from and to be judged by; only the first ten classes."""

    x: Tensor
    y: Tensor
    judge_x: Tensor
    judge_y: Tensor


@dataclass(frozen=True)
class Run:
    """One SLT with one seed. Accuracies in percent."""

    slt: str
    seed: int
    accuracy: float
    after_each: list[float]  # over all classes seen so far
    steps: int
    generated: int
    seconds: float


def split_of(data: Dataset, *, validate: bool, most: int | None = None) -> Split:
    """The standard split, or one made from its training half alone.

    Arguments:
        most: Samples to learn from at most, spread evenly.
    """
    x, y = samples(data.train_x), torch.from_numpy(data.train_y).long()
    judge_x, judge_y = samples(data.test_x), torch.from_numpy(data.test_y).long()
    if validate:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(12345))
        out, kept = order[: len(x) // HELD_OUT], order[len(x) // HELD_OUT :]
        x, y, judge_x, judge_y = x[kept], y[kept], x[out], y[out]
    first_ten, judged_ten = y < 10, judge_y < 10
    x, y, judge_x, judge_y = x[first_ten], y[first_ten], judge_x[judged_ten], judge_y[judged_ten]
    every = 1 if most is None else max(1, len(x) // most)
    return Split(x[::every], y[::every], judge_x, judge_y)


def samples(features: np.ndarray[Any, Any]) -> Tensor:
    """Rows in [0, 1], with shape (N, D), float32."""
    rows = torch.from_numpy(features)
    return rows.float() / 255 if rows.dtype == torch.uint8 else rows.float()


def accuracy(learner: PaperLearner, state: PaperState, split: Split, order: list[int]) -> float:
    """Percent right among the classes of `order`, whose places are the learner's codes."""
    wanted = torch.isin(split.judge_y, torch.tensor(order))
    scores = learner.score(state, split.judge_x[wanted])
    assert scores is not None
    found = learner.readout(state).class_probabilities(scores.joint).argmax(-1)
    right = torch.tensor(order)[found] == split.judge_y[wanted]
    return 100 * right.float().mean().item()


def run(learner: PaperLearner, split: Split, slt: str, epochs: list[int], batch: int) -> Run:
    """Learn the sub-tasks one after the other."""
    seed = learner.config.seed
    generator = torch.Generator().manual_seed(seed)
    state = learner.start(split.x.shape[1], split.x.device)
    order: list[int] = []
    after_each: list[float] = []
    generated, began = 0, time.perf_counter()
    for task, members in enumerate(SLT.parse(slt).sub_tasks):
        classes = [int(label) for label in members]
        if task:
            state, _ = learner.begin_sub_task(state, generator)
        order += classes
        state = learner.grow(state, len(order))
        code_of = torch.full((10,), -1)
        code_of[torch.tensor(order)] = torch.arange(len(order))
        member = torch.isin(split.y, torch.tensor(classes))
        x, codes = split.x[member], code_of[split.y[member]]
        for _ in range(epochs[min(task, len(epochs) - 1)]):
            shuffled = torch.randperm(len(x), generator=generator)
            for first in range(0, len(x), batch):
                rows = shuffled[first : first + batch]
                state, replays = learner.learn(state, x[rows], codes[rows], None, generator)
                generated += sum(replay.samples for replay in replays)
        after_each.append(accuracy(learner, state, split, order))
    seconds = time.perf_counter() - began
    return Run(slt, seed, after_each[-1], after_each, state.steps, generated, seconds)


def runs_of(
    split: Split,
    slts: list[str],
    seeds: list[int],
    settings: PaperSettings,
    epochs: list[int],
    say: Say,
    *,
    components: int = 100,
    replay: str = "constant",
    batch: int = 100,
) -> list[Run]:
    """Every SLT with every seed, reported as they end."""
    runs: list[Run] = []
    for slt in slts:
        for seed in seeds:
            config = EngineConfig(preset="paper", n_components=components, replay=replay, seed=seed)
            runs.append(run(PaperLearner(config, settings), split, slt, epochs, batch))
            after = " ".join(f"{value:.1f}" for value in runs[-1].after_each)
            say(f"{slt}  seed {seed}  {after}  {runs[-1].seconds:.0f} s")
    return runs


def row(slt: str, runs: list[Run], published: dict[str, float]) -> tuple[str, ...]:
    """One SLT: name, mean and deviation of the accuracy, the paper's, seeds, steps, seconds."""
    mine = [one for one in runs if one.slt == slt]
    values = [one.accuracy for one in mine]
    return (
        slt,
        f"{statistics.mean(values):.2f}",
        f"{statistics.stdev(values):.2f}" if len(values) > 1 else "",
        str(published.get(slt, "")),
        str(len(values)),
        str(mine[0].steps),
        f"{statistics.mean(one.seconds for one in mine):.0f}",
    )


COLUMNS = ("SLT", "accuracy, %", "deviation", "paper", "seeds", "steps", "seconds")


def measure(quick: bool, say: Say) -> Measurement:
    """Both paces; the published one on the tasks that the floors are about."""
    torch.set_num_threads(1)
    name = "digits" if quick else "mnist"
    split = split_of(load_dataset(name), validate=False)
    published = PUBLISHED_ACCURACY.get(name, {})
    seeds = [0] if quick else [0, 1]
    paces: list[tuple[str, PaperSettings, list[int], list[str]]] = [
        ("one pass", ONE_PASS, [1], ["D10", "D5-5a", "D9-1a", "D2-2-2-2-2a"]),
    ]
    if not quick:
        paces.append(("published pace", PUBLISHED, EPOCHS, ["D10", "D5-5a"]))
    tables, values, floors = [], {}, []
    for title, settings, epochs, slts in paces:
        runs = runs_of(split, slts, seeds, settings, epochs, say)
        rows = tuple(row(slt, runs, published) for slt in slts)
        tables.append(Table(f"{name}, {title}, epochs {epochs}", COLUMNS, rows))
        values[title] = [asdict(one) for one in runs]
        if settings is PUBLISHED:
            floors = [
                Floor(f"accuracy on {cells[0]}", float(cells[1]), published[cells[0]] - WITHIN, "%")
                for cells in rows
            ]
    return Measurement(tuple(tables), values, tuple(floors))


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """What the options of the script ask for.

    Raises:
        SystemExit: The options cannot be read, or help was asked for.

    Example:
        >>> options_of(["--slt", "D5-5a", "--epochs", "50", "100"]).epochs
        [50, 100]
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="mnist", help="a data set's name, or a file")
    parser.add_argument("--slt", nargs="+", choices=sorted(PAPER_SLTS), default=["D10", "D5-5a"])
    parser.add_argument(
        "--epochs",
        nargs="+",
        type=int,
        default=EPOCHS,
        help="per sub-task; the last number holds for all that follow",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--components", type=int, default=100, help="K, a square number")
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--replay", choices=["constant", "proportional"], default="constant")
    parser.add_argument("--one-pass", action="store_true", help="the pace for streams, 1 epoch")
    parser.add_argument("--validate", action="store_true", help="never look at the test set")
    parser.add_argument("--quick", action="store_true", help="6,000 samples in one pass, 1 seed")
    parser.add_argument("--json", type=Path, default=Path("paper_preset.json"))
    return parser.parse_args(arguments)


def main() -> None:
    """Print a line per run and a table at the end; write everything as JSON."""
    chosen = options_of(sys.argv[1:])
    one_pass = chosen.one_pass or chosen.quick
    settings = ONE_PASS if one_pass else PUBLISHED
    epochs = [1] if one_pass else chosen.epochs
    data = load_dataset(chosen.data)
    split = split_of(data, validate=chosen.validate, most=6000 if chosen.quick else None)
    runs = runs_of(
        split,
        chosen.slt,
        chosen.seeds[:1] if chosen.quick else chosen.seeds,
        settings,
        epochs,
        lambda text: print(text, flush=True),
        components=chosen.components,
        replay=chosen.replay,
        batch=chosen.batch_size,
    )
    name = Path(chosen.data).stem
    published = PUBLISHED_ACCURACY.get(name, {})
    print()
    for cells in (COLUMNS, *(row(slt, runs, published) for slt in chosen.slt)):
        print("  ".join(f"{cell:<12}" for cell in cells).rstrip())
    report = {
        "data": name,
        "validation": chosen.validate,
        "epochs": epochs,
        "replay": chosen.replay,
        "batch_size": chosen.batch_size,
        "settings": asdict(settings),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "machine": platform.machine(),
        "published": published,
        "runs": [asdict(one) for one in runs],
    }
    chosen.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
