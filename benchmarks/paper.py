"""How do our presets compare with the paper's systems, task by task, and do its figures come out?

Every system of `benchmarks/systems` learns every sequential learning task of the paper on
MNIST, FashionMNIST and Devanagari, with several seeds. Each result is one file and is
measured once: interrupt it (Ctrl-C) and run it again, and it goes on. Beside the tables,
one per data set, are a table of what drawn samples are worth and the paper's figures.

Besides `gmr bench paper` it is a script with options:

    python -m benchmarks.paper --systems mfa,flat --data mnist --slt D10 --seeds 0 1 2
    python -m benchmarks.paper --systems flat --slt D2-2-2-2-2a --parts cells
    python -m benchmarks.paper --quick

What a result depends on is in its file: settings, versions, data and the code that
computes it. If one of these changes it is measured anew; `--any-source` keeps results of
other versions of the code.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from rich.console import Console

from benchmarks._script import names, run
from benchmarks.comparison import quality as qualities
from benchmarks.comparison import quality_table, tables
from benchmarks.comparison.bars import Bars
from benchmarks.comparison.campaign import Campaign
from benchmarks.comparison.cell import Cell, Maker
from benchmarks.comparison.curriculum import DATA, slt_named, slts_of
from benchmarks.comparison.gallery import gallery
from benchmarks.comparison.judge import judge_of
from benchmarks.comparison.lesson import Lesson, Recipe, lesson
from benchmarks.comparison.provenance import source_digest, versions
from benchmarks.comparison.quality import Quality
from benchmarks.comparison.quality_table import Key
from benchmarks.comparison.store import Store, write_whole
from benchmarks.systems.registry import SYSTEMS, make_system
from clients.commands.bench import Floor, Measurement, Say, Table
from clients.data.datasets import Dataset, known_datasets, load_dataset
from clients.data.tasks import SLT
from clients.evaluation import environment, figures
from clients.http.errors import InputError
from core.config import PRESETS

T = TypeVar("T")

FOLDER = Path("report/bench/paper")
PARTS = ("cells", "quality", "pictures")
SEEDS = (0, 1, 2)

CHEAP = ("lda", "flat", "paper", "mfa", "dcgmm", "fine-tuning", "ewc", "paper-epochs", "gr")
"""Systems from cheap to dear: an interrupted run has most of its cells."""

TAUGHT = "D2-2-2-2-2a"
"""The SLT after which samples and components are looked into: the hardest."""


@dataclass(frozen=True)
class Plan:
    """What is to be measured.

    Attributes:
        systems: Names.
        data: Data sets.
        slts: Names, or classes written out; none: all of each data set.
        seeds: Of each cell; pictures take the first.
        parts: Of `PARTS`.
        quick: Whether systems are to be small.
        folder: Of all files.
        any_source: Whether results of other versions of the code are believed.
    """

    systems: tuple[str, ...] = SYSTEMS
    data: tuple[str, ...] = DATA
    slts: tuple[str, ...] = ()
    seeds: tuple[int, ...] = SEEDS
    parts: tuple[str, ...] = PARTS
    quick: bool = False
    folder: Path = FOLDER
    any_source: bool = False

    @property
    def presets(self) -> tuple[str, ...]:
        """Systems that are presets of the engine: those that draw and find boundaries."""
        return tuple(name for name in self.systems if name in PRESETS)

    def slts_of(self, data: str) -> tuple[SLT, ...]:
        """What a data set is given."""
        if not self.slts:
            return slts_of(data)
        return tuple(slt_named(data, text) for text in self.slts)

    def cells(self) -> list[Cell]:
        """In the order in which they are measured: seed by seed, cheap systems before dear."""
        order = sorted(self.systems, key=lambda name: (*CHEAP, name).index(name))
        return [
            Cell(system, data, slt, seed)
            for seed in self.seeds
            for system in order
            for data in self.data
            for slt in self.slts_of(data)
        ]


def quick_plan(folder: Path, systems: tuple[str, ...] = SYSTEMS) -> Plan:
    """One small data set, two SLTs, one seed, every system: a minute or two."""
    return Plan(
        systems=systems,
        data=("digits",),
        slts=("D10", "D2-2-2-2-2a"),
        seeds=(0,),
        quick=True,
        folder=folder,
    )


def measure(quick: bool, say: Say, folder: Path = FOLDER) -> Measurement:
    """Everything; quick: two SLTs on the digits that ship with scikit-learn, one seed."""
    plan = quick_plan(_quick(folder)) if quick else Plan(folder=folder)
    return Work(plan, say).carry_out()


def _quick(folder: Path) -> Path:
    """A folder of its own, so that small results never take the place of real ones."""
    return folder.with_name(f"{folder.name}-quick")


class Work:
    """A plan, being carried out.

    Arguments:
        plan: What is to be measured.
        say: Takes lines about how it goes.
        make: Of the systems.
    """

    def __init__(self, plan: Plan, say: Say, make: Maker = make_system) -> None:
        self.plan, self._say, self._make = plan, say, make
        self._asked = 0
        self._failures: dict[str, str] = {}
        self._store = Store(plan.folder / "cells", any_source=plan.any_source)
        self._load: Callable[[str], Dataset] = cache(load_dataset)
        self._data = [name for name in plan.data if self._at_hand(name)]

    def carry_out(self) -> Measurement:
        """Measure what is missing, and make tables and pictures of what there is."""
        torch.set_num_threads(1)
        made: list[Table] = []
        values: dict[str, Any] = {"folder": str(self.plan.folder)}
        if "cells" in self.plan.parts:
            made += self._cells(values)
        if "quality" in self.plan.parts:
            made.append(self._quality(values))
        if "pictures" in self.plan.parts:
            values["pictures"] = self._pictures()
        values["failures"] = self._failures
        floor = Floor("results", self._asked - len(self._failures), self._asked, "results")
        return Measurement(tuple(made), values, (floor,))

    # Accuracy -----------------------------------------------------------------------------

    def _cells(self, values: dict[str, Any]) -> list[Table]:
        wanted = [cell for cell in self.plan.cells() if cell.data in self._data]
        campaign = Campaign(wanted)
        try:
            with Bars(Console(), self._say, len(wanted)) as bars:
                campaign.run(self._store, self._load, self._make, bars, quick=self.plan.quick)
        finally:
            # After an interruption, too: what there is can be read.
            rows = {data: self._rows(data, campaign) for data in self._data}
            for data, of_data in rows.items():
                self._write_table(data, of_data)
        self._asked += len(wanted)
        self._failures |= {str(cell): reason for cell, reason in campaign.failures.items()}
        values["tables"] = {
            data: tables.json_values(data, of_data, self._note()) for data, of_data in rows.items()
        }
        return [tables.terminal_table(data, of_data) for data, of_data in rows.items()]

    def _rows(self, data: str, campaign: Campaign) -> list[tables.Row]:
        plan = self.plan
        slts = plan.slts_of(data)
        return tables.rows_of(data, slts, plan.systems, plan.seeds, campaign.outcomes)

    def _write_table(self, data: str, rows: list[tables.Row]) -> None:
        page = tables.markdown(data, rows, self._note())
        write_whole(self.plan.folder / f"{data}.md", page.encode())
        self._write_json(f"{data}.json", tables.json_values(data, rows, self._note()))

    # Samples and components ---------------------------------------------------------------

    def _quality(self, values: dict[str, Any]) -> Table:
        plan = self.plan
        found: dict[Key, dict[int, Quality]] = {}
        for data in self._data:
            for preset in plan.presets:
                found[data, preset] = {}
                for seed in plan.seeds:
                    quality = self._tried(
                        f"samples of {data} {preset} seed {seed}",
                        partial(self._quality_of, data, preset, seed),
                    )
                    if quality is not None:
                        found[data, preset][seed] = quality
        title, note, n = f"Samples and components after {TAUGHT}", self._note(), len(plan.seeds)
        page = quality_table.markdown(found, title, note, n)
        write_whole(plan.folder / "samples.md", page.encode())
        values["samples"] = quality_table.json_values(found)
        self._write_json("samples.json", {"note": note, "rows": values["samples"]})
        return quality_table.terminal_table(found, title, n)

    def _quality_of(self, data: str, preset: str, seed: int) -> Quality:
        dataset, quick = self._load(data), self.plan.quick
        recipe = Recipe(preset, data, slt_named(data, TAUGHT), seed, quick)
        classes = tuple(sorted(int(label) for label in recipe.slt.classes))
        judge = judge_of(dataset, classes, self.plan.folder / "judges", quick)
        size = qualities.QUICK if quick else qualities.FULL
        configuration = {
            "model": recipe.configuration(dataset),
            "judge": judge.name,
            "size": vars(size),
            "versions": versions(),
            "source": source_digest(("core.snapshot",), ("benchmarks.comparison.quality",)),
        }
        path = Path("samples") / f"{data}-{preset}-seed{seed}.json"
        known = self._store.read(path, configuration)
        if known is not None:
            return Quality.from_dict(known)
        quality = qualities.measure(self._teach(recipe), judge, dataset, size)
        self._store.write(path, {"configuration": configuration, **quality.to_dict()})
        self._say(f"samples of {data} {preset} seed {seed}: judged")
        return quality

    # Pictures -----------------------------------------------------------------------------

    def _pictures(self) -> list[str]:
        plan = self.plan
        folder = plan.folder / "figures"
        folder.mkdir(parents=True, exist_ok=True)
        seed, paths = plan.seeds[0], []
        for name, draw in gallery(
            self._data, plan.presets, seed, plan.quick, self._teach, self._load
        ):
            figure = self._tried(f"picture {name}", draw)
            if figure is not None:
                paths.append(str(figures.save(figure, folder / f"{name}.png")))
        return paths

    # Parts of all -------------------------------------------------------------------------

    def _teach(self, recipe: Recipe) -> Lesson:
        return lesson(
            recipe,
            self._load(recipe.data),
            self.plan.folder / "models",
            self._say,
            any_source=self.plan.any_source,
        )

    def _tried(self, name: str, make: Callable[[], T]) -> T | None:
        """The result, or None where there is none: the rest goes on."""
        self._asked += 1
        try:
            return make()
        except Exception as error:
            self._failures[name] = f"{type(error).__name__}: {error}"
            self._say(f"{name}: failed, {self._failures[name]}")
            return None

    def _at_hand(self, data: str) -> bool:
        if data in known_datasets():
            return True
        self._say(f"{data} is not at hand: left out")
        return False

    def _note(self) -> str:
        size = "Quick size: shows that it runs, its numbers mean nothing. "
        return (
            f"{size if self.plan.quick else ''}Seeds {', '.join(map(str, self.plan.seeds))}: mean "
            f"and standard deviation. torch {versions()['torch']}, "
            f"{environment.hardware()['processor']}."
        )

    def _write_json(self, name: str, values: dict[str, Any]) -> None:
        Store(self.plan.folder).write(Path(name), values)


def plan_of(arguments: Sequence[str]) -> Plan:
    """What the options of the script ask for.

    Raises:
        InputError: there is no such system or SLT.
        SystemExit: the options cannot be read, or help was asked for.

    Example:
        >>> plan = plan_of(["--systems", "lda,flat", "--data", "mnist", "--slt", "D10"])
        >>> [str(cell) for cell in plan.cells()][:2]
        ['mnist D10 lda seed 0', 'mnist D10 flat seed 0']
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.paper",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--systems", nargs="+", help=f"of {', '.join(SYSTEMS)}")
    parser.add_argument("--data", nargs="+", help=f"default: {', '.join(DATA)}")
    parser.add_argument("--slt", nargs="+", help="names, or classes written out as 0,1/2,3")
    parser.add_argument("--seeds", nargs="+", type=int, help="default: 0 1 2")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="default: all")
    parser.add_argument("--quick", action="store_true", help="small, on digits; seconds")
    parser.add_argument("--folder", type=Path, help=f"default: {FOLDER}, or {FOLDER}-quick")
    parser.add_argument(
        "--any-source", action="store_true", help="keep results of other versions of the code"
    )
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        plan = quick_plan(chosen.folder or _quick(FOLDER))
    else:
        plan = Plan(folder=chosen.folder or FOLDER)
    plan = replace(
        plan,
        systems=names(chosen.systems) or plan.systems,
        data=names(chosen.data) or plan.data,
        slts=tuple(chosen.slt or plan.slts),
        seeds=tuple(chosen.seeds or plan.seeds),
        parts=tuple(chosen.parts or plan.parts),
        any_source=chosen.any_source,
    )
    unknown = [name for name in plan.systems if name not in SYSTEMS]
    if unknown:
        raise InputError(
            f"There is no system {unknown[0]!r}. Known: {', '.join(SYSTEMS)}. Choose one of these."
        )
    for data in plan.data:
        plan.slts_of(data)
    return plan


def main() -> int:
    """Carry out what the options ask for; the exit status."""
    return run(plan_of, lambda plan, say: Work(plan, say).carry_out())


if __name__ == "__main__":
    sys.exit(main())
